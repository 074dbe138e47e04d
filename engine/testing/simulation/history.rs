//! One history: a cluster, a script of misfortunes, then better times, and the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use xuid_id::{DEFAULT_EPOCH_MS, Layout};

use crate::id::error::IdErrorKind;
use crate::registry::{ClusterId, Genesis};
use crate::settings::Settings;
use crate::sys::atomics::lock;
use crate::testing::campaigns::Tally;
use crate::testing::campaigns::said;
use crate::testing::simulation::network::{Exchange, State};
use crate::testing::simulation::node::Node;
use crate::testing::simulation::store::{self, Store};
use crate::testing::simulation::workload::{THEMES, Theme};
use crate::testing::support::clock::{Change, SimClock, Time};
use crate::testing::support::oracle::{Oracle, Plant};
use crate::testing::support::rng::Rng;
use crate::{IdError, Order};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// 2026-11-21.
pub(crate) const BEGIN: u64 = 1_795_219_200 * SECOND;

/// Workers of the registry.
pub(crate) const WORKERS: u32 = 4;

/// From right clocks and a registry that answers on, every node that can have a worker serves within this. A wrong
/// wall that has stood a while was believed, and a right one is a leap to it, which without a second clock is believed
/// after 60 s; a mark that was granted reaches up to 120 s beyond the registry's time, and 60 s beyond E; catching up
/// with a second takes ten; and a try that failed is made again within a second. The first two go on at the same time.
const BOUND: u64 = 140 * SECOND;

/// And within this its E is near the right time: a fence keeps every worker for 125 s, and what is ahead by then by
/// less than the drift, of five seconds in some histories, is worn off at a tenth of the pace.
const NEAR: u64 = 190 * SECOND;

/// A mark further ahead than this when clocks are right again makes its worker unusable: nobody can wait for it.
const REACH: u64 = 126 * SECOND;

/// What a history is to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Drawn, if it is not said.
    pub(crate) theme: Option<Theme>,
    /// Things done before times get better: turns, jobs, calls, misfortunes, times that pass.
    pub(crate) steps: u64,
    pub(crate) trace: bool,
    /// A registry that is put back to what it was is not fenced, which is outside of the promise.
    pub(crate) unfenced: bool,
    pub(crate) plant: Plant,
}

/// How long calls wait once all is well.
const PATIENCE: u64 = 50 * MS;

/// How often it is looked whether those who served go on.
const ROUNDS: u32 = 10;

/// A cluster in the course of time.
pub(crate) struct History {
    pub(crate) rng: Rng,
    pub(crate) theme: Theme,
    pub(crate) layout: Layout,
    pub(crate) time: Arc<Time>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tally: Tally,
    /// Things done: turns, jobs, calls, misfortunes, times that passed.
    pub(crate) steps: u64,
    /// Copies of disks, which may be put in the place of any node's.
    pub(crate) disks: Vec<(usize, Vec<u8>)>,
    /// Copies of the registry.
    pub(crate) backups: Vec<store::Copy>,
    /// Whether the registry's clock is always right.
    pub(crate) clock_right: bool,
    /// Whether it has one.
    pub(crate) has_clock: bool,
    pub(crate) unfenced: bool,
    /// When times got better.
    better: u64,
    /// Nodes that were stopped for good, since there is no worker for them.
    retired: Vec<usize>,
    trace: Option<Vec<String>>,
}

