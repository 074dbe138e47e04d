//! Requests to bytes: each appends one frame.

use xuid_id::Order;

use crate::greeting::{Hello, TooLong};
use crate::header::{HEADER_LEN, Header};
use crate::limits::PING_MAX;
use crate::op::Op;
use crate::request::asked::Bulk;

/// Header and body of a request whose body has a fixed length, in one append.
#[inline]
fn fixed<const N: usize>(out: &mut Vec<u8>, op: Op, request_id: u64, body: [u8; N]) {
    out.extend_from_slice(&Header::request(op, N as u32, request_id).encode());
    out.extend_from_slice(&body);
}

/// Appends HELLO. The preface is the caller's to send first.
///
/// # Errors
/// Token and client name must fit 255 bytes each; nothing is appended otherwise.
pub fn request_hello(out: &mut Vec<u8>, request_id: u64, hello: &Hello<'_>) -> Result<(), TooLong> {
    let short =
        |field, bytes: &[u8]| u8::try_from(bytes.len()).map_err(|_| TooLong { field, len: bytes.len() });
    let (token_len, client_len) = (short("token", hello.token)?, short("client name", hello.client)?);
    let body_len = 2 + 2 + 4 + 16 + 1 + hello.token.len() + 1 + hello.client.len();
    out.reserve(HEADER_LEN + body_len);
    out.extend_from_slice(&Header::request(Op::Hello, body_len as u32, request_id).encode());
    out.extend_from_slice(&hello.min_version.to_le_bytes());
    out.extend_from_slice(&hello.max_version.to_le_bytes());
    out.extend_from_slice(&hello.features.to_le_bytes());
    out.extend_from_slice(&hello.cluster.bytes());
    out.push(token_len);
    out.extend_from_slice(hello.token);
    out.push(client_len);
    out.extend_from_slice(hello.client);
    Ok(())
}

/// Appends PING. A server refuses more than [`PING_MAX`] bytes.
pub fn request_ping(out: &mut Vec<u8>, request_id: u64, bytes: &[u8]) {
    debug_assert!(bytes.len() <= PING_MAX, "{} bytes of PING", bytes.len());
    out.extend_from_slice(&Header::request(Op::Ping, bytes.len() as u32, request_id).encode());
    out.extend_from_slice(bytes);
}

/// Appends NEXT; without a body for [`Order::Any`].
#[inline]
pub fn request_next(out: &mut Vec<u8>, request_id: u64, order: Order) {
    match order {
        Order::Any => fixed(out, Op::Next, request_id, []),
        _ => fixed(out, Op::Next, request_id, [order.code()]),
    }
}

/// Appends ARRAY.
pub fn request_array(out: &mut Vec<u8>, request_id: u64, bulk: Bulk) {
    fixed(out, Op::Array, request_id, bulk_body(bulk));
}

/// Appends RUNS.
pub fn request_runs(out: &mut Vec<u8>, request_id: u64, bulk: Bulk) {
    fixed(out, Op::Runs, request_id, bulk_body(bulk));
}

fn bulk_body(bulk: Bulk) -> [u8; 12] {
    let [c0, c1, c2, c3] = bulk.count.to_le_bytes();
    let [w0, w1, w2, w3] = bulk.wait_ms.to_le_bytes();
    [c0, c1, c2, c3, w0, w1, w2, w3, bulk.order.code(), 0, 0, 0]
}

/// Appends DECODE.
pub fn request_decode(out: &mut Vec<u8>, request_id: u64, id: u64) {
    fixed(out, Op::Decode, request_id, id.to_le_bytes());
}

/// Appends INFO.
pub fn request_info(out: &mut Vec<u8>, request_id: u64) {
    fixed(out, Op::Info, request_id, []);
}

/// Appends STATS.
pub fn request_stats(out: &mut Vec<u8>, request_id: u64) {
    fixed(out, Op::Stats, request_id, []);
}

/// Appends PROVENANCE.
pub fn request_provenance(out: &mut Vec<u8>, request_id: u64, id: u64) {
    fixed(out, Op::Provenance, request_id, id.to_le_bytes());
}

/// Appends BYE.
pub fn request_bye(out: &mut Vec<u8>, request_id: u64) {
    fixed(out, Op::Bye, request_id, []);
}
