//! A node's line to the registry that all share: what it carries, delays, loses, and what the oracle sees of it.

use std::sync::{Arc, Mutex};

use xuid_spill::SpillId;

use super::chance::Chance;
use super::clock::Time;
use super::oracle::Oracle;
use crate::registry::memory::MemoryRegistry;
use crate::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry, WorkerRecord,
};
use crate::settings::FURTHEST_WINDOW;
use crate::sync::lock;

/// Whoever takes workers besides the nodes.
pub(super) const RIVAL: usize = 99;

/// How it stands with a node's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Nothing gets through, and that is known.
    Down,
    /// Requests get lost.
    Mute,
    /// Answers get lost.
    Deaf,
    /// Writes land later, if at all.
    Late,
}

/// What comes between a node and its next write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ambush {
    /// Somebody else takes that very worker.
    Rival,
    /// The node is stopped for so many nanoseconds.
    Stop(u64),
}

/// What the nodes' lines have in common.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) registry: MemoryRegistry,
    pub(super) time: Arc<Time>,
    pub(super) oracle: Mutex<Oracle>,
    /// How far the registry's clock is off; none if it has no clock.
    pub(super) off: Mutex<Option<i64>>,
    /// Writes that may land later.
    pub(super) late: Mutex<Vec<Late>>,
}

/// A write that was given up: of what, the version that it expects, and by whom.
#[derive(Debug)]
pub(super) enum Late {
    Worker(u32, u64, WorkerRecord, usize),
    Mark(SpillId, u64, MarkRecord),
}

impl Exchange {
    /// The registry's clock.
    pub(super) fn clock(&self) -> Option<u64> {
        lock(&self.off).map(|off| self.time.now().saturating_add_signed(off))
    }

    fn mark(&self, worker: u32) -> Option<Versioned<WorkerRecord>> {
        self.registry.clone().worker(worker).ok()
    }

    /// Does a write, and tells the oracle what became of the record.
    fn seen<T>(&self, node: usize, worker: u32, write: impl FnOnce(MemoryRegistry) -> T) -> T {
        let before = self.mark(worker);
        let result = write(self.registry.clone());
        let (Some(before), Some(after)) = (before, self.mark(worker)) else { return result };
        if before.version != after.version {
            let (from, to) = (before.record.reserved_until, after.record.reserved_until);
            lock(&self.oracle).moved(node, worker, from, to);
        }
        result
    }

    /// No window ends beyond two minutes of the registry's time as it was told, and what a tick is rounded by.
    fn check_reach(&self, node: usize, worker: u32, to: u64, told: Option<u64>) {
        let Some(clock) = told else { return };
        let layout = self.registry.genesis().layout;
        let Some(now) = layout.tick_at_ns(clock) else { return };
        let most = now + layout.ticks_in_ns(crate::clock::nanos(FURTHEST_WINDOW)) + 2;
        if to > most {
            lock(&self.oracle).wrong(|| {
                format!("node {node} reserved worker {worker} to {to}, and the registry's time allows {most}")
            });
        }
    }

    /// A write that was given up lands.
    pub(super) fn land_late(&self, at: usize) {
        let mut late = lock(&self.late);
        if late.is_empty() {
            return;
        }
        let at = at % late.len();
        let write = late.swap_remove(at);
        drop(late);
        let _ = match write {
            Late::Worker(worker, expected, record, node) => {
                self.seen(node, worker, |mut registry| registry.swap_worker(worker, expected, &record))
            }
            Late::Mark(spill, expected, record) => self.registry.clone().swap_mark(spill, expected, &record),
        };
    }

    /// Somebody else takes a worker whose mark is past, as any process may.
    fn rival(&self, worker: u32, chance: &mut Chance) {
        let layout = self.registry.genesis().layout;
        let (Some(found), Some(now)) = (self.mark(worker), layout.tick_at_ns(self.time.now())) else {
            return;
        };
        let end = found.record.reserved_until.max(now) + chance.within(1, 2_000);
        let record = WorkerRecord {
            reserved_until: end,
            token: Token(chance.bytes()),
            operation: chance.within(1, 8),
            owner: "rival".into(),
        };
        let _ = self.seen(RIVAL, worker, |mut registry| registry.swap_worker(worker, found.version, &record));
    }
}

