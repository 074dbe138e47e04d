//! What keeps a text from being an id.

use super::names::Form;

/// The text is no id of its form. It names the first thing that is wrong, and not the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseIdError {
    /// It has no digit.
    #[error("there is no digit, and an id in {form} has some of {}", form.digits())]
    Empty {
        /// What it was read as.
        form: Form,
    },
    /// A character that is no digit of the form.
    #[error("character {place} is {found:?}, and the digits of {form} are {}", form.digits())]
    Digit {
        /// What it was read as.
        form: Form,
        /// The character.
        found: char,
        /// Which one it is, from 1, of the whole text.
        place: usize,
    },
    /// An id that lost something, or another form.
    #[error("it has {found} digits, and each id in {form} has {wanted}, zeros included")]
    Length {
        /// What it was read as.
        form: Form,
        /// How many digits it has.
        found: usize,
        /// How many an id has.
        wanted: usize,
    },
    /// The number has more than 63 bits.
    #[error("as {form} it is above 9223372036854775807 (2^63 - 1), the last id: is it of another form?")]
    Range {
        /// What it was read as.
        form: Form,
    },
    /// It has another prefix, or none.
    #[error(
        "character {place} is {}, and the prefix has {wanted:?} there",
        found.map_or_else(|| "missing".to_owned(), |found| format!("{found:?}"))
    )]
    Prefix {
        /// The first character that is not the prefix's, from 1.
        place: usize,
        /// What the prefix has there.
        wanted: char,
        /// What the text has there; `None` at its end.
        found: Option<char>,
    },
}
