//! What a client asks, as a value.

pub(crate) mod asked;
mod body;
pub(crate) mod encode;
pub(crate) mod parse;
pub(crate) mod sequence;

use xuid_id::{Order, SequenceName};

use crate::greeting::Hello;
use crate::op::Op;
use crate::request::asked::{Bulk, SeqBulk, SeqList};

/// One request, borrowed from the bytes it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The greeting.
    Hello(Hello<'a>),
    /// Bytes to send back.
    Ping(&'a [u8]),
    /// One id.
    Next {
        /// Of what age and order.
        order: Order,
    },
    /// Ids, one by one. The count is not checked yet: see [`Limits::check_count`](crate::Limits::check_count).
    Array(Bulk),
    /// Ids as runs. The count is not checked yet.
    Runs(Bulk),
    /// The fields of an id.
    Decode {
        /// The id, below 2^63.
        id: u64,
    },
    /// What the server is.
    Info,
    /// What the server counted.
    Stats,
    /// Where an id came from.
    Provenance {
        /// The id, below 2^63.
        id: u64,
    },
    /// One number of a sequence, in order.
    SeqNext {
        /// Of which sequence.
        name: SequenceName<'a>,
    },
    /// Numbers of a sequence, one by one. The count is not checked yet.
    SeqArray(SeqBulk<'a>),
    /// Numbers of a sequence as runs. The count is not checked yet.
    SeqRuns(SeqBulk<'a>),
    /// What a sequence is.
    SeqInfo {
        /// Of which sequence.
        name: SequenceName<'a>,
    },
    /// The sequences there are.
    SeqList(SeqList<'a>),
    /// Begins a sequence.
    SeqCreate {
        /// What it is called.
        name: SequenceName<'a>,
        /// What it is to be: a JSON object that was not read yet, or nothing.
        settings: &'a str,
    },
    /// Changes a sequence.
    SeqAlter {
        /// Which sequence.
        name: SequenceName<'a>,
        /// What is to change: a JSON object that was not read yet.
        changes: &'a str,
    },
    /// The client leaves.
    Bye,
}

impl Request<'_> {
    /// Its op.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            Self::Hello(_) => Op::Hello,
            Self::Ping(_) => Op::Ping,
            Self::Next { .. } => Op::Next,
            Self::Array(_) => Op::Array,
            Self::Runs(_) => Op::Runs,
            Self::Decode { .. } => Op::Decode,
            Self::Info => Op::Info,
            Self::Stats => Op::Stats,
            Self::Provenance { .. } => Op::Provenance,
            Self::SeqNext { .. } => Op::SeqNext,
            Self::SeqArray(_) => Op::SeqArray,
            Self::SeqRuns(_) => Op::SeqRuns,
            Self::SeqInfo { .. } => Op::SeqInfo,
            Self::SeqList(_) => Op::SeqList,
            Self::SeqCreate { .. } => Op::SeqCreate,
            Self::SeqAlter { .. } => Op::SeqAlter,
            Self::Bye => Op::Bye,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xuid_id::Order;

    use super::*;
    use crate::limits::WAIT_CAP;

    #[test]
    fn a_wait_is_capped_at_a_minute_and_never_rounded_down() {
        let wait = |wait_ms| Bulk { count: 1, wait_ms, order: Order::Any }.wait();
        assert_eq!(wait(0), Duration::ZERO);
        assert_eq!(wait(59_999), Duration::from_millis(59_999));
        assert_eq!(wait(60_001), WAIT_CAP);
        assert_eq!(wait(u32::MAX), WAIT_CAP);
        assert_eq!(Bulk::new(1, Order::Any, Duration::from_micros(1)).wait_ms, 1);
        assert_eq!(Bulk::new(1, Order::Any, Duration::MAX).wait_ms, u32::MAX);
    }
}
