//! The run in a thread's hand: the innermost tier, and the only code on the path of a hit.
//!
//! # Invariants
//! - I1 only its own thread touches a hand;
//! - I2 `next .. end` is owned by this thread; a hit moves `next` before it returns the id;
//! - I3 a hand whose epoch is not its engine's is void: its rest is counted as waste, never used;
//! - I4 `key` is `end - 1 + epoch`, so that `key - next - epoch` is below [`LONGEST`] exactly if the epoch is the
//!   engine's and an id is left. Epochs are multiples of [`EPOCH_STEP`], far above any run's length, so a wrong one
//!   lands above it, and so does `-1`, what a used-up or empty hand gives. One branch instead of two. With two
//!   (`epoch == ..`, `next != end`) a loop over `next_id` does 1,789 M ids/s or 450, as the caller's code happens to
//!   fall; with one it does 1,400-1,430 whatever the caller does (two-core Sapphire Rapids, one thread).

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::counters::ThreadCounters;
use crate::fork::EPOCH_STEP;
use crate::id::Id;
use crate::ring::Cursor;
use crate::run::Run;
use crate::settings::LONGEST_BLOCK;

/// The longest run a hand takes. Four times the longest that a tier hands out.
pub(crate) const LONGEST: u32 = 4 * LONGEST_BLOCK;

const _: () = assert!((LONGEST as u64) < EPOCH_STEP - 1, "I4");

/// Where an empty hand stands: above any limit, and used up by its key, whatever the epoch (I4).
const NOWHERE: u64 = u64::MAX;

/// The run in hand.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Hand {
    key: Cell<u64>,
    next: Cell<u64>,
    end: Cell<u64>,
    len: Cell<u64>,
}

impl Hand {
    pub(crate) const fn new() -> Self {
        Self {
            key: Cell::new(NOWHERE - 1),
            next: Cell::new(NOWHERE),
            end: Cell::new(NOWHERE),
            len: Cell::new(0),
        }
    }

    /// Whether an id is left of a run of this epoch (I4).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "half of the hit path")]
    fn has(&self, next: u64, epoch: u64) -> bool {
        #[cfg(test)]
        let epoch = self.epoch_as_compared(epoch);
        self.key.get().wrapping_sub(next).wrapping_sub(epoch) < u64::from(LONGEST)
    }

