//! One history: a cluster, a script of misfortunes, then better times, and the end.

use std::sync::{Arc, Mutex};

use super::chance::Chance;
use super::clock::{Change, Time};
use super::line::{Exchange, State};
use super::node::Node;
use super::oracle::Oracle;
use super::script::{THEMES, Theme};
use super::summary::Summary;
use crate::clock::Clock;
use crate::error::IdErrorKind;
use crate::layout::{DEFAULT_EPOCH_MS, Layout};
use crate::registry::memory::MemoryRegistry;
use crate::registry::{ClusterId, Genesis, Registry};
use crate::settings::Settings;
use crate::sync::lock;
use crate::{IdError, Order};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// 2026-11-21.
pub(super) const BEGIN: u64 = 1_795_219_200 * SECOND;

/// Workers of the registry.
pub(super) const WORKERS: u32 = 4;

/// From right clocks and a registry that answers on, every node that can have a worker serves within this. A wrong
/// wall that has stood a while was believed, and a right one is a leap to it, which without a second clock is believed
/// after 60 s; a mark that was granted reaches up to 120 s beyond the registry's time, and 60 s beyond E; catching up
/// with a second takes ten; and a try that failed is made again within a second. The first two go on at the same time.
const BOUND: u64 = 140 * SECOND;

/// A mark further ahead than this when clocks are right again makes its worker unusable: nobody can wait for it.
const REACH: u64 = 125 * SECOND;

/// A cluster in the course of time.
pub(super) struct History {
    pub(super) chance: Chance,
    pub(super) theme: Theme,
    pub(super) layout: Layout,
    pub(super) time: Arc<Time>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) nodes: Vec<Node>,
    pub(super) summary: Summary,
    /// Whether the registry's clock is always right.
    pub(super) clock_right: bool,
    /// Whether it has one.
    pub(super) has_clock: bool,
    trace: Option<Vec<String>>,
}

/// The whole of a history from its seed.
pub(super) fn run(seed: u64, theme: Option<Theme>, trace: bool) -> Result<Summary, String> {
    let mut history = History::new(seed, theme, trace);
    let events = history.chance.within(20, 120);
    for _ in 0..events {
        history.event();
    }
    history.better_times();
    let served = history.recover();
    history.end();
    let verdict = lock(&history.exchange.oracle).verdict().and(served).and_then(|()| history.marks());
    history.summary.ids = lock(&history.exchange.oracle).ids;
    history.summary.simulated = history.time.now() - BEGIN;
    match (verdict, history.trace) {
        (Ok(()), _) => Ok(history.summary),
        (Err(why), None) => Err(format!("{:?}: {why}", history.theme)),
        (Err(why), Some(lines)) => {
            let last = lines.len().saturating_sub(80);
            Err(format!("{:?}: {why}\n{}", history.theme, lines[last..].join("\n")))
        }
    }
}

/// A registry of a small layout and four workers, and the time.
fn exchange(layout: Layout, floor_ns: u64, off: Option<i64>) -> Arc<Exchange> {
    let floor = layout.tick_at_ns(floor_ns).unwrap_or(0);
    let genesis = Genesis { cluster: ClusterId::from_bytes([7; 16]), layout, floor, workers: WORKERS };
    Arc::new(Exchange {
        registry: MemoryRegistry::new(genesis),
        time: Time::new(BEGIN),
        oracle: Mutex::new(Oracle::new(layout)),
        off: Mutex::new(off),
        late: Mutex::new(Vec::new()),
    })
}

impl History {
    fn new(seed: u64, theme: Option<Theme>, trace: bool) -> Self {
        let mut chance = Chance::new(seed);
        super::seed_draws(chance.next());
        let drawn = chance.pick(&THEMES);
        let theme = theme.unwrap_or(drawn);
        // Few ids a tick, so that land is scarce and each plot is likely to be used; and the default's many.
        let splits = [
            (58, 2, 3, 1_000),
            (58, 2, 3, 1_000),
            (56, 2, 5, 1_000),
            (49, 2, 12, 1_000),
            (51, 2, 10, 10_000),
            // Ends in 2035.
            (39, 4, 20, 1_000),
        ];
        let (time_bits, worker_bits, sequence_bits, tick_us) = chance.pick(&splits);
        let layout = match Layout::new(time_bits, worker_bits, sequence_bits, tick_us, DEFAULT_EPOCH_MS) {
            Ok(layout) => layout,
            Err(error) => panic!("{error}"),
        };
        let clock = chance.below(100);
        let has_clock = clock < 85;
        let exchange = exchange(layout, BEGIN, has_clock.then_some(0));
        let time = exchange.time.clone();
        let count = chance.within(3, 5);
        let nodes = (0..count as usize)
            .map(|number| {
                let settings = settings(&mut chance, count == 3 && number == 0);
                let spill = chance.chance(60);
                Node::new(number, exchange.clone(), settings, spill, &mut chance)
            })
            .collect();
        let trace = trace.then(Vec::new);
        let summary = Summary::default();
        let mut history = Self {
            chance,
            theme,
            layout,
            time,
            exchange,
            nodes,
            summary,
            clock_right: clock < 70,
            has_clock,
            trace,
        };
        for node in 0..history.nodes.len() {
            if history.chance.chance(80) {
                history.start(node);
            }
        }
        history
    }

