//! When a window is renewed, and when what failed is tried again.
//!
//! # Invariants
//! - I1 nothing that failed is tried again within [`RETRY`], and nothing waits longer than [`LONGEST`];
//! - I2 while the registry is away one job at a time asks whether it is back, so that many workers do not press it the
//!   more; each takes its turn, so that one record that never answers does not keep the others waiting.

use std::collections::HashMap;

use crate::clock::SECOND;

/// Between two tries after a first failure. Long enough not to press a registry that is down, short enough that a
/// window's second half (a second at least) holds several.
pub(crate) const RETRY: u64 = SECOND / 5;

/// Between two tries at most. The wait doubles up to here; with it a registry that is back is noticed within a second.
pub(crate) const LONGEST: u64 = SECOND;

/// One thing that may have failed.
#[derive(Debug, Clone, Copy, Default)]
struct Retry {
    /// Boot time.
    at: u64,
    failures: u32,
}

impl Retry {
    fn failed(&mut self, boot: u64) {
        self.at = boot + (RETRY << self.failures.min(8)).min(LONGEST);
        self.failures += 1;
    }
}

/// What failed and waits.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    take: Retry,
    renewals: HashMap<u32, Retry>,
    /// What did not fail and is not due again before that boot time.
    renewed: HashMap<u32, u64>,
    /// Any job, while the registry is away.
    probe: Retry,
}

impl Retries {
    /// The boot time before which no worker is taken.
    pub(crate) fn take_at(&self, away: bool) -> u64 {
        if away { self.take.at.max(self.probe.at) } else { self.take.at }
    }

    /// The boot time before which this worker's window is not renewed.
    pub(crate) fn renew_at(&self, worker: u32, away: bool) -> u64 {
        let own = self.turn(worker);
        if away { own.max(self.probe.at) } else { own }
    }

    /// Whose turn it is, while the registry is away: the lowest goes first.
    pub(crate) fn turn(&self, worker: u32) -> u64 {
        self.renewals.get(&worker).map_or(0, |retry| retry.at)
    }

    /// The same for taking a worker.
    pub(crate) fn take_turn(&self) -> u64 {
        self.take.at
    }

    pub(crate) fn take_failed(&mut self, boot: u64) {
        self.take.failed(boot);
        self.probe.failed(boot);
    }

    /// No worker was free: nothing failed.
    pub(crate) fn take_later(&mut self, at: u64) {
        self.take = Retry { at, failures: 0 };
        self.probe = Retry::default();
    }

    pub(crate) fn renewal_failed(&mut self, worker: u32, boot: u64) {
        self.renewals.entry(worker).or_default().failed(boot);
        self.probe.failed(boot);
    }

    /// When that is, if so many nanoseconds are left: a wait takes half of them at most.
    pub(crate) fn renewed_until(&self, worker: u32, boot: u64, left: u64) -> Option<u64> {
        let until = self.renewed.get(&worker).copied();
        until.filter(|until| *until > boot && until - boot <= left / 2)
    }

    pub(crate) fn taken(&mut self, worker: u32) {
        (self.take, self.probe) = (Retry::default(), Retry::default());
        self.renewals.remove(&worker);
        self.renewed.remove(&worker);
    }

    /// However little it got, it is not renewed again before that boot time, as long as enough is left.
    pub(crate) fn renewed(&mut self, worker: u32, not_before: u64) {
        self.renewals.remove(&worker);
        self.renewed.insert(worker, not_before);
        self.probe = Retry::default();
    }

    /// The connection is back: no job waits any more.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// By how many ticks the window of `worker` that ends at `end` is renewed early: up to a tenth of its reach, another
/// part for each worker and each window, so that nodes that started together do not go on renewing together.
pub(crate) fn early(worker: u32, end: u64, reach: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
    let mut mixed = (end ^ u64::from(worker).rotate_right(20)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    ((u128::from(reach / 10) * u128::from(mixed)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_a_fifth_of_a_second_to_a_second() {
        let mut retries = Retries::default();
        let mut waits = Vec::new();
        for _ in 0..40 {
            retries.renewal_failed(7, 1_000);
            waits.push((retries.renew_at(7, false) - 1_000) * 10 / SECOND);
        }
        assert_eq!((&waits[..4], waits[39]), (&[2, 4, 8, 10][..], 10));
        assert_eq!((retries.renew_at(8, false), retries.take_at(false)), (0, 0), "others do not wait");
        assert_eq!(retries.renew_at(8, true), 1_000 + SECOND, "but while the registry is away");
        retries.renewed(7, 2_000);
        assert_eq!((retries.renew_at(7, true), retries.take_at(true)), (0, 0));
    }

    #[test]
    fn what_was_renewed_waits_as_long_as_enough_is_left() {
        let mut retries = Retries::default();
        retries.renewed(7, 2_000);
        let until = |boot, left| retries.renewed_until(7, boot, left);
        assert_eq!((until(1_000, 2_000), until(1_999, 2)), (Some(2_000), Some(2_000)));
        assert_eq!((until(1_000, 1_999), until(2_000, 9_000), until(1_999, 0)), (None, None, None));
        assert_eq!(retries.renewed_until(8, 0, u64::MAX), None);
    }

    #[test]
    fn renewals_spread_over_a_tenth_anew_for_each_window() {
        let reach = 60_000;
        let of = |worker, end| early(worker, end, reach);
        for window in 0..20 {
            let end = 1_000_000 + window * 30_000;
            let mut tenths = [0; 10];
            for worker in 0..1_000 {
                assert!(of(worker, end) < reach / 10);
                tenths[(of(worker, end) * 100 / reach) as usize] += 1;
            }
            assert!(tenths.iter().all(|count| (60..160).contains(count)), "{tenths:?}");
        }
        // Two that are close by in one window are so by chance in the next one.
        let close = |left: u32, right: u32, end| of(left, end).abs_diff(of(right, end)) < 60;
        let pairs = (0..200).flat_map(|left| (0..left).map(move |right| (left, right)));
        let (first, both) = pairs.fold((0, 0), |(first, both), (left, right)| {
            let now = close(left, right, 1_000_000);
            (first + u32::from(now), both + u32::from(now && close(left, right, 1_031_234)))
        });
        assert!(first > 200 && both * 20 < first, "{both} of {first} pairs stay together");
    }
}
