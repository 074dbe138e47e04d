//! Bytes to replies. What follows the fields of a reply is not looked at: a later server may say more.

use std::borrow::Cow;

use xuid_id::ClusterId;

use crate::fields::Fields;
use crate::greeting::HelloReply;
use crate::header::{HEADER_LEN, Header, REPLY_BIT};
use crate::limits::Limits;
use crate::op::Op;
use crate::reply::{BadReply, Decoded, ErrorReply, Ids, Reply, Runs};
use crate::run::Run;
use crate::status::Status;

const SHORT: &str = "it ends before its fields do";

const NO_ID: &str = "it holds a number of 2^63 or more, which is no id";

/// What lies at the front of the input.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedReply<'a> {
    /// The beginning of a frame, or nothing.
    Incomplete {
        /// Bytes of input that must be there before it makes sense to look again; more than there are now.
        need: usize,
    },
    /// A frame.
    Frame {
        /// Bytes to take off the input.
        consumed: usize,
        /// Of the request; 0 for GOAWAY.
        request_id: u64,
        /// The op of the request, without the reply bit. An error reply may carry any.
        op: u8,
        /// What is answered.
        reply: Reply<'a>,
    },
}

/// Parses the frame at the front of `buf`. `max_body` bounds what the reader is ready to hold: it is the reader's own
/// limit, the server's `max_body` is about requests.
///
/// ```
/// use xuid_protocol::{ParsedReply, Reply, parse_reply, reply_id};
/// let mut bytes = Vec::new();
/// reply_id(&mut bytes, 7, 1_128_275_363_336_683_521);
/// let parsed = parse_reply(&bytes, 1 << 20)?;
/// let reply = Reply::Next(1_128_275_363_336_683_521);
/// assert_eq!(parsed, ParsedReply::Frame { consumed: 24, request_id: 7, op: 0x10, reply });
/// # Ok::<(), xuid_protocol::BadReply>(())
/// ```
///
/// # Errors
/// Bytes that are no reply: the connection is of no use any more.
pub fn parse_reply(buf: &[u8], max_body: u32) -> Result<ParsedReply<'_>, BadReply> {
    let Some((head, rest)) = buf.split_first_chunk::<HEADER_LEN>() else {
        return Ok(ParsedReply::Incomplete { need: HEADER_LEN });
    };
    let header = Header::decode(*head);
    let Header { body_len, op, flags, request_id, .. } = header;
    let goes_away = op == Op::GoAway.code();
    if flags != 0 || (op & REPLY_BIT == 0 && !goes_away) {
        return Err(BadReply::NotAReply { op, flags });
    }
    if body_len > max_body {
        return Err(BadReply::TooLarge { body_len, limit: max_body });
    }
    let Some(body) = rest.get(..body_len as usize) else {
        return Ok(ParsedReply::Incomplete { need: HEADER_LEN + body_len as usize });
    };
    let reply = if goes_away { Reply::GoAway } else { parse_body(header, body)? };
    Ok(ParsedReply::Frame { consumed: HEADER_LEN + body.len(), request_id, op: op & !REPLY_BIT, reply })
}

fn parse_body(header: Header, body: &[u8]) -> Result<Reply<'_>, BadReply> {
    let malformed = |what| BadReply::Malformed { op: header.op, body_len: body.len(), what };
    let short = || malformed(SHORT);
    let fields = Fields::new(body);
    if header.status != 0 {
        let error = parse_error(Status::from_code(header.status), fields).ok_or_else(short)?;
        return Ok(Reply::Error(error));
    }
    let text = || str::from_utf8(body).map_err(|_| malformed("it is not UTF-8"));
    Ok(match Op::from_code(header.op & !REPLY_BIT) {
        Some(Op::Hello) => Reply::Hello(parse_hello(fields).ok_or_else(short)?),
        Some(Op::Ping) => Reply::Ping(body),
        Some(Op::Next | Op::SeqNext) => Reply::Next(parse_id(fields).map_err(malformed)?),
        Some(Op::Array | Op::SeqArray) => Reply::Array(parse_array(fields).map_err(malformed)?),
        Some(Op::Runs | Op::SeqRuns) => Reply::Runs(parse_runs(fields).map_err(malformed)?),
        Some(Op::Decode) => Reply::Decode(parse_decoded(fields).ok_or_else(short)?),
        Some(Op::Info) => Reply::Info(text()?),
        Some(Op::Stats) => Reply::Stats(text()?),
        Some(Op::Provenance) => Reply::Provenance(text()?),
        Some(Op::SeqInfo | Op::SeqList | Op::SeqCreate | Op::SeqAlter) => Reply::Sequence(text()?),
        Some(Op::Bye) => Reply::Bye,
        Some(Op::GoAway) | None => return Err(BadReply::NotAReply { op: header.op, flags: header.flags }),
    })
}