/// The whole of a history: its figures, and what was wrong with it.
pub(crate) fn run(plan: &Plan) -> (Tally, Result<(), String>) {
    let mut history = History::new(plan);
    // A panic of the engine is a finding, and what came twice before it is a worse one.
    let lived = catch_unwind(AssertUnwindSafe(|| history.all(plan.steps)));
    let lived = lived.unwrap_or_else(|panic| Err(format!("panicked: {}", said(&*panic))));
    let mut oracle = lock(&history.exchange.oracle);
    let verdict = oracle.verdict().and(lived).and_then(|()| history.marks());
    history.tally.ids = oracle.ids;
    history.tally.duplicates = oracle.duplicates;
    history.tally.digest = oracle.digest;
    drop(oracle);
    history.tally.note("steps", history.steps);
    history.tally.note("simulated_s", (history.time.now() - BEGIN) / SECOND);
    for node in &history.nodes {
        history.tally.add(&node.tally);
    }
    let lines = history.trace.unwrap_or_default();
    let last = &lines[lines.len().saturating_sub(80)..];
    let told = |why| [format!("{:?}: {why}", history.theme)].iter().chain(last).cloned().collect::<Vec<_>>();
    (history.tally, verdict.map_err(|why| told(why).join("\n")))
}

/// Four workers of a small layout.
fn genesis(layout: Layout, floor_ns: u64) -> Genesis {
    let floor = layout.tick_at_ns(floor_ns).unwrap_or(0);
    Genesis::new(ClusterId::from_bytes([7; 16]), layout, floor, WORKERS)
}

/// A registry, and the time.
fn exchange(store: Store, time: Arc<Time>, off: Option<i64>) -> Arc<Exchange> {
    let layout = store.genesis().layout;
    Arc::new(Exchange {
        store,
        time,
        oracle: Mutex::new(Oracle::new(layout)),
        off: Mutex::new(off),
        late: Mutex::default(),
        down_until: AtomicU64::new(0),
        seats: Mutex::default(),
        half_done: Mutex::default(),
    })
}

/// Few ids a tick, so that land is scarce and each plot is likely to be used; and the default's many.
const SPLITS: [(u8, u8, u8, u32); 6] = [
    (58, 2, 3, 1_000),
    (58, 2, 3, 1_000),
    (56, 2, 5, 1_000),
    (49, 2, 12, 1_000),
    (51, 2, 10, 10_000),
    // Ends in 2035.
    (39, 4, 20, 1_000),
];

impl History {
    fn new(plan: &Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        crate::testing::simulation::seed_draws(rng.next());
        let drawn = rng.pick(&THEMES);
        let theme = plan.theme.unwrap_or(drawn);
        let (time_bits, worker_bits, sequence_bits, tick_us) = rng.pick(&SPLITS);
        let layout = match Layout::new(time_bits, worker_bits, sequence_bits, tick_us, DEFAULT_EPOCH_MS) {
            Ok(layout) => layout,
            Err(error) => panic!("{error}"),
        };
        let (clock, local) = (rng.below(100), rng.chance(theme.local()));
        // Where a registry is restored, how far windows reach has to be known, and where it is local, nothing tells.
        let clock = if theme == Theme::Restores { clock.min(69) } else { clock };
        let has_clock = clock < 85 && !local;
        let (time, genesis) = (Time::new(BEGIN), genesis(layout, BEGIN));
        // The processes of a host share its clocks.
        let host = SimClock::new(time.clone(), rng.magnitude(1 << 30, 1 << 50));
        let store = if local { Store::local(genesis, host.clone()) } else { Store::memory(genesis) };
        let exchange = exchange(store, time.clone(), has_clock.then_some(0));
        lock(&exchange.oracle).plant = plan.plant;
        let count = rng.within(3, 5);
        let nodes = (0..count as usize)
            .map(|number| {
                let settings = settings(&mut rng, count == 3 && number == 0);
                let (spill, boot) = (rng.chance(60), rng.magnitude(1 << 30, 1 << 50));
                let clock = if local { host.clone() } else { SimClock::new(time.clone(), boot) };
                Node::new(number, exchange.clone(), clock, settings, spill, &mut rng)
            })
            .collect();
        let mut tally = Tally::default();
        tally.trouble("local registries", u64::from(local));
        let mut history = Self {
            theme,
            tally,
            clock_right: clock < 70,
            unfenced: plan.unfenced,
            trace: plan.trace.then(Vec::new),
            ..Self::of(rng, exchange, nodes, has_clock)
        };
        for node in 0..history.nodes.len() {
            if history.rng.chance(80) {
                history.start(node);
            }
        }
        history
    }

