//! What requests for many ids or names ask for.

use std::time::Duration;

use xuid_id::{Order, SequenceName};

use crate::limits::WAIT_CAP;

/// What ARRAY and RUNS ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// How many ids: exactly so many, or an error.
    pub count: u32,
    /// How long they may take, in milliseconds, as written by the client.
    pub wait_ms: u32,
    /// Of what age and order.
    pub order: Order,
}

impl Bulk {
    /// `wait` is rounded up to whole milliseconds.
    #[must_use]
    pub fn new(count: u32, order: Order, wait: Duration) -> Self {
        let wait_ms = u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        Self { count, wait_ms, order }
    }

    /// How long to wait: `wait_ms`, and [`WAIT_CAP`] at most.
    #[must_use]
    #[inline]
    pub fn wait(&self) -> Duration {
        Duration::from_millis(u64::from(self.wait_ms)).min(WAIT_CAP)
    }
}

/// What `SEQ_ARRAY` and `SEQ_RUNS` ask for. Its order is [`Order::Any`] or [`Order::Ordered`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqBulk<'a> {
    /// Of which sequence.
    pub name: SequenceName<'a>,
    /// How many, how long they may take, and in which order.
    pub bulk: Bulk,
    /// `SEQ_RUNS` only: one run, or an error.
    pub contiguous: bool,
}

impl<'a> SeqBulk<'a> {
    /// `wait` is rounded up to whole milliseconds.
    #[must_use]
    pub fn new(name: SequenceName<'a>, count: u32, order: Order, wait: Duration) -> Self {
        Self { name, bulk: Bulk::new(count, order, wait), contiguous: false }
    }

    /// The same, in one run.
    #[must_use]
    pub const fn contiguous(mut self) -> Self {
        self.contiguous = true;
        self
    }
}

/// What `SEQ_LIST` asks for: names in the order of their bytes. The limit is not checked yet: see
/// [`Limits::check_list`](crate::Limits::check_list).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqList<'a> {
    /// How many at most.
    pub limit: u32,
    /// What their names begin with; empty: anything.
    pub prefix: &'a str,
    /// Names greater than this only; empty: from the first one on. At most 128 bytes, as the prefix.
    pub after: &'a str,
}
