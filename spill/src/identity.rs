//! Whose spill it is: the values in the header that a file is accepted or refused by.

use std::fmt;
use std::str::FromStr;

use xuid_id::hex16::{self, Hex};

/// The uuid of one spill file, drawn at random by the process that creates it.
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
        hex16::parse(text).map(Self).ok_or(ParseSpillIdError { length: text.len() })
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

/// What a process that opens a file requires it to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The cluster whose ids they must be.
    pub cluster: [u8; 16],
    /// The stride of the layout.
    pub stride: u64,
    /// The layout, compared as a whole.
    pub layout: [u8; 16],
}
