//! The ids that a name holds: a chain of segments, and ids that came back.
//!
//! Called under the lock of its name. The first segment is also in the hands of threads, which take from it without the
//! lock; what they find of it later can only be less.
//!
//! # Invariants
//! - Q3 an id is in one place: every move takes first;
//! - I1 segments stand in ascending order, and an ordered id is taken of the first one that is not used up. The end of
//!   one and the beginning of the next are told apart under the lock only;
//! - I2 what came back, and what lies below an id that was taken in order, is *loose*: calls in no promised order get it,
//!   and the next life. Ordered calls do not.

use std::collections::VecDeque;
use std::sync::Arc;

use super::segment::Segment;
use super::span::{Span, sorted, total};
use crate::sys::guards::Guard;

/// Loose spans that are kept. Each comes of a thread that ended or of a call that timed out half-served.
const MOST_LOOSE: usize = 64;

/// What a name holds.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    segments: VecDeque<Arc<Segment>>,
    loose: Vec<Span>,
    /// No segment begins below: the end of the highest one there was.
    top: u64,
    /// Ids taken of segments that are gone.
    taken_before: u64,
    /// Ids taken of what was loose.
    loose_taken: u64,
}

/// What a take of the chain brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulled {
    pub(crate) spans: Vec<Span>,
    /// Ids that lay in the way of a contiguous take.
    pub(crate) skipped: u64,
}

impl Chain {
    /// Adds ids that no code holds: of a grant, or of an earlier life. Those above all that were there make a segment;
    /// others are loose (I2). What there is no room for is returned, and wasted by the caller.
    #[must_use]
    pub(crate) fn append(&mut self, span: Span) -> u64 {
        if span.first < self.top && Guard::SegmentsAscend.holds() {
            return self.give_back([span]);
        }
        self.top = self.top.max(span.end());
        self.segments.push_back(Arc::new(Segment::new(span)));
        0
    }

    /// Takes ids back that were taken and are no caller's. What there is no room for is returned.
    #[must_use]
    pub(crate) fn give_back(&mut self, spans: impl IntoIterator<Item = Span>) -> u64 {
        let mut dropped = 0;
        for span in spans {
            if self.loose.iter_mut().any(|loose| loose.join(&span)) {
            } else if self.loose.len() < MOST_LOOSE {
                self.loose.push(span);
            } else {
                dropped += span.count;
            }
        }
        dropped
    }

    /// The first segment of which something is left.
    pub(crate) fn head(&mut self) -> Option<&Arc<Segment>> {
        while self.segments.front().is_some_and(|segment| segment.left() == 0) {
            self.taken_before += self.segments.pop_front().map_or(0, |segment| segment.taken());
        }
        self.segments.front()
    }

    /// Takes up to `count` ids in ascending order.
    pub(crate) fn take(&mut self, count: u64) -> Pulled {
        let mut pulled = Pulled::default();
        let mut missing = count;
        while missing > 0 {
            let Some(taken) = self.head().map(|segment| segment.take(missing)) else { break };
            // Threads may have used it up since.
            let Some(taken) = taken else { continue };
            missing -= taken.span.count;
            pulled.spans.push(taken.span);
        }
        pulled
    }

    /// Takes up to `count` ids in no promised order: what is loose goes first.
    pub(crate) fn take_any(&mut self, count: u64) -> Pulled {
        let mut pulled = Pulled { spans: self.take_loose(count), skipped: 0 };
        let more = self.take(count - total(&pulled.spans));
        pulled.spans.extend(more.spans);
        pulled
    }

    /// Takes up to so many neighbours, and of a segment no more than a share of it: of what is loose first.
    pub(crate) fn take_some(&mut self, most: u64) -> Option<Span> {
        if let Some(span) = self.loose.pop() {
            let taken = span.before(most);
            self.loose.extend(span.after(taken.count));
            self.loose_taken += taken.count;
            return Some(taken);
        }
        loop {
            let segment = self.head()?;
            // Threads may have used it up since.
            if let Some(taken) = segment.take(most.min(segment.share())) {
                return Some(taken.span);
            }
        }
    }

