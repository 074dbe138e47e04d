//! Closed workers: another generator has them. Their records exist, reserved to the end of
//! time, so that no process ever takes one; a person opens them when that generator has stopped.
//!
//! # Invariants
//! - C1 nothing was granted of a closed worker by this registry since it was made, or since the last fence: so its value,
//!   the end of time, stands for no ticks of anybody, and may fall when it is opened;
//! - C2 an opened worker begins above the last id of the other generator, 125 s ahead of the registry's clock, and above
//!   the tick that the last fence raised all others to: whatever was granted before that fence, if the registry was put
//!   back to a time when the worker was closed still, is below;
//! - C3 the change is a compare-and-set as every other one: versions rise, and processes that run see a later record.

use xuid_id::Layout;

use super::limits::range::Workers;
use super::limits::{beyond, is_near};
use super::{ReadError, Registry, SwapError, Token, Versioned, WorkerRecord};

impl WorkerRecord {
    /// What a closed record is reserved until: the end of time. No window ends there.
    pub(crate) const CLOSED: u64 = u64::MAX;

    /// One of a worker that cannot be opened to ticks before `not_before`.
    pub(crate) fn closed(not_before: u64) -> Self {
        let owner = "closed: another generator's".to_owned();
        Self { reserved_until: Self::CLOSED, token: Token::default(), operation: not_before, owner }
    }

    /// Whether the worker is closed: another generator has it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.reserved_until == Self::CLOSED
    }

    /// Up to where something may have been granted, for a fence that goes above all of it: of a closed one, up to where an
    /// earlier fence went.
    pub(crate) fn reach(&self) -> u64 {
        if self.is_closed() { self.operation } else { self.reserved_until }
    }
}

/// Workers that were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Which.
    pub workers: Workers,
    /// The first tick that may be granted of them.
    pub from: u64,
}

/// Workers were not opened, or not all of them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The registry does not have all of them.
    #[error("workers {asked} are not all of this registry, which has {there}")]
    Absent {
        /// Which were named.
        asked: Workers,
        /// Which there are.
        there: Workers,
    },
    /// Some are open, so that servers may have them.
    #[error("{open} of the workers {asked} are not closed, {first} the first of them: name closed ones only")]
    NotClosed {
        /// Which were named.
        asked: Workers,
        /// How many are open.
        open: u32,
        /// The first of those.
        first: u32,
    },
    /// The layout has no tick from which they may be opened.
    #[error("no tick is left from which they may be opened: the layout ends before")]
    NoTick,
    /// They would begin so far ahead that no process could use them until then, and after the next fence no other worker either.
    #[error(
        "the tick after the last id of their generator begins {ahead} s from now, and at most 125 s are allowed: is that an id of \
         this layout and epoch ({layout})? Then its generator's clock was ahead: open them when that time has come"
    )]
    Ahead {
        /// Seconds until that tick.
        ahead: u64,
        /// The layout.
        layout: Layout,
    },
    /// The registry cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system has no random bytes.
    #[error("failed to draw random bytes: {0}")]
    Random(String),
    /// One could not be changed.
    #[error(
        "worker {worker} was not opened, {before} before it were: {why}; try again with those that are still closed"
    )]
    Worker {
        /// Which.
        worker: u32,
        /// How many were opened.
        before: u32,
        /// What happened.
        why: String,
    },
}