    /// The next id, if the hand is of this epoch and not empty.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "this is the whole hit path; a call would cost more than its body"
    )]
    pub(crate) fn hit(&self, epoch: u64) -> Option<Id> {
        let next = self.next.get();
        if self.has(next, epoch) {
            self.next.set(next + 1);
            Some(Id::new(next))
        } else {
            // Without it the call after a miss lies in every caller's loop, and each hit jumps over it.
            cold_path();
            None
        }
    }

    /// The first of the next `count` ids, if the hand is of this epoch and has as many. They are counted when the run
    /// is settled, as single ones are.
    #[inline]
    pub(crate) fn hit_many(&self, count: u32, epoch: u64) -> Option<u64> {
        let next = self.next.get();
        #[cfg(test)]
        let epoch = self.epoch_as_compared(epoch);
        let last = self.key.get().wrapping_sub(next).wrapping_sub(epoch);
        if last < u64::from(LONGEST) && last >= u64::from(count).wrapping_sub(1) {
            self.next.set(next + u64::from(count));
            Some(next)
        } else {
            None
        }
    }

    /// Where it stands.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "half of a handle's hit path")]
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Moves on from `next`, where it stands and which is below its end.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "half of a handle's hit path")]
    pub(crate) fn advance(&self, next: u64) {
        debug_assert!(next == self.next.get() && next < self.end.get());
        self.next.set(next + 1);
    }

    /// The first id that is not of the run in hand any more.
    pub(crate) fn end(&self) -> u64 {
        self.end.get()
    }

    /// How many ids are left of a run of this epoch.
    pub(crate) fn left(&self, epoch: u64) -> u32 {
        if self.has(self.next.get(), epoch) { self.held() } else { 0 }
    }

    /// How many ids are left of a run that was put in a moment ago, whatever its epoch.
    pub(crate) fn held(&self) -> u32 {
        (self.end.get() - self.next.get()) as u32
    }

    /// Takes one id of a run that was put in a moment ago.
    pub(crate) fn take_one(&self) -> Id {
        let first = self.next.get();
        assert!(first != self.end.get(), "the hand is empty");
        self.next.set(first + 1);
        Id::new(first)
    }

    /// Takes `count` ids, at most what is left, and counts them at once: a call for several is not so hot that
    /// figures have to lag behind it.
    pub(crate) fn pull(&self, count: u32, counters: &ThreadCounters) -> Run {
        let first = self.next.get();
        assert!(u64::from(count) <= self.end.get() - first, "more than the hand holds");
        self.next.set(first + u64::from(count));
        self.len.set(self.len.get() - u64::from(count));
        counters.issued.add(u64::from(count));
        Run::new(first, count)
    }

    /// Counts what became of the run in hand, and empties it. `void`: the rest is waste.
    pub(crate) fn settle(&self, counters: &ThreadCounters) {
        let left = self.end.get() - self.next.get();
        counters.issued.add(self.len.get() - left);
        counters.wasted.add(left);
        self.len.set(0);
        self.key.set(NOWHERE - 1);
        self.end.set(NOWHERE);
        self.next.set(NOWHERE);
    }

    /// Puts a run into an empty, settled hand.
    pub(crate) fn fill(&self, epoch: u64, run: &Run) {
        debug_assert!(self.next.get() == self.end.get() && self.len.get() == 0);
        assert!(run.len() <= LONGEST && epoch.is_multiple_of(EPOCH_STEP), "I4: {run:?}, epoch {epoch}");
        let end = run.raw() + u64::from(run.len());
        self.key.set((end - 1).wrapping_add(epoch));
        self.next.set(run.raw());
        self.end.set(end);
        self.len.set(u64::from(run.len()));
    }

    /// The engine's epoch, or, for a negative control, the hand's own.
    #[cfg(test)]
    fn epoch_as_compared(&self, epoch: u64) -> u64 {
        let own = self.key.get().wrapping_sub(self.end.get() - 1);
        if crate::guards::Guard::EpochCompared.is_out() { own } else { epoch }
    }

    fn swap(&self, other: &Self) {
        self.key.swap(&other.key);
        self.next.swap(&other.next);
        self.end.swap(&other.end);
        self.len.swap(&other.len);
    }
}

/// What a thread has at one engine besides its hand.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) counters: Arc<CachePadded<ThreadCounters>>,
    pub(crate) cursor: Cursor,
    /// For calls that gather runs and hand out something else; empty between calls.
    pub(crate) scratch: Vec<Run>,
}

/// An engine that this thread has called.
struct Visit {
    engine: u64,
    station: Station,
    /// Its hand while another engine's is in use.
    parked: Hand,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.parked.settle(&self.station.counters);
    }
}

/// The engines this thread has called; the first one's hand is [`HAND`].
#[derive(Default)]
struct Visits(Vec<Visit>);

impl Drop for Visits {
    fn drop(&mut self) {
        self.park();
    }
}

/// Engines a thread remembers. More cost their rest of a run when they are forgotten.
const REMEMBERED: usize = 16;

thread_local! {
    /// The run of the engine used last by this thread. Const and without a destructor, so that a hit is a plain
    /// load.
    pub(crate) static HAND: Hand = const { Hand::new() };
    static VISITS: RefCell<Visits> = const { RefCell::new(Visits(Vec::new())) };
}

impl Visits {
    /// Takes the hand in use back to the engine it belongs to.
    fn park(&mut self) {
        if let Some(visit) = self.0.first() {
            HAND.with(|hand| hand.swap(&visit.parked));
        }
    }

    /// Makes `engine` the first, its hand the one in use.
    fn enter(&mut self, engine: u64, join: impl FnOnce() -> Station) -> &mut Station {
        if self.0.first().is_none_or(|visit| visit.engine != engine) {
            self.park();
            let visit = match self.0.iter().position(|visit| visit.engine == engine) {
                Some(at) => self.0.remove(at),
                None => Visit { engine, station: join(), parked: Hand::new() },
            };
            self.0.truncate(REMEMBERED - 1);
            self.0.insert(0, visit);
            // Parking swaps the hand in use with the parked one; doing it again brings ours in.
            self.park();
        }
        &mut self.0[0].station
    }
}

