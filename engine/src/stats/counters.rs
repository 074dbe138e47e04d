//! Counting without contention: each thread writes counters of its own, and stats reads them all.
//!
//! # Invariants
//! - I1 an id is counted into a place before it is counted out of it, and each count is seen together with those before
//!   it: figures that are read against the stream, what went out before what came in, never show more out than in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use xuid_id::Order;

use crate::id::error::{IdError, IdErrorKind};
use crate::stats::{Refused, Served};
use crate::sys::atomics::lock;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds. Only the thread that owns the counter may.
    pub(crate) fn add(&self, n: u64) {
        // Release: pairs with the Acquire in `value` (I1).
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
    }

    pub(crate) fn value(&self) -> u64 {
        // Acquire: pairs with the Release in `add`.
        self.0.load(Ordering::Acquire)
    }
}

/// A counter with many writers, off the hot path.
#[derive(Debug, Default)]
pub(crate) struct AtomicCount(AtomicU64);

impl AtomicCount {
    pub(crate) fn add(&self, n: u64) {
        // Release: pairs with the Acquire in `value` (I1).
        self.0.fetch_add(n, Ordering::Release);
    }

    pub(crate) fn value(&self) -> u64 {
        // Acquire: pairs with the Release in `add`.
        self.0.load(Ordering::Acquire)
    }
}

/// Where a caller's ids came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tier {
    #[default]
    Ring,
    Queue,
    Minter,
    Reserve,
}

/// Where issued ids are counted: those of any age by [`Tier`], then fresh ones and ordered ones, which only the minter
/// has.
const ISSUED: usize = 6;

fn place_of(order: Order, tier: Tier) -> usize {
    match order {
        Order::Any => tier as usize,
        Order::Fresh => ISSUED - 2,
        Order::Ordered => ISSUED - 1,
    }
}

/// Ids by the tier that had them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sources {
    ids: [u64; 4],
    last: Tier,
}

impl Sources {
    pub(crate) fn of(tier: Tier, ids: u64) -> Self {
        let mut sources = Self::default();
        sources.add(tier, ids);
        sources
    }

    pub(crate) fn add(&mut self, tier: Tier, ids: u64) {
        self.ids[tier as usize] += ids;
        self.last = tier;
    }

    /// So many were taken out again. Of which tier each was is not kept: what a call gathered first was in the ring.
    pub(crate) fn remove(&mut self, mut ids: u64) {
        for had in &mut self.ids {
            let removed = ids.min(*had);
            (*had, ids) = (*had - removed, ids - removed);
        }
    }

    /// The tier of those that came last.
    pub(crate) fn last(&self) -> Tier {
        self.last
    }

    pub(crate) fn total(&self) -> u64 {
        self.ids.iter().sum()
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
    pub(crate) taken: Count,
    /// By [`place_of`].
    issued: [Count; ISSUED],
    pub(crate) wasted: Count,
    pub(crate) returned: Count,
    /// Of `taken`, out of the queue.
    pub(crate) queue: Count,
}

impl ThreadCounters {
    /// Ids of any age and of one tier became a caller's.
    pub(crate) fn issue(&self, tier: Tier, ids: u64) {
        self.issued[tier as usize].add(ids);
    }

    /// Ids that were cut for a call of that order became its caller's.
    pub(crate) fn issue_cut(&self, order: Order, ids: u64) {
        self.issued[place_of(order, Tier::Minter)].add(ids);
    }

    /// Ids of several tiers became a caller's.
    pub(crate) fn issue_all(&self, sources: &Sources) {
        for (count, ids) in self.issued.iter().zip(sources.ids).filter(|(_, ids)| *ids > 0) {
            count.add(ids);
        }
    }

    #[cfg(test)]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.iter().map(Count::value).sum()
    }
}

/// Sums over threads.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ThreadTotals {
    /// By [`place_of`].
    pub(crate) issued: [u64; ISSUED],
    pub(crate) taken: u64,
    pub(crate) wasted: u64,
    pub(crate) returned: u64,
    pub(crate) queue: u64,
}

impl ThreadTotals {
    fn add(&mut self, thread: &ThreadCounters) {
        // What went out first (I1).
        for (total, count) in self.issued.iter_mut().zip(&thread.issued) {
            *total += count.value();
        }
        self.wasted += thread.wasted.value();
        self.returned += thread.returned.value();
        self.queue += thread.queue.value();
        self.taken += thread.taken.value();
    }

    /// Ids that threads have in their hands.
    pub(crate) fn in_hand(&self) -> u64 {
        let gone = self.issued.iter().sum::<u64>() + self.wasted + self.returned;
        self.taken.saturating_sub(gone)
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
    pub(crate) tickets_in: AtomicCount,
    pub(crate) tickets_out: AtomicCount,
    /// Ids issued through tickets, by [`place_of`].
    tickets_issued: [AtomicCount; ISSUED],
    /// Blocks' ids pushed into the queue, and popped by the producer.
    pub(crate) queue_in: AtomicCount,
    pub(crate) queue_out: AtomicCount,
    refused: [AtomicCount; 6],
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

    /// Ids became those of the caller that waited for them.
    pub(crate) fn issue_of_ticket(&self, order: Order, sources: &Sources) {
        if order != Order::Any {
            return self.tickets_issued[place_of(order, sources.last())].add(sources.total());
        }
        for (count, ids) in self.tickets_issued.iter().zip(sources.ids).filter(|(_, ids)| *ids > 0) {
            count.add(ids);
        }
    }

    /// Ids issued so far: what is issued is a caller's, so this is read before all that it came from.
    pub(crate) fn served(&self, threads: &ThreadTotals) -> Served {
        let [ring, queue, minter, reserve, fresh, ordered] =
            std::array::from_fn(|place| threads.issued[place] + self.tickets_issued[place].value());
        Served { ring, queue, minter: minter + fresh + ordered, reserve, fresh, ordered }
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
            // Nothing is lacking here.
            IdErrorKind::NoOrder => return,
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
        first.taken.add(10);
        first.issue(Tier::Ring, 7);
        first.issue_cut(Order::Ordered, 2);
        assert_eq!(place, 0);
        drop(first);
        let (second, place) = counters.join();
        second.taken.add(1);
        assert_eq!(place, 1);
        let totals = counters.totals();
        assert_eq!((totals.taken, totals.issued, totals.in_hand()), (11, [7, 0, 0, 0, 0, 2], 2));
    }

    #[test]
    fn fresh_and_ordered_ids_are_the_minters_and_are_counted_apart() {
        let counters = Counters::default();
        let mut sources = Sources::of(Tier::Minter, 3);
        sources.add(Tier::Ring, 4);
        counters.issue_of_ticket(Order::Any, &sources);
        counters.issue_of_ticket(Order::Fresh, &Sources::of(Tier::Minter, 20));
        counters.issue_of_ticket(Order::Ordered, &Sources::of(Tier::Minter, 100));
        let served = counters.served(&ThreadTotals::default());
        assert_eq!((served.ring, served.minter, served.fresh, served.ordered), (4, 123, 20, 100));
        assert_eq!(served.total(), 127);
    }
}
