//! What a server answers, as a value.

pub(crate) mod encode;
pub(crate) mod parse;
pub(crate) mod writer;

use std::borrow::Cow;
use std::time::Duration;

use crate::greeting::HelloReply;
use crate::run::Run;
use crate::status::Status;

/// One reply, or GOAWAY, borrowed from the bytes it came in.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<'a> {
    /// To HELLO.
    Hello(HelloReply<'a>),
    /// To PING: the same bytes.
    Ping(&'a [u8]),
    /// To NEXT and `SEQ_NEXT`: an id, below 2^63.
    Next(u64),
    /// To ARRAY and `SEQ_ARRAY`.
    Array(Ids<'a>),
    /// To RUNS and `SEQ_RUNS`.
    Runs(Runs<'a>),
    /// To DECODE.
    Decode(Decoded),
    /// To INFO: JSON.
    Info(&'a str),
    /// To STATS: JSON.
    Stats(&'a str),
    /// To PROVENANCE: JSON.
    Provenance(&'a str),
    /// To `SEQ_INFO`, `SEQ_CREATE` and `SEQ_ALTER`: a JSON object. To `SEQ_LIST`: a JSON array of such objects.
    Sequence(&'a str),
    /// To BYE; the server closes.
    Bye,
    /// To no request: finish what is in flight, then reconnect elsewhere.
    GoAway,
    /// To any request: it was not fulfilled.
    Error(ErrorReply<'a>),
}

/// The fields of an id, as the server sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decoded {
    /// The beginning of its tick, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The worker that minted it.
    pub worker: u32,
    /// Its place within the tick.
    pub sequence: u32,
}

/// An error as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply<'a> {
    /// Its kind, which may be one that this version has no name for.
    pub status: Status,
    /// When it is worth trying again; 0: at once, or never if the status is not retryable.
    pub retry_after_ms: u32,
    /// For a person; what is not UTF-8 is replaced.
    pub text: Cow<'a, str>,
}

impl ErrorReply<'_> {
    /// When it is worth trying again.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(u64::from(self.retry_after_ms))
    }
}

/// Bytes that are no reply of this protocol. The connection is of no use after that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadReply {
    /// The header claims more than the reader is ready for.
    #[error("a reply claims a body of {body_len} bytes, and {limit} are the most that was asked for")]
    TooLarge {
        /// What it claims.
        body_len: u32,
        /// What the reader allows.
        limit: u32,
    },
    /// Neither a reply nor GOAWAY.
    #[error("a frame of op {op:02x} and flags {flags:02x} is no reply of version 1")]
    NotAReply {
        /// Its op.
        op: u8,
        /// Its flags.
        flags: u8,
    },
    /// The body ends before its fields do, or they contradict each other.
    #[error("the reply of op {op:02x} is malformed in a body of {body_len} bytes: {what}")]
    Malformed {
        /// Its op.
        op: u8,
        /// Its length.
        body_len: usize,
        /// What does not fit.
        what: &'static str,
    },
}

/// The ids of an ARRAY reply, each below 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids<'a>(pub(crate) &'a [[u8; 8]]);

impl<'a> Ids<'a> {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none; a server never answers so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them, in the server's order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// The runs of a RUNS reply. Their counts add up to [`Runs::ids`], none is empty, and all of their ids are below 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs<'a> {
    pub(crate) ids: u32,
    pub(crate) runs: &'a [[u8; 16]],
}

impl<'a> Runs<'a> {
    /// How many ids they hold together.
    #[must_use]
    pub const fn ids(&self) -> u32 {
        self.ids
    }

    /// How many runs.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none; a server never answers so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Each of them, in the server's order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Run> + use<'a> {
        self.runs.iter().map(|bytes| {
            // From the lowest byte up: first, count, stride.
            let number = u128::from_le_bytes(*bytes);
            Run { first: number as u64, count: (number >> 64) as u32, stride: (number >> 96) as u32 }
        })
    }
}
