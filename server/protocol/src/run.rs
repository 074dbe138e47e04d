//! Ids at equal distances, as RUNS carries them.

/// `count` ids: `first`, `first + stride`, `first + 2 * stride`, ...
///
/// ```
/// use xuid_protocol::Run;
/// let run = Run { first: 100, count: 3, stride: 1 };
/// assert_eq!(run.into_iter().collect::<Vec<_>>(), [100, 101, 102]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first id.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// From one to the next; 1: consecutive ids.
    pub stride: u32,
}

impl Run {
    /// No id is above: ids have 63 bits.
    pub(crate) const LARGEST_ID: u64 = u64::MAX >> 1;

    /// The last id; `None` if there is none, or if it does not fit 64 bits.
    #[must_use]
    pub fn last(self) -> Option<u64> {
        let steps = u64::from(self.count.checked_sub(1)?);
        // At most (2^32 - 2) * (2^32 - 1), which fits.
        self.first.checked_add(steps * u64::from(self.stride))
    }
}

impl IntoIterator for Run {
    type Item = u64;
    type IntoIter = RunIds;

    fn into_iter(self) -> RunIds {
        RunIds { next: self.first, left: self.count, stride: self.stride }
    }
}

/// The ids of a [`Run`].
#[derive(Debug, Clone)]
pub struct RunIds {
    next: u64,
    left: u32,
    stride: u32,
}

impl Iterator for RunIds {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let id = self.next;
        self.next = id.wrapping_add(u64::from(self.stride));
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for RunIds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_exactly_its_ids_and_its_last_is_the_last() {
        for (count, stride) in [(0, 1), (1, 1), (5, 1), (7, 4_096), (3, u32::MAX)] {
            let run = Run { first: 9, count, stride };
            let ids: Vec<_> = run.into_iter().collect();
            assert_eq!(ids.len(), count as usize);
            assert_eq!(run.into_iter().len(), ids.len());
            assert_eq!(run.last(), ids.last().copied());
            assert!(ids.windows(2).all(|pair| pair[1] - pair[0] == u64::from(stride)));
        }
    }

    #[test]
    fn a_run_that_leaves_64_bits_has_no_last() {
        assert_eq!(Run { first: u64::MAX, count: 2, stride: 1 }.last(), None);
        assert_eq!(Run { first: u64::MAX, count: 1, stride: 1 }.last(), Some(u64::MAX));
        assert_eq!(Run { first: 0, count: u32::MAX, stride: u32::MAX }.last(), Some(0xffff_fffd_0000_0002));
    }
}
