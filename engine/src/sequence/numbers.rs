//! What a call asks for, and what it gets.

/// Ids that one call may ask for.
pub const MOST_IDS: u32 = 131_072;

/// Ids of a sequence, ascending, at equal distances: `first`, `first + stride`, ... Owned by the holder of this value.
/// Dropping it wastes them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "ids that are dropped are wasted"]
pub struct Numbers {
    first: u64,
    len: u32,
    stride: u32,
}

impl Numbers {
    pub(crate) fn new(first: u64, len: u32, stride: u32) -> Self {
        debug_assert!(len > 0 && stride > 0 && first >> 63 == 0);
        Self { first, len, stride }
    }

    /// The first id.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many ids.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The distance between two ids: the sequence's increment.
    #[must_use]
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// The last id.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.len - 1) * u64::from(self.stride)
    }

    /// Takes `next` into it, if that goes on where this ends.
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let touches = self.stride == next.stride && self.last() + u64::from(self.stride) == next.first;
        let len = self.len.checked_add(next.len).filter(|_| touches);
        self.len = len.unwrap_or(self.len);
        len.is_some()
    }
}

impl IntoIterator for Numbers {
    type Item = u64;
    type IntoIter = NumbersIter;

    fn into_iter(self) -> NumbersIter {
        NumbersIter { next: self.first, left: self.len, stride: self.stride }
    }
}

/// The ids of [`Numbers`], in order.
#[derive(Debug)]
pub struct NumbersIter {
    next: u64,
    left: u32,
    stride: u32,
}

impl Iterator for NumbersIter {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let id = self.next;
        // Past the last one it may be beyond every id, and is not used.
        self.next = id.wrapping_add(u64::from(self.stride));
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for NumbersIter {}

/// What a call asks for.
///
/// ```
/// use xuid_engine::sequence::Demand;
///
/// let demand = Demand::ordered(100).contiguous();
/// assert_eq!(demand.count(), 100);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Demand {
    pub(crate) count: u32,
    pub(crate) ordered: bool,
    pub(crate) contiguous: bool,
}

impl Demand {
    /// So many ids, each greater than every ordered id of the sequence that this process returned before the call.
    pub const fn ordered(count: u32) -> Self {
        Self { count, ordered: true, contiguous: false }
    }

    /// So many ids in whatever order.
    pub const fn any(count: u32) -> Self {
        Self { count, ordered: false, contiguous: false }
    }

    /// In one piece: consecutive numbers of the sequence. What is left of a segment that is too short is wasted.
    pub const fn contiguous(self) -> Self {
        Self { contiguous: true, ..self }
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_many_as_they_say_up_to_the_highest() {
        let highest = (1 << 63) - 1;
        let numbers = Numbers::new(highest - 6, 3, 3);
        assert_eq!((numbers.last(), numbers.len()), (highest, 3));
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [highest - 6, highest - 3, highest]);
    }

    #[test]
    fn only_numbers_that_touch_are_joined() {
        let mut numbers = Numbers::new(1, 2, 3);
        assert!(!numbers.join(&Numbers::new(8, 1, 3)) && !numbers.join(&Numbers::new(7, 1, 1)));
        assert!(numbers.join(&Numbers::new(7, 2, 3)));
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [1, 4, 7, 10]);
    }
}
