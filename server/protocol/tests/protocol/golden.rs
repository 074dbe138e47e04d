//! Every frame of the protocol has a vector, and both directions agree with it.

use std::collections::BTreeSet;

use xuid_protocol::{
    Bulk, Decoded, Hello, Limits, Op, Order, ParsedReply, ParsedRequest, Phase, Preface, Refusal, Reply,
    Request, Run, SeqBulk, SeqList, Status, check_preface, foreign_answer, parse_reply, parse_request,
    request_next,
};

use crate::values::{Answer, encode_request, hello_reply, sequence};
use crate::vectors::vectors;

const LONGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                       0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const ID: u64 = 1_128_275_363_336_683_521;

/// The one request or refusal that `bytes` are, in the phase in which it may come.
fn parse_whole(bytes: &[u8], phase: Phase) -> (u64, Result<Request<'_>, Refusal>) {
    match parse_request(bytes, phase, Limits::default().max_body) {
        ParsedRequest::Frame { consumed, request_id, op, request } => {
            assert_eq!(op, bytes[4]);
            assert!(consumed == bytes.len(), "{consumed} of {} bytes taken", bytes.len());
            (request_id, request)
        }
        ParsedRequest::Incomplete { need } => panic!("{need} bytes needed of {}", bytes.len()),
    }
}

