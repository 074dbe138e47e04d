//! Requests about named sequences: as values, to bytes and from bytes.

use xuid_id::{Order, SequenceName};

use crate::fields::Fields;
use crate::header::{HEADER_LEN, Header};
use crate::op::Op;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::request::asked::{Bulk, SeqBulk, SeqList};
use crate::request::body::{limited, parse_order};

/// The longest prefix of `SEQ_LIST`, and the longest `after`.
const PART_MAX: usize = SequenceName::MAX;

/// Header, the fields before the name, and the name.
#[inline]
fn named<const N: usize>(
    out: &mut Vec<u8>,
    op: Op,
    request_id: u64,
    front: [u8; N],
    name: SequenceName<'_>,
    rest: &[u8],
) {
    let bytes = name.as_str().as_bytes();
    let body_len = N + 1 + bytes.len() + rest.len();
    out.reserve(HEADER_LEN + body_len);
    out.extend_from_slice(&Header::request(op, body_len as u32, request_id).encode());
    out.extend_from_slice(&front);
    // A legal name has 128 bytes at most.
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
    out.extend_from_slice(rest);
}

/// Appends `SEQ_NEXT`.
#[inline]
pub fn request_seq_next(out: &mut Vec<u8>, request_id: u64, name: SequenceName<'_>) {
    named(out, Op::SeqNext, request_id, [], name, &[]);
}

/// Appends `SEQ_ARRAY`. Whether it is to be in one run is not asked there.
pub fn request_seq_array(out: &mut Vec<u8>, request_id: u64, asked: SeqBulk<'_>) {
    named(out, Op::SeqArray, request_id, bulk_front(asked.bulk, 0), asked.name, &[]);
}

/// Appends `SEQ_RUNS`.
pub fn request_seq_runs(out: &mut Vec<u8>, request_id: u64, asked: SeqBulk<'_>) {
    let front = bulk_front(asked.bulk, u8::from(asked.contiguous));
    named(out, Op::SeqRuns, request_id, front, asked.name, &[]);
}

fn bulk_front(bulk: Bulk, contiguous: u8) -> [u8; 12] {
    let [c0, c1, c2, c3] = bulk.count.to_le_bytes();
    let [w0, w1, w2, w3] = bulk.wait_ms.to_le_bytes();
    [c0, c1, c2, c3, w0, w1, w2, w3, bulk.order.code(), contiguous, 0, 0]
}

/// Appends `SEQ_INFO`.
pub fn request_seq_info(out: &mut Vec<u8>, request_id: u64, name: SequenceName<'_>) {
    named(out, Op::SeqInfo, request_id, [], name, &[]);
}

