//! What must hold for wire bytes of any kind, against a naive reading of `docs/protocol.md`.
//!
//! One body serves the property tests here and the fuzz targets `wire_request`, `wire_reply` and `wire_preface`.

use xuid_protocol::{
    ArrayWriter, ClusterId, Decoded, Foreign, Hello, HelloReply, Op, Order, PREFACE, ParsedReply,
    ParsedRequest, Phase, Preface, Reply, Request, Run, check_preface, foreign_answer, parse_reply,
    parse_request, plain_next, plain_seq_next, reply_bye, reply_decode, reply_hello, reply_id, reply_info,
    reply_ping, reply_provenance, reply_sequence, reply_stats, request_array, request_bye, request_decode,
    request_hello, request_info, request_next, request_ping, request_provenance, request_runs,
    request_seq_alter, request_seq_array, request_seq_create, request_seq_info, request_seq_list,
    request_seq_next, request_seq_runs, request_stats, seq_id_reply,
};

const HEADER: usize = 16;

/// The limit that the bodies parse with.
pub(crate) const MAX_BODY: u32 = 1_100;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A server's input in either phase: what is accepted is what its encoder writes, but for bytes that nobody looks at.
pub(crate) fn request(input: &[u8]) {
    for phase in [Phase::Greeting, Phase::Serving] {
        let (consumed, id, op, request) = match parse_request(input, phase, MAX_BODY) {
            ParsedRequest::Incomplete { need } => {
                let whole = if input.len() < HEADER { HEADER } else { HEADER + u32_at(input, 0) as usize };
                assert!(need == whole && need > input.len() && need <= HEADER + MAX_BODY as usize);
                continue;
            }
            ParsedRequest::Frame { consumed, request_id, op, request } => (consumed, request_id, op, request),
        };
        assert_eq!((id, op), (u64_at(input, 8), input[4]));
        let (frame, too_large) = (&input[..consumed], u32_at(input, 0) > MAX_BODY);
        assert_eq!(consumed, if too_large { HEADER } else { HEADER + u32_at(input, 0) as usize });
        let plain = plain_next(frame.first_chunk().unwrap());
        if let Some(id_of_plain) = plain {
            assert_eq!(id_of_plain, id);
            assert_eq!(request.is_ok(), phase == Phase::Serving);
        }
        let plain = plain_seq_next(frame);
        if let Some((id_of_plain, name, len)) = plain {
            assert_eq!((id_of_plain, len), (id, consumed));
            assert!(name.len() <= 128 && frame.ends_with(name) && op == 0x30);
        }
        let request = match request {
            Ok(request) => request,
            Err(refusal) => {
                assert!(refusal.status.code() != 0 && !refusal.text.is_empty());
                assert!(!too_large || refusal.closes, "nobody knows where the next frame begins");
                continue;
            }
        };
        assert!(!too_large, "a body above the limit was taken");
        assert!(op == 0x02 || (phase == Phase::Greeting) == (op == 0x01), "HELLO first, and once");
        match request {
            Request::Hello(hello) => greeting(&hello, frame),
            Request::SeqNext { name } if frame[6..8] == [0, 0] => {
                assert_eq!(plain, Some((id, name.as_str().as_bytes(), consumed)));
            }
            Request::SeqArray(asked) | Request::SeqRuns(asked) => assert_ne!(asked.bulk.order, Order::Fresh),
            _ => {}
        }
        let mut again = Vec::new();
        encode(&mut again, id, &request);
        assert_eq!(again, without_reserved(frame), "{request:?}");
    }
}

/// HELLO's fields, and what a server makes of them.
fn greeting(hello: &Hello<'_>, frame: &[u8]) {
    let body = &frame[HEADER..];
    assert_eq!((hello.min_version, hello.max_version), (u16_at(body, 0), u16_at(body, 2)));
    let token_len = usize::from(body[24]);
    assert_eq!((hello.token, hello.client), (&body[25..25 + token_len], &body[26 + token_len..]));
    let (ours, other) = (hello.cluster, ClusterId::from_bytes([0xfe; 16]));
    assert!(hello.check_cluster(ours).is_ok());
    assert_eq!(hello.check_cluster(other).is_ok(), ours == ClusterId::ANY || ours == other);
    let version = hello.pick_version();
    assert_eq!(version.is_ok(), hello.min_version <= 1 && hello.max_version >= 1);
    assert!(hello.client_name().len() <= 3 * 255);
}

