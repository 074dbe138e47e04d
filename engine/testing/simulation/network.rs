//! A node's link to the registry that all share: what it carries, delays, loses, and what the oracle sees of it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use xuid_spill::SpillId;

use crate::registry::limits::FURTHEST_WINDOW;
use crate::registry::local::LocalError;
use crate::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry, WorkerRecord,
};
use crate::sys::atomics::lock;
use crate::testing::simulation::store::Store;
use crate::testing::support::clock::Time;
use crate::testing::support::faults::{Faults, Panicked, Point};
use crate::testing::support::oracle::Oracle;
use crate::testing::support::rng::Rng;

/// Whoever takes workers besides the nodes.
pub(crate) const RIVAL: usize = 99;

/// How it stands with a node's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// Nothing gets through, and that is known.
    Down,
    /// Requests get lost.
    Mute,
    /// Answers get lost.
    Deaf,
    /// Writes land later, if at all.
    Late,
    /// Each request takes up to three seconds, and each answer.
    Slow,
}

/// The longest way of a request or an answer over a slow link.
const SLOWEST: u64 = 3_000_000_000;

/// What comes between a node and its next write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ambush {
    /// Somebody else takes that very worker.
    Rival,
    /// The node is stopped for so many nanoseconds.
    Stop(u64),
    /// The next claim is lost, and so are so many readings after it.
    Doubt(u32),
}

/// What the nodes' links have in common.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) store: Store,
    pub(crate) time: Arc<Time>,
    pub(crate) oracle: Mutex<Oracle>,
    /// How far the registry's clock is off; none if it has no clock.
    pub(crate) off: Mutex<Option<i64>>,
    /// Writes that may land later.
    pub(crate) late: Mutex<Vec<Late>>,
    /// The true time before which the registry restarts: nothing of it answers.
    pub(crate) down_until: AtomicU64,
    /// Which node's process holds which worker, where the registry is local: what seats would say.
    pub(crate) seats: Mutex<BTreeMap<u32, usize>>,
    /// Changes of a local registry that had no end.
    pub(crate) half_done: Mutex<Vec<HalfDone>>,
}

/// A change of a local registry that ended in a panic, which its process survived, or in a failure of the disk.
#[derive(Debug)]
pub(crate) struct HalfDone {
    node: usize,
    worker: u32,
    from: u64,
    record: WorkerRecord,
}

/// A write that was given up: of what, the version that it expects, and by whom.
#[derive(Debug)]
pub(crate) enum Late {
    Worker(u32, u64, WorkerRecord, usize),
    Mark(SpillId, u64, MarkRecord),
}

impl Exchange {
    /// The registry's clock.
    pub(crate) fn clock(&self) -> Option<u64> {
        lock(&self.off).map(|off| self.time.now().saturating_add_signed(off))
    }

    pub(crate) fn mark(&self, worker: u32) -> Option<Versioned<WorkerRecord>> {
        self.store.peek(worker)
    }

    /// Workers whose records can be read.
    pub(crate) fn readable(&self) -> u32 {
        (0..self.store.genesis().workers).filter(|worker| self.mark(*worker).is_some()).count() as u32
    }

    pub(crate) fn is_down(&self) -> bool {
        self.time.now() < self.down_until.load(Ordering::Relaxed)
    }