    /// A cluster of one layout, everybody in good health, for a story that is told by hand.
    pub(super) fn told(layout: Layout, nodes: usize, has_clock: bool, settings: &Settings) -> Self {
        let mut chance = Chance::new(7);
        super::seed_draws(chance.next());
        // Of a registry that was made an hour ago.
        let exchange = exchange(layout, BEGIN - 3_600 * SECOND, has_clock.then_some(0));
        let node = |number| Node::new(number, exchange.clone(), settings.clone(), false, &mut chance);
        let nodes = (0..nodes).map(node).collect();
        let mut history = Self {
            theme: Theme::Calm,
            layout,
            time: exchange.time.clone(),
            exchange,
            nodes,
            summary: Summary::default(),
            clock_right: has_clock,
            has_clock,
            trace: None,
            chance,
        };
        (0..history.nodes.len()).for_each(|node| history.start(node));
        history
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            let at = (self.time.now() - BEGIN) as f64 / SECOND as f64;
            lines.push(format!("{at:12.6} {}", what()));
        }
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].life.is_none() {
            self.summary.lives += 1;
            self.nodes[node].start();
            self.say(|| format!("node {node} starts"));
        }
    }

    /// Takes the figures of a life that is about to end.
    fn tally(&mut self, node: usize) {
        let Some(life) = &self.nodes[node].life else { return };
        let stats = life.engine.stats();
        let summary = &mut self.summary;
        summary.switches += stats.windows.switches.clock;
        summary.jumps += stats.clock.jumps;
        summary.rollbacks += stats.clock.rollbacks;
        summary.unknown += stats.registry.unknown.total();
        summary.unknown_ours += stats.registry.unknown.ours;
        summary.conflicts += stats.registry.conflicts;
        summary.replayed += stats.replayed;
        summary.ordered += u64::from(life.last_ordered > 0);
    }

    pub(super) fn stop(&mut self, node: usize) {
        self.tally(node);
        self.nodes[node].stop();
        self.say(|| format!("node {node} stopped"));
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.tally(node);
        let power = self.chance.chance(30);
        self.nodes[node].crash(power);
        self.say(|| format!("node {node} crashed, power cut: {power}"));
        if power {
            self.nodes[node].clock.reboot();
        }
    }

    /// Time passes; what is due is done.
    pub(super) fn pass(&mut self, ns: u64) {
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
        }
        lock(&self.exchange.oracle).wrong(|| format!("{most} turns in {ns} ns: somebody never sleeps"));
    }

    /// Faults end, clocks are right, and everybody runs.
    pub(super) fn better_times(&mut self) {
        self.say(|| "better times".into());
        self.exchange.registry.mend();
        *lock(&self.exchange.off) = self.has_clock.then_some(0);
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            {
                let mut end = lock(&node.end);
                (end.state, end.ambush) = (State::Up, None);
            }
            node.clock.disarm();
            node.clock.change(Change::Right);
            (node.stopped, node.producer_stopped, node.registrar_stopped) = (0, 0, 0);
            self.start(at);
        }
        let marks = self.marks_now();
        self.say(|| marks);
        // There are as many workers as there are; who is beyond them goes.
        while self.running() > self.usable() as usize {
            let Some(last) = self.nodes.iter().rposition(|node| node.life.is_some()) else { break };
            self.stop(last);
            self.summary.starved += 1;
        }
    }

    fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.life.is_some()).map(|node| node.settings.workers as usize).sum()
    }

    /// Workers whose marks are not so far ahead that nobody can wait for them.
    fn usable(&self) -> u64 {
        let most = self.layout.tick_at_ns(self.time.now() + REACH).unwrap_or(0);
        let mut registry = self.exchange.registry.clone();
        let near = |worker: &u32| registry.worker(*worker).is_ok_and(|it| it.record.reserved_until <= most);
        (0..WORKERS).filter(near).count() as u64
    }

    /// Every node serves calls of every order within the bound.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        let begin = self.time.now();
        let mut lacking: Vec<usize> = Vec::new();
        while self.time.now() < begin + BOUND {
            self.pass(50 * MS);
            lacking = (0..self.nodes.len()).filter(|at| !self.serves(*at)).collect();
            if lacking.is_empty() {
                self.summary.recovery = self.time.now() - begin;
                return Ok(());
            }
            // Not in small steps all the way.
            self.pass(200 * MS);
        }
        if self.running() > self.usable() as usize {
            return Ok(());
        }
        let told: Vec<String> = lacking.into_iter().map(|at| self.lament(at)).collect();
        Err(format!("{}, and not recovered: {}", self.marks_now(), told.join("; ")))
    }

    /// How far ahead, in seconds, each worker is reserved.
    fn marks_now(&self) -> String {
        let mut registry = self.exchange.registry.clone();
        let now = self.time.now() as f64;
        let ahead = |entry: crate::registry::WorkerEntry| {
            let until = entry.record.map_or(0, |found| self.layout.tick_to_ns(found.record.reserved_until));
            format!("{} {:+.3} s ({:?})", entry.worker, (until as f64 - now) / SECOND as f64, entry.live)
        };
        let rows = registry.workers().map_or(Vec::new(), |rows| rows.into_iter().map(ahead).collect());
        format!("marks {}, clock {:?}", rows.join(", "), *lock(&self.exchange.off))
    }

    /// What a node lacks.
    fn lament(&mut self, at: usize) -> String {
        let node = &mut self.nodes[at];
        let answers = [Order::Any, Order::Fresh, Order::Ordered].map(|order| node.ask(1, order));
        let off = i128::from(node.e().unwrap_or(0)) - i128::from(self.time.now());
        let notes = node.life.as_ref().map(|life| (life.engine.workers(), life.engine.status().notes));
        format!("node {at}, E off by {off} ns: {answers:?} {notes:?}")
    }

    fn serves(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        if node.life.is_none() {
            return true;
        }
        let behind = |error: IdError| {
            // After a switch of worker ordered ids wait until E passes the last one, however long that is.
            error.kind() == IdErrorKind::ClockBehind
                && error.retry_after().is_some_and(|wait| !wait.is_zero())
        };
        let e = node.e().unwrap_or(0);
        let waits = self.layout.tick_at_ns(e).is_none_or(|tick| tick <= node.most);
        let near = e.abs_diff(node.clock.read().wall) < SECOND;
        let any = node.ask(1, Order::Any).is_ok();
        let fresh = node.ask(1, Order::Fresh).is_ok();
        let ordered = match node.ask(1, Order::Ordered) {
            Ok(_) => true,
            Err(error) => waits && behind(error),
        };
        near && any && fresh && ordered
    }

    /// The end of all: some stop, some crash, and what they had shows.
    fn end(&mut self) {
        for node in 0..self.nodes.len() {
            if self.chance.chance(70) {
                self.nodes[node].drain();
            }
            if self.chance.chance(60) {
                self.stop(node);
            } else {
                self.crash(node);
            }
            // What is found on the disk shows in the next life.
            if self.chance.chance(40) {
                self.start(node);
                self.pass(20 * MS);
                self.nodes[node].drain();
                self.stop(node);
            }
            let refusals = self.nodes[node].refusals;
            self.summary.refusals.add(&refusals);
        }
    }

    /// Where the registry's clock was right, no mark is beyond two minutes of it.
    fn marks(&self) -> Result<(), String> {
        if !self.clock_right {
            return Ok(());
        }
        let most = self.layout.tick_at_ns(self.time.now() + 120 * SECOND).unwrap_or(0) + 2;
        let mut registry = self.exchange.registry.clone();
        for worker in 0..WORKERS {
            let mark = registry.worker(worker).map_err(|error| error.to_string())?.record.reserved_until;
            if mark > most {
                return Err(format!(
                    "worker {worker} is reserved to {mark}, and {most} is two minutes ahead"
                ));
            }
        }
        Ok(())
    }
}

fn settings(chance: &mut Chance, two: bool) -> Settings {
    let seconds = std::time::Duration::from_secs;
    let mut settings = Settings {
        wait: std::time::Duration::ZERO,
        window_max: seconds(chance.pick(&[1, 2, 10, 60, 60])),
        max_age: seconds(chance.pick(&[2, 20, 3_600, 3_600])),
        slots: 16,
        workers: if two && chance.chance(30) { 2 } else { 1 },
        ..Settings::default()
    };
    if chance.chance(25) {
        settings.backfill = seconds(chance.pick(&[1, 2, 60, 3_600])).min(settings.max_age);
    }
    if chance.chance(20) {
        settings.drift = std::time::Duration::from_millis(chance.pick(&[20, 100, 5_000]));
    }
    settings
}
