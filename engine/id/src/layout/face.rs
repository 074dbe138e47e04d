//! How callers see the fields of an id.

use std::fmt;
use std::str::FromStr;

/// How callers see the fields of an id. A generator counts in *plots*, `time | worker | sequence`; a face is a bijection
/// from plots to ids, and a layout has one for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Face {
    /// The plot itself: `time | worker | sequence`.
    #[default]
    Plain,
    /// `time | sequence | worker`, as sonyflake has them.
    WorkerLowest,
    /// The plot sealed with a key. A layout has no key: what it encodes and decodes is the plot.
    Opaque,
}

impl Face {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::WorkerLowest, Self::Opaque];

    /// The byte that stands for it in files and on the wire.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The face of such a byte.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|face| face.code() == code)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::WorkerLowest => "worker-lowest",
            Self::Opaque => "opaque",
        }
    }
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No face has that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a face is plain, worker-lowest or opaque")]
pub struct UnknownFace;

impl FromStr for Face {
    type Err = UnknownFace;

    fn from_str(text: &str) -> Result<Self, UnknownFace> {
        Self::ALL.into_iter().find(|face| face.name() == text).ok_or(UnknownFace)
    }
}

/// Swaps the lowest field of `low` bits with the one of `next` bits above it.
pub(super) fn swap_low(raw: u64, low: u8, next: u8) -> u64 {
    let field = |shift: u8, bits: u8| (raw >> shift) & ((1 << bits) - 1);
    let high = raw >> (low + next) << (low + next);
    high | field(0, low) << next | field(low, next)
}