    /// Does a write that sets a worker's record to `to` where it has the `expected` version, and tells the oracle whose
    /// land is whose by then.
    ///
    /// What is handed back is nobody's from the attempt on, whatever becomes of that: the one who tried counts on it.
    /// What is granted by a registry in memory is granted when it is stored. Of a local one it is when the change was
    /// confirmed: what was not, the process that tried believes when it [reads it](Self::believed) later, after a panic
    /// or when the disk that failed has taken it after all.
    fn seen(
        &self,
        (node, worker): (usize, u32),
        expected: u64,
        record: &WorkerRecord,
        write: impl FnOnce() -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        let before = self.mark(worker).filter(|before| before.version == expected);
        let Some(from) = before.map(|before| before.record.reserved_until) else { return write() };
        let to = record.reserved_until;
        if to < from {
            lock(&self.oracle).moved(node, worker, from, to);
            return write();
        }
        let half_done =
            || lock(&self.half_done).push(HalfDone { node, worker, from, record: record.clone() });
        let result = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|payload| {
            if self.store.is_local() && payload.is::<Panicked>() {
                half_done();
            }
            resume_unwind(payload)
        });
        if self.store.is_local() && matches!(result, Err(SwapError::Unknown { .. })) {
            half_done();
        }
        let stored = if self.store.is_local() {
            result.is_ok()
        } else {
            self.mark(worker).is_some_and(|after| after.version != expected)
        };
        if stored {
            lock(&self.oracle).moved(node, worker, from, to);
        }
        result
    }

    /// A process was told a worker's record: what it wrote itself is granted then, if it had no answer to that.
    fn believed(&self, node: usize, worker: u32, found: &WorkerRecord) {
        let is_it = |half: &HalfDone| (half.node, half.worker, &half.record) == (node, worker, found);
        let mut half_done = lock(&self.half_done);
        if let Some(at) = half_done.iter().position(is_it) {
            let HalfDone { from, .. } = half_done.swap_remove(at);
            lock(&self.oracle).moved(node, worker, from, found.reserved_until);
        }
    }

    /// No window ends beyond two minutes of the registry's time as it was told, and what a tick is rounded by.
    fn check_reach(&self, node: usize, worker: u32, to: u64, told: Option<u64>) {
        let Some(clock) = told else { return };
        let layout = self.store.genesis().layout;
        let Some(now) = layout.tick_at_ns(clock) else { return };
        let most = now + layout.ticks_in_ns(crate::clock::nanos(FURTHEST_WINDOW)) + 2;
        if to > most {
            lock(&self.oracle).wrong(|| {
                format!("node {node} reserved worker {worker} to {to}, and the registry's time allows {most}")
            });
        }
    }

    /// The session of whoever announced that worker ends, or everybody's.
    pub(crate) fn expire(&self, worker: Option<u32>) {
        if let Store::Memory(registry) = &self.store {
            match worker {
                Some(worker) => registry.clone().leave(worker),
                None => registry.expire(),
            }
        }
    }

    /// A write that was given up lands, if it still fits; says whether it did.
    pub(crate) fn land_late(&self, at: usize) -> bool {
        let mut late = lock(&self.late);
        if late.is_empty() {
            return false;
        }
        let at = at % late.len();
        let write = late.swap_remove(at);
        drop(late);
        let Some(mut registry) = self.store.outsider() else { return false };
        let landed = match write {
            Late::Worker(worker, expected, record, node) => {
                self.seen((node, worker), expected, &record, || {
                    registry.swap_worker(worker, expected, &record)
                })
            }
            Late::Mark(spill, expected, record) => registry.swap_mark(spill, expected, &record),
        };
        landed.is_ok()
    }

    /// Somebody else takes that worker, and no further ahead than any process may: a fence would not cover it.
    fn rival(&self, worker: u32, rng: &mut Rng) {
        let layout = self.store.genesis().layout;
        let (Some(found), Some(now)) = (self.mark(worker), layout.tick_at_ns(self.time.now())) else {
            return;
        };
        let furthest = now + layout.ticks_in_ns(crate::clock::nanos(FURTHEST_WINDOW));
        let end = (found.record.reserved_until.max(now) + rng.within(1, 2_000)).min(furthest);
        if end <= found.record.reserved_until {
            return;
        }
        let record = WorkerRecord {
            reserved_until: end,
            token: Token(rng.bytes()),
            operation: rng.within(1, 8),
            owner: "rival".into(),
        };
        let Some(mut registry) = self.store.outsider() else { return };
        let _ = self.seen((RIVAL, worker), found.version, &record, || {
            registry.swap_worker(worker, found.version, &record)
        });
    }
}

/// What a node keeps of its link beyond one process's life.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) state: State,
    pub(crate) ambush: Option<Ambush>,
    /// So many readings get lost.
    pub(crate) unread: u32,
    /// The worker held last, which a process in the same place prefers.
    pub(crate) last: Option<u32>,
    /// Workers this node announced as its own and has not taken back.
    pub(crate) announced: Vec<u32>,
    /// The registry's time and the true time when it was asked for, and what the engine was told last.
    pub(crate) sample: Option<(u64, u64)>,
    pub(crate) told: Option<u64>,
    pub(crate) rng: Rng,
}

/// A registry as one life sees it.
pub(crate) struct Link {
    registry: Box<dyn Registry>,
    exchange: Arc<Exchange>,
    node: usize,
    end: Arc<Mutex<End>>,
    faults: Arc<Faults>,
}

impl Link {
    pub(crate) fn new(
        exchange: Arc<Exchange>,
        node: usize,
        end: Arc<Mutex<End>>,
        faults: Arc<Faults>,
    ) -> Result<Self, LocalError> {
        let registry = exchange.store.open(&faults)?;
        // What the process before this one did not know, nobody ever will.
        lock(&exchange.half_done).retain(|half| half.node != node);
        Ok(Self { registry, exchange, node, end, faults })
    }

    /// How it stands with the link now.
    fn state(&self) -> State {
        if self.faults.is_dead() || self.exchange.is_down() { State::Down } else { lock(&self.end).state }
    }

    /// The way there, or back.
    fn travel(&self) {
        let slowest = if self.state() == State::Slow { SLOWEST } else { 2_000_000 };
        self.exchange.time.pass(lock(&self.end).rng.magnitude(20_000, slowest));
    }

