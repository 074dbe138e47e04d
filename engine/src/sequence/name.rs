//! The name of a sequence, owned, and cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

pub use xuid_id::NameError;

/// The longest name, in bytes.
pub const MOST_NAME_BYTES: usize = xuid_id::SequenceName::MAX;

/// No sequence's name.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const NEW_NAMES: &str = "@new";

/// A name that a sequence may have: 1 to 128 bytes of UTF-8 without control characters, no space at either end, and no
/// `@` at the beginning. Names are compared byte by byte. Cheap to clone.
///
/// ```
/// use xuid_engine::sequence::SequenceName;
///
/// let name: SequenceName = "orders".parse().unwrap();
/// assert_eq!(name.as_str(), "orders");
/// assert!("@any".parse::<SequenceName>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceName(Arc<str>);

impl SequenceName {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }

    /// Checks bytes.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Ok(xuid_id::SequenceName::new(bytes)?.into())
    }

    /// The row of a database's table that is no sequence's: its mark is where new names begin at least, after a fence.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn of_new_names() -> Self {
        Self(NEW_NAMES.into())
    }

    /// What the column of a table's names says.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn of_row(text: &str) -> Result<Self, NameError> {
        if text == NEW_NAMES { Ok(Self::of_new_names()) } else { Self::new(text) }
    }

    /// The same name in memory of its own, which does not keep alive, or in place, what was made with this one.
    pub(crate) fn apart(&self) -> Self {
        Self(self.as_str().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<xuid_id::SequenceName<'_>> for SequenceName {
    fn from(name: xuid_id::SequenceName<'_>) -> Self {
        Self(name.as_str().into())
    }
}

impl std::str::FromStr for SequenceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl Borrow<str> for SequenceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SequenceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