    fn take_loose(&mut self, count: u64) -> Vec<Span> {
        let (mut spans, mut missing) = (Vec::new(), count);
        while let Some(span) = if missing > 0 { self.loose.pop() } else { None } {
            let taken = span.before(missing);
            missing -= taken.count;
            self.loose.extend(span.after(taken.count));
            spans.push(taken);
        }
        self.loose_taken += count - missing;
        spans
    }

    /// Takes exactly `count` neighbours, or nothing. Segments that touch count as one; the rest of one that is too short
    /// is skipped, for its caller to waste, but only if what comes after it suffices.
    pub(crate) fn take_contiguous(&mut self, count: u64) -> Pulled {
        let mut pulled = Pulled::default();
        let mut found: Option<Span> = None;
        while self.may_have_contiguous(found, count) {
            let missing = count - found.map_or(0, |span| span.count);
            let Some(taken) = self.head().map(|segment| segment.take(missing)) else { break };
            let Some(taken) = taken else { continue };
            let is_joined = match &mut found {
                Some(span) if !Guard::ContiguousTouches.holds() => {
                    span.count += taken.span.count;
                    true
                }
                Some(span) => span.join(&taken.span),
                None => false,
            };
            if !is_joined {
                pulled.skipped += found.replace(taken.span).map_or(0, |span| span.count);
            }
            if found.is_some_and(|span| span.count == count) {
                pulled.spans.extend(found);
                return pulled;
            }
        }
        // Other threads were quicker.
        pulled.skipped += found.map_or(0, |span| span.count);
        pulled
    }

    /// Whether `count` neighbours can be had, with those that were found before, if no other thread takes any.
    fn may_have_contiguous(&self, found: Option<Span>, count: u64) -> bool {
        let mut end = found.map(|span| (span.end(), span.count));
        for segment in &self.segments {
            let (span, taken) = (segment.span(), segment.taken());
            let Some(left) = span.after(taken) else { continue };
            let before = end.filter(|(end, _)| *end == left.first).map_or(0, |(_, count)| count);
            if before + left.count >= count {
                return true;
            }
            end = Some((left.end(), before + left.count));
        }
        false
    }

    /// Takes everything: nothing is left, in threads' hands neither.
    pub(crate) fn drain(&mut self) -> Vec<Span> {
        let mut spans = std::mem::take(&mut self.loose);
        self.loose_taken += total(&spans);
        for segment in std::mem::take(&mut self.segments) {
            let rest = segment.drain();
            self.taken_before += segment.span().count;
            spans.extend(rest);
        }
        sorted(spans)
    }

    /// Ids left in segments.
    pub(crate) fn in_segments(&self) -> u64 {
        self.segments.iter().map(|segment| segment.left()).sum()
    }

    /// Ids that came back.
    pub(crate) fn loose(&self) -> u64 {
        total(&self.loose)
    }

    /// Ids that were ever taken, of segments and of what was loose.
    pub(crate) fn taken(&self) -> u64 {
        let now: u64 = self.segments.iter().map(|segment| segment.taken()).sum();
        self.taken_before + self.loose_taken + now
    }

    /// Whether the next grant is due, and whether there is a segment behind the first.
    pub(crate) fn progress(&mut self) -> (bool, bool) {
        let is_begun = self.head().is_none_or(|segment| segment.is_begun());
        (is_begun, self.segments.len() > 1)
    }

    /// The number that the next ordered call would get, if one is held.
    pub(crate) fn next(&self) -> Option<u64> {
        self.segments.iter().find_map(|segment| Some(segment.span().after(segment.taken())?.first))
    }

    /// No ordered id was taken from here on.
    pub(crate) fn ordered_from(&mut self) -> u64 {
        let top = self.top;
        self.head()
            .map_or(top, |segment| segment.span().after(segment.taken()).map_or(top, |rest| rest.first))
    }