/// Opens closed workers to ticks after `after`, the tick of the last id that their generator issued, beside whatever uses the
/// registry. `now_ns` is the wall clock (Unix nanoseconds), where the registry has none of its own.
///
/// # Errors
/// See [`OpenError`]. Those that were opened before an error stay open.
pub fn open(
    registry: &mut dyn Registry,
    workers: Workers,
    after: u64,
    now_ns: u64,
) -> Result<Opened, OpenError> {
    let genesis = *registry.genesis();
    let there = genesis.worker_range();
    if workers.is_empty() || !workers.are_among(&there) {
        return Err(OpenError::Absent { asked: workers, there });
    }
    let records = closed_records(registry, workers)?;
    let (layout, now_ns) = (genesis.layout, registry.time().unwrap_or(now_ns));
    let clear = beyond(&layout, now_ns).unwrap_or(0);
    let fenced = records.iter().map(|(_, found)| found.record.reach()).max().unwrap_or(0);
    let after = after.saturating_add(1);
    let from = after.max(clear).max(fenced).max(genesis.floor);
    if from > layout.last_tick() {
        return Err(OpenError::NoTick);
    }
    if !is_near(&layout, after, now_ns) {
        let ahead = layout.tick_to_ms(after).saturating_sub(now_ns / 1_000_000) / 1_000;
        return Err(OpenError::Ahead { ahead, layout });
    }
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(|error| OpenError::Random(error.to_string()))?;
    for (before, (worker, found)) in (0..).zip(records) {
        let operation = u64::from(before) + 1;
        let record =
            WorkerRecord { reserved_until: from, token: Token(token), operation, owner: "opened".to_owned() };
        let stored = registry.swap_worker(worker, found.version, &record);
        settle(registry, worker, &record, stored).map_err(|why| OpenError::Worker { worker, before, why })?;
    }
    Ok(Opened { workers, from })
}

/// The records of workers that all are closed.
fn closed_records(
    registry: &mut dyn Registry,
    workers: Workers,
) -> Result<Vec<(u32, Versioned<WorkerRecord>)>, OpenError> {
    let entries = registry.workers()?.into_iter().filter(|entry| workers.contains(entry.worker));
    let mut records = Vec::new();
    for entry in entries {
        records.push((entry.worker, entry.record?));
    }
    let is_open = |(_, found): &&(u32, Versioned<WorkerRecord>)| !found.record.is_closed();
    if let Some((first, _)) = records.iter().find(is_open) {
        let open = records.iter().filter(is_open).count() as u32;
        return Err(OpenError::NotClosed { asked: workers, open, first: *first });
    }
    Ok(records)
}

