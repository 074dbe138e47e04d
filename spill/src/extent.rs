//! Extents, the unit that the log stores, and sums over them.

pub use xuid_id::LAST_ID;

/// `len` consecutive ids from `first`, repeated for `ticks` consecutive ticks.
///
/// Two ticks are a *stride* apart: the number of ids between one tick's first id and the next one's. The stride
/// belongs to the layout and is the same for all extents of a log.
///
/// ```
/// use xuid_spill::Extent;
/// let extent = Extent { first: 1 << 22, len: 4096, ticks: 1000 };
/// assert_eq!(extent.ids(), 4_096_000);
/// assert_eq!(extent.last_first(1 << 22), 1000 << 22);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first id of the first tick.
    pub first: u64,
    /// Ids in each tick, at least 1 and at most the stride.
    pub len: u32,
    /// Ticks, at least 1.
    pub ticks: u32,
}

impl Extent {
    /// How many ids it stands for.
    #[must_use]
    pub const fn ids(&self) -> u64 {
        // Two 32-bit factors: the product always fits.
        self.len as u64 * self.ticks as u64
    }

    /// The first id of the last tick, with ticks `stride` ids apart.
    #[must_use]
    pub const fn last_first(&self, stride: u64) -> u64 {
        self.first.saturating_add((self.ticks.saturating_sub(1) as u64).saturating_mul(stride))
    }

    /// Whether it stands for at least one id, no id twice, and none above [`LAST_ID`].
    ///
    /// The log checks this before a write and after every read. A `len` above the stride would reach into the
    /// next tick and so name ids twice.
    #[must_use]
    pub fn is_sound(&self, stride: u64) -> bool {
        if self.len == 0 || self.ticks == 0 || u64::from(self.len) > stride {
            return false;
        }
        let last = u128::from(self.first)
            + u128::from(self.ticks - 1) * u128::from(stride)
            + u128::from(self.len - 1);
        last <= u128::from(LAST_ID)
    }
}

/// How many extents, and how many ids they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// Extents.
    pub extents: u64,
    /// Ids of these extents.
    pub ids: u64,
}

/// A running sum of extents that can also be taken from.
///
/// 128 bits for the ids, so that overlapping extents (which only a test or a broken caller makes) cannot overflow
/// it and what was added can be subtracted exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    extents: u64,
    ids: u128,
}

impl Sum {
    pub(crate) fn add(&mut self, ids: u64) {
        self.extents += 1;
        self.ids += u128::from(ids);
    }

    pub(crate) fn take(&mut self, other: Sum) {
        self.extents -= other.extents;
        self.ids -= other.ids;
    }

    pub(crate) fn stock(self) -> Stock {
        Stock { extents: self.extents, ids: u64::try_from(self.ids).unwrap_or(u64::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_that_names_no_id_or_one_twice_or_one_above_63_bits_is_not_sound() {
        let sound = Extent { first: LAST_ID - 107, len: 8, ticks: 2 };
        assert!(sound.is_sound(100));
        assert!(!Extent { first: sound.first + 1, ..sound }.is_sound(100));
        assert!(!Extent { first: u64::MAX, len: 1, ticks: 1 }.is_sound(100));
        assert!(!Extent { len: 0, ..sound }.is_sound(100));
        assert!(!Extent { ticks: 0, ..sound }.is_sound(100));
        assert!(Extent { first: 0, len: 100, ticks: 2 }.is_sound(100));
        assert!(!Extent { first: 0, len: 101, ticks: 1 }.is_sound(100));
        assert!(!Extent { first: 0, len: u32::MAX, ticks: u32::MAX }.is_sound(u64::MAX));
    }
}
