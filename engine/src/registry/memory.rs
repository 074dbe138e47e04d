//! A registry in memory, for tests and simulations: several engines of one process may share it, and outcomes
//! can be made unknown.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use xuid_spill::SpillId;

use super::limits::beyond;
use super::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry, WorkerRecord,
};
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;

/// What the next writes do, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The write lands, the answer does not.
    LandsUnseen,
    /// Neither lands, and nobody can tell.
    LostUnseen,
    /// Nobody can tell, and it lands when [`MemoryRegistry::land`] is called, if its version still fits then.
    LandsLate,
    /// The registry is away.
    Away,
    /// The write lands, and the adaptor panics; the next write, or before that a look at the connection.
    LandsAndPanics,
}

/// The records of a registry as they were once: [`MemoryRegistry::backup`].
#[derive(Debug, Clone)]
pub struct Backup {
    workers: Vec<Option<Versioned<WorkerRecord>>>,
    marks: HashMap<SpillId, Versioned<MarkRecord>>,
}

/// Added to every version by a fence: more changes than were made between a backup and its restore.
const LEAP: u64 = 1 << 32;

/// A write that is under way, though no call waits for it any more.
type Ghost = Box<dyn FnOnce(&mut Store) -> Result<(), SwapError> + Send>;

#[derive(Default)]
struct Store {
    workers: Vec<Option<Versioned<WorkerRecord>>>,
    live: HashMap<u32, String>,
    marks: HashMap<SpillId, Versioned<MarkRecord>>,
    faults: Vec<Fault>,
    unread: u32,
    late: Vec<Ghost>,
    time: Option<u64>,
}

/// The registry. Clones share their records.
#[derive(Clone)]
pub struct MemoryRegistry {
    genesis: Genesis,
    store: Arc<Mutex<Store>>,
    claimed: Vec<u32>,
}

impl fmt::Debug for MemoryRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegistry").field("genesis", &self.genesis).finish_non_exhaustive()
    }
}

impl MemoryRegistry {
    /// A registry whose workers are all free from the floor on, but for the closed ones. They begin at 0.
    #[must_use]
    pub fn new(genesis: Genesis) -> Self {
        let fresh = WorkerRecord {
            reserved_until: genesis.floor,
            token: Token::default(),
            operation: 0,
            owner: String::new(),
        };
        let record = |worker| {
            if genesis.closed.contains(worker) { WorkerRecord::closed(0) } else { fresh.clone() }
        };
        let workers =
            (0..genesis.workers).map(|worker| Some(Versioned { record: record(worker), version: 0 }));
        let workers = workers.collect();
        let store = Store { workers, ..Store::default() };
        Self { genesis, store: Arc::new(Mutex::new(store)), claimed: Vec::new() }
    }

    /// The next write meets this.
    pub fn fail(&self, fault: Fault) {
        lock(&self.store).faults.push(fault);
    }

    /// The next so many reads of a record find the registry away.
    pub fn fail_reads(&self, count: u32) {
        lock(&self.store).unread = count;
    }

    /// Writes that were under way arrive.
    pub fn land(&self) {
        let mut store = lock(&self.store);
        for ghost in std::mem::take(&mut store.late) {
            let _ = ghost(&mut store);
        }
    }

    /// No write meets anything any more.
    pub fn mend(&self) {
        lock(&self.store).faults.clear();
    }

    /// The registry's own clock reads so many Unix nanoseconds.
    pub fn set_time(&self, unix_ns: Option<u64>) {
        lock(&self.store).time = unix_ns;
    }

    /// Changes a worker's record behind everybody's back; `None` removes it.
    pub fn tamper_worker(&self, worker: u32, record: Option<Versioned<WorkerRecord>>) {
        lock(&self.store).workers[worker as usize] = record;
    }

    /// Changes a mark behind everybody's back; `None` removes it.
    pub fn tamper_mark(&self, spill: SpillId, record: Option<Versioned<MarkRecord>>) {
        let mut store = lock(&self.store);
        match record {
            Some(record) => store.marks.insert(spill, record),
            None => store.marks.remove(&spill),
        };
    }

    /// A copy of all records.
    #[must_use]
    pub fn backup(&self) -> Backup {
        let store = lock(&self.store);
        Backup { workers: store.workers.clone(), marks: store.marks.clone() }
    }

    /// Puts all records back to what they were, under everybody's feet, and forgets who is alive.
    pub fn restore(&self, backup: &Backup) {
        let mut store = lock(&self.store);
        let Backup { workers, marks } = backup.clone();
        (store.workers, store.marks) = (workers, marks);
        store.live.clear();
    }

    /// Raises every record beyond what may have been granted up to `now_ns` (Unix nanoseconds), every mark to its end,
    /// and every version, as the fences of real registries do.
    pub fn fence(&self, now_ns: u64) {
        let mut store = lock(&self.store);
        let Store { workers, marks, .. } = &mut *store;
        let highest = workers.iter().flatten().map(|found| found.record.reach()).max().unwrap_or(0);
        let reach = beyond(&self.genesis.layout, now_ns).unwrap_or(0);
        let reserved_until = reach.max(highest).max(self.genesis.floor);
        let versions = workers.iter().flatten().map(|found| found.version);
        let highest_version = versions.chain(marks.values().map(|found| found.version)).max().unwrap_or(0);
        // By time as well: what was put back may be from before another fence, whose versions must not come again.
        let version = (highest_version + LEAP).max(now_ns);
        let (token, operation) = (Token::default(), 0);
        for slot in workers {
            let record = match slot {
                Some(found) if found.record.is_closed() => WorkerRecord::closed(reserved_until),
                _ => WorkerRecord { reserved_until, token, operation, owner: "fence".to_owned() },
            };
            *slot = Some(Versioned { record, version });
        }
        for mark in marks.values_mut() {
            let record = MarkRecord { granted_upto: u64::MAX, token, operation };
            *mark = Versioned { record, version };
        }
    }

