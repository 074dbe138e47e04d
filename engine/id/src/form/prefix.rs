//! A prefix that says what an id is of, as in `ord_1LLVoUFd7ez`.

use std::fmt;

use super::error::ParseIdError;
use super::names::Form;
use super::write::IdText;
use crate::id::Id;

/// A form with a prefix before it, which is checked when a text is read.
///
/// ```
/// use xuid_id::{Form, Id};
/// let orders = Form::Base62.prefixed("ord_")?;
/// let id = Id::try_from(1_128_275_363_336_683_521_u64)?;
/// assert_eq!(orders.text(id).to_string(), "ord_1LLVoUFd7ez");
/// assert_eq!(orders.parse("ord_1LLVoUFd7ez")?, id);
/// assert!(orders.parse("inv_1LLVoUFd7ez").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefixed<'a> {
    form: Form,
    prefix: &'a str,
}

/// The text of an id behind its prefix.
#[derive(Clone, Copy, Debug)]
pub struct PrefixedText<'a> {
    prefix: &'a str,
    text: IdText,
}

/// Why a prefix is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// Too much.
    #[error("a prefix has at most {} characters, and this has {len} bytes", Prefixed::MOST)]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// It would have to be quoted somewhere, or be taken for a flag or a number.
    #[error(
        "character {place} is {found:?}, and a prefix is a letter and then letters, digits and _ - . : (ASCII), as in ord_"
    )]
    Character {
        /// The character.
        found: char,
        /// Which one it is, from 1.
        place: usize,
    },
}

impl Form {
    /// This form behind a prefix of at most 32 ASCII letters, digits and `_ - . :`, a letter first. An empty one is none.
    ///
    /// # Errors
    /// What keeps the text from being a prefix.
    pub fn prefixed(self, prefix: &str) -> Result<Prefixed<'_>, PrefixError> {
        let is_fit = |(index, char): (usize, char)| {
            char.is_ascii_alphabetic() || (index > 0 && (char.is_ascii_digit() || "_-.:".contains(char)))
        };
        if let Some((index, found)) = prefix.chars().enumerate().find(|at| !is_fit(*at)) {
            return Err(PrefixError::Character { found, place: index + 1 });
        }
        if prefix.len() > Prefixed::MOST {
            return Err(PrefixError::Length { len: prefix.len() });
        }
        Ok(Prefixed { form: self, prefix })
    }
}

impl<'a> Prefixed<'a> {
    /// The longest prefix, in bytes.
    pub const MOST: usize = 32;

    /// The form behind the prefix.
    #[must_use]
    pub const fn form(self) -> Form {
        self.form
    }

    /// The prefix; empty where there is none.
    #[must_use]
    pub const fn prefix(self) -> &'a str {
        self.prefix
    }

    /// The text of an id.
    #[must_use]
    #[inline]
    pub fn text(self, id: Id) -> PrefixedText<'a> {
        PrefixedText { prefix: self.prefix, text: self.form.text(id) }
    }

    /// The id of a text.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(self, text: &str) -> Result<Id, ParseIdError> {
        let Some(digits) = text.strip_prefix(self.prefix) else { return Err(self.wrong_prefix(text)) };
        // A prefix is ASCII: as many characters as bytes.
        self.form.parse_behind(digits, self.prefix.len())
    }

    #[cold]
    fn wrong_prefix(self, text: &str) -> ParseIdError {
        let mut found = text.chars();
        for (index, wanted) in self.prefix.chars().enumerate() {
            let found = found.next();
            if found != Some(wanted) {
                return ParseIdError::Prefix { place: index + 1, wanted, found };
            }
        }
        ParseIdError::Empty { form: self.form }
    }
}

impl fmt::Display for PrefixedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix)?;
        f.write_str(&self.text)
    }
}
