//! Whose spill it is: the values in the header that a file is accepted or refused by.

use std::fmt;
use std::str::FromStr;

/// The uuid of one spill file, drawn at random by whoever creates it.
///
/// It is part of every record's checksum, and the name under which the mark of this file is kept.
///
/// ```
/// use xuid_spill::SpillId;
/// let id: SpillId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(id.bytes()[15], 15);
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), xuid_spill::ParseSpillIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpillId([u8; 16]);

impl SpillId {
    /// The id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order of its digits.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for SpillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for SpillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpillId({self})")
    }
}

impl FromStr for SpillId {
    type Err = ParseSpillIdError;

    fn from_str(text: &str) -> Result<Self, ParseSpillIdError> {
        // from_str_radix alone would also take a leading `+`.
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = if digits { u128::from_str_radix(text, 16).ok() } else { None };
        value.map(|value| Self(value.to_be_bytes())).ok_or(ParseSpillIdError { length: text.len() })
    }
}

/// The text is not a [`SpillId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a spill's id is 32 hexadecimal digits without separators, and this is something else ({length} bytes)"
)]
pub struct ParseSpillIdError {
    length: usize,
}

/// What a file says about itself. Written once, when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file's own uuid.
    pub spill: SpillId,
    /// The cluster whose ids these are.
    pub cluster: [u8; 16],
    /// Ids between one tick's first id and the next one's, at least 1.
    pub stride: u64,
    /// The layout of the ids. This crate only compares it, as a whole.
    pub layout: [u8; 16],
}

/// What whoever opens a file requires it to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The cluster whose ids they must be.
    pub cluster: [u8; 16],
    /// The stride of the layout.
    pub stride: u64,
    /// The layout, compared as a whole.
    pub layout: [u8; 16],
}

/// Bytes as hexadecimal digits, for texts.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_hex_digits_are_a_spill_id() {
        let id = SpillId::from_bytes([0xA5; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("A5".repeat(16).parse(), Ok(id));
        let wrong =
            [String::new(), "a5".repeat(15), "a5".repeat(17), "+".repeat(32), format!("+{}", "a".repeat(31))];
        for text in wrong {
            assert!(text.parse::<SpillId>().is_err(), "{text:?} was taken");
        }
        assert!("é".repeat(16).parse::<SpillId>().is_err());
    }
}
