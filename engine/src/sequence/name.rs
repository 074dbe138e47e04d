//! The name of a sequence, checked once.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes.
pub const MOST_NAME_BYTES: usize = 128;

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

/// Why a text is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty or too long.
    #[error("a sequence's name has 1 to {MOST_NAME_BYTES} bytes, and this one has {len}")]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// It is not UTF-8.
    #[error("a sequence's name is UTF-8, and this one is not")]
    Encoding,
    /// It has a control character.
    #[error("a sequence's name has no control characters, and this one has U+{:04X}", *found as u32)]
    Control {
        /// The character.
        found: char,
    },
    /// It begins or ends with a space.
    #[error("a sequence's name neither begins nor ends with a space")]
    Space,
    /// It begins with `@`.
    #[error("names that begin with '@' are reserved")]
    Reserved,
}

impl SequenceName {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MOST_NAME_BYTES {
            return Err(NameError::Length { len: text.len() });
        }
        if let Some(found) = text.chars().find(|found| found.is_control()) {
            return Err(NameError::Control { found });
        }
        if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
            return Err(NameError::Space);
        }
        if text.starts_with('@') {
            return Err(NameError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// Checks bytes.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Self::new(std::str::from_utf8(bytes).map_err(|_| NameError::Encoding)?)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
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
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_length_and_no_character_that_misleads() {
        let longest = "n".repeat(MOST_NAME_BYTES);
        for good in ["a", "orders", "order:2026-11-23", "ein Name", "Größe", "a@b", &longest] {
            assert_eq!(SequenceName::new(good).unwrap().as_str(), good);
        }
        let too_long = "n".repeat(MOST_NAME_BYTES + 1);
        for (bad, why) in [
            ("", NameError::Length { len: 0 }),
            (too_long.as_str(), NameError::Length { len: 129 }),
            ("a\nb", NameError::Control { found: '\n' }),
            ("a\u{85}b", NameError::Control { found: '\u{85}' }),
            (" a", NameError::Space),
            ("a\u{a0}", NameError::Space),
            ("@ordered", NameError::Reserved),
        ] {
            assert_eq!(SequenceName::new(bad), Err(why), "{bad:?}");
        }
        assert_eq!(SequenceName::from_bytes(&[0xff]), Err(NameError::Encoding));
    }
}
