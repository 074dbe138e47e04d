//! Durations, counted by how long they were.

use std::time::Duration;

use crate::clock::nanos;

/// How often something took how long: counts between fixed bounds, and the sum.
///
/// ```
/// use std::time::Duration;
/// use xuid_engine::stats::Latency;
/// let latency = Latency::default();
/// assert_eq!(latency.buckets().count(), Latency::BOUNDS.len() + 1);
/// assert_eq!(latency.buckets().next(), Some((Some(Duration::from_micros(500)), 0)));
/// assert_eq!(latency.buckets().last(), Some((None, 0)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    counts: [u64; Self::BOUNDS.len() + 1],
    count: u64,
    sum: Duration,
    last: Duration,
    longest: Duration,
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl Latency {
    /// The longest time that each bucket counts; one more counts the rest. A local registry answers in less than a
    /// millisecond, an ensemble in one or two; ten seconds are the longest that one answer is waited for.
    pub const BOUNDS: [Duration; 14] = [
        us(500),
        us(1_000),
        us(2_000),
        us(5_000),
        us(10_000),
        us(20_000),
        us(50_000),
        us(100_000),
        us(200_000),
        us(500_000),
        us(1_000_000),
        us(2_000_000),
        us(5_000_000),
        us(10_000_000),
    ];

    /// Counts one that took so long.
    pub(crate) fn record(&mut self, took: Duration) {
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < took)] += 1;
        self.count += 1;
        self.sum += took;
        self.last = took;
        self.longest = self.longest.max(took);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The last one; zero if there was none.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.last
    }

    /// The longest one; zero if there was none.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Each bound, and how many took at most that and more than the bound before; `None` is beyond the last bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + use<> {
        Self::BOUNDS.into_iter().map(Some).chain([None]).zip(self.counts)
    }
}

/// Whole milliseconds of a time, rounded up: what took any time at all does not read as never.
#[must_use]
pub fn whole_ms(time: Duration) -> u64 {
    nanos(time).div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_once_at_the_first_bound_it_does_not_exceed() {
        let mut latency = Latency::default();
        let times = [us(0), us(500), us(501), us(60_000), us(10_000_000), us(10_000_001), us(9)];
        for time in times {
            latency.record(time);
        }
        let found: Vec<_> = latency.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            found,
            [
                (Some(us(500)), 3),
                (Some(us(1_000)), 1),
                (Some(us(100_000)), 1),
                (Some(us(10_000_000)), 1),
                (None, 1)
            ]
        );
        assert_eq!((latency.count(), latency.sum()), (7, times.iter().sum()));
        assert_eq!((latency.last(), latency.longest()), (us(9), us(10_000_001)));
    }

    #[test]
    fn bounds_ascend() {
        assert!(Latency::BOUNDS.is_sorted_by(|left, right| left < right));
    }
}
