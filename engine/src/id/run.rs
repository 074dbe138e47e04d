//! Ids of one tick, and the form in which a slot holds them.
//!
//! # Invariants
//! - I1 a [`Run`] lies within one tick of one worker: its ids differ in sequence bits only;
//! - I2 it is move-only: the code that has it owns every id in it, and no other code has any;
//! - I3 a [`Block`] is aligned to its length, a power of two;
//! - I4 inside the engine a run is one of plots, its stride 1. It is shown in the layout's face once, on its way out.

use xuid_id::{Id, Layout};
use xuid_spill::Extent;

/// Ids at equal distances, `first`, `first + stride`, ..., owned by the holder of this value. Dropping it wastes them.
///
/// ```
/// # use xuid_engine::{Engine, Order};
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
/// let runs = engine.runs(100, Order::Any).unwrap();
/// let ids: Vec<_> = runs.into_iter().flatten().collect();
/// assert_eq!(ids.len(), 100);
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "ids that are dropped are wasted"]
pub struct Run {
    first: u64,
    len: u32,
    stride: u32,
}

impl Run {
    pub(crate) fn new(first: u64, len: u32) -> Self {
        debug_assert!(len > 0 && first >> 63 == 0);
        Self { first, len, stride: 1 }
    }

    /// The first id.
    #[must_use]
    pub fn first(&self) -> Id {
        Id::new(self.first)
    }

    /// How many ids.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The distance from one id to the next: 1, but where the layout has the worker lowest.
    #[must_use]
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// The same ids as callers see them, of what were plots.
    pub(crate) fn show(&mut self, layout: &Layout) {
        debug_assert_eq!(self.stride, 1, "it is shown once");
        self.first = layout.face_of(self.first).raw();
        self.stride = layout.run_stride();
    }

    /// Whether `next` goes on where this run ends, in the same tick.
    pub(crate) fn continues_with(&self, next: &Self, sequences: u32) -> bool {
        let end = self.first + u64::from(self.len);
        end == next.first && !end.is_multiple_of(u64::from(sequences))
    }

    /// Takes `next`, which goes on where this run ends, into it.
    #[expect(clippy::needless_pass_by_value, reason = "a run that was joined to another is gone")]
    pub(crate) fn join(&mut self, next: Self) {
        let Self { first, len, stride } = next;
        debug_assert_eq!((self.first + u64::from(self.len), self.stride), (first, stride));
        self.len += len;
    }

    /// The same ids as an extent of one tick.
    pub(crate) fn into_extent(self) -> Extent {
        let Self { first, len, stride } = self;
        debug_assert_eq!(stride, 1, "a run of plots");
        Extent { first, len, ticks: 1 }
    }

    /// The raw first id.
    pub(crate) fn raw(&self) -> u64 {
        self.first
    }
}

impl IntoIterator for Run {
    type Item = Id;
    type IntoIter = Ids;

    fn into_iter(self) -> Ids {
        Ids { next: self.first, left: self.len, stride: self.stride }
    }
}

/// The ids of a [`Run`], in order.
#[derive(Debug)]
pub struct Ids {
    next: u64,
    left: u32,
    stride: u32,
}

impl Iterator for Ids {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        self.left = self.left.checked_sub(1)?;
        let id = Id::new(self.next);
        // Behind the last id there may be none.
        self.next = self.next.wrapping_add(u64::from(self.stride));
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Ids {}

/// A run of a power-of-two length, aligned to it, in one word: `first << 1 | len`. The lowest set bit is the
/// length, and zero is no block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block(u64);

impl Block {
    /// The block of `first`, aligned to `len`, a power of two.
    pub(crate) fn new(first: u64, len: u32) -> Self {
        debug_assert!(len.is_power_of_two() && first.is_multiple_of(u64::from(len)), "{first} x {len}");
        Self(first << 1 | u64::from(len))
    }

    /// The block in a word taken from a slot.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    pub(crate) fn word(&self) -> u64 {
        self.0
    }

    /// How many ids.
    pub(crate) fn len(&self) -> u32 {
        (self.0 & self.0.wrapping_neg()) as u32
    }

    pub(crate) fn into_run(self) -> Run {
        let len = self.0 & self.0.wrapping_neg();
        Run::new((self.0 ^ len) >> 1, len as u32)
    }
}

/// Cuts the largest aligned power-of-two block, of at most `longest` ids, off the front of `first .. first + len`.
pub(crate) fn front_block(first: u64, len: u32, longest: u32) -> u32 {
    debug_assert!(len > 0 && longest.is_power_of_two());
    let fits = 1u32 << len.ilog2();
    let aligned = if first == 0 { longest } else { 1u32 << first.trailing_zeros().min(30) };
    fits.min(aligned).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_cut_from_a_run_cover_it_once(first in 0u64..1 << 40, len in 1u32..5_000, shift in 0u32..13) {
            let longest = 1 << shift;
            let (mut at, mut left) = (first, len);
            while left > 0 {
                let size = front_block(at, left, longest);
                prop_assert!(size <= left && size <= longest);
                let run = Block::from_word(Block::new(at, size).word()).unwrap().into_run();
                prop_assert_eq!((run.raw(), run.len()), (at, size));
                at += u64::from(size);
                left -= size;
            }
            prop_assert_eq!(at, first + u64::from(len));
        }
    }

    #[test]
    fn runs_join_within_a_tick_only() {
        let mut run = Run::new(8, 4);
        assert!(run.continues_with(&Run::new(12, 2), 16) && !run.continues_with(&Run::new(13, 2), 16));
        run.join(Run::new(12, 4));
        assert_eq!((run.raw(), run.len()), (8, 8));
        assert!(!run.continues_with(&Run::new(16, 1), 16), "the next tick, or another worker");
    }

    #[test]
    fn a_run_of_a_layout_with_the_worker_lowest_is_shown_with_a_stride() {
        let layout: Layout = "sonyflake".parse().unwrap();
        let mut run = Run::new(layout.plots().encode(7, 3, 250).raw(), 6);
        run.show(&layout);
        assert_eq!((run.first(), run.stride()), (layout.encode(7, 3, 250), 1 << 16));
        let parts = |id| layout.decode(id);
        assert_eq!(
            run.into_iter().map(|id| parts(id).sequence).collect::<Vec<_>>(),
            [250, 251, 252, 253, 254, 255]
        );
    }

    #[test]
    fn a_block_holds_the_highest_id() {
        let first = (1 << 63) - 1024;
        let run = Block::new(first, 1024).into_run();
        assert_eq!((run.raw(), run.len()), (first, 1024));
    }
}