/// Calls `work` with this thread's hand and station at `engine`. In a thread that is ending (its thread-locals
/// are gone) a passing hand serves, and its rest is wasted.
pub(crate) fn at_station<T>(
    engine: u64,
    mut join: impl FnMut() -> Station,
    work: impl FnOnce(&Hand, &mut Station) -> T,
) -> T {
    let mut work = Some(work);
    let result = VISITS.try_with(|visits| {
        let mut visits = visits.try_borrow_mut().ok()?;
        let station = visits.enter(engine, &mut join);
        work.take().map(|work| HAND.with(|hand| work(hand, station)))
    });
    if let Ok(Some(value)) = result {
        return value;
    }
    let (hand, mut station) = (Hand::new(), join());
    let Some(work) = work.take() else { unreachable!("work is taken only where its value is returned") };
    let value = work(&hand, &mut station);
    hand.settle(&station.counters);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Ring;

    const A: u64 = 11 * EPOCH_STEP;
    const B: u64 = 22 * EPOCH_STEP;

    /// A naive model: an epoch, and a range.
    #[test]
    fn a_hit_needs_the_right_epoch_and_an_id_that_is_left() {
        let epochs = [EPOCH_STEP, 2 * EPOCH_STEP, A, A + EPOCH_STEP, 1 << 63, 0_u64.wrapping_sub(EPOCH_STEP)];
        for first in [0, 1, 5_000, (1 << 63) - u64::from(LONGEST)] {
            for len in [1, 2, 1_024, LONGEST] {
                for ours in epochs {
                    let (hand, counters) = (Hand::new(), ThreadCounters::default());
                    assert!(epochs.iter().chain([&0]).all(|epoch| hand.hit(*epoch).is_none()), "empty");
                    assert_eq!(hand.next(), NOWHERE, "no limit is above an empty hand");
                    hand.fill(ours, &Run::new(first, len));
                    for _ in 1..len {
                        assert!(hand.hit(ours).is_some());
                    }
                    // 0 is what a forked child reads.
                    let wrong = epochs.iter().chain([&0]).filter(|epoch| **epoch != ours);
                    assert!(wrong.clone().all(|epoch| hand.hit(*epoch).is_none() && hand.left(*epoch) == 0));
                    assert_eq!(hand.hit(ours).map(Id::raw), Some(first + u64::from(len) - 1));
                    assert!(wrong.chain([&ours]).all(|epoch| hand.hit(*epoch).is_none()), "used up");
                    hand.settle(&counters);
                    assert_eq!((counters.issued.value(), counters.wasted.value()), (u64::from(len), 0));
                    assert!(epochs.iter().chain([&0]).all(|epoch| hand.hit(*epoch).is_none()), "settled");
                    assert_eq!(hand.next(), NOWHERE);
                }
            }
        }
    }

    fn station() -> Station {
        Station { counters: Arc::default(), cursor: Ring::new(4).cursor(0), scratch: Vec::new() }
    }

    #[test]
    fn a_thread_that_goes_between_two_engines_keeps_both_runs() {
        let mut taken = Vec::new();
        let mut call = |engine: u64, epoch: u64, run: Option<Run>| {
            at_station(engine, station, |hand, _| {
                if let Some(run) = run {
                    hand.fill(epoch, &run);
                }
                taken.extend(hand.hit(epoch).map(Id::raw));
            });
        };
        call(1, A, Some(Run::new(100, 4)));
        call(2, B, Some(Run::new(200, 4)));
        call(1, A, None);
        call(2, B, None);
        call(3, A, None);
        call(1, A, None);
        assert_eq!(taken, [100, 200, 101, 201, 102]);
    }

    #[test]
    fn a_threads_rest_is_counted_as_waste_at_its_end() {
        let counters: Arc<CachePadded<ThreadCounters>> = Arc::default();
        let theirs = counters.clone();
        std::thread::spawn(move || {
            let join =
                || Station { counters: theirs.clone(), cursor: Ring::new(4).cursor(0), scratch: Vec::new() };
            at_station(7, join, |hand, _| {
                hand.fill(A, &Run::new(64, 10));
                assert_eq!(hand.hit(A).map(Id::raw), Some(64));
                assert_eq!(hand.hit(B), None, "another epoch is a miss");
            });
        })
        .join()
        .unwrap();
        assert_eq!((counters.issued.value(), counters.wasted.value()), (1, 9));
    }
}
