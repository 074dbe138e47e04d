//! The bounds of a conversation: what a server tells in HELLO, and what is the same everywhere.

use std::time::Duration;

use crate::op::Op;
use crate::refusal::Refusal;
use crate::status::Status;

/// Preface and HELLO must be there, whole, this long after the connection was accepted.
pub const GREETING_DEADLINE: Duration = Duration::from_secs(10);

/// A frame must be whole this long after its first byte.
pub const FRAME_DEADLINE: Duration = Duration::from_secs(30);

/// The longest that ARRAY and RUNS wait; a longer `wait_ms` counts as this.
pub const WAIT_CAP: Duration = Duration::from_mins(1);

/// The most bytes of a PING.
pub const PING_MAX: usize = 1_024;

/// The most PINGs before HELLO. What they are answered fits into any socket, so that a client which reads nothing
/// cannot make the server wait for it.
pub const EARLY_PINGS: u32 = 16;

/// The most that any server may set `max_count` to: the runs of one reply, 16 bytes each, behind 8 bytes, must not
/// exceed the 32 bits of a frame's length.
pub const COUNT_CEILING: u32 = (u32::MAX - 8) / 16;

/// What a client is ready for in a reply beside ids and JSON: an error's text of 65,535 bytes, and what a later server
/// may add.
pub const REPLY_ROOM: u32 = 128 * 1_024;

/// The longest JSON of a reply.
const JSON_MAX: u32 = 1 << 20;

/// The longest body of the reply to a request of `op` for `count` ids. A client that refuses a longer one by its header
/// ([`parse_reply`](crate::parse_reply)) never holds more than it asked for, whatever the server claims.
#[must_use]
pub const fn reply_max(op: Op, count: u32) -> u32 {
    let expected = match op {
        Op::Array | Op::SeqArray => count.saturating_mul(8),
        Op::Runs | Op::SeqRuns => count.saturating_mul(16),
        Op::Info | Op::Stats | Op::Provenance | Op::SeqInfo | Op::SeqList | Op::SeqCreate | Op::SeqAlter => {
            JSON_MAX
        }
        _ => 0,
    };
    expected.saturating_add(REPLY_ROOM)
}

/// The most sequences in the reply to one `SEQ_LIST`. Their names and figures fit into a reply with room to spare.
pub const LIST_MAX: u32 = 1_000;

/// After an error that closes, a server reads and drops this many bytes, or for [`LINGER_TIME`], before it closes:
/// bytes left unread would make the kernel reset the connection, and the reset can overtake the error's text.
pub const LINGER_BYTES: usize = 64 * 1_024;

/// See [`LINGER_BYTES`].
pub const LINGER_TIME: Duration = Duration::from_secs(1);

/// What one server allows; HELLO's reply carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest body of a request, in bytes; at least 4,096. Defaults to 4,096.
    pub max_body: u32,
    /// The most ids of one ARRAY or RUNS; at least 131,072, and [`COUNT_CEILING`] at most. Defaults to
    /// 131,072, which is a reply of 1 MiB.
    pub max_count: u32,
    /// Requests of one connection that are not answered yet; at that many the server stops reading. Defaults to
    /// 1,024.
    pub max_in_flight: u32,
    /// A connection this long without a byte is told to go and closed, in milliseconds. Defaults to 5 minutes.
    pub idle_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body: 4_096, max_count: 131_072, max_in_flight: 1_024, idle_ms: 300_000 }
    }
}

impl Limits {
    /// Refuses what ARRAY and RUNS may not ask for.
    #[inline]
    pub fn check_count(&self, count: u32) -> Result<(), Refusal> {
        if count == 0 || count > self.max_count { Err(self.refuse_count(count)) } else { Ok(()) }
    }

    /// Refuses what `SEQ_LIST` may not ask for.
    pub fn check_list(&self, limit: u32) -> Result<(), Refusal> {
        if (1..=LIST_MAX).contains(&limit) {
            return Ok(());
        }
        let text = format!(
            "a limit of {limit} sequences is none: ask for 1 to {LIST_MAX}, and for the next ones after the last name"
        );
        Err(Refusal::new(Status::COUNT, text))
    }

    #[cold]
    fn refuse_count(&self, count: u32) -> Refusal {
        let max = self.max_count;
        let text = if count == 0 {
            format!("a count of 0 asks for nothing: ask for 1 to {max} ids")
        } else {
            format!("a count of {count} is above the limit of {max} ids a request: split it into several")
        };
        Refusal::new(Status::COUNT, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_may_be_as_long_as_what_was_asked_for_whatever_that_is() {
        assert_eq!(reply_max(Op::Next, 0), REPLY_ROOM);
        assert_eq!(reply_max(Op::Array, 1_000), 8_000 + REPLY_ROOM);
        assert_eq!(reply_max(Op::Runs, 1_000), 16_000 + REPLY_ROOM);
        assert_eq!(reply_max(Op::Info, 0), JSON_MAX + REPLY_ROOM);
        assert_eq!(reply_max(Op::Array, u32::MAX), u32::MAX);
    }

    #[test]
    fn a_count_is_refused_at_zero_and_above_the_limit_only() {
        let limits = Limits { max_count: 10, ..Limits::default() };
        assert!(limits.check_count(1).is_ok() && limits.check_count(10).is_ok());
        for (count, part) in [(0, "a count of 0"), (11, "the limit of 10"), (u32::MAX, "4294967295")] {
            let refusal = limits.check_count(count).unwrap_err();
            assert_eq!((refusal.status, refusal.closes), (Status::COUNT, false));
            assert!(refusal.text.contains(part), "{refusal}");
        }
    }
}
