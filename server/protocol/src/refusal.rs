//! Why a request is not fulfilled.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::op::Op;
use crate::status::Status;

/// An error reply before it is encoded: what was wrong, the limit, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its kind.
    pub status: Status,
    /// Whether the connection closes after it.
    pub closes: bool,
    /// When to come back, in milliseconds; 0: there is no point, or at once.
    pub retry_after_ms: u32,
    /// For a person; up to 65,535 bytes are sent.
    pub text: Cow<'static, str>,
}

impl Refusal {
    /// A refusal that closes if its status always does: too large, version, token, cluster.
    #[must_use]
    pub fn new(status: Status, text: impl Into<Cow<'static, str>>) -> Self {
        let closes = matches!(
            status,
            Status::TOO_LARGE | Status::VERSION | Status::UNAUTHENTICATED | Status::WRONG_CLUSTER
        );
        Self { status, closes, retry_after_ms: 0, text: text.into() }
    }

    /// The same, closing the connection.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.closes = true;
        self
    }

    /// The same, worth trying again after `pause`, rounded up to whole milliseconds.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after_ms = u32::try_from(pause.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        self
    }

    pub(crate) fn bad_request(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::BAD_REQUEST, text)
    }

    /// A frame whose header claims more than `max_body`.
    #[cold]
    pub(crate) fn too_large(body_len: u32, max_body: u32) -> Self {
        Self::new(
            Status::TOO_LARGE,
            format!(
                "the header claims a body of {body_len} bytes, and the limit is {max_body}: send shorter requests; \
                 this connection closes, because the next frame cannot be found"
            ),
        )
    }

    /// Anything but HELLO and PING before HELLO was accepted.
    #[cold]
    pub(crate) fn before_hello(op: u8) -> Self {
        Self::bad_request(format!(
            "{} came before HELLO: send the preface, then HELLO, then requests",
            OpName(op)
        ))
        .closing()
    }

    /// HELLO again.
    #[cold]
    pub(crate) fn second_hello() -> Self {
        Self::bad_request("HELLO came twice on one connection: open another connection to negotiate again")
            .closing()
    }

    #[cold]
    pub(crate) fn flags(flags: u8) -> Self {
        Self::bad_request(format!("flags are {flags:02x}, and version 1 has none: write 0"))
    }

    #[cold]
    pub(crate) fn reply_bit(op: u8) -> Self {
        Self::bad_request(format!("bit 7 of op {op:02x} is set, which marks a reply: clear it in requests"))
    }

    #[cold]
    pub(crate) fn unknown_op(op: u8) -> Self {
        let text = if op == Op::GoAway.code() {
            "GOAWAY goes from server to client only: leave with BYE".to_owned()
        } else {
            format!("op {op:02x} does not exist in version 1: ask INFO for the server's version")
        };
        Self::new(Status::UNKNOWN_OP, text)
    }

    #[cold]
    pub(crate) fn order(code: u8) -> Self {
        Self::bad_request(format!("order {code} does not exist: write 0 (any), 1 (fresh) or 2 (ordered)"))
    }

    /// A body that ends before its op's fields do.
    #[cold]
    pub(crate) fn short(op: Op, need: &'static str, found: usize) -> Self {
        Self::bad_request(format!("the body of {op} has {found} bytes and ends too early: it needs {need}"))
    }

    /// A body that goes on after its op's fields.
    #[cold]
    pub(crate) fn trailing(op: Op, limit: usize, found: usize) -> Self {
        Self::bad_request(format!(
            "the body of {op} has {found} bytes, and {limit} are its limit here: leave the rest out (trailing fields \
             need a feature that both agreed on in HELLO)"
        ))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.text)
    }
}

impl std::error::Error for Refusal {}

/// An op's name where it has one.
struct OpName(u8);

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Op::from_code(self.0) {
            Some(op) => op.fmt(f),
            None => write!(f, "op {:02x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_rounded_up_so_that_nobody_comes_back_too_early() {
        let after = |pause| Refusal::new(Status::OVERLOADED, "x").retry_after(pause).retry_after_ms;
        assert_eq!(after(Duration::ZERO), 0);
        assert_eq!(after(Duration::from_nanos(1)), 1);
        assert_eq!(after(Duration::from_millis(7)), 7);
        assert_eq!(after(Duration::MAX), u32::MAX);
    }
}