/// What became of a write: one whose answer was lost is looked for.
fn settle(
    registry: &mut dyn Registry,
    worker: u32,
    record: &WorkerRecord,
    stored: Result<(), SwapError>,
) -> Result<(), String> {
    match stored {
        Ok(()) => Ok(()),
        Err(SwapError::Unknown { why }) => match registry.worker(worker) {
            Ok(found) if (found.record.token, found.record.operation) == (record.token, record.operation) => {
                Ok(())
            }
            _ => Err(why),
        },
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::memory::{Fault, MemoryRegistry};
    use crate::registry::{ClusterId, Genesis};

    const NOW: u64 = 1_795_219_200_000_000_000;

    fn registry() -> MemoryRegistry {
        let layout = Layout::default();
        let closed = Workers { from: 2, until: 6 };
        MemoryRegistry::new(Genesis { closed, ..Genesis::new(ClusterId::from_bytes([1; 16]), layout, 5, 8) })
    }

    fn until(registry: &mut MemoryRegistry) -> Vec<u64> {
        let workers = registry.workers().unwrap();
        workers.into_iter().map(|entry| entry.record.unwrap().record.reserved_until).collect()
    }

    #[test]
    fn closed_workers_open_above_the_other_generator_and_clear_of_every_window() {
        let mut registry = registry();
        assert_eq!(until(&mut registry), [5, 5, u64::MAX, u64::MAX, u64::MAX, u64::MAX, 5, 5]);
        let layout = Layout::default();
        let clear = beyond(&layout, NOW).unwrap();
        let some = Workers { from: 2, until: 4 };
        assert_eq!(open(&mut registry, some, 77, NOW).unwrap(), Opened { workers: some, from: clear });
        assert_eq!(until(&mut registry), [5, 5, clear, clear, u64::MAX, u64::MAX, 5, 5]);
        // The last id may be of a clock that is ahead by as much as windows are.
        let rest = Workers { from: 4, until: 6 };
        assert_eq!(open(&mut registry, rest, clear - 2, NOW).unwrap().from, clear);
        assert_eq!(until(&mut registry)[4..6], [clear; 2]);
    }

    #[test]
    fn they_open_by_the_registrys_clock_where_it_has_one() {
        let (mut registry, layout) = (registry(), Layout::default());
        registry.set_time(Some(NOW + 60_000_000_000));
        let opened = open(&mut registry, "2..4".parse().unwrap(), 77, NOW).unwrap();
        assert_eq!(opened.from, beyond(&layout, NOW + 60_000_000_000).unwrap());
    }

    #[test]
    fn where_a_clock_is_before_the_epoch_still_they_open_above_the_last_id_and_the_floor() {
        let before_ns = (xuid_id::DEFAULT_EPOCH_MS - 10_000) * 1_000_000;
        let mut registry = registry();
        let opened = open(&mut registry, "2..4".parse().unwrap(), 50_000, before_ns);
        assert_eq!(opened.unwrap().from, 50_001);
        assert_eq!(open(&mut registry, "4..5".parse().unwrap(), 0, before_ns).unwrap().from, 5);
    }

    #[test]
    fn what_is_not_closed_or_not_there_is_refused_and_nothing_is_changed() {
        let mut registry = registry();
        let before = until(&mut registry);
        for (text, words) in
            [("1..3", "1 of the workers 1..3 are not closed, 1 the first"), ("4..9", "which has 0..8")]
        {
            let error = open(&mut registry, text.parse().unwrap(), 77, NOW).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let last = Layout::default().last_tick();
        assert!(matches!(open(&mut registry, "2..3".parse().unwrap(), last, NOW), Err(OpenError::NoTick)));
        assert_eq!(until(&mut registry), before);
    }

    #[test]
    fn where_one_of_them_cannot_be_read_none_is_opened() {
        let mut registry = registry();
        registry.tamper_worker(4, None);
        let error = open(&mut registry, "2..6".parse().unwrap(), 77, NOW).unwrap_err();
        assert!(
            matches!(&error, OpenError::Read(ReadError::Absent { what }) if what == "worker 4"),
            "{error}"
        );
        let is_closed = |worker| registry.clone().worker(worker).unwrap().record.is_closed();
        assert!([2, 3, 5].into_iter().all(is_closed));
    }

    /// Opened so far ahead they could not be closed again, and the next fence would raise all workers to them.
    #[test]
    fn workers_are_not_opened_to_a_time_that_is_far_ahead_as_by_an_id_of_another_layout() {
        let mut registry = registry();
        let before = until(&mut registry);
        let layout = Layout::default();
        let now = layout.tick_at_ns(NOW).unwrap();
        for ahead in [125_001, 3_600_000, 500_000_000_000] {
            let error = open(&mut registry, "2..6".parse().unwrap(), now + ahead, NOW).unwrap_err();
            assert!(matches!(error, OpenError::Ahead { .. }), "{error}");
            let seconds = format!("begins {} s from now", (ahead + 1) / 1_000);
            assert!(error.to_string().contains(&seconds), "{error}");
        }
        assert!(matches!(
            open(&mut registry, "2..6".parse().unwrap(), u64::MAX, NOW),
            Err(OpenError::NoTick)
        ));
        assert_eq!(until(&mut registry), before);
    }

    #[test]
    fn a_write_whose_answer_is_lost_is_looked_for_and_one_that_was_lost_is_told() {
        let mut registry = registry();
        registry.fail(Fault::LandsUnseen);
        registry.fail(Fault::LostUnseen);
        let error = open(&mut registry, "2..6".parse().unwrap(), 77, NOW).unwrap_err();
        assert!(matches!(error, OpenError::Worker { worker: 3, before: 1, .. }), "{error}");
        assert!(
            open(&mut registry, "2..6".parse().unwrap(), 77, NOW)
                .unwrap_err()
                .to_string()
                .contains("2 the first")
        );
        open(&mut registry, "3..6".parse().unwrap(), 77, NOW).unwrap();
    }

    #[test]
    fn a_fence_keeps_closed_workers_closed_and_they_open_above_it() {
        let mut registry = registry();
        // A clock was an hour ahead when this one was granted.
        let ahead = Layout::default().tick_at_ns(NOW + 3_600_000_000_000).unwrap();
        let found = registry.worker(0).unwrap();
        let record = WorkerRecord { reserved_until: ahead, ..found.record };
        registry.swap_worker(0, found.version, &record).unwrap();
        registry.fence(NOW);
        let max = u64::MAX;
        assert_eq!(until(&mut registry), [ahead, ahead, max, max, max, max, ahead, ahead]);
        registry.fence(NOW);
        assert_eq!(open(&mut registry, "2..6".parse().unwrap(), 77, NOW).unwrap().from, ahead);
    }
}
