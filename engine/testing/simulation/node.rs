//! One node: a machine's clocks and disk, and the process that lives on it now, if any.
//!
//! # Invariants
//! - N1 whatever calls into the engine goes through [`Node::within`], so that a process may be killed in the middle of
//!   it: then it is buried, and nothing of it is used any more.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::registry::Token;
use crate::settings::Settings;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::campaigns::Tally;
use crate::testing::simulation::history::MS;
use crate::testing::simulation::network::{End, Exchange, Link, State};
use crate::testing::simulation::process::{Deed, Process, RESTLESS, open_spill};
use crate::testing::simulation::{seeded, summary};
use crate::testing::support::clock::SimClock;
use crate::testing::support::faults::{
    Armed, FaultKind, Faults, FaultyClock, FaultyStorage, Killed, Panicked, Point,
};
use crate::testing::support::rng::Rng;

/// Bytes of a sector, which a disk writes whole or, at worst, in part.
const SECTOR: usize = 512;

/// A node.
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) end: Arc<Mutex<End>>,
    pub(crate) settings: Settings,
    pub(crate) disk: Option<MemoryStorage>,
    pub(crate) process: Option<Process>,
    /// The faults of the life there is, or of the last one.
    pub(crate) faults: Arc<Faults>,
    /// The fault that the next life is armed with from its first moment.
    pub(crate) next_fault: Option<Armed>,
    /// The highest tick that E ever reached here, in any life.
    pub(crate) most: u64,
    /// True times before which the whole process, its producer, its registry thread are stopped.
    pub(crate) stopped: u64,
    pub(crate) producer_stopped: u64,
    pub(crate) registrar_stopped: u64,
    /// What became of all lives so far.
    pub(crate) tally: Tally,
    /// Runs of the drain that goes on.
    pub(crate) drained: usize,
    /// The engine is being closed.
    pub(crate) closing: bool,
    /// A process was killed in the middle of a write or sync, and the machine runs on.
    pub(crate) cut_off: bool,
    pub(crate) rng: Rng,
}

impl Node {
    pub(crate) fn new(
        number: usize,
        exchange: Arc<Exchange>,
        clock: Arc<SimClock>,
        settings: Settings,
        spill: bool,
        rng: &mut Rng,
    ) -> Self {
        let end = End {
            state: State::Up,
            ambush: None,
            unread: 0,
            last: None,
            announced: Vec::new(),
            sample: None,
            told: None,
            rng: rng.fork(),
        };
        Self {
            number,
            clock,
            faults: Faults::new(exchange.time.clone(), None),
            next_fault: None,
            exchange,
            end: Arc::new(Mutex::new(end)),
            settings,
            disk: spill.then(MemoryStorage::new),
            process: None,
            most: 0,
            stopped: 0,
            producer_stopped: 0,
            registrar_stopped: 0,
            tally: Tally::default(),
            drained: 0,
            closing: false,
            cut_off: false,
            rng: rng.fork(),
        }
    }

    fn now(&self) -> u64 {
        self.exchange.time.now()
    }

    /// A process begins. It may be killed while it does, or find a registry that cannot be opened.
    pub(crate) fn start(&mut self) {
        // Whoever begins again does so on a machine that ran on.
        self.cut_off = false;
        self.faults = Faults::new(self.exchange.time.clone(), self.next_fault.take());
        let identity = seeded(Token(self.rng.bytes()), format!("node {}", self.number));
        let (disk, spill) = (RefCell::new(self.disk.take()), SpillId::from_bytes(self.rng.bytes()));
        let clock = Arc::new(FaultyClock { clock: self.clock.clone(), faults: self.faults.clone() });
        let begun = catch_unwind(AssertUnwindSafe(|| {
            let link = Link::new(self.exchange.clone(), self.number, self.end.clone(), self.faults.clone())?;
            let wrap = |storage: &MemoryStorage| -> Box<dyn Storage> {
                Box::new(FaultyStorage { storage: storage.clone(), faults: self.faults.clone() })
            };
            Process::begin(
                Box::new(link),
                identity,
                |genesis, ownership| open_spill(&mut disk.borrow_mut(), wrap, spill, genesis, ownership),
                self.settings.clone(),
                clock,
                &self.exchange.time,
            )
        }));
        self.disk = disk.into_inner();
        match begun {
            Ok(Ok(process)) => {
                self.process = Some(process);
                self.tally.note("lives", 1);
                self.look();
            }
            Ok(Err(_)) => {
                self.tally.trouble("starts that failed", 1);
                self.faults.cut();
                self.leave_seats();
            }
            Err(payload) => self.killed(payload, "kills in a start"),
        }
        self.note_faults();
    }