    /// A cluster of one layout, everybody in good health, for a scripted history.
    pub(crate) fn told(layout: Layout, nodes: usize, has_clock: bool, settings: &Settings) -> Self {
        let mut rng = Rng::new(7);
        crate::testing::simulation::seed_draws(rng.next());
        let time = Time::new(BEGIN);
        // Of a registry that was made an hour ago.
        let store = Store::memory(genesis(layout, BEGIN - 3_600 * SECOND));
        let exchange = exchange(store, time.clone(), has_clock.then_some(0));
        let node = |number| {
            let clock = SimClock::new(time.clone(), rng.magnitude(1 << 30, 1 << 50));
            Node::new(number, exchange.clone(), clock, settings.clone(), false, &mut rng)
        };
        let nodes = (0..nodes).map(node).collect();
        let mut history = Self::of(rng, exchange, nodes, has_clock);
        (0..history.nodes.len()).for_each(|node| history.start(node));
        history
    }

    /// Nodes that have not begun, where nothing goes wrong.
    fn of(rng: Rng, exchange: Arc<Exchange>, nodes: Vec<Node>, has_clock: bool) -> Self {
        Self {
            rng,
            theme: Theme::Calm,
            layout: exchange.store.genesis().layout,
            time: exchange.time.clone(),
            exchange,
            nodes,
            tally: Tally::default(),
            steps: 0,
            disks: Vec::new(),
            backups: Vec::new(),
            clock_right: has_clock,
            has_clock,
            unfenced: false,
            better: BEGIN,
            retired: Vec::new(),
            trace: None,
        }
    }