fn parse_error(status: Status, mut fields: Fields<'_>) -> Option<ErrorReply<'_>> {
    let retry_after_ms = fields.u32()?;
    let len = usize::from(fields.u16()?);
    let text: Cow<'_, str> = String::from_utf8_lossy(fields.slice(len)?);
    Some(ErrorReply { status, retry_after_ms, text })
}

fn parse_hello(mut fields: Fields<'_>) -> Option<HelloReply<'_>> {
    let version = fields.u16()?;
    let _reserved = fields.u16()?;
    let features = fields.u32()?;
    let cluster = ClusterId::from_bytes(fields.array()?);
    let (epoch_ms, tick_us) = (fields.u64()?, fields.u32()?);
    let [time_bits, worker_bits, sequence_bits, face] = fields.array()?;
    let limits = Limits {
        max_body: fields.u32()?,
        max_count: fields.u32()?,
        max_in_flight: fields.u32()?,
        idle_ms: fields.u32()?,
    };
    let server = str::from_utf8(fields.short()?).unwrap_or("(not UTF-8)");
    Some(HelloReply {
        version,
        features,
        cluster,
        epoch_ms,
        tick_us,
        time_bits,
        worker_bits,
        sequence_bits,
        face,
        limits,
        server,
    })
}

fn parse_id(mut fields: Fields<'_>) -> Result<u64, &'static str> {
    let id = fields.u64().ok_or(SHORT)?;
    if id > Run::LARGEST_ID { Err(NO_ID) } else { Ok(id) }
}

fn parse_array(mut fields: Fields<'_>) -> Result<Ids<'_>, &'static str> {
    let (Some(count), Some(_reserved)) = (fields.u32(), fields.u32()) else { return Err(SHORT) };
    let (ids, _) = fields.rest().as_chunks::<8>();
    let ids = Ids(ids.get(..count as usize).ok_or(SHORT)?);
    // Without a branch an id, which the compiler makes many ids at once of.
    let all_bits = ids.iter().fold(0, |bits, id| bits | id);
    if all_bits > Run::LARGEST_ID { Err(NO_ID) } else { Ok(ids) }
}

fn parse_runs(mut fields: Fields<'_>) -> Result<Runs<'_>, &'static str> {
    let (Some(ids), Some(len)) = (fields.u32(), fields.u32()) else { return Err(SHORT) };
    let (runs, _) = fields.rest().as_chunks::<16>();
    let runs = Runs { ids, runs: runs.get(..len as usize).ok_or(SHORT)? };
    if runs.iter().any(|run| run.last().is_none_or(|last| last > Run::LARGEST_ID)) {
        return Err("a run is empty, or leaves the 63 bits of an id");
    }
    // Else one id would come as often as it counts.
    if runs.iter().any(|run| run.stride == 0 && run.count > 1) {
        return Err("a run of more than one id has a stride of 0");
    }
    if runs.iter().map(|run| u64::from(run.count)).sum::<u64>() != u64::from(ids) {
        return Err("its runs do not add up to its count");
    }
    Ok(runs)
}

fn parse_decoded(mut fields: Fields<'_>) -> Option<Decoded> {
    Some(Decoded { unix_ms: fields.u64()?, worker: fields.u32()?, sequence: fields.u32()? })
}
