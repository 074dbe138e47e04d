//! The names of sequences.

use std::fmt;

/// The name of a sequence: 1 to 128 bytes of UTF-8 without control characters, no space at either end, and not
/// beginning with `@`, which is kept for the engine's own ids. Names are compared byte by byte.
///
/// ```
/// use xuid_id::{NameError, SequenceName};
/// let name = SequenceName::new("orders".as_bytes())?;
/// assert_eq!(name.as_str(), "orders");
/// assert_eq!(SequenceName::new(b"orders "), Err(NameError::Space));
/// # Ok::<(), NameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceName<'a>(&'a str);

/// Bytes that are no [`SequenceName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing, or too much.
    #[error("it has {len} bytes, and a name of a sequence has 1 to {}", SequenceName::MAX)]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// Some other encoding.
    #[error("it is not UTF-8 from byte {at} on: write names of sequences in UTF-8")]
    Encoding {
        /// How many bytes are UTF-8.
        at: usize,
    },
    /// A line end, a tab, a zero byte, ...
    #[error("its byte {at} begins a control character: leave it out")]
    Control {
        /// Where the first one is.
        at: usize,
    },
    /// It would look like another name.
    #[error("it begins or ends with a space: leave that out")]
    Space,
    /// Reserved.
    #[error("it begins with @, which is kept for ids that belong to no sequence: choose another name")]
    Reserved,
}

impl<'a> SequenceName<'a> {
    /// The longest name, in bytes.
    pub const MAX: usize = 128;

    /// The name in these bytes.
    ///
    /// # Errors
    /// What keeps them from being one.
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        if bytes.is_empty() || bytes.len() > Self::MAX {
            return Err(NameError::Length { len: bytes.len() });
        }
        let text = str::from_utf8(bytes).map_err(|error| NameError::Encoding { at: error.valid_up_to() })?;
        if let Some((at, _)) = text.char_indices().find(|(_, char)| char.is_control()) {
            return Err(NameError::Control { at });
        }
        if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
            return Err(NameError::Space);
        }
        if text.starts_with('@') {
            return Err(NameError::Reserved);
        }
        Ok(Self(text))
    }

    /// The name as text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Display for SequenceName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_any_text_that_looks_like_itself() {
        let long = "x".repeat(SequenceName::MAX);
        for good in
            ["a", "orders", "order:2026-11-23", "bestellungen ä 注文", "a@b", "'; --", "%2f/..", &long]
        {
            assert_eq!(SequenceName::new(good.as_bytes()).map(SequenceName::as_str), Ok(good));
        }
        let (longer, wide) = ("x".repeat(SequenceName::MAX + 1), "ä".repeat(65));
        for (bad, error) in [
            (&b""[..], NameError::Length { len: 0 }),
            (longer.as_bytes(), NameError::Length { len: 129 }),
            (wide.as_bytes(), NameError::Length { len: 130 }),
            (b"ab\xff", NameError::Encoding { at: 2 }),
            (b"a\nb", NameError::Control { at: 1 }),
            (b"\0", NameError::Control { at: 0 }),
            ("a\u{85}".as_bytes(), NameError::Control { at: 1 }),
            (b" a", NameError::Space),
            (b"a ", NameError::Space),
            (b" ", NameError::Space),
            ("a\u{3000}".as_bytes(), NameError::Space),
            (b"@any", NameError::Reserved),
        ] {
            assert_eq!(SequenceName::new(bad), Err(error), "{bad:?}");
        }
    }
}
