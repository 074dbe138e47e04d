//! Text to ids.

use std::str::FromStr;

use super::digits::{
    NONE, READ_10, READ_16, READ_36, READ_58, READ_62, READ_BWMARRIN32, READ_BWMARRIN58, READ_CROCKFORD32,
    Reader, SKIPPED,
};
use super::error::ParseIdError;
use super::names::Form;
use crate::id::{Id, LAST_ID};

impl Form {
    /// The id of a text. White space is no part of one.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(self, text: &str) -> Result<Id, ParseIdError> {
        self.parse_behind(text, 0)
    }

    /// The id of what stands behind so many characters.
    pub(super) fn parse_behind(self, text: &str, before: usize) -> Result<Id, ParseIdError> {
        let (radix, reader) = self.reader();
        let (mut raw, mut count, mut fits) = (0_u64, 0, true);
        for byte in text.bytes() {
            match reader[usize::from(byte)] {
                NONE => return Err(self.wrong_digit(reader, text, before)),
                SKIPPED => {}
                digit => {
                    let next = u128::from(raw) * radix + u128::from(digit);
                    fits &= next <= u128::from(LAST_ID);
                    (raw, count) = (next as u64, count + 1);
                }
            }
        }
        match (self.width(), Id::from_raw(raw)) {
            _ if count == 0 => Err(ParseIdError::Empty { form: self }),
            (Some(wanted), _) if count != wanted => {
                Err(ParseIdError::Length { form: self, found: count, wanted })
            }
            (_, Some(id)) if fits => Ok(id),
            _ => Err(ParseIdError::Range { form: self }),
        }
    }

    fn reader(self) -> (u128, &'static Reader) {
        match self {
            Self::Decimal => (10, &READ_10),
            Self::Hex => (16, &READ_16),
            Self::Crockford32 => (32, &READ_CROCKFORD32),
            Self::Base36 | Self::BwmarrinBase36 => (36, &READ_36),
            Self::Base58 => (58, &READ_58),
            Self::Base62 => (62, &READ_62),
            Self::BwmarrinBase32 => (32, &READ_BWMARRIN32),
            Self::BwmarrinBase58 => (58, &READ_BWMARRIN58),
        }
    }

    #[cold]
    fn wrong_digit(self, reader: &Reader, text: &str, before: usize) -> ParseIdError {
        let is_read = |char: char| {
            u8::try_from(char).is_ok_and(|byte| byte.is_ascii() && reader[usize::from(byte)] != NONE)
        };
        let wrong = text.chars().enumerate().find(|(_, char)| !is_read(*char));
        let (index, found) = wrong.unwrap_or((0, char::REPLACEMENT_CHARACTER));
        ParseIdError::Digit { form: self, found, place: before + index + 1 }
    }
}

/// A decimal number, with white space around it or not.
impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        Form::Decimal.parse(text.trim())
    }
}
