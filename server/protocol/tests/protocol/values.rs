//! Owned requests and replies, how to encode them, and strategies that make them.

use proptest::prelude::*;
use xuid_protocol::{
    ArraySlots, ArrayWriter, Bulk, ClusterId, Decoded, Hello, HelloReply, Limits, Op, Order, Refusal,
    Request, Run, RunsWriter, SeqBulk, SeqList, SequenceName, Status, goaway, reply_bye, reply_decode,
    reply_error, reply_hello, reply_id, reply_info, reply_ping, reply_provenance, reply_sequence,
    reply_stats, request_array, request_bye, request_decode, request_hello, request_info, request_next,
    request_ping, request_provenance, request_runs, request_seq_alter, request_seq_array, request_seq_create,
    request_seq_info, request_seq_list, request_seq_next, request_seq_runs, request_stats, seq_id_reply,
};

/// Appends any request.
pub(crate) fn encode_request(out: &mut Vec<u8>, request_id: u64, request: &Request<'_>) {
    match *request {
        Request::Hello(hello) => request_hello(out, request_id, &hello).unwrap(),
        Request::Ping(bytes) => request_ping(out, request_id, bytes),
        Request::Next { order } => request_next(out, request_id, order),
        Request::Array(bulk) => request_array(out, request_id, bulk),
        Request::Runs(bulk) => request_runs(out, request_id, bulk),
        Request::Decode { id } => request_decode(out, request_id, id),
        Request::Info => request_info(out, request_id),
        Request::Stats => request_stats(out, request_id),
        Request::Provenance { id } => request_provenance(out, request_id, id),
        Request::SeqNext { name } => request_seq_next(out, request_id, name),
        Request::SeqArray(asked) => request_seq_array(out, request_id, asked),
        Request::SeqRuns(asked) => request_seq_runs(out, request_id, asked),
        Request::SeqInfo { name } => request_seq_info(out, request_id, name),
        Request::SeqList(list) => request_seq_list(out, request_id, list),
        Request::SeqCreate { name, settings } => request_seq_create(out, request_id, name, settings),
        Request::SeqAlter { name, changes } => request_seq_alter(out, request_id, name, changes),
        Request::Bye => request_bye(out, request_id),
    }
}

/// What a server may answer, with its own memory.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Hello { head: HelloReply<'static>, server: String },
    Ping(Vec<u8>),
    Next(u64),
    Array(Vec<u64>),
    Runs(Vec<Run>),
    Decode(Decoded),
    Info(String),
    Stats(String),
    Provenance(String),
    SeqNext(u64),
    SeqArray(Vec<Run>),
    SeqRuns(Vec<Run>),
    Sequence { op: Op, json: String },
    Bye,
    GoAway,
    Error { op: u8, refusal: Refusal },
}

impl Answer {
    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, request_id: u64) {
        match self {
            Self::Hello { head, server } => reply_hello(out, request_id, &HelloReply { server, ..*head }),
            Self::Ping(bytes) => reply_ping(out, request_id, bytes),
            Self::Next(id) => reply_id(out, request_id, *id),
            Self::Array(ids) => {
                let mut writer = ArrayWriter::begin(out, request_id, ids.len() as u32);
                writer.ids(ids);
                writer.finish();
            }
            Self::Runs(runs) => {
                let mut writer = RunsWriter::begin(out, request_id, runs.iter().map(|run| run.count).sum());
                for run in runs {
                    writer.push(*run);
                }
                writer.finish();
            }
            Self::Decode(decoded) => reply_decode(out, request_id, *decoded),
            Self::Info(json) => reply_info(out, request_id, json),
            Self::Stats(json) => reply_stats(out, request_id, json),
            Self::Provenance(json) => reply_provenance(out, request_id, json),
            Self::SeqNext(id) => out.extend(seq_id_reply(request_id, *id)),
            Self::SeqArray(runs) => {
                let count = runs.iter().map(|run| run.count).sum();
                let mut frame = vec![0; ArraySlots::frame_len(count)];
                let mut slots = ArraySlots::of_sequence(&mut frame, request_id, count);
                for run in runs {
                    slots.push(*run);
                }
                slots.finish();
                out.extend(frame);
            }
            Self::SeqRuns(runs) => {
                let count = runs.iter().map(|run| run.count).sum();
                let mut writer = RunsWriter::of_sequence(out, request_id, count);
                for run in runs {
                    writer.push(*run);
                }
                writer.finish();
            }
            Self::Sequence { op, json } => reply_sequence(out, *op, request_id, json),
            Self::Bye => reply_bye(out, request_id),
            Self::GoAway => goaway(out),
            Self::Error { op, refusal } => reply_error(out, request_id, *op, refusal),
        }
    }
}

/// The HELLO reply of the golden vector.
pub(crate) fn hello_reply() -> HelloReply<'static> {
    HelloReply {
        version: 1,
        features: 0,
        cluster: "101112131415161718191a1b1c1d1e1f".parse().unwrap(),
        epoch_ms: 1_524_153_600_000,
        tick_us: 1_000,
        time_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        face: 0,
        limits: Limits::default(),
        server: "0.1.0",
    }
}

pub(crate) fn order() -> impl Strategy<Value = Order> {
    prop::sample::select(Order::ALL.to_vec())
}

fn bulk() -> impl Strategy<Value = Bulk> {
    (any::<u32>(), any::<u32>(), order()).prop_map(|(count, wait_ms, order)| Bulk { count, wait_ms, order })
}