/// What a node keeps of its line beyond one process's life.
#[derive(Debug)]
pub(super) struct End {
    pub(super) state: State,
    pub(super) ambush: Option<Ambush>,
    /// The worker held last, which a process in the same place prefers.
    pub(super) last: Option<u32>,
    /// Workers this node announced as its own and has not taken back.
    pub(super) announced: Vec<u32>,
    /// The registry's time and the true time when it was asked for, and what the engine was told last.
    pub(super) sample: Option<(u64, u64)>,
    pub(super) told: Option<u64>,
    pub(super) chance: Chance,
}

/// A registry as one node sees it.
pub(super) struct Line {
    genesis: Genesis,
    exchange: Arc<Exchange>,
    node: usize,
    end: Arc<Mutex<End>>,
}

impl Line {
    pub(super) fn new(exchange: Arc<Exchange>, node: usize, end: Arc<Mutex<End>>) -> Self {
        Self { genesis: *exchange.registry.genesis(), exchange, node, end }
    }

    /// A round trip, and what the line's state does to a read.
    fn read(&self) -> Result<MemoryRegistry, ReadError> {
        let mut end = lock(&self.end);
        self.exchange.time.pass(end.chance.magnitude(20_000, 2_000_000));
        match end.state {
            State::Up => Ok(self.exchange.registry.clone()),
            _ => Err(ReadError::Unavailable { why: "the line is down".into() }),
        }
    }

    fn write(
        &self,
        write: impl FnOnce(&Exchange, MemoryRegistry) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        let state = lock(&self.end).state;
        match state {
            State::Up => write(&self.exchange, self.exchange.registry.clone()),
            State::Deaf => {
                let _ = write(&self.exchange, self.exchange.registry.clone());
                Err(SwapError::Unknown { why: "the line went down before the answer".into() })
            }
            State::Mute | State::Late => Err(SwapError::Unknown { why: "the line went down".into() }),
            State::Down => Err(SwapError::Unavailable { why: "the line is down".into() }),
        }
    }

    fn change(
        &self,
        worker: u32,
        expected: u64,
        record: &WorkerRecord,
        claim: bool,
    ) -> Result<(), SwapError> {
        let ambush = lock(&self.end).ambush.take();
        match ambush {
            Some(Ambush::Rival) => self.exchange.rival(worker, &mut lock(&self.end).chance),
            Some(Ambush::Stop(ns)) => self.exchange.time.pass(ns),
            None => {}
        }
        let from = self.exchange.mark(worker).map_or(0, |mark| mark.record.reserved_until);
        if from < record.reserved_until {
            let told = lock(&self.end).told;
            self.exchange.check_reach(self.node, worker, record.reserved_until, told);
        }
        if lock(&self.end).state == State::Late {
            lock(&self.exchange.late).push(Late::Worker(worker, expected, record.clone(), self.node));
        }
        self.write(|exchange, _| {
            exchange.seen(self.node, worker, |mut registry| {
                if claim {
                    registry.claim(worker, expected, record)
                } else {
                    registry.swap_worker(worker, expected, record)
                }
            })
        })
    }
}

impl Registry for Line {
    fn genesis(&self) -> &Genesis {
        &self.genesis
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
            self.exchange.registry.set_time(self.exchange.clock());
            end.sample = self.exchange.registry.clone().time().map(|clock| (clock, now));
        }
        // Without an answer the last one is reckoned on.
        end.told = end.sample.map(|(clock, at)| clock + (now - at));
        end.told
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        self.read()?.workers()
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.read()?.worker(worker)
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        {
            let mut end = lock(&self.end);
            end.last = Some(worker);
            end.announced.push(worker);
        }
        self.change(worker, expected, record, true)
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.change(worker, expected, record, false)
    }

    fn leave(&mut self, worker: u32) {
        let mut end = lock(&self.end);
        end.announced.retain(|announced| *announced != worker);
        if end.state == State::Up {
            self.exchange.registry.clone().leave(worker);
        }
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.read()?.mark(spill)
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.write(|_, mut registry| registry.create_mark(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        if lock(&self.end).state == State::Late {
            lock(&self.exchange.late).push(Late::Mark(spill, expected, record.clone()));
        }
        self.write(|_, mut registry| registry.swap_mark(spill, expected, record))
    }

    fn close(&mut self) {
        for worker in std::mem::take(&mut lock(&self.end).announced) {
            self.exchange.registry.clone().leave(worker);
        }
    }
}
