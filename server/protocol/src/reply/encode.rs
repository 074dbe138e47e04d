//! Replies to bytes: each appends one frame. Those with many ids are in `writer`.

use crate::greeting::HelloReply;
use crate::header::{HEADER_LEN, Header, REPLY_BIT};
use crate::op::Op;
use crate::refusal::Refusal;
use crate::reply::Decoded;

/// Bytes of the reply to NEXT, and of that to `SEQ_NEXT`.
pub const ID_REPLY_LEN: usize = HEADER_LEN + 8;

/// The front of `text` that fits `limit` bytes, cut between characters.
fn fitting(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

fn with_body(out: &mut Vec<u8>, op: Op, request_id: u64, body: &[u8]) {
    debug_assert!(u32::try_from(body.len()).is_ok(), "{op} of {} bytes", body.len());
    out.reserve(HEADER_LEN + body.len());
    out.extend_from_slice(&Header::reply(op, body.len() as u32, request_id).encode());
    out.extend_from_slice(body);
}

/// Appends the reply to HELLO.
pub fn reply_hello(out: &mut Vec<u8>, request_id: u64, reply: &HelloReply<'_>) {
    let server = fitting(reply.server, usize::from(u8::MAX));
    let mut body = [0; 56];
    body[..2].copy_from_slice(&reply.version.to_le_bytes());
    body[4..8].copy_from_slice(&reply.features.to_le_bytes());
    body[8..24].copy_from_slice(&reply.cluster.bytes());
    body[24..32].copy_from_slice(&reply.epoch_ms.to_le_bytes());
    body[32..36].copy_from_slice(&reply.tick_us.to_le_bytes());
    body[36..40].copy_from_slice(&[reply.time_bits, reply.worker_bits, reply.sequence_bits, reply.face]);
    body[40..44].copy_from_slice(&reply.limits.max_body.to_le_bytes());
    body[44..48].copy_from_slice(&reply.limits.max_count.to_le_bytes());
    body[48..52].copy_from_slice(&reply.limits.max_in_flight.to_le_bytes());
    body[52..56].copy_from_slice(&reply.limits.idle_ms.to_le_bytes());
    let body_len = body.len() + 1 + server.len();
    out.extend_from_slice(&Header::reply(Op::Hello, body_len as u32, request_id).encode());
    out.extend_from_slice(&body);
    out.push(server.len() as u8);
    out.extend_from_slice(server.as_bytes());
}

/// Appends the reply to PING: the bytes that came.
pub fn reply_ping(out: &mut Vec<u8>, request_id: u64, bytes: &[u8]) {
    with_body(out, Op::Ping, request_id, bytes);
}

/// Appends the reply to NEXT.
#[inline]
pub fn reply_id(out: &mut Vec<u8>, request_id: u64, id: u64) {
    out.extend_from_slice(&id_reply(request_id, id));
}

/// The reply to NEXT by itself, for those who know where it goes: it is the most frequent frame of all.
#[must_use]
#[inline]
pub fn id_reply(request_id: u64, id: u64) -> [u8; ID_REPLY_LEN] {
    id_frame(Op::Next, request_id, id)
}

/// The reply to `SEQ_NEXT`.
#[must_use]
#[inline]
pub fn seq_id_reply(request_id: u64, id: u64) -> [u8; ID_REPLY_LEN] {
    id_frame(Op::SeqNext, request_id, id)
}

#[inline]
fn id_frame(op: Op, request_id: u64, id: u64) -> [u8; ID_REPLY_LEN] {
    let mut frame = [0; ID_REPLY_LEN];
    frame[..HEADER_LEN].copy_from_slice(&Header::reply(op, 8, request_id).encode());
    frame[HEADER_LEN..].copy_from_slice(&id.to_le_bytes());
    frame
}

/// Appends the reply to DECODE.
pub fn reply_decode(out: &mut Vec<u8>, request_id: u64, decoded: Decoded) {
    let mut body = [0; 16];
    body[..8].copy_from_slice(&decoded.unix_ms.to_le_bytes());
    body[8..12].copy_from_slice(&decoded.worker.to_le_bytes());
    body[12..].copy_from_slice(&decoded.sequence.to_le_bytes());
    with_body(out, Op::Decode, request_id, &body);
}

/// Appends the reply to INFO: a JSON object. Ids in it are strings.
pub fn reply_info(out: &mut Vec<u8>, request_id: u64, json: &str) {
    with_body(out, Op::Info, request_id, json.as_bytes());
}

/// Appends the reply to STATS: a JSON object.
pub fn reply_stats(out: &mut Vec<u8>, request_id: u64, json: &str) {
    with_body(out, Op::Stats, request_id, json.as_bytes());
}

/// Appends the reply to PROVENANCE: a JSON object.
pub fn reply_provenance(out: &mut Vec<u8>, request_id: u64, json: &str) {
    with_body(out, Op::Provenance, request_id, json.as_bytes());
}

/// Appends the reply to a request about sequences that is answered in JSON: `op` is `SEQ_INFO`, `SEQ_LIST`, `SEQ_CREATE` or
/// `SEQ_ALTER`. Numbers in it that may reach 2^53 are strings.
pub fn reply_sequence(out: &mut Vec<u8>, op: Op, request_id: u64, json: &str) {
    debug_assert!(matches!(op, Op::SeqInfo | Op::SeqList | Op::SeqCreate | Op::SeqAlter), "{op} in JSON");
    with_body(out, op, request_id, json.as_bytes());
}

/// Appends the reply to BYE.
pub fn reply_bye(out: &mut Vec<u8>, request_id: u64) {
    with_body(out, Op::Bye, request_id, &[]);
}

/// Appends an error. `op` is the request's, as it was sent. A text above 65,535 bytes is cut.
pub fn reply_error(out: &mut Vec<u8>, request_id: u64, op: u8, refusal: &Refusal) {
    let text = fitting(&refusal.text, usize::from(u16::MAX));
    let body_len = 4 + 2 + text.len();
    let header = Header {
        body_len: body_len as u32,
        op: op | REPLY_BIT,
        flags: 0,
        status: refusal.status.code(),
        request_id,
    };
    out.reserve(HEADER_LEN + body_len);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(&refusal.retry_after_ms.to_le_bytes());
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends GOAWAY: of no request, without bit 7.
pub fn goaway(out: &mut Vec<u8>) {
    out.extend_from_slice(&Header::request(Op::GoAway, 0, 0).encode());
}
