//! The frames of XUID/1: encode and parse, each beside a copy of the same bytes.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use xuid_protocol::{
    ArrayWriter, BadReply, Bulk, ClusterId, Hello, HelloReply, Limits, Order, ParsedReply, ParsedRequest,
    Phase, Reply, Request, RunsWriter, parse_reply, parse_request, reply_hello, reply_id, request_array,
    request_hello, request_next,
};

/// What a reader is ready to hold.
const MAX_BODY: u32 = 1 << 21;

/// Ids of an ARRAY.
const ARRAY: u32 = 4_096;

/// A RUNS of 131,072 ids, a tick a run, as a burst gives it.
const RUNS: u32 = 32;

/// A raw id of the years this runs in.
const ID: u64 = 1_128_275_363_336_683_521;

/// Each request and reply.
pub(crate) fn all(criterion: &mut Criterion) {
    let bulk = Bulk::new(ARRAY, Order::Any, Duration::from_millis(50));
    request(criterion, "NEXT request", 1, Phase::Serving, |out| request_next(out, 7, Order::Any));
    request(criterion, "ARRAY request", 1, Phase::Serving, |out| request_array(out, 7, bulk));
    request(criterion, "HELLO request", 1, Phase::Greeting, |out| {
        let hello = request_hello(out, 7, &Hello::new("a client of a bench"));
        debug_assert!(hello.is_ok(), "a short name");
    });
    reply(criterion, "NEXT reply", 1, |out| reply_id(out, 7, ID));
    reply(criterion, "ARRAY reply of 4,096", u64::from(ARRAY), |out| {
        let mut writer = ArrayWriter::begin(out, 7, ARRAY);
        writer.run(ID, ARRAY);
        writer.finish();
    });
    reply(criterion, "RUNS reply of 131,072 in 32 runs", u64::from(RUNS), |out| {
        let mut writer = RunsWriter::begin(out, 7, RUNS * ARRAY);
        for tick in 0..u64::from(RUNS) {
            writer.run(ID + (tick << 22), ARRAY);
        }
        writer.finish();
    });
    reply(criterion, "HELLO reply", 1, |out| reply_hello(out, 7, &hello_reply()));
}

fn hello_reply() -> HelloReply<'static> {
    HelloReply {
        version: 1,
        features: 0,
        cluster: ClusterId::from_bytes([7; 16]),
        epoch_ms: 1_524_153_600_000,
        tick_us: 1_000,
        time_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        face: 0,
        limits: Limits::default(),
        server: "xuid 0.1.0",
    }
}

fn request(
    criterion: &mut Criterion,
    name: &str,
    elements: u64,
    phase: Phase,
    encode: impl Fn(&mut Vec<u8>) + Copy,
) {
    let mut frame = Vec::new();
    encode(&mut frame);
    let parsed = parse_request(&frame, phase, MAX_BODY);
    let ParsedRequest::Frame { consumed, request_id, request, .. } = parsed else {
        panic!("{name}: the frame is not whole")
    };
    assert_eq!((consumed, request_id), (frame.len(), 7), "{name}");
    assert!(request.is_ok(), "{name}: {request:?}");
    assert!(matches!(request, Ok(Request::Next { .. } | Request::Array(_) | Request::Hello(_))), "{name}");
    group(criterion, name, elements, &frame, encode, |bytes| {
        black_box(parse_request(bytes, phase, MAX_BODY));
    });
}

fn reply(criterion: &mut Criterion, name: &str, elements: u64, encode: impl Fn(&mut Vec<u8>) + Copy) {
    let mut frame = Vec::new();
    encode(&mut frame);
    let parsed = parse_reply(&frame, MAX_BODY);
    let Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) = parsed else {
        panic!("{name}: the frame is not whole")
    };
    assert_eq!((consumed, request_id), (frame.len(), 7), "{name}");
    match reply {
        Reply::Next(id) => assert_eq!(id, ID),
        Reply::Array(ids) => assert!(ids.iter().eq(ID..ID + u64::from(ARRAY)), "{name}"),
        Reply::Runs(runs) => assert_eq!(runs.iter().count(), RUNS as usize, "{name}"),
        Reply::Hello(hello) => assert_eq!(hello, hello_reply()),
        other => panic!("{name}: {other:?}"),
    }
    group(criterion, name, elements, &frame, encode, |bytes| {
        black_box(walk(&parse_reply(bytes, MAX_BODY)));
    });
}

/// Looks at every id and run, as a client does: a parsed reply only borrows its bytes.
fn walk(parsed: &Result<ParsedReply<'_>, BadReply>) -> u64 {
    match parsed {
        Ok(ParsedReply::Frame { reply: Reply::Next(id), .. }) => *id,
        Ok(ParsedReply::Frame { reply: Reply::Array(ids), .. }) => ids.iter().fold(0, |all, id| all ^ id),
        Ok(ParsedReply::Frame { reply: Reply::Runs(runs), .. }) => {
            runs.iter().fold(0, |all, run| all ^ run.first ^ u64::from(run.count))
        }
        Ok(ParsedReply::Frame { reply: Reply::Hello(hello), .. }) => hello.epoch_ms,
        _ => 0,
    }
}

/// Into one buffer in use, as a connection has it.
fn group(
    criterion: &mut Criterion,
    name: &str,
    elements: u64,
    frame: &[u8],
    encode: impl Fn(&mut Vec<u8>),
    parse: impl Fn(&[u8]),
) {
    let mut group = criterion.benchmark_group(name);
    // Seven groups of three: shorter ones will do, since nothing here waits for anything.
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    group.throughput(Throughput::Elements(elements));
    let mut out = Vec::with_capacity(frame.len());
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            encode(black_box(&mut out));
            black_box(&out);
        });
    });
    group.bench_function("parse", |bencher| bencher.iter(|| parse(black_box(frame))));
    group.bench_function("a copy of the bytes", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&mut out).extend_from_slice(black_box(frame));
            black_box(&out);
        });
    });
    group.finish();
}