    /// A round trip, and what the link's state does to a read.
    fn read(&mut self) -> Result<&mut dyn Registry, ReadError> {
        self.faults.pass(Point::Registry);
        self.travel();
        let lost = {
            let unread = &mut lock(&self.end).unread;
            std::mem::replace(unread, unread.saturating_sub(1)) > 0
        };
        match self.state() {
            State::Up | State::Slow if !lost => Ok(self.registry.as_mut()),
            _ => Err(ReadError::Unavailable { why: "the link is down".into() }),
        }
    }

    /// A write: of whatever is behind the link, through the oracle's eyes.
    fn write(
        &mut self,
        write: impl FnOnce(&Exchange, &mut dyn Registry) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        self.faults.pass(Point::Registry);
        let result = match self.state() {
            State::Up => write(&self.exchange, self.registry.as_mut()),
            State::Slow => {
                self.travel();
                let result = write(&self.exchange, self.registry.as_mut());
                self.travel();
                result
            }
            State::Deaf => {
                let _ = write(&self.exchange, self.registry.as_mut());
                Err(SwapError::Unknown { why: "the link went down before the answer".into() })
            }
            State::Mute | State::Late => Err(SwapError::Unknown { why: "the link went down".into() }),
            State::Down => Err(SwapError::Unavailable { why: "the link is down".into() }),
        };
        self.faults.pass(Point::Registry);
        result
    }

    /// Whether a write that is made now is on its way for long.
    fn is_late(&self) -> bool {
        self.state() == State::Late
    }

    fn change(
        &mut self,
        worker: u32,
        expected: u64,
        record: &WorkerRecord,
        claim: bool,
    ) -> Result<(), SwapError> {
        // One that is for a claim waits for it.
        let ambush = lock(&self.end).ambush.take_if(|ambush| claim || !matches!(ambush, Ambush::Doubt(_)));
        match ambush {
            Some(Ambush::Doubt(unread)) => {
                lock(&self.end).unread = unread;
                return Err(SwapError::Unknown { why: "the claim was lost".into() });
            }
            Some(Ambush::Rival) => self.exchange.rival(worker, &mut lock(&self.end).rng),
            Some(Ambush::Stop(ns)) => self.exchange.time.pass(ns),
            None => {}
        }
        let from = self.exchange.mark(worker).map_or(0, |mark| mark.record.reserved_until);
        if from < record.reserved_until {
            let told = lock(&self.end).told;
            self.exchange.check_reach(self.node, worker, record.reserved_until, told);
        }
        if self.is_late() {
            lock(&self.exchange.late).push(Late::Worker(worker, expected, record.clone(), self.node));
        }
        let node = self.node;
        self.write(|exchange, registry| {
            exchange.seen((node, worker), expected, record, || {
                if claim {
                    registry.claim(worker, expected, record)
                } else {
                    registry.swap_worker(worker, expected, record)
                }
            })
        })
    }
}

impl Registry for Link {
    fn genesis(&self) -> &Genesis {
        self.registry.genesis()
    }

    fn describe(&self) -> String {
        "simulated".into()
    }

    fn last_worker(&self) -> Option<u32> {
        lock(&self.end).last
    }

    fn time(&mut self) -> Option<u64> {
        let up = self.read().is_ok();
        let (mut end, now) = (lock(&self.end), self.exchange.time.now());
        if up {
            end.sample = self.exchange.clock().map(|clock| (clock, now));
        }
        // Without an answer the last one is reckoned on.
        end.told = end.sample.map(|(clock, at)| clock + (now - at));
        end.told
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let mut entries = self.read()?.workers()?;
        if self.exchange.store.is_local() {
            let seats = lock(&self.exchange.seats);
            for entry in &mut entries {
                entry.live = seats.get(&entry.worker).map(|node| format!("node {node}"));
            }
        }
        Ok(entries)
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        let found = self.read()?.worker(worker)?;
        self.exchange.believed(self.node, worker, &found.record);
        Ok(found)
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        {
            let mut end = lock(&self.end);
            end.last = Some(worker);
            end.announced.push(worker);
        }
        let claimed = self.change(worker, expected, record, true);
        if claimed.is_ok() {
            lock(&self.exchange.seats).insert(worker, self.node);
        }
        claimed
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.change(worker, expected, record, false)
    }

    fn leave(&mut self, worker: u32) {
        lock(&self.end).announced.retain(|announced| *announced != worker);
        lock(&self.exchange.seats).retain(|held, node| (*held, *node) != (worker, self.node));
        if matches!(self.state(), State::Up | State::Slow) {
            self.registry.leave(worker);
        }
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.read()?.mark(spill)
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.write(|_, registry| registry.create_mark(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        if self.is_late() {
            lock(&self.exchange.late).push(Late::Mark(spill, expected, record.clone()));
        }
        self.write(|_, registry| registry.swap_mark(spill, expected, record))
    }

    fn close(&mut self) {
        if self.faults.is_dead() {
            return;
        }
        for worker in std::mem::take(&mut lock(&self.end).announced) {
            self.registry.leave(worker);
        }
        lock(&self.exchange.seats).retain(|_, node| *node != self.node);
    }
}