/// Appends `SEQ_LIST`. Prefix and `after` are cut at 255 bytes; a server refuses more than 128.
pub fn request_seq_list(out: &mut Vec<u8>, request_id: u64, list: SeqList<'_>) {
    let cut = |text: &str| text.floor_char_boundary(usize::from(u8::MAX));
    let (prefix, after) = (&list.prefix[..cut(list.prefix)], &list.after[..cut(list.after)]);
    let body_len = 4 + 1 + prefix.len() + 1 + after.len();
    out.extend_from_slice(&Header::request(Op::SeqList, body_len as u32, request_id).encode());
    out.extend_from_slice(&list.limit.to_le_bytes());
    for part in [prefix, after] {
        out.push(part.len() as u8);
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends `SEQ_CREATE`. `settings` is a JSON object, or empty: all defaults.
pub fn request_seq_create(out: &mut Vec<u8>, request_id: u64, name: SequenceName<'_>, settings: &str) {
    named(out, Op::SeqCreate, request_id, [], name, settings.as_bytes());
}

/// Appends `SEQ_ALTER`. `changes` is a JSON object.
pub fn request_seq_alter(out: &mut Vec<u8>, request_id: u64, name: SequenceName<'_>, changes: &str) {
    named(out, Op::SeqAlter, request_id, [], name, changes.as_bytes());
}

/// Op, flags and status of `SEQ_NEXT`, without the length, which differs with the name.
const SEQ_NEXT_FRONT: u64 = u128::from_le_bytes(Header::request(Op::SeqNext, 0, 0).encode()) as u64 >> 32;

/// The request id and the name's bytes of a frame at the front of `buf` that is nothing but `SEQ_NEXT` with a name that may
/// be legal, and the frame's length. `None` says nothing: [`parse_request`](crate::parse_request) knows what any frame is,
/// this one included.
///
/// ```
/// use xuid_protocol::{SequenceName, plain_seq_next, request_seq_next};
/// let mut bytes = Vec::new();
/// request_seq_next(&mut bytes, 7, SequenceName::new(b"orders")?);
/// assert_eq!(plain_seq_next(&bytes), Some((7, &b"orders"[..], 23)));
/// assert_eq!(plain_seq_next(&bytes[..22]), None);
/// # Ok::<(), xuid_protocol::NameError>(())
/// ```
#[must_use]
#[inline]
pub fn plain_seq_next(buf: &[u8]) -> Option<(u64, &[u8], usize)> {
    let (head, rest) = buf.split_first_chunk::<HEADER_LEN>()?;
    let number = u128::from_le_bytes(*head);
    if number as u64 >> 32 != SEQ_NEXT_FRONT {
        return None;
    }
    let body = rest.get(..number as u32 as usize)?;
    let (len, name) = body.split_first()?;
    let fits = usize::from(*len) == name.len() && name.len() <= SequenceName::MAX && !name.is_empty();
    fits.then_some(((number >> 64) as u64, name, HEADER_LEN + body.len()))
}

const NAME: &str = "a byte of length (1 to 128) and a name";

const BULK: &str =
    "count, wait_ms, order and three more bytes in 12, then a byte of length (1 to 128) and a name";

/// The request of one of the ops in here.
pub(super) fn parse(op: Op, body: &[u8]) -> Result<Request<'_>, Refusal> {
    let mut fields = Fields::new(body);
    match op {
        Op::SeqArray => parse_bulk(op, body).map(Request::SeqArray),
        Op::SeqRuns => parse_bulk(op, body).map(Request::SeqRuns),
        Op::SeqList => parse_list(body).map(Request::SeqList),
        Op::SeqCreate | Op::SeqAlter => {
            let name = take_name(op, NAME, &mut fields, body)?;
            let json = str::from_utf8(fields.rest()).map_err(|_| {
                Refusal::bad_request(format!(
                    "what follows the name in {op} is not UTF-8: write a JSON object"
                ))
            })?;
            Ok(if op == Op::SeqCreate {
                Request::SeqCreate { name, settings: json }
            } else {
                Request::SeqAlter { name, changes: json }
            })
        }
        _ => {
            let name = take_name(op, NAME, &mut fields, body)?;
            limited(op, body.len() - fields.rest().len(), body)?;
            Ok(if op == Op::SeqInfo { Request::SeqInfo { name } } else { Request::SeqNext { name } })
        }
    }
}

fn take_name<'a>(
    op: Op,
    need: &'static str,
    fields: &mut Fields<'a>,
    body: &[u8],
) -> Result<SequenceName<'a>, Refusal> {
    let bytes = fields.short().ok_or_else(|| Refusal::short(op, need, body.len()))?;
    SequenceName::new(bytes)
        .map_err(|error| Refusal::bad_request(format!("the name in {op} is not legal: {error}")))
}

fn parse_bulk(op: Op, body: &[u8]) -> Result<SeqBulk<'_>, Refusal> {
    let mut fields = Fields::new(body);
    let (Some(count), Some(wait_ms), Some([order, contiguous, _, _])) =
        (fields.u32(), fields.u32(), fields.array::<4>())
    else {
        return Err(Refusal::short(op, BULK, body.len()));
    };
    let name = take_name(op, BULK, &mut fields, body)?;
    limited(op, body.len() - fields.rest().len(), body)?;
    let order = parse_order(order)?;
    if order == Order::Fresh {
        return Err(Refusal::bad_request(
            "order 1 (fresh) is for ids with a timestamp: write 0 (any) or 2 (ordered) for a sequence",
        ));
    }
    // In SEQ_ARRAY that byte is reserved.
    let contiguous = if op == Op::SeqRuns { contiguous } else { 0 };
    if contiguous > 1 {
        return Err(Refusal::bad_request(format!(
            "contiguous is {contiguous}: write 0 (any runs) or 1 (one run)"
        )));
    }
    Ok(SeqBulk { name, bulk: Bulk { count, wait_ms, order }, contiguous: contiguous == 1 })
}

fn parse_list(body: &[u8]) -> Result<SeqList<'_>, Refusal> {
    let mut fields = Fields::new(body);
    let (Some(limit), Some(prefix), Some(after)) = (fields.u32(), fields.short(), fields.short()) else {
        let need = "a limit in 4, then a prefix and a name behind a byte of length each";
        return Err(Refusal::short(Op::SeqList, need, body.len()));
    };
    limited(Op::SeqList, body.len() - fields.rest().len(), body)?;
    let part = |what: &str, bytes| match str::from_utf8(bytes) {
        Ok(text) if text.len() <= PART_MAX => Ok(text),
        Ok(text) => Err(Refusal::bad_request(format!(
            "the {what} of SEQ_LIST has {} bytes: names have at most {PART_MAX}",
            text.len()
        ))),
        Err(_) => Err(Refusal::bad_request(format!("the {what} of SEQ_LIST is not UTF-8: names are"))),
    };
    Ok(SeqList { limit, prefix: part("prefix", prefix)?, after: part("last name before", after)? })
}