fn encode(out: &mut Vec<u8>, id: u64, request: &Request<'_>) {
    match *request {
        Request::Hello(hello) => request_hello(out, id, &hello).unwrap(),
        Request::Ping(bytes) => request_ping(out, id, bytes),
        Request::Next { order } => request_next(out, id, order),
        Request::Array(bulk) => request_array(out, id, bulk),
        Request::Runs(bulk) => request_runs(out, id, bulk),
        Request::Decode { id: asked } => request_decode(out, id, asked),
        Request::Info => request_info(out, id),
        Request::Stats => request_stats(out, id),
        Request::Provenance { id: asked } => request_provenance(out, id, asked),
        Request::SeqNext { name } => request_seq_next(out, id, name),
        Request::SeqArray(asked) => request_seq_array(out, id, asked),
        Request::SeqRuns(asked) => request_seq_runs(out, id, asked),
        Request::SeqInfo { name } => request_seq_info(out, id, name),
        Request::SeqList(list) => request_seq_list(out, id, list),
        Request::SeqCreate { name, settings } => request_seq_create(out, id, name, settings),
        Request::SeqAlter { name, changes } => request_seq_alter(out, id, name, changes),
        Request::Bye => request_bye(out, id),
    }
}

/// A request with what nobody looks at as its encoder writes it: the status, three bytes behind the order of ARRAY and
/// RUNS, and the second spelling of NEXT of any. Those of `SEQ_ARRAY` and `SEQ_RUNS` lie before the name.
fn without_reserved(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[6..8].fill(0);
    match frame[4] {
        0x11 | 0x12 => frame[HEADER + 9..].fill(0),
        0x31 => frame[HEADER + 9..HEADER + 12].fill(0),
        0x32 => frame[HEADER + 10..HEADER + 12].fill(0),
        0x10 if frame[HEADER..] == [0] => {
            frame.truncate(HEADER);
            frame[0] = 0;
        }
        _ => {}
    }
    frame
}

/// A client's input: what is accepted says what lies in its bytes.
pub(crate) fn reply(input: &[u8]) {
    let parsed = match parse_reply(input, MAX_BODY) {
        Err(bad) => return assert!(!bad.to_string().is_empty()),
        Ok(parsed) => parsed,
    };
    let (consumed, id, op, reply) = match parsed {
        ParsedReply::Incomplete { need } => {
            let whole = if input.len() < HEADER { HEADER } else { HEADER + u32_at(input, 0) as usize };
            return assert!(need == whole && need > input.len() && need <= HEADER + MAX_BODY as usize);
        }
        ParsedReply::Frame { consumed, request_id, op, reply } => (consumed, request_id, op, reply),
    };
    assert_eq!((consumed, id), (HEADER + u32_at(input, 0) as usize, u64_at(input, 8)));
    assert_eq!((op, input[5]), (input[4] & 0x7f, 0));
    assert!(input[4] & 0x80 != 0 || reply == Reply::GoAway);
    let (head, body) = input[..consumed].split_at(HEADER);
    says(&reply, u16_at(head, 6), body);
    let mut again = Vec::new();
    if write_again(&mut again, op, id, &reply) {
        let mut body = body.to_vec();
        match op {
            0x01 => {
                body[2..4].fill(0);
                body[39] = 0;
            }
            0x11 | 0x31 => body[4..8].fill(0),
            _ => {}
        }
        assert!(body.starts_with(&again[HEADER..]), "{reply:?} is written as {again:02x?}");
    }
}

