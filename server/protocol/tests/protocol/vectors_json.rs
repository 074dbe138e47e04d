//! `golden/vectors.json` says what the files of hexadecimal say, for codecs of other languages: bytes and values.

use std::fmt::Write;

use serde_json::{Value, json};
use xuid_protocol::{Bulk, Request, Run, SeqBulk};

use crate::golden::{answers, requests};
use crate::values::Answer;
use crate::vectors::vectors;

/// What the file has to be: one vector a line.
fn wanted() -> String {
    let mut all = Vec::new();
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let golden = vectors("requests.hex");
    for (name, request_id, request) in requests() {
        let (bytes, op) = (&golden[name], request.op().code());
        let phase = if op == 0x01 { "greeting" } else { "serving" };
        // The request with two spellings.
        let encode = name != "next, any, said";
        let frame = frame(op, 0, request_id, &asked(&request));
        all.push(
            json!({"name": name, "kind": "request", "phase": phase, "hex": hex(bytes), "encode": encode,
            "frame": frame}),
        );
    }
    let golden = vectors("replies.hex");
    for (name, request_id, answer) in answers() {
        let bytes = &golden[&name];
        let phase = if bytes[4] & 0x7f == 0x01 { "greeting" } else { "serving" };
        let status = u16::from_le_bytes([bytes[6], bytes[7]]);
        let frame = frame(bytes[4], status, request_id, &answered(&answer));
        all.push(json!({"name": name, "kind": "reply", "phase": phase, "hex": hex(bytes), "encode": true,
            "frame": frame}));
    }
    for (name, bytes) in vectors("refused.hex") {
        let parts: Vec<_> = name.splitn(3, ": ").collect();
        let (status, end) = parts[1].split_once(' ').unwrap();
        let status = u16::from_str_radix(status, 16).unwrap();
        let frame = frame(bytes[4], status, 99, &json!({"closes": end == "closes"}));
        all.push(json!({"name": parts[2], "kind": "refused", "phase": parts[0], "hex": hex(&bytes), "encode": false,
            "frame": frame}));
    }
    let mut text = "[\n".to_owned();
    for (at, vector) in all.iter().enumerate() {
        let comma = if at + 1 < all.len() { "," } else { "" };
        writeln!(text, "{vector}{comma}").unwrap();
    }
    text + "]\n"
}

fn frame(op: u8, status: u16, request_id: u64, body: &Value) -> Value {
    json!({"op": op, "status": status, "request_id": request_id.to_string(), "body": body})
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn bulk(bulk: Bulk) -> Value {
    json!({"count": bulk.count, "wait_ms": bulk.wait_ms, "order": bulk.order.code()})
}

fn asked(request: &Request<'_>) -> Value {
    let of_sequence = |SeqBulk { name, bulk, .. }: &SeqBulk<'_>| json!({"count": bulk.count, "wait_ms": bulk.wait_ms, "order": bulk.order.code(), "name": name.as_str()});
    match request {
        Request::Hello(hello) => json!({
            "min_version": hello.min_version, "max_version": hello.max_version, "features": hello.features,
            "cluster": hello.cluster.to_string(), "token": text(hello.token), "client": text(hello.client),
        }),
        Request::Ping(bytes) => json!({"bytes": text(bytes)}),
        Request::Next { order } => json!({"order": order.code()}),
        Request::Array(asked) | Request::Runs(asked) => bulk(*asked),
        Request::Decode { id } | Request::Provenance { id } => json!({"id": id.to_string()}),
        Request::Info | Request::Stats | Request::Bye => json!({}),
        Request::SeqNext { name } | Request::SeqInfo { name } => json!({"name": name.as_str()}),
        Request::SeqArray(asked) => of_sequence(asked),
        Request::SeqRuns(asked) => {
            let mut value = of_sequence(asked);
            value["contiguous"] = asked.contiguous.into();
            value
        }
        Request::SeqList(list) => json!({"limit": list.limit, "prefix": list.prefix, "after": list.after}),
        Request::SeqCreate { name, settings: json } | Request::SeqAlter { name, changes: json } => {
            json!({"name": name.as_str(), "json": json})
        }
    }
}

fn answered(answer: &Answer) -> Value {
    let ids = |ids: &mut dyn Iterator<Item = u64>| {
        let ids: Vec<_> = ids.map(|id| id.to_string()).collect();
        json!({"ids": ids})
    };
    match answer {
        Answer::Hello { head, server } => json!({
            "version": head.version, "features": head.features, "cluster": head.cluster.to_string(),
            "epoch_ms": head.epoch_ms.to_string(), "tick_us": head.tick_us, "time_bits": head.time_bits,
            "worker_bits": head.worker_bits, "sequence_bits": head.sequence_bits, "face": head.face,
            "max_body": head.limits.max_body,
            "max_count": head.limits.max_count, "max_in_flight": head.limits.max_in_flight,
            "idle_ms": head.limits.idle_ms, "server": server,
        }),
        Answer::Ping(bytes) => json!({"bytes": text(bytes)}),
        Answer::Next(id) | Answer::SeqNext(id) => json!({"id": id.to_string()}),
        Answer::Array(sent) => ids(&mut sent.iter().copied()),
        Answer::SeqArray(runs) => ids(&mut runs.iter().copied().flatten()),
        Answer::Runs(runs) | Answer::SeqRuns(runs) => {
            let run = |Run { first, count, stride }: &Run| json!({"first": first.to_string(), "count": count, "stride": stride});
            let count: u32 = runs.iter().map(|run| run.count).sum();
            json!({"count": count, "runs": runs.iter().map(run).collect::<Vec<_>>()})
        }
        Answer::Decode(decoded) => json!({
            "unix_ms": decoded.unix_ms.to_string(), "worker": decoded.worker, "sequence": decoded.sequence,
        }),
        Answer::Info(json)
        | Answer::Stats(json)
        | Answer::Provenance(json)
        | Answer::Sequence { json, .. } => json!({"json": json}),
        Answer::Bye | Answer::GoAway => json!({}),
        Answer::Error { refusal, .. } => {
            json!({"retry_after_ms": refusal.retry_after_ms, "text": refusal.text})
        }
    }
}

/// After a change of the files of hexadecimal: `XUID_WRITE_GOLDEN=1 cargo test -p xuid-protocol --test protocol`.
#[test]
fn the_vectors_in_json_are_those_in_hexadecimal() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/vectors.json");
    let wanted = wanted();
    if std::env::var_os("XUID_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    // In which order an object has its fields depends on how this was built.
    let read = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap();
    let (found, wanted) = (read(&found), read(&wanted));
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found, wanted);
    }
    assert_eq!(found.len(), wanted.len());
}
