//! Owned ids in memory: extents, consumed from the front.
//!
//! # Invariants
//! - I1 `ids` is the sum of the ids of all extents;
//! - I2 what is taken is gone from the line before it is returned (U3).

use std::collections::VecDeque;

use xuid_spill::Extent;

use crate::id::run::{Block, Run, front_block};

/// A line of extents.
#[derive(Debug, Default)]
pub(crate) struct ExtentQueue {
    line: VecDeque<Extent>,
    ids: u64,
}

impl ExtentQueue {
    pub(crate) fn push(&mut self, extent: Extent) {
        debug_assert!(extent.len > 0 && extent.ticks > 0);
        self.ids += extent.ids();
        self.line.push_back(extent);
    }

    pub(crate) fn push_run(&mut self, run: Run) {
        self.push(run.into_extent());
    }

    pub(crate) fn ids(&self) -> u64 {
        self.ids
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The first id of the front extent: the oldest, where extents came in the order of time.
    pub(crate) fn front(&self) -> Option<u64> {
        self.line.front().map(|extent| extent.first)
    }

    pub(crate) fn extents(&self) -> usize {
        self.line.len()
    }

    /// Drops what is older than `oldest`, a raw id that begins a tick, from the front; returns how many ids.
    pub(crate) fn expire(&mut self, oldest: u64, stride: u64) -> u64 {
        let before = self.ids;
        while let Some(front) = self.line.front_mut() {
            if front.first >= oldest {
                break;
            }
            let stale = (oldest - front.first).div_ceil(stride).min(u64::from(front.ticks));
            self.ids -= stale * u64::from(front.len);
            if stale == u64::from(front.ticks) {
                self.line.pop_front();
            } else {
                front.first += stale * stride;
                front.ticks -= stale as u32;
            }
        }
        before - self.ids
    }

    /// Takes up to `most` consecutive ids off the front.
    pub(crate) fn take(&mut self, most: u32, stride: u64) -> Option<Run> {
        let front = self.line.front()?;
        let len = front.len.min(most);
        Some(self.cut(len, stride))
    }

    /// Takes the longest aligned block of up to `longest` ids off the front.
    pub(crate) fn take_block(&mut self, longest: u32, stride: u64) -> Option<Block> {
        let front = self.line.front()?;
        let len = front_block(front.first, front.len, longest);
        let run = self.cut(len, stride);
        Some(Block::new(run.raw(), run.len()))
    }

    fn cut(&mut self, len: u32, stride: u64) -> Run {
        let Some(front) = self.line.front_mut() else { unreachable!("the caller looked at the front") };
        let Extent { first, len: whole, ticks } = *front;
        self.ids -= u64::from(len);
        match (ticks > 1, len < whole) {
            (false, false) => {
                self.line.pop_front();
            }
            (false, true) => *front = Extent { first: first + u64::from(len), len: whole - len, ticks: 1 },
            (true, false) => *front = Extent { first: first + stride, len: whole, ticks: ticks - 1 },
            (true, true) => {
                *front = Extent { first: first + stride, len: whole, ticks: ticks - 1 };
                self.line.push_front(Extent { first: first + u64::from(len), len: whole - len, ticks: 1 });
            }
        }
        Run::new(first, len)
    }

    /// Takes the front extent whole.
    pub(crate) fn pop(&mut self) -> Option<Extent> {
        let extent = self.line.pop_front()?;
        self.ids -= extent.ids();
        Some(extent)
    }

    /// Takes everything.
    pub(crate) fn drain(&mut self) -> Vec<Extent> {
        self.ids = 0;
        self.line.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIDE: u64 = 64;

    fn line() -> ExtentQueue {
        let mut queue = ExtentQueue::default();
        queue.push(Extent { first: 3, len: 5, ticks: 2 });
        queue.push(Extent { first: 1000, len: 2, ticks: 1 });
        queue
    }

    #[test]
    fn what_is_taken_is_everything_once() {
        let mut queue = line();
        let mut seen: Vec<u64> = Vec::new();
        while let Some(run) = queue.take(2, STRIDE) {
            seen.extend(run.into_iter().map(crate::Id::raw));
            assert_eq!(queue.ids(), 12 - seen.len() as u64);
        }
        assert_eq!(seen, [3, 4, 5, 6, 7, 67, 68, 69, 70, 71, 1000, 1001]);
    }

    #[test]
    fn blocks_are_aligned_and_cover_everything_once() {
        let mut queue = line();
        let mut seen: Vec<u64> = Vec::new();
        while let Some(block) = queue.take_block(4, STRIDE) {
            let run = block.into_run();
            assert!(run.raw().is_multiple_of(u64::from(run.len())));
            seen.extend(run.into_iter().map(crate::Id::raw));
        }
        assert_eq!(seen, [3, 4, 5, 6, 7, 67, 68, 69, 70, 71, 1000, 1001]);
    }

    #[test]
    fn only_whole_stale_ticks_expire() {
        let mut queue = line();
        assert_eq!(queue.expire(64, STRIDE), 5);
        assert_eq!(queue.take(9, STRIDE).unwrap().raw(), 67);
        assert_eq!(queue.expire(2000, STRIDE), 2);
        assert!(queue.is_empty() && queue.ids() == 0);
    }
}
