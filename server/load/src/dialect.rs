//! What a server is asked, and what its replies say.

use std::time::Duration;

use xuid_protocol::{
    Bulk, HEADER_LEN, Header, LAST_ID, Op, Order, ParsedReply, REPLY_ROOM, Reply, SeqBulk, SequenceName,
    parse_reply, request_array, request_next, request_runs, request_seq_array, request_seq_next,
    request_seq_runs,
};

/// A reply: the bytes it takes, the number of the request that it answers, and what it says.
pub type Answer<'b> = (usize, u64, Reply<'b>);

/// A way to ask a server over one connection.
pub trait Dialect {
    /// Appends a request of that number.
    fn request(&mut self, number: u64, out: &mut Vec<u8>);

    /// The reply that `bytes` begin with, once all of it is there.
    ///
    /// # Errors
    /// It is none, and what the server did is said.
    fn reply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Answer<'b>>, String>;

    /// The ids of each reply.
    fn count(&self) -> u32 {
        1
    }

    /// How long the server may take for a reply, at most.
    fn longest_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether every id must be greater than those that had come on the connection when it was asked for.
    fn ascends(&self) -> bool {
        false
    }
}

/// How ids are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One at a time.
    Next,
    /// Many, one by one.
    Array,
    /// Many, as runs.
    Runs,
}

/// One request of XUID/1.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// How ids are asked for.
    pub shape: Shape,
    /// How many.
    pub count: u32,
    /// What they must be like.
    pub order: Order,
    /// How long the server may wait for them, where there may be many.
    pub wait: Duration,
}

impl Dialect for Ask {
    #[inline]
    fn request(&mut self, number: u64, out: &mut Vec<u8>) {
        let Self { shape, count, order, wait } = *self;
        match shape {
            Shape::Next => request_next(out, number, order),
            Shape::Array => request_array(out, number, Bulk::new(count, order, wait)),
            Shape::Runs => request_runs(out, number, Bulk::new(count, order, wait)),
        }
    }

    #[inline]
    fn reply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Answer<'b>>, String> {
        self.answer(Op::Next, bytes)
    }

    fn count(&self) -> u32 {
        self.count
    }

    fn longest_wait(&self) -> Duration {
        self.wait
    }

    fn ascends(&self) -> bool {
        self.order == Order::Ordered
    }
}

impl Ask {
    /// The reply that `bytes` begin with. `next` is the op that asks for one id.
    #[inline]
    fn answer<'b>(&self, next: Op, bytes: &'b [u8]) -> Result<Option<Answer<'b>>, String> {
        if self.shape == Shape::Next
            && let Some((frame, _)) = bytes.split_first_chunk()
            && let Some(answer) = next_reply(next, frame)
        {
            return Ok(Some(answer));
        }
        match parse_reply(bytes, self.count.saturating_mul(16).saturating_add(REPLY_ROOM)) {
            Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) => {
                Ok(Some((consumed, request_id, reply)))
            }
            Ok(ParsedReply::Incomplete { .. }) => Ok(None),
            Err(error) => Err(format!("stopped speaking XUID/1: {error}")),
        }
    }
}

/// The same request for ids of a named sequence.
#[derive(Debug, Clone)]
pub struct SequenceAsk {
    ask: Ask,
    /// The request, whose number is filled in.
    frame: Box<[u8]>,
}

impl SequenceAsk {
    /// Asks for ids of the sequence `name`. One at a time is `SEQ_NEXT`, whose ids are ordered whatever `ask` says.
    #[must_use]
    pub fn new(name: SequenceName<'_>, ask: Ask) -> Self {
        let mut frame = Vec::new();
        let Ask { shape, count, order, wait } = ask;
        let bulk = SeqBulk::new(name, count, order, wait);
        match shape {
            Shape::Next => request_seq_next(&mut frame, 0, name),
            Shape::Array => request_seq_array(&mut frame, 0, bulk),
            Shape::Runs => request_seq_runs(&mut frame, 0, bulk),
        }
        let order = if shape == Shape::Next { Order::Ordered } else { order };
        Self { ask: Ask { order, ..ask }, frame: frame.into() }
    }
}

impl Dialect for SequenceAsk {
    #[inline]
    fn request(&mut self, number: u64, out: &mut Vec<u8>) {
        self.frame[NUMBER].copy_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&self.frame);
    }

    #[inline]
    fn reply<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<Answer<'b>>, String> {
        self.ask.answer(Op::SeqNext, bytes)
    }

    fn count(&self) -> u32 {
        self.ask.count
    }

    fn longest_wait(&self) -> Duration {
        self.ask.wait
    }

    fn ascends(&self) -> bool {
        self.ask.ascends()
    }
}

/// Where a header has the request's number.
const NUMBER: std::ops::Range<usize> = 8..16;

/// The reply to a request for one id, which comes by the million and looks the same but for two numbers. What looks
/// different is parsed.
#[inline]
fn next_reply(op: Op, frame: &[u8; HEADER_LEN + 8]) -> Option<Answer<'static>> {
    let word = |at: usize| frame[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let front = u128::from_le_bytes(Header::reply(op, 8, 0).encode()) as u64;
    let (number, id) = (word(8)?, word(HEADER_LEN)?);
    (word(0)? == front && id <= LAST_ID).then_some((frame.len(), number, Reply::Next(id)))
}