    /// No segment will begin below this.
    pub(crate) fn raise_top(&mut self, top: u64) {
        self.top = self.top.max(top);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(first: u64, count: u64) -> Span {
        Span { first, count, increment: 1 }
    }

    fn ids(spans: &[Span]) -> Vec<u64> {
        spans.iter().flat_map(|span| (0..span.count).map(|place| span.id(place))).collect()
    }

    /// Whether an ordered take ever goes back, where a grant comes that lies below what was taken.
    fn goes_back() -> bool {
        let mut chain = Chain::default();
        assert_eq!(chain.append(span(100, 10)) + chain.append(span(50, 10)) + chain.append(span(110, 10)), 0);
        let taken = ids(&chain.take(30).spans);
        !taken.is_sorted() || taken.len() != 20
    }

    #[test]
    fn a_grant_below_what_was_taken_is_not_for_ordered_calls() {
        assert!(!goes_back());
        assert!(Guard::without(&[Guard::SegmentsAscend], goes_back));
    }

    /// What a contiguous take over two seams brings, of which the first does not touch.
    fn over_seams() -> (Vec<u64>, u64) {
        let mut chain = Chain::default();
        assert_eq!(chain.append(span(1, 10)) + chain.append(span(21, 10)) + chain.append(span(31, 10)), 0);
        let pulled = chain.take_contiguous(15);
        (ids(&pulled.spans), pulled.skipped)
    }

    #[test]
    fn the_next_number_is_that_of_the_next_ordered_call() {
        let mut chain = Chain::default();
        assert_eq!(chain.next(), None);
        assert_eq!(chain.append(span(1, 2)) + chain.append(span(11, 2)), 0);
        for expected in [1, 2, 11, 12] {
            assert_eq!(chain.next(), Some(expected));
            assert_eq!(ids(&chain.take(1).spans), [expected]);
        }
        assert_eq!(chain.next(), None);
    }

    #[test]
    fn neighbours_over_a_seam_are_neighbours() {
        assert_eq!(over_seams(), ((21..36).collect(), 10));
        let (without, _) = Guard::without(&[Guard::ContiguousTouches], over_seams);
        assert!(without.contains(&11), "ids of no segment: {without:?}");
    }

    #[test]
    fn a_contiguous_take_that_can_not_be_served_skips_nothing() {
        let mut chain = Chain::default();
        assert_eq!(chain.append(span(1, 10)) + chain.append(span(21, 10)), 0);
        assert_eq!(chain.take_contiguous(11), Pulled::default());
        assert_eq!(ids(&chain.take(20).spans).len(), 20);
    }

    proptest! {
        /// Against sets: whatever is appended, taken, given back and drained, each id is in one place.
        #[test]
        fn an_id_is_in_one_place(moves in prop::collection::vec((0_u8..6, 1_u64..30), 1..80)) {
            let (mut chain, mut next, mut out) = (Chain::default(), 1, Vec::new());
            let (mut came, mut gone, mut last) = (0, 0, 0);
            for (kind, count) in moves {
                match kind {
                    0 => {
                        // Sometimes a gap, sometimes a grant that comes late.
                        let first = next + count % 3 * 5;
                        gone += chain.append(span(first, count));
                        (came, next) = (came + count, first + count);
                    }
                    1 => {
                        let taken = ids(&chain.take(count).spans);
                        prop_assert!(taken.is_sorted() && taken.first().is_none_or(|first| *first > last));
                        last = taken.last().copied().unwrap_or(last);
                        out.extend(taken);
                    }
                    2 => out.extend(ids(&chain.take_any(count).spans)),
                    3 => {
                        let pulled = chain.take_contiguous(count);
                        gone += pulled.skipped;
                        let taken = ids(&pulled.spans);
                        prop_assert!(taken.is_empty() || taken.len() as u64 == count);
                        prop_assert!(taken.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                        last = taken.last().copied().unwrap_or(last);
                        out.extend(taken);
                    }
                    4 => out.extend(chain.take_some(count).map(|span| ids(&[span])).unwrap_or_default()),
                    _ => {
                        let back: Vec<Span> = out.pop().into_iter().map(|id| span(id, 1)).collect();
                        gone += chain.give_back(back);
                    }
                }
                prop_assert_eq!(came, out.len() as u64 + gone + chain.in_segments() + chain.loose());
            }
            out.extend(ids(&chain.drain()));
            prop_assert_eq!(came, out.len() as u64 + gone);
            out.sort_unstable();
            prop_assert!(out.windows(2).all(|pair| pair[0] < pair[1]), "an id in two places");
        }
    }
}
