//! Pauses that grow, and that no two clients share.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The pauses after failures in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// The next pause: between half of it and all of it.
    pub(crate) fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = full.saturating_mul(2).min(self.longest);
        let half = full / 2;
        // Rounding could lead beyond the longest span that there is.
        half.saturating_add(half.mul_f64(random_share().min(0.999)))
    }
}

/// Somewhere from 0 to 1.
pub(super) fn random_share() -> f64 {
    random_number() as f64 / u64::MAX as f64
}

/// Any number. Each `RandomState` has keys of its own, which is random enough to part clients.
pub(super) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_never_below_half() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(100));
        for full in [10, 20, 40, 80, 100, 100] {
            let pause = backoff.pause();
            assert!(pause >= ms(full) / 2 && pause <= ms(full), "{pause:?} of {full} ms");
        }
        assert_eq!(Backoff::new(ms(10), Duration::ZERO).pause(), Duration::ZERO);
    }

    #[test]
    fn two_clients_do_not_pause_alike() {
        let hour = Duration::from_hours(1);
        let pauses: std::collections::BTreeSet<_> =
            (0..10).map(|_| Backoff::new(hour, hour).pause()).collect();
        assert!(pauses.len() > 5, "{pauses:?}");
    }
}
