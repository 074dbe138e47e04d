//! A segment: ids that a name holds, taken from by any number of threads without a lock.
//!
//! # Invariants
//! - Q4 the bounds of a segment never change; one atomic counts what was taken. What an id is depends on that atomic
//!   alone;
//! - I1 the count of what was taken only rises, also beyond the segment's end: a thread that finds the end forgets the
//!   segment, so each does so once, and 2^63 is out of reach ([`DRAIN`] is added once).

use super::span::Span;
use crate::sys::atomics::{AtomicU64, Ordering};
use crate::sys::guards::Guard;

/// What a drain adds: more than any segment has, and far from 2^64.
const DRAIN: u64 = 1 << 62;

/// The next grant is asked for when one part in this many was taken.
const ASK_AFTER: u64 = 10;

/// Keeps what is before and after it on different cache lines, wherever they begin. A `CachePadded` would take three times
/// as much memory of each name, aligned, which an allocator pays for once more.
type Apart = [u64; 7];

/// A segment.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segment {
    span: Span,
    /// The next one is asked for by the taker that gets the id before this place.
    ask_at: u64,
    _before: Apart,
    /// The bounds are read by every thread, and this is written by every thread.
    taken: AtomicU64,
    _after: Apart,
}

/// A thread takes one part in this many of a segment at once at most, so that many threads share a short one.
const SHARE: u64 = 64;

/// What a taker got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) span: Span,
    /// The taker is the one that asks for the next grant.
    pub(crate) asks: bool,
}

impl Segment {
    pub(crate) fn new(span: Span) -> Self {
        debug_assert!(span.count > 0 && span.count < DRAIN);
        let ask_at = span.count.div_ceil(ASK_AFTER);
        Self { span, ask_at, _before: [0; 7], taken: AtomicU64::new(0), _after: [0; 7] }
    }

    /// Takes up to `count` ids, the next ones; `None` if it is used up, and then the caller forgets it (I1).
    #[inline]
    pub(crate) fn take(&self, count: u64) -> Option<Taken> {
        // Relaxed: the bounds came with the `Arc`, and of the rest nothing depends on it.
        let place = if Guard::SegmentTakeIsOne.holds() {
            self.taken.fetch_add(count, Ordering::Relaxed)
        } else {
            let place = self.taken.load(Ordering::Relaxed);
            std::thread::yield_now();
            self.taken.store(place + count, Ordering::Relaxed);
            place
        };
        if place >= self.span.count {
            return None;
        }
        let after = place + count;
        let got = count.min(self.span.count - place);
        let span = Span { first: self.span.id(place), count: got, ..self.span };
        Some(Taken { span, asks: place < self.ask_at && self.ask_at <= after })
    }

    /// Takes one id, as [`take`](Self::take) does: the id, and whether the taker asks for the next grant.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "this is the path of an ordered hit")]
    pub(crate) fn take_one(&self) -> Option<(u64, bool)> {
        #[cfg(test)]
        if !Guard::SegmentTakeIsOne.holds() {
            return self.take(1).map(|taken| (taken.span.first, taken.asks));
        }
        // Relaxed: as in `take`.
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        if place >= self.span.count {
            return None;
        }
        let id = self.span.first + place * u64::from(self.span.increment);
        Some((id, place + 1 == self.ask_at))
    }

    /// Takes all that is left; nothing is left afterwards.
    pub(crate) fn drain(&self) -> Option<Span> {
        let place = self.taken.fetch_add(DRAIN, Ordering::Relaxed);
        self.span.after(place.min(self.span.count))
    }

    /// How many ids were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).min(self.span.count)
    }

    /// How many ids are left.
    pub(crate) fn left(&self) -> u64 {
        self.span.count - self.taken()
    }

    /// How many ids one thread's run may have of it.
    pub(crate) fn share(&self) -> u64 {
        (self.span.count / SHARE).max(1)
    }

    /// Whether so much was taken that the next grant is due.
    pub(crate) fn is_begun(&self) -> bool {
        self.taken() >= self.ask_at
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn segment(count: u64) -> Segment {
        Segment::new(Span { first: 10, count, increment: 3 })
    }

    #[test]
    fn takes_follow_each_other_up_to_the_end() {
        let segment = segment(5);
        assert_eq!(segment.take_one(), Some((10, true)));
        let taken = segment.take(2).unwrap();
        assert_eq!((taken.span, taken.asks), (Span { first: 13, count: 2, increment: 3 }, false));
        assert_eq!(segment.take(9).unwrap().span, Span { first: 19, count: 2, increment: 3 });
        assert_eq!((segment.take(1), segment.take_one(), segment.drain()), (None, None, None));
        assert_eq!((segment.taken(), segment.left()), (5, 0));
    }

    #[test]
    fn exactly_one_taker_asks_whatever_the_takes_are() {
        for count in [1, 2, 9, 10, 11, 1_000] {
            for width in [1, 2, 3, 99, 5_000] {
                let segment = segment(count);
                let takes = std::iter::from_fn(|| segment.take(width));
                assert_eq!(takes.filter(|taken| taken.asks).count(), 1, "{count} by {width}");
            }
        }
    }

    #[test]
    fn a_drain_leaves_nothing_and_takes_what_was_left() {
        let segment = segment(100);
        assert_eq!(segment.take(40).unwrap().span.count, 40);
        assert_eq!(segment.drain(), Some(Span { first: 10 + 40 * 3, count: 60, increment: 3 }));
        assert_eq!((segment.take(1), segment.drain(), segment.left()), (None, None, 0));
    }

    /// How many ids eight threads got twice of one segment.
    fn twice() -> usize {
        let segment = segment(20_000);
        let without = !Guard::SegmentTakeIsOne.holds();
        let take = |width: u64| {
            let work = || -> Vec<u64> {
                std::iter::from_fn(|| segment.take(width))
                    .flat_map(|taken| (0..taken.span.count).map(move |place| taken.span.id(place)))
                    .collect()
            };
            if without { Guard::without(&[Guard::SegmentTakeIsOne], work) } else { work() }
        };
        let mut ids: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=8).map(|width| scope.spawn(move || take(width))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let got = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 20_000);
        got - ids.len()
    }

    #[test]
    fn threads_share_a_segment_without_a_gap_or_a_duplicate() {
        assert_eq!(twice(), 0);
    }

    #[test]
    fn a_take_in_two_steps_is_found_out() {
        assert!(Guard::without(&[Guard::SegmentTakeIsOne], twice) > 0);
    }
}
