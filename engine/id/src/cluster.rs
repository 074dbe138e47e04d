//! The name of a cluster.

use std::fmt;
use std::str::FromStr;

use crate::hex16::{self, Hex};

/// The 16 random bytes that a registry was created with. Zeros stand for "any" where a client
/// says which cluster it wants.
///
/// ```
/// use xuid_id::ClusterId;
/// let id: ClusterId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(id.bytes()[15], 15);
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), xuid_id::ParseClusterIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClusterId([u8; 16]);

/// The text is not a [`ClusterId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cluster id is 32 hexadecimal digits without separators, and this has {length} bytes or other signs"
)]
pub struct ParseClusterIdError {
    length: usize,
}

impl ClusterId {
    /// Whatever cluster the server is of.
    pub const ANY: Self = Self([0; 16]);

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

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl FromStr for ClusterId {
    type Err = ParseClusterIdError;

    fn from_str(text: &str) -> Result<Self, ParseClusterIdError> {
        hex16::parse(text).map(Self).ok_or(ParseClusterIdError { length: text.len() })
    }
}
