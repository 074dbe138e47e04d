//! The forms, and their names.

use std::fmt;
use std::str::FromStr;

/// How an id is written.
///
/// | form | digits | width | reads also |
/// |---|---|---|---|
/// | `decimal` | `0-9` | 1 to 19 | zeros before it |
/// | `hex` | `0-9a-f` | 16 | capitals |
/// | `crockford32` | `0-9A-Z` without I, L, O, U | 13 | small letters, I and L as 1, O as 0, hyphens anywhere |
/// | `base36` | `0-9a-z` | 13 | capitals |
/// | `base58` | `1-9A-Za-z` without I, O, l: Bitcoin's | 11 | |
/// | `base62` | `0-9A-Za-z` | 11 | |
/// | `bwmarrin-base32` | z-base-32's | 1 to 13 | its zero, `y`, before it |
/// | `bwmarrin-base36` | `0-9a-z` | 1 to 13 | capitals, zeros before it |
/// | `bwmarrin-base58` | `1-9a-zA-Z` without l, I, O | 1 to 11 | its zero, `1`, before it |
///
/// The forms of one width have zeros before the number, and digits that ascend in ASCII: compared byte by byte, their
/// texts sort as the ids do. A text of another length is refused, so that an id which lost its end is. Those of
/// bwmarrin are what the Go library of that name writes: they are for ids that are written so already.
///
/// `base58` and `bwmarrin-base58` have the same digits with other values: each reads what the other wrote, as another
/// id.
///
/// ```
/// use xuid_id::{Form, Id};
/// let id = Id::try_from(1_128_275_363_336_683_521_u64)?;
/// assert_eq!(&*Form::Base62.text(id), "1LLVoUFd7ez");
/// assert_eq!(Form::Base62.parse("1LLVoUFd7ez")?, id);
/// assert_eq!(Form::Crockford32.parse("0za3-gew8-8400i")?, Form::Crockford32.parse("0ZA3GEW884001")?);
/// assert_eq!("base62".parse(), Ok(Form::Base62));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// As numbers are printed.
    #[default]
    Decimal,
    /// 16 hexadecimal digits.
    Hex,
    /// 13 digits of Douglas Crockford's base 32, for what people read aloud and type.
    Crockford32,
    /// 13 digits and small letters.
    Base36,
    /// 11 digits of Bitcoin's base 58.
    Base58,
    /// 11 digits and letters of both cases.
    Base62,
    /// As `ID.Base32` of github.com/bwmarrin/snowflake.
    BwmarrinBase32,
    /// As `ID.Base36` of github.com/bwmarrin/snowflake.
    BwmarrinBase36,
    /// As `ID.Base58` of github.com/bwmarrin/snowflake.
    BwmarrinBase58,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 9] = [
        Self::Decimal,
        Self::Hex,
        Self::Crockford32,
        Self::Base36,
        Self::Base58,
        Self::Base62,
        Self::BwmarrinBase32,
        Self::BwmarrinBase36,
        Self::BwmarrinBase58,
    ];

    /// Its name, which [`FromStr`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decimal => "decimal",
            Self::Hex => "hex",
            Self::Crockford32 => "crockford32",
            Self::Base36 => "base36",
            Self::Base58 => "base58",
            Self::Base62 => "base62",
            Self::BwmarrinBase32 => "bwmarrin-base32",
            Self::BwmarrinBase36 => "bwmarrin-base36",
            Self::BwmarrinBase58 => "bwmarrin-base58",
        }
    }

    /// How many digits each id has, where that is one number. Only these texts sort as their ids.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::Hex => Some(16),
            Self::Crockford32 | Self::Base36 => Some(13),
            Self::Base58 | Self::Base62 => Some(11),
            Self::Decimal | Self::BwmarrinBase32 | Self::BwmarrinBase36 | Self::BwmarrinBase58 => None,
        }
    }

    /// Its digits, as a message names them.
    #[must_use]
    pub const fn digits(self) -> &'static str {
        match self {
            Self::Decimal => "0-9",
            Self::Hex => "0-9 and a-f",
            Self::Crockford32 => "0-9 and A-Z without U (I and L are 1, O is 0)",
            Self::Base36 | Self::BwmarrinBase36 => "0-9 and a-z",
            Self::Base58 => "1-9, A-Z without I and O, and a-z without l",
            Self::Base62 => "0-9, A-Z and a-z",
            Self::BwmarrinBase32 => "1, 3-9 and a-z without l and v",
            Self::BwmarrinBase58 => "1-9, a-z without l, and A-Z without I and O",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no name of a [`Form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no form of an id; allowed are decimal, hex, crockford32, base36, base58, base62, bwmarrin-base32, \
     bwmarrin-base36 and bwmarrin-base58"
)]
pub struct UnknownForm;

impl FromStr for Form {
    type Err = UnknownForm;

    fn from_str(text: &str) -> Result<Self, UnknownForm> {
        Self::ALL.into_iter().find(|form| form.name() == text).ok_or(UnknownForm)
    }
}
