//! The name of a cluster, as HELLO carries it.

use std::fmt;
use std::str::FromStr;

/// The 16 random bytes that a registry was created with. Zeros stand for "any" in HELLO.
///
/// ```
/// use xuid_protocol::ClusterId;
/// let id: ClusterId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(id.bytes()[15], 15);
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), xuid_protocol::ParseClusterIdError>(())
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
    /// In HELLO: whatever cluster the server is of.
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
        // from_str_radix alone would also take a leading `+`.
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = if digits { u128::from_str_radix(text, 16).ok() } else { None };
        value.map(|value| Self(value.to_be_bytes())).ok_or(ParseClusterIdError { length: text.len() })
    }
}