    /// From the first event to the end of all.
    fn all(&mut self, steps: u64) -> Result<(), String> {
        while self.steps < steps {
            self.event();
        }
        self.better_times();
        let begin = self.better;
        let served = self.recover().and_then(|()| self.come_near(begin)).and_then(|()| self.settled());
        self.end();
        self.leftovers().and(served)
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            let at = (self.time.now() - BEGIN) as f64 / SECOND as f64;
            lines.push(format!("{at:12.6} {}", what()));
        }
    }

    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            self.nodes[node].start();
            let begun = self.nodes[node].process.is_some();
            self.say(|| format!("node {node} starts, and lives: {begun}"));
        }
    }

    pub(crate) fn stop(&mut self, node: usize) {
        self.nodes[node].stop();
        self.say(|| format!("node {node} stopped"));
    }

    pub(crate) fn crash(&mut self, node: usize) {
        let power = self.rng.chance(30);
        if power && self.exchange.store.is_local() {
            return self.black_out();
        }
        self.nodes[node].crash(power);
        self.say(|| format!("node {node} crashed, power cut: {power}"));
        if power {
            self.nodes[node].clock.reboot();
        }
    }

    /// The power of the one host is cut, and every process with it.
    pub(crate) fn black_out(&mut self) {
        for node in &mut self.nodes {
            node.crash(true);
            node.clock.reboot();
        }
        let mut torn = 0;
        let rng = &mut self.rng;
        self.exchange.store.cut_power(|n| {
            // Of a sector's bytes, some land: that is a torn one.
            torn += u64::from(n == 512);
            rng.below(n as u64) as usize
        });
        self.tally.trouble("torn sectors of a registry", torn);
        self.tally.trouble("power cuts of a host", 1);
        self.say(|| "the host's power is cut".into());
    }

    /// Time passes; what is due is done.
    pub(crate) fn pass(&mut self, ns: u64) {
        let until = self.time.now() + ns;
        // Of waiting callers a node thinks every 50 us at most, and there are five; a job is a turn, too.
        let most = 500 + ns / 5_000;
        for _ in 0..most {
            let due = |(at, node): (usize, &mut Node)| node.due().map(|due| (due, at));
            let next = self.nodes.iter_mut().enumerate().filter_map(due).min();
            let Some((due, node)) = next.filter(|(due, _)| *due <= until) else {
                self.time.reach(until);
                return;
            };
            self.time.reach(due);
            self.nodes[node].act();
            self.steps += 1;
        }
        lock(&self.exchange.oracle).wrong(|| format!("{most} turns in {ns} ns: somebody never sleeps"));
    }

    /// Faults end, clocks are right, and everybody runs.
    pub(crate) fn better_times(&mut self) {
        self.say(|| "better times".into());
        self.better = self.time.now();
        self.exchange.store.mend();
        self.exchange.down_until.store(0, Ordering::Relaxed);
        *lock(&self.exchange.off) = self.has_clock.then_some(0);
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            {
                let mut end = lock(&node.end);
                (end.state, end.ambush, end.unread) = (State::Up, None, 0);
            }
            node.clock.disarm();
            node.clock.change(Change::Right);
            node.faults.arm(None);
            node.next_fault = None;
            (node.stopped, node.producer_stopped, node.registrar_stopped) = (0, 0, 0);
            // Whose registry's disk failed changes nothing in it any more, and says that it has to be restarted.
            if node.needs_restart() {
                node.crash(false);
            }
            self.start(at);
        }
        self.start_everybody();
        let marks = self.marks_now();
        self.say(|| marks);
        // There are as many workers as there are; who is beyond them goes.
        while self.running() > self.usable() as usize {
            let Some(last) = self.nodes.iter().rposition(|node| node.process.is_some()) else { break };
            self.stop(last);
            self.retired.push(last);
            self.tally.trouble("nodes without a worker", 1);
        }
    }

    /// Whoever could not start tries again, as whatever supervises a process has it do; where nothing is wrong any more
    /// but a file that nobody can read, it need not succeed.
    fn start_everybody(&mut self) {
        while self.nodes.iter().any(|node| node.process.is_none()) {
            if self.exchange.store.outsider().is_none() {
                self.tally.trouble("registries that nobody can open", 1);
                return;
            }
            if self.time.now() > self.better + BOUND {
                return;
            }
            self.tally.trouble("starts made again", 1);
            self.pass(250 * MS);
            (0..self.nodes.len()).for_each(|at| self.start(at));
        }
    }

    fn running(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.process.is_some())
            .map(|node| node.settings.workers as usize)
            .sum()
    }

    /// Workers whose marks are not so far ahead that nobody can wait for them.
    fn usable(&self) -> u64 {
        let most = self.layout.tick_at_ns(self.time.now() + REACH).unwrap_or(0);
        let near =
            |worker: &u32| self.exchange.mark(*worker).is_some_and(|it| it.record.reserved_until <= most);
        (0..WORKERS).filter(near).count() as u64
    }

    /// Every node serves calls of every order within the bound.
    pub(crate) fn recover(&mut self) -> Result<(), String> {
        let begin = self.better;
        // Without a registry's time to hold it back, an E that is ahead still may reserve a worker once more, which
        // nobody has before the right time passes that mark.
        let bound = if self.has_clock { BOUND } else { BOUND + REACH };
        let mut lacking: Vec<usize> = Vec::new();
        while self.time.now() < begin + bound {
            self.pass(50 * MS);
            lacking = (0..self.nodes.len()).filter(|at| !self.serves(*at)).collect();
            if lacking.is_empty() {
                let ms = (self.time.now() - begin).div_ceil(MS);
                self.tally.recovered(ms);
                self.tally.longest_without_answer_ms = ms;
                return Ok(());
            }
            // Not in small steps all the way.
            self.pass(200 * MS);
        }
        if self.is_hopeless() {
            self.tally.trouble("recoveries that no clock could bring", 1);
            return Ok(());
        }
        let told: Vec<String> = lacking.into_iter().map(|at| self.lament(at)).collect();
        Err(format!("{}, and not recovered: {}", self.marks_now(), told.join("; ")))
    }

    /// Some node has no worker to go to, and waits for the right time to pass its E, however long that is: where no
    /// registry's time keeps marks near.
    fn is_hopeless(&self) -> bool {
        !self.has_clock && self.running() > self.usable() as usize
    }

    /// Every E is near the right time.
    fn come_near(&mut self, begin: u64) -> Result<(), String> {
        loop {
            let off = |node: &Node| node.e().is_some_and(|e| e.abs_diff(self.time.now()) >= SECOND);
            let Some(at) = self.nodes.iter().position(off) else { return Ok(()) };
            if self.is_hopeless() {
                self.tally.trouble("clocks that stayed far off", 1);
                return Ok(());
            }
            if self.time.now() > begin + NEAR + REACH {
                let told = self.lament(at);
                return Err(format!("{}, and not recovered: {told}", self.marks_now()));
            }
            self.pass(SECOND);
        }
    }

    /// Whoever served once goes on serving, and every call that waits is answered in time.
    ///
    /// A node that serves callers may have its first turn since its clock is right after that only. If that shows a
    /// leap to it, the node lets its workers go, and is to serve again within the bound that all have; so is one that waits
    /// for the right time to pass its E, and has used up what it had in memory.
    fn settled(&mut self) -> Result<(), String> {
        let mut let_go = self.let_go();
        let serving: Vec<usize> = (0..self.nodes.len()).filter(|at| self.serves(*at)).collect();
        for at in &serving {
            self.nodes[*at].wait_for_each_order(PATIENCE);
        }
        for _ in 0..ROUNDS {
            self.pass(2 * PATIENCE);
            for at in &serving {
                let node = &mut self.nodes[*at];
                let answer = node.ask(1, Order::Any);
                if node.process.is_some() && answer.is_err() {
                    let before = std::mem::replace(&mut let_go, self.let_go());
                    if let_go[*at] > before[*at] {
                        self.tally.trouble("leaps seen after all served", 1);
                        self.recover()?;
                        continue;
                    }
                    if answer.as_ref().is_err_and(|error| error.kind() == IdErrorKind::ClockBehind)
                        && self.nodes[*at].e().is_some_and(|e| e > self.time.now())
                    {
                        // It served from what was in memory, and that was used up before the right time passed its E, which
                        // is near. No other worker was free.
                        self.tally.trouble("memories used up while a clock was behind", 1);
                        self.recover()?;
                        continue;
                    }
                    let told = self.lament(*at);
                    return Err(format!("served, and then said {answer:?}: {told}"));
                }
                let waiting = self.nodes[*at].still_waiting();
                if waiting > 0 {
                    let told = self.lament(*at);
                    return Err(format!("{waiting} calls wait beyond their time: {told}"));
                }
            }
        }
        Ok(())
    }

    /// How often each node's process let all its workers go, since its clock leapt.
    fn let_go(&self) -> Vec<u64> {
        let of = |node: &Node| {
            node.process.as_ref().map_or(0, |process| process.engine.stats().windows.switches.resumed)
        };
        self.nodes.iter().map(of).collect()
    }

    /// How far ahead, in seconds, each worker is reserved.
    fn marks_now(&self) -> String {
        let now = self.time.now() as f64;
        let ahead = |entry: crate::registry::WorkerEntry| {
            let until = entry.record.map_or(0, |found| self.layout.tick_to_ns(found.record.reserved_until));
            format!("{} {:+.3} s ({:?})", entry.worker, (until as f64 - now) / SECOND as f64, entry.live)
        };
        let rows = self.exchange.store.outsider().and_then(|mut registry| registry.workers().ok());
        let rows: Vec<String> = rows.unwrap_or_default().into_iter().map(ahead).collect();
        let held = |node: &Node| {
            node.process
                .as_ref()
                .map(|process| (node.number, process.engine.workers(), node.settings.workers))
        };
        let held: Vec<_> = self.nodes.iter().filter_map(held).collect();
        format!("marks {}, clock {:?}, held {held:?}", rows.join(", "), *lock(&self.exchange.off))
    }

    /// What a node lacks.
    fn lament(&mut self, at: usize) -> String {
        let node = &mut self.nodes[at];
        let answers = [Order::Any, Order::Fresh, Order::Ordered].map(|order| node.ask(1, order));
        let off = i128::from(node.e().unwrap_or(0)) - i128::from(self.time.now());
        let notes =
            node.process.as_ref().map(|process| (process.engine.workers(), process.engine.status().notes));
        format!("node {at}, E off by {off} ns: {answers:?} {notes:?}")
    }

    fn serves(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        if node.process.is_none() {
            return self.retired.contains(&at) || self.exchange.store.outsider().is_none();
        }
        let behind = |error: IdError| {
            // After a switch of worker ordered ids wait until E passes the last one, however long that is.
            error.kind() == IdErrorKind::ClockBehind
                && error.retry_after().is_some_and(|wait| !wait.is_zero())
        };
        // Ordered ids that were cut for a call which then got none hold the next ones back, too: what counts is not the
        // last one that came, but how far E ever was in this life.
        let (e, most) = (node.e().unwrap_or(0), node.process.as_ref().map_or(0, |process| process.most));
        let waits = self.layout.tick_at_ns(e).is_none_or(|tick| tick <= most);
        let any = node.ask(1, Order::Any).is_ok();
        let fresh = node.ask(1, Order::Fresh).is_ok();
        let ordered = match node.ask(1, Order::Ordered) {
            Ok(_) => true,
            Err(error) => waits && behind(error),
        };
        any && fresh && ordered
    }

    /// The end of all: some stop, some crash, and what they had shows.
    fn end(&mut self) {
        for node in 0..self.nodes.len() {
            if self.rng.chance(70) {
                self.nodes[node].drain();
            }
            if self.rng.chance(60) {
                self.stop(node);
            } else {
                self.crash(node);
            }
            // What is found on the disk shows in the next life.
            if self.rng.chance(40) {
                self.start(node);
                self.pass(20 * MS);
                self.nodes[node].drain();
                self.stop(node);
            }
        }
    }

    /// Where the registry's clock was right, no mark is beyond two minutes of it, or what a fence asks for.
    fn marks(&self) -> Result<(), String> {
        if !self.clock_right || !self.has_clock {
            return Ok(());
        }
        // A fence leaves another five seconds.
        let most = self.layout.tick_at_ns(self.time.now() + 125 * SECOND).unwrap_or(0) + 2;
        for worker in 0..WORKERS {
            // Of a local one both copies may have rotted.
            let Some(mark) = self.exchange.mark(worker).map(|found| found.record.reserved_until) else {
                continue;
            };
            if mark > most {
                return Err(format!("worker {worker} is reserved to {mark}, and {most} is 125 s ahead"));
            }
        }
        Ok(())
    }
}

fn settings(rng: &mut Rng, two: bool) -> Settings {
    let seconds = std::time::Duration::from_secs;
    let mut settings = Settings {
        wait: std::time::Duration::ZERO,
        window_max: seconds(rng.pick(&[1, 2, 10, 60, 60])),
        max_age: seconds(rng.pick(&[2, 20, 3_600, 3_600])),
        slots: 16,
        workers: if two && rng.chance(30) { 2 } else { 1 },
        ..Settings::default()
    };
    if rng.chance(25) {
        settings.backfill = seconds(rng.pick(&[1, 2, 60, 3_600])).min(settings.max_age);
    }
    if rng.chance(20) {
        settings.drift = std::time::Duration::from_millis(rng.pick(&[20, 100, 5_000]));
    }
    settings
}
