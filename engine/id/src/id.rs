//! The id itself: 63 bits, ordered by time.

use std::fmt;

/// The highest id there is: ids have 63 bits, so that every language can hold them in a signed word.
pub const LAST_ID: u64 = i64::MAX.cast_unsigned();

/// A 64-bit id whose highest bit is zero. Ordered as its tick, then its worker, then its sequence.
///
/// In JSON and in JavaScript carry it as a string: a double holds 53 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Id(u64);

/// The number is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no id: ids go from 0 to 9223372036854775807 (2^63 - 1)")]
pub struct IdRangeError(i128);

impl Id {
    /// The id of a number that the caller knows to be below 2^63: for generators, which pay for no check.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        debug_assert!(raw >> 63 == 0);
        Self(raw)
    }

    /// The id of a raw number; `None` if its highest bit is set.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw >> 63 == 0 { Some(Self(raw)) } else { None }
    }

    /// The number.
    #[must_use]
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }
}

impl From<Id> for u64 {
    #[inline]
    fn from(id: Id) -> Self {
        id.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}

impl TryFrom<u64> for Id {
    type Error = IdRangeError;

    #[inline]
    fn try_from(raw: u64) -> Result<Self, IdRangeError> {
        Self::from_raw(raw).ok_or(IdRangeError(raw.into()))
    }
}

impl TryFrom<i64> for Id {
    type Error = IdRangeError;

    #[inline]
    fn try_from(raw: i64) -> Result<Self, IdRangeError> {
        u64::try_from(raw).map(Self).map_err(|_| IdRangeError(raw.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_the_64th_bit_is_no_id_signed_or_not() {
        assert_eq!(Id::from_raw(1 << 63), None);
        assert_eq!(Id::try_from(LAST_ID), Ok(Id(LAST_ID)));
        assert_eq!(Id::try_from(i64::MAX), Ok(Id(LAST_ID)));
        let error = Id::try_from(u64::MAX).unwrap_err().to_string();
        assert!(
            error.starts_with("18446744073709551615 is no id: ids go from 0 to 9223372036854775807"),
            "{error}"
        );
        let error = Id::try_from(i64::MIN).unwrap_err().to_string();
        assert!(error.starts_with("-9223372036854775808 is no id"), "{error}");
        assert!(Id::try_from(-1_i64).is_err());
    }
}
