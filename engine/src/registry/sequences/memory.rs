//! Records of names in memory, for tests: the clones of one share them, as processes share a registry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use super::{MOST_CHANGES, SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};
use crate::sys::atomics::lock;

/// What becomes of a call. One fault serves one call of [`swap`](SequenceRecords::swap) or
/// [`read`](SequenceRecords::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The changes are stored, and the answer is lost.
    LandsUnseen,
    /// The changes are lost on their way, and whether they are is not known.
    LostUnseen,
    /// Nothing is stored, and nothing is read.
    Away,
}

#[derive(Default)]
struct Shared {
    rows: BTreeMap<String, Versioned<SequenceRecord>>,
    /// Names whose record a fence closed.
    closed: BTreeSet<String>,
    faults: VecDeque<Option<RecordFault>>,
    away: bool,
    /// How often they were maintained, and listed.
    maintained: u32,
    listed: u32,
    /// Called once, before the next change.
    before_swap: Option<Box<dyn FnOnce() + Send>>,
}

/// The records.
#[derive(Clone)]
pub struct MemoryRecords {
    cluster: ClusterId,
    kind: &'static str,
    shared: Arc<Mutex<Shared>>,
}

impl std::fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRecords").finish_non_exhaustive()
    }
}

impl MemoryRecords {
    /// No records yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self { cluster, kind: "memory", shared: Arc::default() }
    }

    /// The same, and they describe themselves so.
    #[must_use]
    pub fn described(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// The next calls meet these faults, one each.
    pub fn fail(&self, faults: impl IntoIterator<Item = RecordFault>) {
        lock(&self.shared).faults.extend(faults.into_iter().map(Some));
    }

    /// So many calls go well, and the next one meets this fault.
    pub fn fail_after(&self, calls: usize, fault: RecordFault) {
        let faults = &mut lock(&self.shared).faults;
        faults.extend(std::iter::repeat_n(None, calls));
        faults.push_back(Some(fault));
    }

    /// Whether every call finds them away.
    pub fn set_away(&self, away: bool) {
        lock(&self.shared).away = away;
    }

    /// Closes a name's record, as a fence does, or opens it.
    pub fn set_closed(&self, name: &str, closed: bool) {
        let names = &mut lock(&self.shared).closed;
        if closed {
            names.insert(name.to_owned())
        } else {
            names.remove(name)
        };
    }

    /// Something else happens before the next change.
    pub fn before_swap(&self, event: impl FnOnce() + Send + 'static) {
        lock(&self.shared).before_swap = Some(Box::new(event));
    }

    /// The record of a name now.
    #[must_use]
    pub fn record(&self, name: &str) -> Option<SequenceRecord> {
        lock(&self.shared).rows.get(name).map(|row| row.record.clone())
    }

    /// How often they were maintained.
    #[must_use]
    pub fn maintained(&self) -> u32 {
        lock(&self.shared).maintained
    }

    /// How often they were listed.
    #[must_use]
    pub fn listed(&self) -> u32 {
        lock(&self.shared).listed
    }

    /// Loses a record, as no registry may.
    pub fn lose(&self, name: &str) {
        lock(&self.shared).rows.remove(name);
    }
}

impl Shared {
    fn fault(&mut self) -> Option<RecordFault> {
        if self.away { Some(RecordFault::Away) } else { self.faults.pop_front().flatten() }
    }

    fn swap(&mut self, change: &SequenceChange<'_>) -> Result<(), SwapError> {
        if self.closed.contains(change.name) {
            let what = format!("the sequence '{}'", change.name);
            return Err(ReadError::Closed { what, value: 0 }.into());
        }
        let found = self.rows.get(change.name);
        if found.map(|row| row.version) != change.expected {
            return Err(SwapError::Conflict);
        }
        let version = found.map_or(0, |row| row.version + 1);
        self.rows.insert(change.name.to_owned(), Versioned { record: change.record.clone(), version });
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Versioned<SequenceRecord>, ReadError> {
        let what = || format!("the sequence '{name}'");
        if self.closed.contains(name) {
            return Err(ReadError::Closed { what: what(), value: 0 });
        }
        let absent = || ReadError::Absent { what: what() };
        self.rows.get(name).cloned().ok_or_else(absent)
    }
}

impl SequenceRecords for MemoryRecords {
    fn describe(&self) -> String {
        self.kind.to_owned()
    }

    fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        let mut shared = lock(&self.shared);
        let fault = shared.fault();
        out.extend(names.iter().map(|name| match fault {
            Some(_) => Err(ReadError::Unavailable { why: "it is away".into() }),
            None => shared.read(name),
        }));
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        assert!(changes.len() <= MOST_CHANGES, "{} changes in one call", changes.len());
        let mut shared = lock(&self.shared);
        if let Some(event) = shared.before_swap.take() {
            event();
        }
        let fault = shared.fault();
        out.extend(changes.iter().map(|change| match fault {
            None => shared.swap(change),
            Some(RecordFault::Away) => Err(SwapError::Unavailable { why: "it is away".into() }),
            Some(RecordFault::LostUnseen) => Err(SwapError::Unknown { why: "the request was lost".into() }),
            Some(RecordFault::LandsUnseen) => {
                let _ = shared.swap(change);
                Err(SwapError::Unknown { why: "the answer was lost".into() })
            }
        }));
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        let mut shared = lock(&self.shared);
        shared.listed += 1;
        if shared.fault().is_some() {
            return Err(ReadError::Unavailable { why: "it is away".into() });
        }
        let rows = shared.rows.iter();
        let listed = rows
            .filter(|(name, _)| name.as_str() > after && name.starts_with(prefix) && !name.starts_with('@'));
        Ok(listed.take(limit).map(|(name, _)| (name.clone(), shared.read(name))).collect())
    }

    fn closed_record(&mut self, name: &str) -> Result<SequenceRecord, ReadError> {
        let mut shared = lock(&self.shared);
        if shared.fault().is_some() {
            return Err(ReadError::Unavailable { why: "it is away".into() });
        }
        let found = shared.rows.get(name).filter(|_| shared.closed.contains(name));
        let absent = || ReadError::Absent { what: format!("a closed record of the sequence '{name}'") };
        found.map(|row| row.record.clone()).ok_or_else(absent)
    }

    fn maintain(&mut self) {
        lock(&self.shared).maintained += 1;
    }
}