    /// Does something with the process; none if there is none, or if it was killed in the middle of that (N1).
    pub(crate) fn within<T>(
        &mut self,
        what: &'static str,
        body: impl FnOnce(&mut Self, &mut Process) -> T,
    ) -> Option<T> {
        let mut process = self.process.take()?;
        let result = catch_unwind(AssertUnwindSafe(|| body(self, &mut process)));
        self.faults.set_working(false);
        let value = match result {
            Ok(value) => {
                self.process = Some(process);
                Some(value)
            }
            Err(payload) if payload.is::<Panicked>() => {
                process.stumble(&self.exchange.time);
                self.process = Some(process);
                self.tally.trouble("panics of a producer", 1);
                None
            }
            Err(payload) => {
                self.bury(process);
                self.killed(payload, what);
                None
            }
        };
        self.note_faults();
        value
    }

    /// Takes note of a kill; any other panic goes on.
    fn killed(&mut self, payload: Box<dyn std::any::Any + Send>, what: &'static str) {
        if !payload.is::<Killed>() {
            resume_unwind(payload);
        }
        self.closing = false;
        self.leave_seats();
        self.tally.trouble(what, 1);
    }

    fn note_faults(&mut self) {
        for (point, kind) in self.faults.take_injected() {
            self.cut_off |= matches!((kind, point), (FaultKind::Kill(_), Point::Spill | Point::Folder));
            let what = match (kind, point) {
                (FaultKind::Kill(_), Point::Clock) => "kills at a reading of the clock",
                (FaultKind::Kill(_), Point::Registry) => "kills at an operation of the registry",
                (FaultKind::Kill(_), Point::Spill) => "kills at an operation of the spill's disk",
                (FaultKind::Kill(_), Point::Folder) => "kills at an operation of the registry's disk",
                (FaultKind::Pause(_), _) => "pauses in the middle of something",
                (FaultKind::Fail(_), Point::Folder) => "failures of the registry's disk",
                (FaultKind::Fail(_), Point::Spill) => "failures of the spill's disk",
                (FaultKind::Panic | FaultKind::Fail(_), _) => continue,
            };
            self.tally.trouble(what, 1);
        }
    }

    /// Takes the figures of a life that is over, and drops it where it can do no harm.
    fn bury(&mut self, process: Process) {
        self.faults.cut();
        // What it cut in its last moment may be in the spill.
        let e = lock(&process.shared.gate).clock.last();
        self.most = self.most.max(process.shared.layout.tick_at_ns(e).unwrap_or(0));
        let stats = process.engine.stats();
        self.check_copies(&process);
        summary::take_in(&mut self.tally, &stats, process.last_ordered > 0);
        self.tally.waste("crash", stats.held.total());
        drop(process);
    }

    /// A process that is gone sits nowhere.
    fn leave_seats(&self) {
        lock(&self.exchange.seats).retain(|_, node| *node != self.number);
    }

    /// The process ends without a word. What the disk had not synced may be lost with it, in any part.
    pub(crate) fn crash(&mut self, power_cut: bool) {
        if let Some(process) = self.process.take() {
            self.bury(process);
            self.leave_seats();
            self.tally.trouble("crashes", 1);
        }
        if power_cut {
            self.cut_power();
        }
    }

    /// What the disk had not synced is lost, or lands, or lands in part.
    pub(crate) fn cut_power(&mut self) {
        if let Some(disk) = &self.disk {
            let rng = &mut self.rng;
            let torn = disk.cut_power(|n| rng.below(n as u64) as usize);
            self.tally.trouble("torn sectors", torn);
            self.tally.trouble("power cuts", 1);
        }
    }

    /// The clean stop: every id is accounted for.
    pub(crate) fn stop(&mut self) {
        let stopped = self.within("kills in a clean stop", |node, process| {
            node.closing = true;
            let rng = &mut node.rng;
            // A registry that is well, or one that takes longer than a stop waits.
            let (least, most) = if rng.chance(85) { (20_000, 3_000_000) } else { (500 * MS, 2_000 * MS) };
            process.act(Deed::Close, &node.exchange.time, || rng.magnitude(least, most));
            node.look_at(process);
            node.poll_all(process);
            if let Some(id) = process.settle() {
                let number = node.number;
                lock(&node.exchange.oracle).wrong(|| format!("node {number} issued {id:?} after its stop"));
            }
            node.closing = false;
            process.act(Deed::Leave, &node.exchange.time, || 0);
            node.check_account(process);
        });
        if stopped.is_none() {
            return;
        }
        let Some(process) = self.process.take() else { return };
        self.faults.cut();
        self.check_copies(&process);
        summary::take_in(&mut self.tally, &process.engine.stats(), process.last_ordered > 0);
        self.tally.trouble("clean stops", 1);
        self.tally.trouble("grants awaited at a stop", process.awaited);
        self.tally.trouble("grants that a stop gave up", process.given_up);
        self.leave_seats();
    }

