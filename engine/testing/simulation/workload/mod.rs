//! What happens in a history, by chance: time passes, callers call, and something goes wrong.

mod copies;
mod faults;

use std::sync::atomic::Ordering;

use crate::registry::memory::Fault;
use crate::sys::atomics::lock;
use crate::testing::simulation::history::{History, MS, SECOND, WORKERS};
use crate::testing::simulation::network::{Ambush, State};
use crate::testing::simulation::store::Store;
use crate::testing::support::clock::Change;

const YEAR: u64 = 365 * 24 * 3_600 * SECOND;

/// 2040-01-01.
const FAR: u64 = 2_208_988_800 * SECOND;

/// What is likely in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Calm,
    SmallSteps,
    LargeSteps,
    Swinging,
    Far,
    Drifting,
    Stopping,
    Faults,
    Crashes,
    /// What disks do.
    Disk,
    /// The registry is put back to what it was, and fenced.
    Restores,
    /// Processes are killed or stopped in the middle of anything.
    CrashAnywhere,
    All,
}

impl Theme {
    /// Of a hundred histories, those with a local registry.
    pub(crate) fn local(self) -> u64 {
        match self {
            Self::Disk | Self::CrashAnywhere => 50,
            Self::Restores => 30,
            // Nothing is wrong with the link to a folder.
            Self::Faults => 0,
            _ => 20,
        }
    }
}

pub(crate) const THEMES: [Theme; 13] = [
    Theme::Calm,
    Theme::SmallSteps,
    Theme::LargeSteps,
    Theme::Swinging,
    Theme::Far,
    Theme::Drifting,
    Theme::Stopping,
    Theme::Faults,
    Theme::Crashes,
    Theme::Disk,
    Theme::Restores,
    Theme::CrashAnywhere,
    Theme::All,
];

impl History {
    /// Something happens.
    pub(crate) fn event(&mut self) {
        let ns = match self.rng.below(40) {
            0..22 => self.rng.magnitude(10_000, 5 * MS),
            22..36 => self.rng.magnitude(MS, SECOND),
            36..39 => self.rng.magnitude(100 * MS, 5 * SECOND),
            _ => self.rng.magnitude(SECOND, 80 * SECOND),
        };
        self.pass(ns);
        let node = self.a_node();
        let theme = if self.theme == Theme::All { self.rng.pick(&THEMES) } else { self.theme };
        if self.rng.chance(30) {
            self.misfortune(theme, node);
        }
        if self.rng.chance(5) {
            let any = self.rng.pick(&THEMES);
            self.misfortune(any, node);
        }
        let calls = self.rng.below(8);
        for _ in 0..calls {
            let caller = self.a_node();
            if self.nodes[caller].stopped <= self.time.now() {
                self.nodes[caller].call();
            }
        }
        self.steps += 1 + calls;
        self.tally.note("calls", calls);
        self.power_follows();
        if self.rng.chance(20) {
            self.start(node);
        }
        if self.rng.chance(2) {
            self.nodes[node].drain();
        }
    }

    pub(crate) fn a_node(&mut self) -> usize {
        self.rng.below(self.nodes.len() as u64) as usize
    }

    fn misfortune(&mut self, theme: Theme, node: usize) {
        self.steps += 1;
        match theme {
            Theme::Calm | Theme::All => {}
            Theme::SmallSteps => {
                let step = self.step(MS, 3 * SECOND);
                self.change(node, Change::Step(step));
                if self.rng.chance(20) {
                    // The claim that a step back may bring is in doubt, maybe of a worker that was held before.
                    let unread = self.rng.within(1, 3) as u32;
                    lock(&self.nodes[node].end).ambush = Some(Ambush::Doubt(unread));
                    self.tally.trouble("claims to be lost", 1);
                }
            }
            Theme::LargeSteps => {
                let step = self.step(10 * MS, 20 * YEAR);
                self.change(node, Change::Step(step));
            }
            Theme::Swinging => self.swing(node),
            Theme::Far => self.far(node),
            Theme::Drifting => self.drift(node),
            Theme::Stopping => self.stopping(node),
            Theme::Faults => self.fault(node),
            Theme::Crashes => self.end_of_life(node),
            Theme::Disk => self.disk(node),
            Theme::Restores => self.restoring(node),
            Theme::CrashAnywhere => self.inject(node),
        }
    }

    fn step(&mut self, from: u64, to: u64) -> i64 {
        let by = self.rng.magnitude(from, to).cast_signed();
        if self.rng.chance(50) { by } else { -by }
    }

    /// A change of a node's clocks, now or in the middle of its work.
    pub(crate) fn change(&mut self, node: usize, change: Change) {
        let trap = self.rng.chance(30).then(|| self.rng.below(8) as u32);
        self.say(|| format!("node {node}: {change:?}, in {trap:?} readings"));
        match trap {
            None => self.nodes[node].clock.change(change),
            Some(nth) => self.nodes[node].clock.set_trap(nth, change),
        }
    }

    fn swing(&mut self, node: usize) {
        match self.rng.below(4) {
            0 => {
                let by = self.rng.magnitude(MS, 10 * SECOND);
                let period = self.rng.magnitude(MS, 2 * SECOND);
                self.change(node, Change::Swing { by, period });
            }
            // A leap second, as it is where nobody smears it: everywhere.
            1 => {
                (0..self.nodes.len()).for_each(|node| self.change(node, Change::Step(-SECOND.cast_signed())));
            }
            2 => self.change(node, Change::Stand),
            _ => self.change(node, Change::Right),
        }
    }

