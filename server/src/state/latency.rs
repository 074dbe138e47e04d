//! How long requests took, by op: from the read of their bytes to the write of their replies, waits included.
//!
//! A connection reads its clock once a batch anyway, and a batch of NEXT counts as many times as it has frames. So what
//! this costs does not depend on how many requests come at once.
//!
//! # Invariants
//! - I1 threads do not meet: each counts in a shard of its own, as long as there are no more of them than [`SHARDS`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use xuid_protocol::Op;

/// The ops whose requests are timed: those that ask for ids, and PING, which never waits for any.
pub(crate) const TIMED: [Op; 7] =
    [Op::Next, Op::Array, Op::Runs, Op::Ping, Op::SeqNext, Op::SeqArray, Op::SeqRuns];

/// The longest time in microseconds that each bucket counts; one more counts the rest. From a batch that finds its ids at
/// hand up to the longest wait that a request may ask for.
const BOUNDS_US: [u64; 21] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

/// More than there are cores on most machines.
const SHARDS: usize = 16;

/// Where [`TIMED`] has an op.
pub(crate) fn timed(op: Op) -> Option<usize> {
    match op {
        Op::Next => Some(0),
        Op::Array => Some(1),
        Op::Runs => Some(2),
        Op::Ping => Some(3),
        Op::SeqNext => Some(4),
        Op::SeqArray => Some(5),
        Op::SeqRuns => Some(6),
        _ => None,
    }
}

/// Times of all connections.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    shards: [Shard; SHARDS],
}

/// Aligned to two lines, which some processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([Histogram; TIMED.len()]);

#[derive(Debug, Default)]
struct Histogram {
    sum_us: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

/// Times of one op, as they were when they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    sum_us: u64,
    counts: [u64; BUCKETS],
}

impl Latencies {
    /// Counts `count` requests of the op at this place of [`TIMED`] that took so long.
    pub(crate) fn record(&self, op: usize, count: u32, took: Duration) {
        let us = took.as_micros() as u64;
        let histogram = &self.shards[shard()].0[op];
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        histogram.counts[bucket].fetch_add(u64::from(count), Relaxed);
        histogram.sum_us.fetch_add(us * u64::from(count), Relaxed);
    }

    /// All times so far, by op.
    pub(crate) fn times(&self) -> impl Iterator<Item = (Op, Times)> + '_ {
        let sum = |at: usize| {
            let mut times = Times::default();
            for Shard(ops) in &self.shards {
                times.sum_us += ops[at].sum_us.load(Relaxed);
                for (total, count) in times.counts.iter_mut().zip(&ops[at].counts) {
                    *total += count.load(Relaxed);
                }
            }
            times
        };
        TIMED.into_iter().enumerate().map(move |(at, op)| (op, sum(at)))
    }
}

impl Times {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// Each bound, and how many took at most that and more than the bound before; `None` is beyond the last bound.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BOUNDS_US.into_iter().map(|us| Some(Duration::from_micros(us)));
        bounds.chain([None]).zip(self.counts)
    }
}

/// The shard of this thread.
fn shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = THREADS.fetch_add(1, Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn every_timed_op_has_its_own_place() {
        assert!(TIMED.into_iter().enumerate().all(|(place, op)| timed(op) == Some(place)));
        assert!(Op::ALL.into_iter().filter(|op| timed(*op).is_some()).count() == TIMED.len());
    }

    #[test]
    fn times_of_all_threads_are_added_up_at_the_first_bound_they_do_not_exceed() {
        let latencies = Latencies::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| latencies.record(0, 100, Duration::from_micros(50)));
            }
        });
        latencies.record(2, 1, ms(61_000));
        let all: Vec<(Op, Times)> = latencies.times().collect();
        let (op, next) = &all[0];
        let times = 2 * SHARDS as u64 * 100;
        assert_eq!((*op, next.count(), next.sum()), (Op::Next, times, Duration::from_micros(50 * times)));
        let found: Vec<_> = next.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(Some(Duration::from_micros(50)), times)]);
        assert_eq!(all[1].1.count(), 0);
        let found: Vec<_> = all[2].1.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(None, 1)]);
    }

    #[test]
    fn bounds_ascend() {
        assert!(BOUNDS_US.is_sorted_by(|left, right| left < right));
    }
}