    /// Its sums, what a panic cost among them.
    fn check_account(&mut self, process: &Process) {
        if let Err(why) = process.account() {
            let node = self.number;
            lock(&self.exchange.oracle).wrong(|| format!("node {node} {why}"));
        }
    }

    /// No memory was copied here, so nothing may look as if it had been: all that is held would be dropped for it.
    fn check_copies(&mut self, process: &Process) {
        let copies = lock(&process.shared.tally).copies;
        if copies > 0 && Guard::all_hold() {
            let node = self.number;
            lock(&self.exchange.oracle)
                .wrong(|| format!("node {node} met {copies} copies of itself, and there is none"));
        }
    }

    /// The true time at which there is something to do, if there is a process.
    pub(crate) fn due(&mut self) -> Option<u64> {
        let process = self.process.as_mut()?;
        let due = process.due(self.exchange.time.now(), self.producer_stopped, self.registrar_stopped);
        Some(due.max(self.stopped))
    }

    /// Does what is due: a turn of the producer, or a job of the registry thread.
    pub(crate) fn act(&mut self) {
        let now = self.now();
        let Some(process) = &self.process else { return };
        let deed = process.next_deed(now, self.registrar_stopped);
        let what = if deed == Deed::Turn { "kills in a turn" } else { "kills in a job" };
        self.tally.note(if deed == Deed::Turn { "turns" } else { "jobs" }, 1);
        self.within(what, |node, process| {
            node.faults.set_working(matches!(deed, Deed::Turn | Deed::Job));
            let rng = &mut node.rng;
            process.act(deed, &node.exchange.time, || rng.magnitude(20_000, 3_000_000));
            node.tally.trouble("panics of a registry thread", std::mem::take(&mut process.panics));
            if deed == Deed::Turn {
                node.look_at(process);
            }
            if process.restless > RESTLESS {
                let number = node.number;
                lock(&node.exchange.oracle).wrong(|| format!("the producer of node {number} does not sleep"));
            }
        });
    }

    fn look(&mut self) {
        self.within("kills while it is looked at", Self::look_at);
    }

    /// E goes back at a switch of worker only; how far it got is remembered.
    pub(crate) fn look_at(&mut self, process: &mut Process) {
        let e = lock(&process.shared.gate).clock.last();
        let switches = lock(&process.shared.gauges).windows.switches.clock;
        let (before, then) = process.seen;
        if e < before && switches == then {
            let node = self.number;
            lock(&self.exchange.oracle).wrong(|| format!("E of node {node} went from {before} back to {e}"));
        }
        process.seen = (e, switches);
        let tick = process.shared.layout.tick_at_ns(e).unwrap_or(0);
        process.most = process.most.max(tick);
        self.most = self.most.max(tick);
    }

    /// E as it stands.
    pub(crate) fn e(&self) -> Option<u64> {
        self.process.as_ref().map(|process| lock(&process.shared.gate).clock.last())
    }

    /// Whether its process cannot change the registry any more, and says so: it has to be started again.
    pub(crate) fn needs_restart(&self) -> bool {
        self.process.is_some() && self.faults.has_folder_failed()
    }

    /// A copy of the disk, in use or not.
    pub(crate) fn copy_disk(&self) -> Option<Vec<u8>> {
        self.disk.as_ref().map(MemoryStorage::bytes)
    }

    /// A copy of a disk, of this node or another, is put in the place of what is there.
    pub(crate) fn restore_disk(&mut self, copy: Vec<u8>) {
        if let (Some(disk), None) = (&mut self.disk, &self.process) {
            *disk = MemoryStorage::from_bytes(copy);
            self.tally.trouble("disks restored from a copy", 1);
        }
    }

    /// Sectors rot: bits flip, or it reads as zeros, or the file is shortened.
    pub(crate) fn rot(&mut self) {
        let Some(disk) = &self.disk else { return };
        let rng = &mut self.rng;
        let mut shortened = false;
        disk.tamper(|bytes| {
            let sectors = bytes.len() / SECTOR;
            if sectors == 0 {
                return;
            }
            let at = rng.below(sectors as u64) as usize * SECTOR;
            match rng.below(8) {
                0..5 => bytes[at + rng.below(SECTOR as u64) as usize] ^= 1 << rng.below(8),
                5 | 6 => bytes[at..at + SECTOR].fill(0),
                _ => {
                    bytes.truncate(at);
                    shortened = true;
                }
            }
        });
        self.tally.trouble(if shortened { "spills shortened" } else { "rotten sectors" }, 1);
    }
}
