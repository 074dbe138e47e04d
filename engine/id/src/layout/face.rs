//! How callers see the fields of an id.

use std::fmt;
use std::str::FromStr;

use super::Layout;
use crate::id::Id;

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
}

impl Face {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Plain, Self::WorkerLowest];

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
#[error("a face is plain or worker-lowest")]
pub struct UnknownFace;

impl FromStr for Face {
    type Err = UnknownFace;

    fn from_str(text: &str) -> Result<Self, UnknownFace> {
        Self::ALL.into_iter().find(|face| face.name() == text).ok_or(UnknownFace)
    }
}

impl Layout {
    /// The id that callers see of a plot.
    #[must_use]
    #[inline]
    pub fn face_of(&self, plot: u64) -> Id {
        Id::new(match self.face {
            Face::Plain => plot,
            Face::WorkerLowest => swap_low(plot, self.sequence_bits, self.worker_bits),
        })
    }

    /// The plot of an id that callers see.
    #[must_use]
    #[inline]
    pub fn plot_of(&self, id: Id) -> u64 {
        match self.face {
            Face::Plain => id.raw(),
            Face::WorkerLowest => swap_low(id.raw(), self.worker_bits, self.sequence_bits),
        }
    }

    /// The distance between the ids of neighbouring plots of one tick.
    #[must_use]
    #[inline]
    pub fn run_stride(&self) -> u32 {
        match self.face {
            Face::Plain => 1,
            Face::WorkerLowest => 1 << self.worker_bits,
        }
    }
}

/// Swaps the lowest field of `low` bits with the one of `next` bits above it.
fn swap_low(raw: u64, low: u8, next: u8) -> u64 {
    let field = |shift: u8, bits: u8| (raw >> shift) & ((1 << bits) - 1);
    let high = raw >> (low + next) << (low + next);
    high | field(0, low) << next | field(low, next)
}