/// A legal name.
fn name() -> impl Strategy<Value = SequenceName<'static>> {
    static NAMES: [&str; 5] = ["a", "orders", "order:2026-11-23", "注文 1", LONGEST];
    (0..NAMES.len()).prop_map(|at| sequence(NAMES[at]))
}

/// The sequence of that name.
pub(crate) fn sequence(name: &str) -> SequenceName<'_> {
    SequenceName::new(name.as_bytes()).unwrap()
}

const LONGEST: &str = match str::from_utf8(&[b'z'; SequenceName::MAX]) {
    Ok(text) => text,
    Err(_) => "",
};

fn seq_bulk(contiguous: bool) -> impl Strategy<Value = SeqBulk<'static>> {
    (bulk(), name(), any::<bool>()).prop_map(move |(bulk, name, one_run)| {
        let order = if bulk.order == Order::Fresh { Order::Any } else { bulk.order };
        SeqBulk { name, bulk: Bulk { order, ..bulk }, contiguous: contiguous && one_run }
    })
}

fn seq_request() -> impl Strategy<Value = Request<'static>> {
    let part = || prop::sample::select(vec!["", "o", "order:", LONGEST]);
    let json = || prop::sample::select(vec!["{}", r#"{"start":"7"}"#]);
    prop_oneof![
        name().prop_map(|name| Request::SeqNext { name }),
        seq_bulk(false).prop_map(Request::SeqArray),
        seq_bulk(true).prop_map(Request::SeqRuns),
        name().prop_map(|name| Request::SeqInfo { name }),
        (any::<u32>(), part(), part()).prop_map(|(limit, prefix, after)| Request::SeqList(SeqList {
            limit,
            prefix,
            after
        })),
        (name(), json()).prop_map(|(name, settings)| Request::SeqCreate { name, settings }),
        (name(), json()).prop_map(|(name, changes)| Request::SeqAlter { name, changes }),
    ]
}

/// Requests whose bytes are borrowed from `text`.
pub(crate) fn request(text: &'static [u8]) -> impl Strategy<Value = Request<'static>> {
    assert!(text.len() <= 255);
    let hello = (any::<(u16, u16, u32, [u8; 16])>(), 0..=text.len(), 0..=text.len()).prop_map(
        move |((min_version, max_version, features, cluster), token, client)| {
            Request::Hello(Hello {
                min_version,
                max_version,
                features,
                cluster: ClusterId::from_bytes(cluster),
                token: &text[..token],
                client: &text[..client],
            })
        },
    );
    let other = prop_oneof![
        hello,
        (0..=text.len()).prop_map(|len| Request::Ping(&text[..len])),
        order().prop_map(|order| Request::Next { order }),
        bulk().prop_map(Request::Array),
        bulk().prop_map(Request::Runs),
        (0..1_u64 << 63).prop_map(|id| Request::Decode { id }),
        Just(Request::Info),
        Just(Request::Stats),
        (0..1_u64 << 63).prop_map(|id| Request::Provenance { id }),
        Just(Request::Bye),
    ];
    prop_oneof![other, seq_request()]
}

/// Runs of any stride that never leave 63 bits; neighbours never touch, so that a writer merges none.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (0..1_u64 << 40, 1..100_u32, 2..9_000_u32).prop_map(|(first, count, stride)| Run {
        first,
        count,
        stride,
    });
    prop::collection::vec(run, 1..20)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (prop::sample::select(Status::NAMED[1..].to_vec()), any::<u32>(), ".{0,40}")
        .prop_map(|(status, retry_after_ms, text)| Refusal { retry_after_ms, ..Refusal::new(status, text) })
}

/// Everything a server may send.
pub(crate) fn answer() -> impl Strategy<Value = Answer> {
    let hello = (any::<(u32, u64, u32, [u32; 4])>(), ".{0,40}").prop_map(
        |((features, epoch_ms, tick_us, [max_body, max_count, max_in_flight, idle_ms]), server)| {
            let limits = Limits { max_body, max_count, max_in_flight, idle_ms };
            Answer::Hello {
                head: HelloReply { features, epoch_ms, tick_us, limits, ..hello_reply() },
                server,
            }
        },
    );
    prop_oneof![
        hello,
        prop::collection::vec(any::<u8>(), 0..50).prop_map(Answer::Ping),
        (0..1_u64 << 63).prop_map(Answer::Next),
        prop::collection::vec(0..1_u64 << 63, 1..50).prop_map(Answer::Array),
        runs().prop_map(Answer::Runs),
        any::<(u64, u32, u32)>().prop_map(|(unix_ms, worker, sequence)| Answer::Decode(Decoded {
            unix_ms,
            worker,
            sequence
        })),
        ".{0,40}".prop_map(Answer::Info),
        ".{0,40}".prop_map(Answer::Stats),
        ".{0,40}".prop_map(Answer::Provenance),
        (0..1_u64 << 63).prop_map(Answer::SeqNext),
        // No more numbers than the readers of the tests take.
        runs().prop_map(|runs| Answer::SeqArray(runs.into_iter().take(5).collect())),
        runs().prop_map(Answer::SeqRuns),
        (prop::sample::select(vec![Op::SeqInfo, Op::SeqList, Op::SeqCreate, Op::SeqAlter]), ".{0,40}")
            .prop_map(|(op, json)| Answer::Sequence { op, json }),
        Just(Answer::Bye),
        Just(Answer::GoAway),
        (any::<u8>().prop_filter("GOAWAY is never answered", |op| op & 0x7f != 0x7e), refusal())
            .prop_map(|(op, refusal)| Answer::Error { op, refusal }),
    ]
}
