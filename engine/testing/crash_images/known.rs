//! What the engine was told about the registry's records, and whether an image still says it.
//!
//! [`Watched`] stands between an engine and its registry, and notes what each change was to become before it is made,
//! and that it is so when the engine is told. After a power cut a record is what was confirmed last, or what a change
//! that was under way was to make of it; a record that is anything else went back.

use std::collections::BTreeMap;
use std::sync::Arc;

use xuid_spill::SpillId;

use crate::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry, WorkerRecord,
};
use crate::testing::crash_images::power::{Fault, Power};

/// Which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Worker(u32),
    Mark(SpillId),
}

/// A record's value, and the write that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) value: u64,
    token: Token,
    operation: u64,
}

impl From<&WorkerRecord> for Said {
    fn from(record: &WorkerRecord) -> Self {
        Self { value: record.reserved_until, token: record.token, operation: record.operation }
    }
}

impl From<&MarkRecord> for Said {
    fn from(record: &MarkRecord) -> Self {
        Self { value: record.granted_upto, token: record.token, operation: record.operation }
    }
}

#[derive(Debug, Clone, Default)]
struct Entry {
    /// `None`: there is no such record.
    confirmed: Option<Said>,
    /// Begun since then, with an outcome that is not known.
    attempts: Vec<Said>,
}

/// All that was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known(BTreeMap<What, Entry>);

impl Known {
    /// The value that the engine may rely on.
    pub(crate) fn value(&self, what: What) -> Option<u64> {
        self.0.get(&what).and_then(|entry| entry.confirmed).map(|said| said.value)
    }

    fn attempt(&mut self, what: What, said: Said) {
        self.0.entry(what).or_default().attempts.push(said);
    }

    fn settle(&mut self, what: What, said: Said, result: &Result<(), SwapError>) {
        let entry = self.0.entry(what).or_default();
        match result {
            Ok(()) => *entry = Entry { confirmed: Some(said), attempts: Vec::new() },
            Err(SwapError::Unknown { .. }) => {}
            Err(_) => entry.attempts.retain(|attempt| *attempt != said),
        }
    }

    /// Reads all records of a registry that was just opened, holds them against what is known, and knows them from
    /// then on: what is read after a start is durable. A genesis is known by being read.
    pub(crate) fn survey<R: Registry>(&mut self, registry: &mut R) -> Result<(), String> {
        let fresh = self.0.is_empty();
        for worker in 0..registry.genesis().workers {
            let found = registry.worker(worker).map_err(|error| format!("a record was lost: {error}"))?;
            self.check(What::Worker(worker), Some(Said::from(&found.record)), fresh)?;
        }
        let marks = self.0.keys().filter_map(|what| match what {
            What::Mark(spill) => Some(*spill),
            What::Worker(_) => None,
        });
        for spill in marks.collect::<Vec<_>>() {
            let found = match registry.mark(spill) {
                Ok(found) => Some(Said::from(&found.record)),
                Err(ReadError::Absent { .. }) => None,
                Err(error) => return Err(format!("a record was lost: {error}")),
            };
            self.check(What::Mark(spill), found, false)?;
        }
        Ok(())
    }

    fn check(&mut self, what: What, found: Option<Said>, fresh: bool) -> Result<(), String> {
        let entry = self.0.entry(what).or_default();
        let allowed =
            fresh || found == entry.confirmed || found.is_some_and(|found| entry.attempts.contains(&found));
        if !allowed {
            return Err(format!("a record went back: {what:?} says {found:?} after {entry:?}"));
        }
        *entry = Entry { confirmed: found, attempts: Vec::new() };
        Ok(())
    }
}

/// A registry that is watched.
pub(crate) struct Watched<R> {
    registry: R,
    power: Arc<Power>,
    fault: Fault,
    /// A mark's write that was confirmed and not made.
    late: Option<(SpillId, u64, MarkRecord)>,
}

impl<R: Registry> Watched<R> {
    pub(crate) fn new(registry: R, power: Arc<Power>, fault: Fault) -> Self {
        Self { registry, power, fault, late: None }
    }

    fn catch_up(&mut self) {
        if let Some((spill, expected, record)) = self.late.take() {
            let _ = self.registry.swap_mark(spill, expected, &record);
        }
    }

    fn change(
        &mut self,
        doing: &'static str,
        what: What,
        said: Said,
        change: impl FnOnce(&mut R) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        self.catch_up();
        self.power.known(|known| known.attempt(what, said));
        let registry = &mut self.registry;
        let result = self.power.doing(doing, || change(registry));
        self.power.known(|known| known.settle(what, said, &result));
        result
    }
}

impl<R: Registry> Registry for Watched<R> {
    fn genesis(&self) -> &Genesis {
        self.registry.genesis()
    }

    fn describe(&self) -> String {
        self.registry.describe()
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        self.catch_up();
        self.registry.workers()
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.catch_up();
        self.registry.worker(worker)
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.change("claim", What::Worker(worker), record.into(), |it| it.claim(worker, expected, record))
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let back = self.power.known(|known| known.value(What::Worker(worker)) > Some(record.reserved_until));
        let doing = if back { "release" } else { "renewal" };
        self.change(doing, What::Worker(worker), record.into(), |it| it.swap_worker(worker, expected, record))
    }

    fn leave(&mut self, worker: u32) {
        self.registry.leave(worker);
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.catch_up();
        self.registry.mark(spill)
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.change("new_mark", What::Mark(spill), record.into(), |it| it.create_mark(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        if self.fault.mark_not_awaited {
            self.catch_up();
            self.late = Some((spill, expected, record.clone()));
            return Ok(());
        }
        self.change("grant", What::Mark(spill), record.into(), |it| it.swap_mark(spill, expected, record))
    }

    fn close(&mut self) {
        self.catch_up();
        self.registry.close();
    }
}
