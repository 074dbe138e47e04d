//! Bytes to requests.
//!
//! # Invariants
//! - I1 the same bytes give the same frames however they are cut into pieces;
//! - I2 a body above `max_body` is refused as soon as its header is there: nobody waits for it or makes room for it;
//! - I3 `consumed` is at least a header, so that a loop over frames ends.

use xuid_id::{ClusterId, Order};

use crate::fields::Fields;
use crate::greeting::Hello;
use crate::header::{HEADER_LEN, Header, REPLY_BIT};
use crate::limits::PING_MAX;
use crate::op::Op;
use crate::refusal::Refusal;
use crate::request::asked::Bulk;
use crate::request::body::{limited, parse_order};
use crate::request::{Request, sequence};

/// Whether HELLO was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not yet: HELLO and PING only.
    Greeting,
    /// Yes: anything but HELLO.
    Serving,
}

/// What lies at the front of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedRequest<'a> {
    /// The beginning of a frame, or nothing.
    Incomplete {
        /// Bytes of input that must be there before it makes sense to look again; more than there are now.
        need: usize,
    },
    /// A frame.
    Frame {
        /// Bytes to take off the input. After a refusal that closes, the rest of the input means nothing.
        consumed: usize,
        /// To be echoed.
        request_id: u64,
        /// As sent; an error reply needs it.
        op: u8,
        /// What is asked, or why it is not even tried.
        request: Result<Request<'a>, Refusal>,
    },
}

/// Parses the frame at the front of `buf`. The count of ARRAY and RUNS, and of
/// their likes for sequences, is left to [`Limits::check_count`](crate::Limits::check_count).
///
/// A request ends where its op's fields end: what follows would belong to a feature, and version 1 has none, so it is
/// refused, as a body that is too short is. Reserved bytes and the status field are not looked at.
///
/// ```
/// use xuid_protocol::{Order, ParsedRequest, Phase, Request, parse_request, request_next};
/// let mut bytes = Vec::new();
/// request_next(&mut bytes, 7, Order::Fresh);
/// assert_eq!(
///     parse_request(&bytes[..10], Phase::Serving, 4_096),
///     ParsedRequest::Incomplete { need: 16 }
/// );
/// let ParsedRequest::Frame { consumed, request_id, request, .. } = parse_request(&bytes, Phase::Serving, 4_096)
/// else { panic!() };
/// assert_eq!((consumed, request_id), (17, 7));
/// assert_eq!(request, Ok(Request::Next { order: Order::Fresh }));
/// ```
#[must_use]
#[inline]
pub fn parse_request(buf: &[u8], phase: Phase, max_body: u32) -> ParsedRequest<'_> {
    let Some((head, rest)) = buf.split_first_chunk::<HEADER_LEN>() else {
        return ParsedRequest::Incomplete { need: HEADER_LEN };
    };
    let header = Header::decode(*head);
    let Header { body_len, op, request_id, .. } = header;
    if body_len > max_body {
        let request = Err(Refusal::too_large(body_len, max_body));
        return ParsedRequest::Frame { consumed: HEADER_LEN, request_id, op, request };
    }
    let Some(body) = rest.get(..body_len as usize) else {
        return ParsedRequest::Incomplete { need: HEADER_LEN + body_len as usize };
    };
    ParsedRequest::Frame {
        consumed: HEADER_LEN + body.len(),
        request_id,
        op,
        request: parse_frame(header, body, phase),
    }
}

/// The request id of a frame that is nothing but NEXT without a body, which is what nearly all frames of a busy server
/// are. `None` says nothing: [`parse_request`] knows what any frame is, this one included.
///
/// ```
/// use xuid_protocol::{Order, plain_next, request_next};
/// let mut bytes = Vec::new();
/// request_next(&mut bytes, 7, Order::Any);
/// assert_eq!(plain_next(bytes.first_chunk().unwrap()), Some(7));
/// bytes[0] = 1;
/// assert_eq!(plain_next(bytes.first_chunk().unwrap()), None);
/// ```
#[must_use]
#[inline]
pub const fn plain_next(head: &[u8; HEADER_LEN]) -> Option<u64> {
    // All fields but the request id, in one comparison.
    const FRONT: u64 = u128::from_le_bytes(Header::request(Op::Next, 0, 0).encode()) as u64;
    let number = u128::from_le_bytes(*head);
    if number as u64 == FRONT { Some((number >> 64) as u64) } else { None }
}

