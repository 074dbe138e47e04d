//! The id itself: 63 bits, ordered by time.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The highest id there is: ids have 63 bits, so that every language can hold them in a signed word.
pub const LAST_ID: u64 = i64::MAX.cast_unsigned();

/// A 64-bit id whose highest bit is zero. Ordered as its tick, then its worker, then its sequence.
///
/// In JSON and in JavaScript carry it as a string: a double holds 53 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Id(u64);

/// The text or number is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseIdError {
    /// Not a decimal number of 64 bits.
    #[error("an id is a decimal number from 0 to 9223372036854775807")]
    Number(#[source] ParseIntError),
    /// The highest bit is set.
    #[error("{0} has the 64th bit set: ids go up to 9223372036854775807")]
    Range(u64),
}

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

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let raw = text.trim().parse().map_err(ParseIdError::Number)?;
        Self::from_raw(raw).ok_or(ParseIdError::Range(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_with_the_64th_bit_is_refused() {
        assert_eq!(Id::from_raw(1 << 63), None);
        assert_eq!("9223372036854775808".parse::<Id>(), Err(ParseIdError::Range(1 << 63)));
        assert_eq!("9223372036854775807".parse::<Id>().unwrap().raw(), (1 << 63) - 1);
        assert!("ten".parse::<Id>().is_err());
    }
}