    /// Removes the `n`th of the marks, in the order of their spills' ids and counted round; says whether there was one.
    #[must_use]
    pub fn lose_mark(&self, n: usize) -> bool {
        let mut store = lock(&self.store);
        let mut spills: Vec<SpillId> = store.marks.keys().copied().collect();
        spills.sort_unstable_by_key(|spill| spill.bytes());
        let lost = spills.get(n % spills.len().max(1)).copied();
        lost.is_some_and(|spill| store.marks.remove(&spill).is_some())
    }

    /// Every session ends: who is alive is forgotten.
    pub fn expire(&self) {
        lock(&self.store).live.clear();
    }

    fn readable(store: &mut Store) -> Result<(), ReadError> {
        if store.unread == 0 {
            return Ok(());
        }
        store.unread -= 1;
        Err(ReadError::Unavailable { why: "it is away".into() })
    }

    fn write(
        &self,
        write: impl FnOnce(&mut Store) -> Result<(), SwapError> + Send + 'static,
    ) -> Result<(), SwapError> {
        let mut store = lock(&self.store);
        let fault = (!store.faults.is_empty()).then(|| store.faults.remove(0));
        match fault {
            None => write(&mut store),
            Some(Fault::LandsUnseen) => {
                let _ = write(&mut store);
                Err(SwapError::Unknown { why: "the answer was lost".into() })
            }
            Some(Fault::LandsLate) => {
                store.late.push(Box::new(write));
                Err(SwapError::Unknown { why: "the answer is late".into() })
            }
            Some(Fault::LostUnseen) => Err(SwapError::Unknown { why: "the request was lost".into() }),
            Some(Fault::Away) => Err(SwapError::Unavailable { why: "it is away".into() }),
            Some(Fault::LandsAndPanics) => {
                let _ = write(&mut store);
                panic!("an adaptor that was told to panic");
            }
        }
    }
}

fn absent(what: impl fmt::Display) -> ReadError {
    ReadError::Absent { what: what.to_string() }
}

impl Store {
    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let slot = self.workers.get_mut(worker as usize).and_then(Option::as_mut);
        let slot = slot.ok_or_else(|| absent(format!("worker {worker}")))?;
        if slot.version != expected && Guard::VersionCompared.holds() {
            return Err(SwapError::Conflict);
        }
        *slot = Versioned { record: record.clone(), version: slot.version + 1 };
        Ok(())
    }
}

impl Registry for MemoryRegistry {
    fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn time(&mut self) -> Option<u64> {
        lock(&self.store).time
    }

    fn maintain(&mut self) {
        let faults = &mut lock(&self.store).faults;
        if faults.first() == Some(&Fault::LandsAndPanics) {
            faults.remove(0);
            panic!("an adaptor that was told to panic");
        }
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let store = lock(&self.store);
        let row = |(worker, slot): (usize, &Option<Versioned<WorkerRecord>>)| WorkerEntry {
            worker: worker as u32,
            record: slot.clone().ok_or_else(|| absent(format!("worker {worker}"))),
            live: store.live.get(&(worker as u32)).cloned(),
        };
        Ok(store.workers.iter().enumerate().map(row).collect())
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        let mut store = lock(&self.store);
        Self::readable(&mut store)?;
        store
            .workers
            .get(worker as usize)
            .cloned()
            .flatten()
            .ok_or_else(|| absent(format!("worker {worker}")))
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.claimed.push(worker);
        let record = record.clone();
        self.write(move |store| {
            store.swap_worker(worker, expected, &record)?;
            store.live.insert(worker, record.owner);
            Ok(())
        })
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let record = record.clone();
        self.write(move |store| store.swap_worker(worker, expected, &record))
    }

    fn leave(&mut self, worker: u32) {
        lock(&self.store).live.remove(&worker);
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        let mut store = lock(&self.store);
        Self::readable(&mut store)?;
        store.marks.get(&spill).cloned().ok_or_else(|| absent(format!("spill {spill}")))
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        let record = record.clone();
        self.write(move |store| {
            if store.marks.contains_key(&spill) {
                return Err(SwapError::Conflict);
            }
            store.marks.insert(spill, Versioned { record, version: 0 });
            Ok(())
        })
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        let record = record.clone();
        self.write(move |store| {
            let found = store.marks.get_mut(&spill).ok_or_else(|| absent(format!("spill {spill}")))?;
            if found.version != expected {
                return Err(SwapError::Conflict);
            }
            *found = Versioned { record, version: expected + 1 };
            Ok(())
        })
    }

    fn close(&mut self) {
        for worker in std::mem::take(&mut self.claimed) {
            self.leave(worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ClusterId;

    /// A writer that holds a version of after the first fence must not find it again after the second.
    #[test]
    fn versions_of_before_a_fence_never_come_again_whatever_backup_is_put_back() {
        let cluster = ClusterId::from_bytes([7; 16]);
        let genesis = Genesis::new(cluster, crate::Layout::default(), 1, 1);
        let mut registry = MemoryRegistry::new(genesis);
        let backup = registry.backup();
        let mut now_ns = 1_700_000_000_000_000_000;
        let mut seen = Vec::new();
        for _ in 0..3 {
            for _ in 0..100 {
                let found = registry.worker(0).unwrap();
                assert!(!seen.contains(&found.version), "version {} came again", found.version);
                seen.push(found.version);
                registry.swap_worker(0, found.version, &found.record).unwrap();
            }
            now_ns += 1_000_000;
            registry.restore(&backup);
            registry.fence(now_ns);
        }
    }
}
