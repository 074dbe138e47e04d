//! What a frame asks for.

use std::fmt;

/// The operations of version 1. A reply carries the number of its request with [`REPLY_BIT`](crate::REPLY_BIT) set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Opens the conversation: versions, cluster, token.
    Hello = 0x01,
    /// Comes back as it was sent.
    Ping = 0x02,
    /// One id.
    Next = 0x10,
    /// Exactly so many ids, one by one.
    Array = 0x11,
    /// Exactly so many ids, as runs.
    Runs = 0x12,
    /// The fields of an id.
    Decode = 0x20,
    /// What the server is, as JSON.
    Info = 0x21,
    /// What the server counted, as JSON.
    Stats = 0x22,
    /// What is known of where an id came from, as JSON.
    Provenance = 0x23,
    /// One number of a named sequence.
    SeqNext = 0x30,
    /// Exactly so many numbers of a sequence, one by one.
    SeqArray = 0x31,
    /// Exactly so many numbers of a sequence, as runs or in one.
    SeqRuns = 0x32,
    /// What a sequence is, as JSON.
    SeqInfo = 0x38,
    /// The sequences there are, as JSON.
    SeqList = 0x39,
    /// Begins a sequence.
    SeqCreate = 0x3a,
    /// Changes what may be changed of a sequence.
    SeqAlter = 0x3b,
    /// From the server only: finish what is in flight, then reconnect elsewhere.
    GoAway = 0x7e,
    /// The client leaves.
    Bye = 0x7f,
}

impl Op {
    /// Every op.
    pub const ALL: [Self; 18] = [
        Self::Hello,
        Self::Ping,
        Self::Next,
        Self::Array,
        Self::Runs,
        Self::Decode,
        Self::Info,
        Self::Stats,
        Self::Provenance,
        Self::SeqNext,
        Self::SeqArray,
        Self::SeqRuns,
        Self::SeqInfo,
        Self::SeqList,
        Self::SeqCreate,
        Self::SeqAlter,
        Self::GoAway,
        Self::Bye,
    ];

    /// The op of that number, without the reply bit.
    #[must_use]
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x01 => Self::Hello,
            0x02 => Self::Ping,
            0x10 => Self::Next,
            0x11 => Self::Array,
            0x12 => Self::Runs,
            0x20 => Self::Decode,
            0x21 => Self::Info,
            0x22 => Self::Stats,
            0x23 => Self::Provenance,
            0x30 => Self::SeqNext,
            0x31 => Self::SeqArray,
            0x32 => Self::SeqRuns,
            0x38 => Self::SeqInfo,
            0x39 => Self::SeqList,
            0x3a => Self::SeqCreate,
            0x3b => Self::SeqAlter,
            0x7e => Self::GoAway,
            0x7f => Self::Bye,
            _ => return None,
        })
    }

    /// Its number.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Its name in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Ping => "PING",
            Self::Next => "NEXT",
            Self::Array => "ARRAY",
            Self::Runs => "RUNS",
            Self::Decode => "DECODE",
            Self::Info => "INFO",
            Self::Stats => "STATS",
            Self::Provenance => "PROVENANCE",
            Self::SeqNext => "SEQ_NEXT",
            Self::SeqArray => "SEQ_ARRAY",
            Self::SeqRuns => "SEQ_RUNS",
            Self::SeqInfo => "SEQ_INFO",
            Self::SeqList => "SEQ_LIST",
            Self::SeqCreate => "SEQ_CREATE",
            Self::SeqAlter => "SEQ_ALTER",
            Self::GoAway => "GOAWAY",
            Self::Bye => "BYE",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