#[inline]
fn parse_frame(header: Header, body: &[u8], phase: Phase) -> Result<Request<'_>, Refusal> {
    let op = header.op;
    let is_hello = op == Op::Hello.code();
    match phase {
        Phase::Greeting if !is_hello && op != Op::Ping.code() => return Err(Refusal::before_hello(op)),
        Phase::Serving if is_hello => return Err(Refusal::second_hello()),
        _ => {}
    }
    if header.flags != 0 {
        let refusal = Refusal::flags(header.flags);
        return Err(if is_hello { refusal.closing() } else { refusal });
    }
    if op & REPLY_BIT != 0 {
        return Err(Refusal::reply_bit(op));
    }
    match Op::from_code(op) {
        Some(Op::Next) => parse_next(body),
        Some(Op::Array) => parse_bulk(Op::Array, body).map(Request::Array),
        Some(Op::Runs) => parse_bulk(Op::Runs, body).map(Request::Runs),
        Some(Op::Hello) => parse_hello(body).map(Request::Hello).map_err(Refusal::closing),
        Some(Op::Ping) => limited(Op::Ping, PING_MAX, body).map(|()| Request::Ping(body)),
        Some(Op::Decode) => parse_id(Op::Decode, body).map(|id| Request::Decode { id }),
        Some(Op::Provenance) => parse_id(Op::Provenance, body).map(|id| Request::Provenance { id }),
        Some(Op::Info) => limited(Op::Info, 0, body).map(|()| Request::Info),
        Some(Op::Stats) => limited(Op::Stats, 0, body).map(|()| Request::Stats),
        Some(Op::Bye) => limited(Op::Bye, 0, body).map(|()| Request::Bye),
        Some(
            op @ (Op::SeqNext
            | Op::SeqArray
            | Op::SeqRuns
            | Op::SeqInfo
            | Op::SeqList
            | Op::SeqCreate
            | Op::SeqAlter),
        ) => sequence::parse(op, body),
        Some(Op::GoAway) | None => Err(Refusal::unknown_op(op)),
    }
}

#[inline]
fn parse_next(body: &[u8]) -> Result<Request<'static>, Refusal> {
    let order = match body {
        [] => Order::Any,
        [code] => parse_order(*code)?,
        _ => return Err(Refusal::trailing(Op::Next, 1, body.len())),
    };
    Ok(Request::Next { order })
}

fn parse_bulk(op: Op, body: &[u8]) -> Result<Bulk, Refusal> {
    let mut fields = Fields::new(body);
    let (Some(count), Some(wait_ms), Some(order), Some(_reserved)) =
        (fields.u32(), fields.u32(), fields.u8(), fields.array::<3>())
    else {
        return Err(Refusal::short(op, "12: count, wait_ms, order and three zeros", body.len()));
    };
    limited(op, 12, body)?;
    Ok(Bulk { count, wait_ms, order: parse_order(order)? })
}

fn parse_id(op: Op, body: &[u8]) -> Result<u64, Refusal> {
    let Some(id) = Fields::new(body).u64() else {
        return Err(Refusal::short(op, "8: an id", body.len()));
    };
    limited(op, 8, body)?;
    if id >> 63 != 0 {
        return Err(Refusal::bad_request(format!("{id} is no id: ids have 63 bits, up to {}", i64::MAX)));
    }
    Ok(id)
}

fn parse_hello(body: &[u8]) -> Result<Hello<'_>, Refusal> {
    let mut fields = Fields::new(body);
    let hello = (|| {
        Some(Hello {
            min_version: fields.u16()?,
            max_version: fields.u16()?,
            features: fields.u32()?,
            cluster: ClusterId::from_bytes(fields.array()?),
            token: fields.short()?,
            client: fields.short()?,
        })
    })();
    let Some(hello) = hello else {
        let need = "versions, features and a cluster id in 24, then token and client name behind a byte of length each";
        return Err(Refusal::short(Op::Hello, need, body.len()));
    };
    limited(Op::Hello, body.len() - fields.rest().len(), body)?;
    Ok(hello)
}
