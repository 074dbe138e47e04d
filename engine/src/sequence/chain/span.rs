//! Ids of a sequence that lie at equal distances: what a grant, a segment and a batch of leftovers are made of.

use crate::sequence::numbers::Numbers;
use crate::sequence::store::{HIGHEST, SequenceSettings};
use crate::sys::guards::Guard;

/// `count` ids: `first`, `first + increment`, ... The code that has it owns them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) increment: u32,
}

impl Span {
    /// The ids of a grant: those numbers of `first .. end` that fit the remainder and are not above `last`. `None` if
    /// there is none.
    pub(crate) fn of_grant(first: u64, end: u64, settings: &SequenceSettings) -> Option<Self> {
        let (increment, remainder) = (u64::from(settings.increment), u64::from(settings.remainder));
        let end = if Guard::GrantEnds.holds() { end.min(settings.last.min(HIGHEST) + 1) } else { end };
        // From here on to the first number that fits.
        let ahead = (remainder + increment - first % increment) % increment;
        let ahead = if Guard::GrantFits.holds() { ahead } else { 0 };
        let first = first.checked_add(ahead)?;
        let width = end.checked_sub(first).filter(|width| *width > 0)?;
        Some(Self { first, count: width.div_ceil(increment), increment: settings.increment })
    }

    /// The id in that place, which is below the count.
    pub(crate) fn id(&self, place: u64) -> u64 {
        debug_assert!(place < self.count, "{place} of {self:?}");
        self.first + place * u64::from(self.increment)
    }

    /// The first number that fits and is not of it any more.
    pub(crate) fn end(&self) -> u64 {
        // At most an increment above the highest number.
        self.first + self.count * u64::from(self.increment)
    }

    /// The first number above it.
    pub(crate) fn above(&self) -> u64 {
        self.end() - u64::from(self.increment) + 1
    }

    /// What is left of it when its first `count` ids are taken; `None` if nothing is.
    pub(crate) fn after(&self, count: u64) -> Option<Self> {
        let left = self.count.checked_sub(count).filter(|left| *left > 0)?;
        Some(Self { first: self.id(count), count: left, increment: self.increment })
    }

    /// Its first `count` ids, all of it at most.
    pub(crate) fn before(&self, count: u64) -> Self {
        Self { count: count.min(self.count), ..*self }
    }

    /// What of it lies below `bound`, and what does not.
    pub(crate) fn split_at(&self, bound: u64) -> (Option<Self>, Option<Self>) {
        let below = bound.saturating_sub(self.first).div_ceil(u64::from(self.increment)).min(self.count);
        (Some(self.before(below)).filter(|span| span.count > 0), self.after(below))
    }

    /// Its ids for a caller. It has no more than a call may ask for.
    pub(crate) fn into_numbers(self) -> Numbers {
        debug_assert!(u32::try_from(self.count).is_ok(), "{self:?}");
        Numbers::new(self.first, self.count as u32, self.increment)
    }

    /// Takes `next` into it, if that goes on where this ends.
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let touches = self.increment == next.increment && self.end() == next.first;
        self.count += if touches { next.count } else { 0 };
        touches
    }
}

/// How many ids spans have together.
pub(crate) fn total<'a>(spans: impl IntoIterator<Item = &'a Span>) -> u64 {
    spans.into_iter().map(|span| span.count).sum()
}

/// The same ids in ascending order, in as few spans as can be.
pub(crate) fn sorted(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    spans.dedup_by(|next, before| before.join(next));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_grant_is_the_numbers_that_fit_and_no_others(
            first in 0_u64..200, width in 0_u64..200, last in 0_u64..300, increment in 1_u32..12, part in 0_u32..12,
            high in prop::bool::ANY,
        ) {
            // Also at the upper end, where sums come near to 2^63.
            let base = if high { HIGHEST - 300 } else { 0 };
            let (first, end, last) = (base + first, base + first + width, base + last);
            let remainder = part % increment;
            let settings = SequenceSettings { increment, remainder, last, ..SequenceSettings::default() };
            let fits = |number: &u64| number % u64::from(increment) == u64::from(remainder) && *number <= last;
            let naive: Vec<u64> = (first..end).filter(fits).collect();
            let span = Span::of_grant(first, end, &settings);
            let found: Vec<u64> = span.map(|span| (0..span.count).map(|place| span.id(place)).collect()).unwrap_or_default();
            prop_assert_eq!(found, naive);
        }

        #[test]
        fn what_is_cut_is_whole_again_when_it_is_sorted(
            first in 0_u64..1_000, count in 1_u64..100, increment in 1_u32..5, cuts in prop::collection::vec(1_u64..20, 0..8),
        ) {
            let whole = Span { first, count, increment };
            let (mut rest, mut parts) = (Some(whole), Vec::new());
            for cut in cuts {
                let Some(left) = rest else { break };
                parts.insert(parts.len() / 2, left.before(cut));
                rest = left.after(cut);
            }
            parts.extend(rest);
            prop_assert_eq!(total(&parts), count);
            prop_assert_eq!(sorted(parts), vec![whole]);
        }
    }

    #[test]
    fn a_span_is_split_between_its_ids() {
        let span = Span { first: 10, count: 4, increment: 3 };
        for (bound, below) in [(0, 0), (10, 0), (11, 1), (13, 1), (14, 2), (19, 3), (20, 4), (u64::MAX, 4)] {
            let (low, high) = span.split_at(bound);
            assert_eq!((low.map_or(0, |low| low.count), high), (below, span.after(below)), "at {bound}");
        }
    }

    #[test]
    fn a_grant_that_is_not_aligned_or_not_cut_is_found_out() {
        let settings =
            SequenceSettings { increment: 3, remainder: 1, last: 7, ..SequenceSettings::default() };
        let of_grant = || Span::of_grant(3, 12, &settings).unwrap();
        assert_eq!(of_grant(), Span { first: 4, count: 2, increment: 3 });
        assert_eq!(Guard::without(&[Guard::GrantFits], of_grant), Span { first: 3, count: 2, increment: 3 });
        assert_eq!(Guard::without(&[Guard::GrantEnds], of_grant), Span { first: 4, count: 3, increment: 3 });
    }

    #[test]
    fn the_last_number_of_all_is_issued_and_none_above_it() {
        let settings = SequenceSettings { increment: 2, remainder: 1, ..SequenceSettings::default() };
        let span = Span::of_grant(HIGHEST - 1, u64::MAX, &settings).unwrap();
        assert_eq!((span.first, span.count), (HIGHEST, 1));
        assert_eq!(Span::of_grant(HIGHEST + 1, u64::MAX, &settings), None);
        assert_eq!(Span::of_grant(u64::MAX, u64::MAX, &settings), None);
    }
}
