//! A machine on which one or two engines live: their disks behind [`Power`], their clocks, and who asks them for ids.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use xuid_id::{Id, Layout};
use xuid_spill::{MemoryStorage, SpillId};

use crate::registry::Token;
use crate::registry::local::simulated::MemoryHints;
use crate::registry::local::{LocalRegistry, MemoryDisk};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::testing::crash_images::known::{Known, Watched};
use crate::testing::crash_images::power::{Fault, PROCESSES, Power, Wired};
use crate::testing::simulation::history::{MS, SECOND};
use crate::testing::simulation::process::{Deed, Process, RESTLESS, Waiting, open_spill};
use crate::testing::simulation::seeded;
use crate::testing::support::clock::{Change, SimClock, Time};
use crate::testing::support::rng::Rng;
use crate::{Order, Run};

/// A grant takes less rounds than this. What then is still in a spill is too old.
const QUIET: u32 = 20;

/// The disks of a machine.
pub(crate) struct Disks {
    pub(crate) registry: MemoryDisk,
    pub(crate) hints: MemoryHints,
    pub(crate) spills: [Option<MemoryStorage>; PROCESSES],
    pub(crate) known: Known,
}

/// A machine.
pub(crate) struct Host {
    pub(crate) rng: Rng,
    pub(crate) layout: Layout,
    pub(crate) time: Arc<Time>,
    pub(crate) power: Arc<Power>,
    clock: Arc<SimClock>,
    settings: Settings,
    fault: Fault,
    pub(crate) processes: [Option<Process>; PROCESSES],
    /// The first thing that must not be.
    wrong: Option<String>,
    /// What the registry said when the machine was switched on.
    pub(crate) found: Known,
}

impl Host {
    /// A machine that is switched on at `now`, of which so many images shall be made.
    pub(crate) fn new(
        (layout, settings, fault): (Layout, Settings, Fault),
        disks: Disks,
        now: u64,
        images: usize,
        rng: &mut Rng,
    ) -> Self {
        let time = Time::new(now);
        let Disks { registry, hints, spills, known } = disks;
        let mut rng = rng.fork();
        crate::testing::simulation::seed_draws(rng.next());
        Self {
            layout,
            clock: SimClock::new(time.clone(), rng.magnitude(1 << 30, 1 << 40)),
            power: Power::new(time.clone(), (registry, hints), spills, known, images, &mut rng),
            time,
            settings,
            fault,
            processes: [const { None }; PROCESSES],
            wrong: None,
            found: Known::default(),
            rng,
        }
    }

    /// The machine's clock was set back while it was off.
    pub(crate) fn set_back(&self, ns: u64) {
        self.clock.change(Change::Step(-ns.cast_signed()));
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }

    /// What was wrong, if anything was.
    pub(crate) fn verdict(&mut self) -> Result<(), String> {
        self.wrong.take().map_or(Ok(()), Err)
    }

    /// A process begins. `first`: the machine was just switched on, so all that the registry says is durable once it is
    /// open, and is held against what was known.
    pub(crate) fn begin(&mut self, number: usize, first: bool) -> Result<(), String> {
        let (power, fault) = (self.power.clone(), self.fault);
        power.begin(number);
        let wired = Wired { disk: power.registry(), power: power.clone(), fault };
        let hints = Some(power.hints().process());
        let opened = power.doing("opening", || LocalRegistry::on_with(wired, hints, self.clock.clone()));
        let mut registry = opened.map_err(|error| format!("the registry was not opened: {error}"))?;
        if first {
            power.known(|known| known.survey(&mut registry))?;
            self.found = power.known(|known| known.clone());
        }
        let registry = Box::new(Watched::new(registry, power.clone(), fault));
        let identity = seeded(Token(self.rng.bytes()), format!("process {number}"));
        let disk = RefCell::new(Some(power.spill(number).unwrap_or_default()));
        let spill = SpillId::from_bytes(self.rng.bytes());
        let wire = |disk: &MemoryStorage| -> Box<dyn xuid_spill::Storage> {
            power.set_spill(number, Some(disk.clone()));
            Box::new(Wired { disk: disk.clone(), power: power.clone(), fault })
        };
        let begun = power.doing("start", || {
            Process::begin(
                registry,
                identity,
                |genesis, ownership| open_spill(&mut disk.borrow_mut(), wire, spill, genesis, ownership),
                self.settings.clone(),
                self.clock.clone(),
                &self.time,
            )
        });
        power.set_spill(number, disk.into_inner());
        let process = begun.map_err(|error| format!("an engine was not built: {error}"))?;
        self.processes[number] = Some(process);
        Ok(())
    }

    /// The clean stop: every id is accounted for.
    pub(crate) fn stop(&mut self, number: usize) {
        let Some(mut process) = self.processes[number].take() else { return };
        let (power, time) = (self.power.clone(), self.time.clone());
        let rng = &mut self.rng;
        power.doing("stop", || process.act(Deed::Close, &time, || rng.magnitude(20_000, 3_000_000)));
        // All that it had is on its disk now, and only therefore it hands windows back.
        power.stop(number);
        self.poll(&mut process);
        if let Some(id) = process.settle() {
            self.wrong(|| format!("process {number} issued {id:?} after its stop"));
        }
        power.doing("leave", || process.act(Deed::Leave, &time, || 0));
        if let Err(why) = process.account() {
            self.wrong(|| format!("process {number} {why}"));
        }
    }

    /// The process is killed; the machine goes on, and so does what its kernel has cached.
    pub(crate) fn kill(&mut self, number: usize) {
        self.processes[number] = None;
    }