pub(crate) fn requests() -> Vec<(&'static str, u64, Request<'static>)> {
    let hello = |hello| Request::Hello(hello);
    let full = Hello {
        max_version: 3,
        features: 0x8000_0001,
        cluster: hello_reply().cluster,
        token: b"s3cret",
        ..Hello::new("golden")
    };
    let bulk = |count, wait_ms, order| Bulk { count, wait_ms, order };
    let orders = sequence("orders");
    let seq = |count, wait_ms, order| SeqBulk {
        name: orders,
        bulk: bulk(count, wait_ms, order),
        contiguous: false,
    };
    let ten = SeqList { limit: 10, prefix: "order:", after: "order:2026-11-23" };
    vec![
        ("hello", 1, hello(Hello::new("golden"))),
        ("hello, a cluster, a token, versions 1 to 3 and a feature", 1, hello(full)),
        ("hello, nothing said", 0, hello(Hello::new(""))),
        ("ping", 7, Request::Ping(b"still there?")),
        ("ping, empty", u64::MAX, Request::Ping(b"")),
        ("next, any", 7, Request::Next { order: Order::Any }),
        ("next, any, said", 7, Request::Next { order: Order::Any }),
        ("next, fresh", 7, Request::Next { order: Order::Fresh }),
        ("next, ordered", 0x0123_4567_89ab_cdef, Request::Next { order: Order::Ordered }),
        ("array, 1000 fresh within 50 ms", 7, Request::Array(bulk(1_000, 50, Order::Fresh))),
        ("array, 131072 any without waiting", 7, Request::Array(bulk(131_072, 0, Order::Any))),
        ("runs, 131072 ordered within 60 s", 7, Request::Runs(bulk(131_072, 60_000, Order::Ordered))),
        ("decode", 7, Request::Decode { id: ID }),
        ("info", 7, Request::Info),
        ("stats", 7, Request::Stats),
        ("provenance", 7, Request::Provenance { id: ID }),
        ("bye", 7, Request::Bye),
        ("seq_next", 7, Request::SeqNext { name: orders }),
        ("seq_next, a name of 3 letters in 7 bytes", 7, Request::SeqNext { name: sequence("注文1") }),
        ("seq_next, the longest name", 7, Request::SeqNext { name: sequence(LONGEST) }),
        ("seq_array, 1000 ordered within 50 ms", 7, Request::SeqArray(seq(1_000, 50, Order::Ordered))),
        ("seq_array, 131072 any without waiting", 7, Request::SeqArray(seq(131_072, 0, Order::Any))),
        ("seq_runs, 100000 ordered within 1 s", 7, Request::SeqRuns(seq(100_000, 1_000, Order::Ordered))),
        ("seq_runs, 100 contiguous", 7, Request::SeqRuns(seq(100, 50, Order::Ordered).contiguous())),
        ("seq_info", 7, Request::SeqInfo { name: orders }),
        ("seq_list, all", 7, Request::SeqList(SeqList { limit: 1_000, prefix: "", after: "" })),
        ("seq_list, 10 of a prefix after a name", 7, Request::SeqList(ten)),
        ("seq_create, all defaults", 7, Request::SeqCreate { name: orders, settings: "" }),
        ("seq_create", 7, Request::SeqCreate { name: orders, settings: r#"{"start":"1000","strict":true}"# }),
        ("seq_alter", 7, Request::SeqAlter { name: orders, changes: r#"{"step":500}"# }),
    ]
}

#[test]
fn requests_are_their_golden_bytes_in_both_directions() {
    let mut golden = vectors("requests.hex");
    for (name, request_id, request) in requests() {
        let bytes = golden.remove(name).unwrap_or_else(|| panic!("no vector {name:?}"));
        let phase = if request.op() == Op::Hello { Phase::Greeting } else { Phase::Serving };
        assert_eq!(parse_whole(&bytes, phase), (request_id, Ok(request)), "{name}");
        let mut out = Vec::new();
        encode_request(&mut out, request_id, &request);
        if name == "next, any, said" {
            // The one request with two spellings: the encoder writes the shorter one.
            out.clear();
            request_next(&mut out, request_id, Order::Any);
            out.push(0);
            out[0] = 1;
        }
        assert_eq!(out, bytes, "{name}");
    }
    assert!(golden.is_empty(), "vectors without a test: {:?}", golden.keys());
}

/// What a server says of an id.
const GRANTED: &str = r#"{"id":"1128275363336683521","issued":"maybe","verdict":"granted"}"#;

pub(crate) fn answers() -> Vec<(String, u64, Answer)> {
    let run = |first, count, stride| Run { first, count, stride };
    let three = vec![run(ID, 199, 1), run(ID + (1 << 22), 100, 1), run(ID + (2 << 22), 1, 1)];
    let opaque = xuid_protocol::HelloReply { face: 2, ..hello_reply() };
    let of_sequence = |op, json: &str| Answer::Sequence { op, json: json.to_owned() };
    let mut answers = vec![
        ("hello", 1, Answer::Hello { head: hello_reply(), server: "0.1.0".to_owned() }),
        ("hello, opaque ids", 1, Answer::Hello { head: opaque, server: "0.1.0".to_owned() }),
        ("ping", 7, Answer::Ping(b"still there?".to_vec())),
        ("next", 7, Answer::Next(ID)),
        ("array, 4 ids", 7, Answer::Array(vec![ID, ID + 1, ID + 2, ID + 4_096])),
        ("runs, 300 ids in 3 runs", 7, Answer::Runs(three)),
        ("runs, 4 ids 4096 apart", 7, Answer::Runs(vec![run(ID, 4, 4_096)])),
        ("decode", 7, Answer::Decode(Decoded { unix_ms: 1_793_155_408_962, worker: 32, sequence: 1 })),
        ("info", 7, Answer::Info(r#"{"version":"0.1.0"}"#.to_owned())),
        ("stats", 7, Answer::Stats("{}".to_owned())),
        ("provenance", 7, Answer::Provenance(GRANTED.to_owned())),
        ("seq_next", 7, Answer::SeqNext(1_001)),
        ("seq_array, 4 numbers", 7, Answer::SeqArray(vec![run(1_001, 3, 1), run(2_001, 1, 1)])),
        ("seq_array, 3 numbers 3 apart", 7, Answer::SeqArray(vec![run(1, 3, 3)])),
        ("seq_runs, 100 numbers in 2 runs", 7, Answer::SeqRuns(vec![run(901, 60, 1), run(2_001, 40, 1)])),
        ("seq_runs, 4 numbers 3 apart", 7, Answer::SeqRuns(vec![run(1, 4, 3)])),
        ("seq_info", 7, of_sequence(Op::SeqInfo, r#"{"name":"orders","next":"1001"}"#)),
        ("seq_list", 7, of_sequence(Op::SeqList, r#"[{"name":"orders","next":"1001"}]"#)),
        ("seq_create", 7, of_sequence(Op::SeqCreate, r#"{"name":"orders","next":"1"}"#)),
        ("seq_alter", 7, of_sequence(Op::SeqAlter, r#"{"name":"orders","next":"1001"}"#)),
        ("bye", 7, Answer::Bye),
        ("goaway", 0, Answer::GoAway),
    ]
    .into_iter()
    .map(|(name, request_id, answer)| (name.to_owned(), request_id, answer))
    .collect::<Vec<_>>();
    for status in &Status::NAMED[1..] {
        let op = match *status {
            Status::VERSION | Status::UNAUTHENTICATED | Status::WRONG_CLUSTER => 0x01,
            Status::UNKNOWN_OP => 0x55,
            Status::COUNT => 0x11,
            Status::NO_SEQUENCE | Status::STORE_AWAY | Status::STORE_BEHIND => 0x30,
            Status::EXISTS | Status::FORBIDDEN => 0x3a,
            _ => 0x10,
        };
        let refusal = if status.is_retryable() {
            Refusal { retry_after_ms: 250, ..Refusal::new(*status, "später") }
        } else {
            Refusal::new(*status, "no")
        };
        answers.push((format!("error {status}"), 7, Answer::Error { op, refusal }));
    }
    answers
}

/// Whether a reply says what the answer does.
pub(crate) fn says(reply: &Reply<'_>, answer: &Answer) -> bool {
    match (reply, answer) {
        (Reply::Hello(reply), Answer::Hello { head, server }) => {
            *reply == xuid_protocol::HelloReply { server, ..*head }
        }
        (Reply::Ping(bytes), Answer::Ping(sent)) => bytes == sent,
        (Reply::Next(id), Answer::Next(sent) | Answer::SeqNext(sent)) => id == sent,
        (Reply::Array(ids), Answer::Array(sent)) => {
            ids.iter().eq(sent.iter().copied()) && ids.len() == sent.len()
        }
        (Reply::Array(ids), Answer::SeqArray(sent)) => ids.iter().eq(sent.iter().copied().flatten()),
        (Reply::Runs(runs), Answer::Runs(sent) | Answer::SeqRuns(sent)) => {
            runs.iter().eq(sent.iter().copied())
                && runs.ids() == sent.iter().map(|run| run.count).sum::<u32>()
        }
        (Reply::Decode(decoded), Answer::Decode(sent)) => decoded == sent,
        (Reply::Info(json), Answer::Info(sent))
        | (Reply::Stats(json), Answer::Stats(sent))
        | (Reply::Provenance(json), Answer::Provenance(sent))
        | (Reply::Sequence(json), Answer::Sequence { json: sent, .. }) => json == sent,
        (Reply::Bye, Answer::Bye) | (Reply::GoAway, Answer::GoAway) => true,
        (Reply::Error(error), Answer::Error { refusal, .. }) => {
            (error.status, error.retry_after_ms) == (refusal.status, refusal.retry_after_ms)
                && error.text == refusal.text
        }
        _ => false,
    }
}

#[test]
fn replies_are_their_golden_bytes_in_both_directions() {
    let mut golden = vectors("replies.hex");
    for (name, sent_id, answer) in answers() {
        let bytes = golden.remove(&name).unwrap_or_else(|| panic!("no vector {name:?}"));
        match parse_reply(&bytes, 4_096).unwrap() {
            ParsedReply::Frame { consumed, request_id, op, reply } => {
                assert_eq!((consumed, request_id, op), (bytes.len(), sent_id, bytes[4] & 0x7f), "{name}");
                assert!(says(&reply, &answer), "{name}: {reply:?}");
            }
            incomplete @ ParsedReply::Incomplete { .. } => panic!("{name}: {incomplete:?}"),
        }
        let mut out = Vec::new();
        answer.encode(&mut out, sent_id);
        assert_eq!(out, bytes, "{name}");
    }
    assert!(golden.is_empty(), "vectors without a test: {:?}", golden.keys());
}

#[test]
fn refused_requests_get_the_status_and_the_end_that_their_vectors_name() {
    let limits = Limits::default();
    let golden = vectors("refused.hex");
    assert!(golden.len() > 30);
    for (name, bytes) in golden {
        let parts: Vec<_> = name.splitn(3, ": ").collect();
        let phase = if parts[0] == "greeting" { Phase::Greeting } else { Phase::Serving };
        let (status, end) = parts[1].split_once(' ').unwrap();
        let status = Status::from_code(u16::from_str_radix(status, 16).unwrap());
        let (request_id, request) = parse_whole(&bytes, phase);
        let refusal = match request {
            Ok(Request::Array(bulk) | Request::Runs(bulk)) => limits.check_count(bulk.count).unwrap_err(),
            Ok(Request::SeqArray(asked) | Request::SeqRuns(asked)) => {
                limits.check_count(asked.bulk.count).unwrap_err()
            }
            Ok(Request::SeqList(list)) => limits.check_list(list.limit).unwrap_err(),
            Ok(request) => panic!("{name}: accepted as {request:?}"),
            Err(refusal) => refusal,
        };
        assert_eq!(
            (request_id, refusal.status, refusal.closes),
            (99, status, end == "closes"),
            "{name}: {refusal}"
        );
        // What was wrong, the limit, and what to do after a colon.
        assert!(refusal.text.len() > 20 && refusal.text.contains(": "), "{name}: {refusal}");
    }
}

#[test]
fn another_protocol_is_answered_with_its_golden_bytes() {
    let mut golden = vectors("foreign.hex");
    let admin = &"127.0.0.1:7655" as &dyn std::fmt::Display;
    for (name, first, admin) in [
        ("HTTP, admin port on 127.0.0.1:7655", &b"GET / HTTP/1.1\r\n"[..], Some(admin)),
        ("HTTP, no admin port", b"POST ", None),
        ("TLS", &[0x16, 0x03, 0x01, 0x02, 0x00], Some(admin)),
        ("a damaged preface, admin port on 127.0.0.1:7655", b"\x89XUID\n", Some(admin)),
        ("anything else, admin port on 127.0.0.1:7655", b"EHLO x\r\n", Some(admin)),
        ("anything else, no admin port", &[0], None),
    ] {
        let Preface::Foreign(foreign) = check_preface(first) else { panic!("{name}: taken for XUID/1") };
        let mut out = Vec::new();
        foreign_answer(&mut out, foreign, admin);
        let bytes = golden.remove(name).unwrap_or_else(|| panic!("no vector {name:?}"));
        assert_eq!(out, bytes, "{name}: {}", String::from_utf8_lossy(&out));
    }
    assert!(golden.is_empty(), "vectors without a test: {:?}", golden.keys());
}

#[test]
fn every_op_and_every_status_has_a_vector() {
    let ops = |file| vectors(file).values().map(|bytes| bytes[4] & 0x7f).collect::<BTreeSet<_>>();
    for op in Op::ALL {
        assert!(ops("replies.hex").contains(&op.code()), "{op}");
        assert!(op == Op::GoAway || ops("requests.hex").contains(&op.code()), "{op}");
        assert_eq!(Op::from_code(op.code()), Some(op));
    }
    let statuses: BTreeSet<_> =
        vectors("replies.hex").values().map(|bytes| u16::from_le_bytes([bytes[6], bytes[7]])).collect();
    assert_eq!(statuses, Status::NAMED.map(Status::code).into_iter().collect());
    assert_eq!(check_preface(b"\x89XUID\r\n\x1a"), Preface::Whole);
}

/// The hexadecimal of the worked example: indented, and a comment behind three spaces.
fn documented_example() -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, section) = text.split_once("\n## A worked example\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    let digits = lines.flat_map(|line| line.split("   ").next().unwrap_or_default().split_whitespace());
    digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_worked_example_of_the_specification_is_what_the_codec_writes() {
    let mut out = xuid_protocol::PREFACE.to_vec();
    encode_request(&mut out, 1, &Request::Hello(Hello::new("golden")));
    Answer::Hello { head: hello_reply(), server: "0.1.0".to_owned() }.encode(&mut out, 1);
    encode_request(&mut out, 7, &Request::Next { order: Order::Any });
    Answer::Next(ID).encode(&mut out, 7);
    let bulk = Bulk { count: 1_000, wait_ms: 50, order: Order::Fresh };
    encode_request(&mut out, 8, &Request::Array(bulk));
    let refusal = Refusal { retry_after_ms: 250, ..Refusal::new(Status::OVERLOADED, "no") };
    Answer::Error { op: Op::Array.code(), refusal }.encode(&mut out, 8);
    assert_eq!(documented_example(), out);
}