    /// 2040 and back, on one node or on all.
    fn far(&mut self, node: usize) {
        let all = self.rng.chance(30);
        let back = self.rng.chance(50);
        let offset = self.rng.below(SECOND);
        for at in 0..self.nodes.len() {
            if all || at == node {
                self.change(at, if back { Change::Right } else { Change::Set(FAR + offset) });
            }
        }
    }

    fn drift(&mut self, node: usize) {
        let most = self.rng.pick(&[500, 50_000, 900_000, 20_000_000]);
        let ppm = self.step(1, most).max(-999_999);
        self.change(node, Change::Drift(ppm));
        if self.rng.chance(30) {
            self.change(node, Change::Right);
        }
    }

    fn stopping(&mut self, node: usize) {
        let ns = self.rng.magnitude(MS, 200 * SECOND);
        let until = self.time.now() + ns;
        let kind = self.rng.below(6);
        self.say(|| format!("node {node} is stopped for {ns} ns, kind {kind}"));
        let stopped = &mut self.nodes[node];
        match kind {
            0 => stopped.stopped = until,
            1 => stopped.producer_stopped = until,
            2 => stopped.registrar_stopped = until,
            3 => lock(&stopped.end).ambush = Some(Ambush::Stop(ns)),
            4 => self.change(node, Change::Stop(ns)),
            _ => {
                // A machine that is stopped and told nothing: its boot clock stands as well.
                stopped.stopped = until;
                stopped.clock.change(Change::BootStands);
                stopped.clock.change(Change::Stand);
                self.pass(ns.min(5 * SECOND));
                self.nodes[node].clock.change(Change::Right);
            }
        }
    }

    fn fault(&mut self, node: usize) {
        let kind = self.rng.below(9);
        self.say(|| format!("node {node}: fault {kind}"));
        let end = self.nodes[node].end.clone();
        match kind {
            0 => {
                let fault = self.rng.pick(&[Fault::LandsUnseen, Fault::LostUnseen, Fault::Away]);
                for _ in 0..self.rng.within(1, 4) {
                    self.exchange.store.fail(fault);
                }
            }
            1 | 2 => {
                lock(&end).state = self.rng.pick(&[
                    State::Down,
                    State::Mute,
                    State::Deaf,
                    State::Late,
                    State::Late,
                    State::Slow,
                ]);
            }
            3 | 4 => lock(&end).state = State::Up,
            5 => {
                lock(&end).ambush = Some(Ambush::Rival);
                self.tally.trouble("rivals", 1);
                if self.rng.chance(50) {
                    self.exchange.store.fail(Fault::LostUnseen);
                }
            }
            6 => {
                let landed = self.exchange.land_late(self.rng.next() as usize);
                self.tally.trouble("writes that landed late", u64::from(landed));
            }
            7 => {
                // The session of somebody who may be alive ends: the registry forgets who announced what.
                let worker = self.rng.below(u64::from(WORKERS)) as u32;
                self.exchange.expire(Some(worker));
                self.tally.trouble("sessions that ended", 1);
                self.wander();
                if self.rng.chance(10) {
                    self.lose_record(worker);
                }
            }
            _ => {
                let ns = self.rng.magnitude(MS, 100 * SECOND);
                self.restart_registry(ns);
            }
        }
    }

    /// Somebody deletes a record: of a mark, or of a worker, of which one a history is enough.
    fn lose_record(&mut self, worker: u32) {
        let Store::Memory(registry) = &self.exchange.store else { return };
        if self.rng.chance(50) {
            let lost = registry.lose_mark(self.rng.next() as usize);
            self.tally.trouble("marks that were lost", u64::from(lost));
        } else if self.exchange.readable() == WORKERS {
            registry.tamper_worker(worker, None);
            self.tally.trouble("records of workers that were lost", 1);
        }
    }

    /// The registry is away for a while, and has forgotten who is alive when it comes back.
    pub(crate) fn restart_registry(&mut self, ns: u64) {
        self.exchange.expire(None);
        self.exchange.down_until.store(self.time.now() + ns, Ordering::Relaxed);
        self.tally.trouble("restarts of the registry", 1);
    }

    /// The registry's clock goes wrong, or away, or right again.
    fn wander(&mut self) {
        if self.clock_right || !self.has_clock {
            return;
        }
        let off = match self.rng.below(4) {
            0 => None,
            1 => Some(self.step(MS, YEAR)),
            _ => Some(0),
        };
        *lock(&self.exchange.off) = off;
        self.say(|| format!("the registry's clock is off by {off:?}"));
    }

    fn end_of_life(&mut self, node: usize) {
        match self.rng.below(6) {
            0 => self.copy_disk(node),
            1 => self.stop(node),
            2 => {
                self.stop(node);
                self.start(node);
            }
            3 => {
                // Whatever was in two places shows before it is gone.
                self.nodes[node].drain();
                self.crash(node);
            }
            4 => {
                self.crash(node);
                self.start(node);
            }
            _ => {
                self.crash(node);
                if self.rng.chance(50) {
                    self.restore_disk(node);
                }
            }
        }
    }
}
