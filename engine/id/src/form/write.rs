//! Ids to text.

use std::fmt;
use std::ops::Deref;

use super::digits::{BASE10, BASE16, BASE36, BASE58, BASE62, BWMARRIN32, BWMARRIN58, CROCKFORD32};
use super::names::Form;
use crate::id::Id;

/// Digits of the longest text: 2^63 - 1 in decimal.
const MOST: usize = 19;

/// The text of an id, on the stack. It derefs to `str`.
#[derive(Clone, Copy)]
pub struct IdText {
    /// ASCII, at the end.
    bytes: [u8; MOST],
    start: u8,
}

impl Form {
    /// The text of an id.
    #[must_use]
    #[inline]
    pub fn text(self, id: Id) -> IdText {
        let raw = id.raw();
        match self {
            Self::Decimal => digits::<10, 9, 19>(raw, BASE10).without_zeros(b'0'),
            Self::Hex => digits::<16, 7, 16>(raw, BASE16),
            Self::Crockford32 => digits::<32, 6, 13>(raw, CROCKFORD32),
            Self::Base36 => digits::<36, 6, 13>(raw, BASE36),
            Self::Base58 => digits::<58, 5, 11>(raw, BASE58),
            Self::Base62 => digits::<62, 5, 11>(raw, BASE62),
            Self::BwmarrinBase32 => digits::<32, 6, 13>(raw, BWMARRIN32).without_zeros(BWMARRIN32[0]),
            Self::BwmarrinBase36 => digits::<36, 6, 13>(raw, BASE36).without_zeros(BASE36[0]),
            Self::BwmarrinBase58 => digits::<58, 5, 11>(raw, BWMARRIN58).without_zeros(BWMARRIN58[0]),
        }
    }
}

/// `WIDTH` digits. The number is cut into three pieces of 32 bits, the lower two of `PIECE` digits each: division is
/// cheaper in 32 bits, and the processor works on the pieces side by side.
#[inline]
fn digits<const RADIX: usize, const PIECE: usize, const WIDTH: usize>(raw: u64, all: &[u8; RADIX]) -> IdText {
    const {
        assert!((RADIX as u64).pow(PIECE as u32) <= 1 << 32, "a lower piece has 32 bits");
        assert!(WIDTH > 2 * PIECE && WIDTH <= MOST, "there is an upper piece, and room");
    }
    let unit = const { (RADIX as u64).pow(PIECE as u32) };
    let upper = raw / unit;
    let (mut high, mut middle, mut low) = ((upper / unit) as u32, (upper % unit) as u32, (raw % unit) as u32);
    let radix = const { RADIX as u32 };
    let mut bytes = [all[0]; MOST];
    for place in (0..PIECE).rev() {
        bytes[MOST - PIECE + place] = all[(low % radix) as usize];
        bytes[MOST - 2 * PIECE + place] = all[(middle % radix) as usize];
        (low, middle) = (low / radix, middle / radix);
    }
    for place in (MOST - WIDTH..MOST - 2 * PIECE).rev() {
        bytes[place] = all[(high % radix) as usize];
        high /= radix;
    }
    IdText { bytes, start: (MOST - WIDTH) as u8 }
}

impl IdText {
    /// The text, which is ASCII.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        // Digits are ASCII, so the default is never taken.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Without the zeros before the first other digit; the last digit stays.
    #[inline]
    fn without_zeros(mut self, zero: u8) -> Self {
        while usize::from(self.start) < MOST - 1 && self.bytes[usize::from(self.start)] == zero {
            self.start += 1;
        }
        self
    }
}

impl Deref for IdText {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for IdText {
    fn as_ref(&self) -> &str {
        self
    }
}

impl fmt::Display for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for IdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
