//! Counting without contention: each thread writes counters of its own, and stats reads them all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;

use crate::error::{IdError, IdErrorKind};
use crate::stats::{Refused, Served};
use crate::sync::lock;

/// A counter with one writer. Relaxed throughout: figures need no order among each other.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds. Only the thread that owns the counter may.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes back what was added too much.
    pub(crate) fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter with many writers, off the hot path.
#[derive(Debug, Default)]
pub(crate) struct Shared(AtomicU64);

impl Shared {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The last value of something.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one thread took, and what became of it. Taken = issued + wasted + returned + in its hand.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounters {
    pub(crate) ring: Count,
    pub(crate) queue: Count,
    pub(crate) minter: Count,
    pub(crate) reserve: Count,
    pub(crate) issued: Count,
    pub(crate) wasted: Count,
    pub(crate) returned: Count,
}

/// Sums over threads.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ThreadTotals {
    pub(crate) served: Served,
    pub(crate) issued: u64,
    pub(crate) wasted: u64,
    pub(crate) returned: u64,
}

impl ThreadTotals {
    fn add(&mut self, thread: &ThreadCounters) {
        self.served.ring = self.served.ring.wrapping_add(thread.ring.value());
        self.served.queue = self.served.queue.wrapping_add(thread.queue.value());
        self.served.minter = self.served.minter.wrapping_add(thread.minter.value());
        self.served.reserve = self.served.reserve.wrapping_add(thread.reserve.value());
        self.issued = self.issued.wrapping_add(thread.issued.value());
        self.wasted = self.wasted.wrapping_add(thread.wasted.value());
        self.returned = self.returned.wrapping_add(thread.returned.value());
    }

    /// Ids that threads have in their hands.
    pub(crate) fn in_hand(&self) -> u64 {
        let Served { ring, queue, minter, reserve } = self.served;
        let taken = ring.wrapping_add(queue).wrapping_add(minter).wrapping_add(reserve);
        taken.wrapping_sub(self.issued).wrapping_sub(self.wasted).wrapping_sub(self.returned)
    }
}

#[derive(Debug, Default)]
struct Threads {
    live: Vec<Arc<CachePadded<ThreadCounters>>>,
    ended: ThreadTotals,
    joined: usize,
}

/// All counters of an engine that callers write.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    threads: Mutex<Threads>,
    /// Ids given to tickets, and out of them again.
    pub(crate) tickets_in: Shared,
    pub(crate) tickets_out: Shared,
    /// Ids issued through tickets.
    pub(crate) tickets_issued: Shared,
    /// Ids that tickets got, by tier.
    pub(crate) tickets_minter: Shared,
    pub(crate) tickets_reserve: Shared,
    pub(crate) tickets_queue: Shared,
    /// Blocks' ids pushed into the queue, and popped by the producer.
    pub(crate) queue_in: Shared,
    pub(crate) queue_out: Shared,
    refused: [Shared; 6],
}

impl Counters {
    /// Counters for one more thread, and how many came before it.
    pub(crate) fn join(&self) -> (Arc<CachePadded<ThreadCounters>>, usize) {
        let mut threads = lock(&self.threads);
        // A thread that ended dropped its handle; what it counted is kept.
        let Threads { live, ended, .. } = &mut *threads;
        live.retain(|counters| {
            let alive = Arc::strong_count(counters) > 1;
            if !alive {
                // Acquire: pairs with the Release of the thread's last drop, so that its last counts are seen.
                std::sync::atomic::fence(Ordering::Acquire);
                ended.add(counters);
            }
            alive
        });
        let counters = Arc::new(CachePadded::new(ThreadCounters::default()));
        threads.live.push(counters.clone());
        threads.joined += 1;
        (counters, threads.joined - 1)
    }

    pub(crate) fn totals(&self) -> ThreadTotals {
        let threads = lock(&self.threads);
        let mut totals = threads.ended;
        threads.live.iter().for_each(|counters| totals.add(counters));
        totals
    }

    /// Counts a refusal.
    pub(crate) fn refuse(&self, error: IdError) {
        let at = match error.kind() {
            IdErrorKind::NotReady => 0,
            IdErrorKind::Overloaded => 1,
            IdErrorKind::ClockBehind => 2,
            IdErrorKind::WindowLost => 3,
            IdErrorKind::Exhausted => 4,
            IdErrorKind::ShuttingDown | IdErrorKind::Forked => 5,
        };
        self.refused[at].add(1);
    }

    pub(crate) fn refused(&self) -> Refused {
        let [not_ready, overloaded, clock_behind, window_lost, exhausted, shutting_down] =
            std::array::from_fn(|at| self.refused[at].value());
        Refused { not_ready, overloaded, clock_behind, window_lost, exhausted, shutting_down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ended_thread_counted_is_kept() {
        let counters = Counters::default();
        let (first, place) = counters.join();
        first.ring.add(10);
        first.issued.add(7);
        assert_eq!(place, 0);
        drop(first);
        let (second, place) = counters.join();
        second.ring.add(1);
        assert_eq!(place, 1);
        let totals = counters.totals();
        assert_eq!((totals.served.ring, totals.issued, totals.in_hand()), (11, 7, 4));
    }
}