/// The fields of a reply lie where the tables say. What follows them is not looked at.
fn says(reply: &Reply<'_>, status: u16, body: &[u8]) {
    assert_eq!(status != 0, matches!(reply, Reply::Error(_)) || (status != 0 && *reply == Reply::GoAway));
    match reply {
        Reply::Hello(HelloReply { version, cluster, epoch_ms, server, .. }) => {
            assert_eq!((*version, *epoch_ms), (u16_at(body, 0), u64_at(body, 24)));
            assert_eq!(cluster.bytes(), body[8..24]);
            let said = &body[57..57 + usize::from(body[56])];
            assert!(server.as_bytes() == said || (str::from_utf8(said).is_err() && *server == "(not UTF-8)"));
        }
        Reply::Ping(bytes) => assert_eq!(*bytes, body),
        Reply::Next(id) => assert!(*id == u64_at(body, 0) && *id < 1 << 63),
        Reply::Array(ids) => {
            assert_eq!(ids.len(), u32_at(body, 0) as usize);
            assert!(ids.iter().enumerate().all(|(n, id)| id == u64_at(body, 8 + 8 * n) && id < 1 << 63));
        }
        Reply::Runs(runs) => {
            assert_eq!((runs.ids(), runs.len()), (u32_at(body, 0), u32_at(body, 4) as usize));
            let mut sum = 0;
            for (n, run) in runs.iter().enumerate() {
                let at = 8 + 16 * n;
                let (first, count, stride) = (u64_at(body, at), u32_at(body, at + 8), u32_at(body, at + 12));
                assert_eq!(run, Run { first, count, stride });
                assert!(count > 0 && (count == 1 || stride > 0), "an id as often as it counts");
                let last = u128::from(first) + u128::from(count - 1) * u128::from(stride);
                assert_eq!(run.last().map(u128::from), Some(last));
                assert!(last < 1 << 63, "a run leaves 63 bits");
                sum += u64::from(count);
            }
            assert_eq!(sum, u64::from(runs.ids()));
        }
        Reply::Decode(Decoded { unix_ms, worker, sequence }) => {
            assert_eq!((*unix_ms, *worker, *sequence), (u64_at(body, 0), u32_at(body, 8), u32_at(body, 12)));
        }
        Reply::Info(text) | Reply::Stats(text) | Reply::Provenance(text) | Reply::Sequence(text) => {
            assert_eq!(text.as_bytes(), body);
        }
        Reply::Bye | Reply::GoAway => {}
        Reply::Error(error) => {
            assert_eq!((error.status.code(), error.retry_after_ms), (status, u32_at(body, 0)));
            let text = &body[6..6 + usize::from(u16_at(body, 4))];
            assert_eq!(error.text, String::from_utf8_lossy(text));
        }
    }
}

/// Writes what was read; false for what has no such writer, or one that writes it shorter.
fn write_again(out: &mut Vec<u8>, op: u8, id: u64, reply: &Reply<'_>) -> bool {
    let of_sequence = op & 0xf0 == 0x30;
    match reply {
        Reply::Hello(hello) => reply_hello(out, id, hello),
        Reply::Ping(bytes) => reply_ping(out, id, bytes),
        Reply::Next(next) if of_sequence => out.extend(seq_id_reply(id, *next)),
        Reply::Next(next) => reply_id(out, id, *next),
        Reply::Array(ids) => {
            let ids: Vec<u64> = ids.iter().collect();
            let begin = if of_sequence { ArrayWriter::of_sequence } else { ArrayWriter::begin };
            let mut writer = begin(out, id, ids.len() as u32);
            writer.ids(&ids);
            writer.finish();
        }
        Reply::Decode(decoded) => reply_decode(out, id, *decoded),
        Reply::Info(json) => reply_info(out, id, json),
        Reply::Stats(json) => reply_stats(out, id, json),
        Reply::Provenance(json) => reply_provenance(out, id, json),
        Reply::Sequence(json) => match Op::from_code(op) {
            Some(op) => reply_sequence(out, op, id, json),
            None => return false,
        },
        Reply::Bye => reply_bye(out, id),
        Reply::Runs(_) | Reply::GoAway | Reply::Error(_) => return false,
    }
    !matches!(reply, Reply::Hello(HelloReply { server: "(not UTF-8)", .. }))
}

/// The first bytes of a connection.
pub(crate) fn preface(input: &[u8]) {
    let right = input.iter().zip(PREFACE).take_while(|(found, wanted)| **found == *wanted).count();
    match check_preface(input) {
        Preface::Whole => assert_eq!(right, 8),
        Preface::Incomplete { need } => assert!(right == input.len() && need == 8 && right < 8),
        Preface::Foreign(kind) => {
            assert!(right < input.len().min(8));
            assert_eq!(kind == Foreign::Damaged, right > 0);
            assert_eq!(kind == Foreign::Tls, input[0] == 0x16);
            let mut answer = Vec::new();
            foreign_answer(&mut answer, kind, Some(&"127.0.0.1:7655"));
            assert!(answer.is_ascii() && (kind == Foreign::Tls || answer.ends_with(b"\n")));
        }
    }
}
