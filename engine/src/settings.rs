//! The knobs of an engine, checked in one place.

use std::time::Duration;

use xuid_id::Veil;

use crate::clock::{Thresholds, nanos};

/// Ticks of the first window beyond now; doubled at each renewal up to `window_max`.
pub(crate) const FIRST_WINDOW: Duration = Duration::from_secs(2);

/// Slots of a ring. 4096 slots of 512 ids, half of them in the ring and half in the queue, are a second of one worker's
/// ids.
pub(crate) const SLOTS: usize = 4096;

/// The longest run in a slot: as a slot's line costs 130-190 ns to fetch from another core whatever it holds (measured,
/// two-core Sapphire Rapids), 64 ids a slot would cost 2-3 ns an id, 1,024 a fifth of one, and 4,096, a whole tick of
/// the default layout, nothing that shows beside a hit. Only a burst has ids for so long ones.
pub(crate) const LONGEST_BLOCK: u32 = 4096;

/// Ids that stay in memory at light load: about a second of the default layout's ids, which is what the producer
/// turns over in a second. As blocks of 512 they fill ring and queue.
pub(crate) const CALM_IDS: u64 = 1 << 22;

/// Ids of a block at light load: those fill ring and queue together.
pub(crate) const CALM_BLOCK: u64 = 512;

/// Which tiers there are, and how long a run in a slot may be: all and the longest, but in a measurement of what each
/// is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "ablation"), expect(unreachable_pub, reason = "exported with the feature"))]
pub struct Tiers {
    /// Callers look into the ring.
    pub ring: bool,
    /// Callers that found nothing in the ring look into the queue.
    pub queue: bool,
    /// Ids in a slot at most, a power of two. At 1 a thread has no run in hand: each call takes a slot.
    pub longest_run: u32,
}

impl Default for Tiers {
    fn default() -> Self {
        Self { ring: true, queue: true, longest_run: LONGEST_BLOCK }
    }
}

/// A setting that is impossible.
#[derive(Debug)]
pub(crate) struct SettingError {
    /// Its name.
    pub(crate) setting: &'static str,
    /// Its value.
    pub(crate) found: String,
    /// The range.
    pub(crate) allowed: &'static str,
}

/// All settings of an engine.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) workers: u32,
    pub(crate) pinned: Option<u32>,
    pub(crate) max_age: Duration,
    pub(crate) wait: Duration,
    pub(crate) backfill: Duration,
    pub(crate) window_max: Duration,
    pub(crate) rollback_wait: Duration,
    pub(crate) drift: Duration,
    pub(crate) max_forward: Duration,
    pub(crate) spill: bool,
    pub(crate) veil: Option<Veil>,
    pub(crate) tiers: Tiers,
    /// Slots of the ring, and blocks the queue holds: as many, so that a ring emptied at once is refilled at once.
    pub(crate) slots: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 1,
            pinned: None,
            max_age: Duration::from_hours(1),
            wait: Duration::from_millis(50),
            backfill: Duration::ZERO,
            window_max: Duration::from_mins(1),
            rollback_wait: Duration::from_millis(15),
            drift: Duration::from_secs(1),
            max_forward: Duration::from_secs(5),
            spill: true,
            veil: None,
            tiers: Tiers::default(),
            slots: SLOTS,
        }
    }
}

impl Settings {
    /// Checks every range.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        let year = Duration::from_hours(366 * 24);
        let second = Duration::from_secs(1);
        let ranges: [(&'static str, Duration, Duration, Duration, &'static str); 7] = [
            ("max_age", self.max_age, 2 * second, 100 * year, "2 s to 100 years"),
            ("wait", self.wait, Duration::ZERO, 60 * second, "0 to 60 s"),
            ("backfill", self.backfill, Duration::ZERO, self.max_age, "0 to max_age"),
            ("window_max", self.window_max, second, 100 * second, "1 s to 100 s"),
            ("rollback_wait", self.rollback_wait, Duration::ZERO, self.drift, "0 to drift"),
            ("drift", self.drift, Duration::ZERO, 60 * second, "0 to 60 s"),
            ("max_forward", self.max_forward, Duration::from_millis(100), 100 * second, "100 ms to 100 s"),
        ];
        for (setting, value, least, most, allowed) in ranges {
            if value < least || value > most {
                return Err(SettingError { setting, found: format!("{value:?}"), allowed });
            }
        }
        if self.workers == 0 || self.workers > 64 || (self.pinned.is_some() && self.workers != 1) {
            let allowed = "1 to 64, and 1 where a certain worker is asked for";
            return Err(SettingError { setting: "workers", found: self.workers.to_string(), allowed });
        }
        let Tiers { longest_run, .. } = self.tiers;
        if !longest_run.is_power_of_two() || longest_run > LONGEST_BLOCK {
            let (setting, allowed) = ("tiers.longest_run", "a power of two, at most 4,096");
            return Err(SettingError { setting, found: longest_run.to_string(), allowed });
        }
        Ok(())
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds {
            rollback_wait: nanos(self.rollback_wait),
            drift: nanos(self.drift),
            max_forward: nanos(self.max_forward),
            ..Thresholds::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_a_slot_is_a_power_of_two_or_the_engine_is_not_built() {
        for (longest_run, fits) in
            [(0, false), (1, true), (1_000, false), (LONGEST_BLOCK, true), (8_192, false)]
        {
            let tiers = Tiers { longest_run, ..Tiers::default() };
            assert_eq!(Settings { tiers, ..Settings::default() }.check().is_ok(), fits, "{longest_run}");
        }
    }
}