    /// Time passes; what is due is done.
    pub(crate) fn pass(&mut self, ns: u64) {
        let until = self.time.now() + ns;
        let most = 500 + ns / 5_000;
        for _ in 0..most {
            let now = self.time.now();
            let due = |(number, process): (usize, &mut Option<Process>)| {
                Some((process.as_mut()?.due(now, 0, 0), number))
            };
            let next = self.processes.iter_mut().enumerate().filter_map(due).min();
            let Some((due, number)) = next.filter(|(due, _)| *due <= until) else {
                self.time.reach(until);
                return;
            };
            self.time.reach(due);
            self.act(number);
        }
        self.wrong(|| format!("{most} turns in {ns} ns: somebody never sleeps"));
    }

    fn act(&mut self, number: usize) {
        let Some(mut process) = self.processes[number].take() else { return };
        let deed = process.next_deed(self.time.now(), 0);
        let (power, time, rng) = (self.power.clone(), self.time.clone(), &mut self.rng);
        let doing = if deed == Deed::Turn { "turn" } else { "job" };
        power.doing(doing, || process.act(deed, &time, || rng.magnitude(20_000, 3_000_000)));
        if process.restless > RESTLESS {
            self.wrong(|| format!("the producer of process {number} does not sleep"));
        }
        self.poll(&mut process);
        self.processes[number] = Some(process);
    }

    fn issue(&self, process: &mut Process, runs: &[Run]) -> u64 {
        for run in runs {
            self.power.issue(run.raw(), run.len());
        }
        let ids = runs.iter().map(|run| u64::from(run.len())).sum();
        process.got += ids;
        ids
    }

    fn issue_one(&self, process: &mut Process, id: Id) {
        self.power.issue(id.raw(), 1);
        process.got += 1;
    }

    fn poll(&self, process: &mut Process) {
        for mut waiting in std::mem::take(&mut process.waiting) {
            match waiting.pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => process.waiting.push(waiting),
                Poll::Ready(Ok(runs)) => {
                    self.issue(process, &runs);
                }
                Poll::Ready(Err(_)) => {}
            }
        }
    }

    /// Takes so many ids now, or none; says how many came.
    pub(crate) fn ask(&mut self, number: usize, count: u32, order: Order) -> u64 {
        let Some(mut process) = self.processes[number].take() else { return 0 };
        let mut runs = Vec::new();
        let answer = process.engine.try_runs(count, order, &mut runs);
        let ids = answer.map_or(0, |()| self.issue(&mut process, &runs));
        self.processes[number] = Some(process);
        ids
    }

    /// A few calls of any kind.
    pub(crate) fn call(&mut self, number: usize) {
        let Some(mut process) = self.processes[number].take() else { return };
        let count = self.rng.magnitude(1, u64::from(self.layout.sequences()) * 16) as u32;
        let order = self.rng.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
        match self.rng.below(5) {
            0 => {
                for _ in 0..count.min(40) {
                    let Ok(id) = process.engine.try_next_id() else { break };
                    self.issue_one(&mut process, id);
                }
            }
            1 => {
                let at = self.rng.below(process.handles.len() as u64) as usize;
                for _ in 0..count.min(40) {
                    let Ok(id) = process.handles[at].next_id() else { break };
                    self.issue_one(&mut process, id);
                }
            }
            2 => {
                let wait = Duration::from_nanos(self.rng.magnitude(MS, SECOND));
                let pending = Box::pin(process.engine.request(count, order, wait));
                process.waiting.push(Waiting { pending, order, above: 0 });
            }
            _ => {
                let mut runs = Vec::new();
                if process.engine.try_runs(count, order, &mut runs).is_ok() {
                    self.issue(&mut process, &runs);
                }
            }
        }
        self.poll(&mut process);
        self.processes[number] = Some(process);
    }

    /// A burst of so many rounds.
    pub(crate) fn burst(&mut self, number: usize, rounds: u32) {
        let count = self.layout.sequences() * self.rng.pick(&[1, 4, 16]);
        for _ in 0..rounds {
            while self.ask(number, count, Order::Any) > 0 {}
            self.pass(2 * MS);
        }
    }

    /// Takes whatever there is, the spill included, until nothing is left or so many rounds are over.
    pub(crate) fn drain(&mut self, number: usize, rounds: u32) -> Result<(), String> {
        let many = self.layout.sequences() * 4;
        let (mut count, mut stock, mut quiet) = (many, u64::MAX, 0);
        for _ in 0..rounds {
            self.pass(MS);
            // What a call gathered in vain comes back with the next turn only, so the last ids are taken one by one.
            let (mut taken, most) = (0, if count == 1 { u64::from(many) } else { u64::MAX });
            while taken < most {
                let got = self.ask(number, count, Order::Any);
                taken += got;
                if got == 0 {
                    break;
                }
            }
            let Some(stats) = self.stats(number) else { return Ok(()) };
            quiet = if stats.spill.ids == stock { quiet + 1 } else { 0 };
            stock = stats.spill.ids;
            if stats.held.total() == 0 && (stock == 0 || quiet >= QUIET) {
                return self.verdict();
            }
            count = if taken >= u64::from(many) { many } else { 1 };
        }
        let left = self.stats(number).map(|stats| (stats.held, stats.spill.ids));
        Err(format!("a drain does not end, left are {left:?}"))
    }

    pub(crate) fn stats(&self, number: usize) -> Option<Stats> {
        self.processes[number].as_ref().map(|process| process.engine.stats())
    }
}
