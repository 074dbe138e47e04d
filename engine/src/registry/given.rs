//! A worker that somebody else gave to this process: its record lies in the process's memory only, and nothing of it is
//! kept when the process ends.
//!
//! The builder makes it, and the registry thread calls it.
//!
//! # Invariants
//! - G1 all engines of a process that have one worker of one layout share one record, for the process's life: their
//!   windows never overlap, at whatever time they are built;
//! - G2 a forked child gets no record of its parent's: the parent goes on with that worker.
//!
//! That no other process has the worker, and that the first record lies above what an earlier process issued, is what
//! the caller promises; [`Engine::memory`](crate::Engine::memory) says so.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use xuid_id::Layout;
use xuid_spill::SpillId;

use super::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry, WorkerRecord,
};
use crate::sys::atomics::{Ordering, lock};
use crate::sys::fork_word::ForkWord;

/// The records of this process.
static RECORDS: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

/// How often, a millisecond apart, the list is tried while another thread uses it. In a forked child that thread may be
/// missing, and the list is never free.
const TRIES: u32 = 1_000;

/// What all engines of one worker share.
#[derive(Debug)]
struct Shared {
    layout: Layout,
    worker: u32,
    /// Of the process that made it.
    word: ForkWord,
    record: Mutex<Versioned<WorkerRecord>>,
}

/// Why a worker cannot be had.
#[derive(Debug)]
pub(crate) enum GiveError {
    /// A process that this one was forked from has it.
    OfParent,
    /// The list of records was not to be had.
    Busy,
    /// No page for a word.
    System(io::Error),
}

/// One worker of a layout, and no other.
#[derive(Debug)]
pub(crate) struct GivenWorker {
    genesis: Genesis,
    shared: Arc<Shared>,
}

impl GivenWorker {
    /// The worker, free from the tick `genesis.floor` on if this process has not had it yet; else from where it came to.
    pub(crate) fn new(genesis: Genesis, worker: u32) -> Result<Self, GiveError> {
        let mut records = records()?;
        let is_it = |shared: &&Arc<Shared>| shared.layout == genesis.layout && shared.worker == worker;
        let shared = match records.iter().find(is_it) {
            Some(shared) if shared.word.is_wiped() => return Err(GiveError::OfParent),
            Some(shared) => shared.clone(),
            None => {
                let shared = Arc::new(Shared::new(&genesis, worker).map_err(GiveError::System)?);
                records.push(shared.clone());
                shared
            }
        };
        Ok(Self { genesis, shared })
    }

    fn is_it(&self, worker: u32) -> Result<&Mutex<Versioned<WorkerRecord>>, ReadError> {
        let absent = || ReadError::Absent { what: format!("worker {worker}") };
        (worker == self.shared.worker).then_some(&self.shared.record).ok_or_else(absent)
    }

    fn swap(&self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let mut stored = lock(self.is_it(worker)?);
        if stored.version != expected {
            return Err(SwapError::Conflict);
        }
        *stored = Versioned { record: record.clone(), version: expected + 1 };
        Ok(())
    }
}

impl Shared {
    fn new(genesis: &Genesis, worker: u32) -> io::Result<Self> {
        let word = ForkWord::new()?;
        // Relaxed: only the process itself reads it, or a child, which has a page of zeros.
        word.word().store(1, Ordering::Relaxed);
        let record = WorkerRecord {
            reserved_until: genesis.floor,
            token: Token::default(),
            operation: 0,
            owner: "an earlier process, as far as is known here,".to_owned(),
        };
        let record = Mutex::new(Versioned { record, version: 0 });
        Ok(Self { layout: genesis.layout, worker, word, record })
    }
}

fn records() -> Result<MutexGuard<'static, Vec<Arc<Shared>>>, GiveError> {
    for _ in 0..TRIES {
        match RECORDS.try_lock() {
            Ok(records) => return Ok(records),
            // A push either happened or did not.
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(GiveError::Busy)
}

fn no_spill(spill: SpillId) -> ReadError {
    ReadError::Absent { what: format!("spill {spill}") }
}

impl Registry for GivenWorker {
    fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    fn describe(&self) -> String {
        format!("memory, worker {}", self.shared.worker)
    }

    fn last_worker(&self) -> Option<u32> {
        Some(self.shared.worker)
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let record = Ok(lock(&self.shared.record).clone());
        Ok(vec![WorkerEntry { worker: self.shared.worker, record, live: None }])
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        Ok(lock(self.is_it(worker)?).clone())
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.swap(worker, expected, record)
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.swap(worker, expected, record)
    }

    fn leave(&mut self, _: u32) {}

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        Err(no_spill(spill))
    }

    fn create_mark(&mut self, spill: SpillId, _: &MarkRecord) -> Result<(), SwapError> {
        Err(no_spill(spill).into())
    }

    fn swap_mark(&mut self, spill: SpillId, _: u64, _: &MarkRecord) -> Result<(), SwapError> {
        Err(no_spill(spill).into())
    }

    fn close(&mut self) {}
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::registry::ClusterId;

    fn given(layout: Layout, floor: u64) -> GivenWorker {
        let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), layout, floor, layout.workers());
        GivenWorker::new(genesis, 1_000).unwrap()
    }

    #[test]
    fn of_two_engines_that_read_one_version_one_gets_the_worker_and_a_later_floor_frees_nothing() {
        let layout: Layout = "discord".parse().unwrap();
        let (mut first, mut second) = (given(layout, 50), given(layout, 10));
        let found = first.worker(1_000).unwrap();
        assert_eq!(second.worker(1_000).unwrap(), found);
        let record = WorkerRecord { reserved_until: 200, ..found.record };
        first.claim(1_000, found.version, &record).unwrap();
        for stored in
            [second.claim(1_000, found.version, &record), second.swap_worker(1_000, found.version, &record)]
        {
            assert!(matches!(stored, Err(SwapError::Conflict)), "{stored:?}");
        }
        assert_eq!(given(layout, 90).worker(1_000).unwrap().record.reserved_until, 200);
        assert!(matches!(first.worker(7), Err(ReadError::Absent { .. })));
        // Another layout is another namespace.
        assert_eq!(given("instagram".parse().unwrap(), 3).worker(1_000).unwrap().record.reserved_until, 3);
    }
}
