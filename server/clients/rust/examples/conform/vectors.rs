//! The golden vectors, by the codec of this client, which is also the server's.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use xuid_protocol::{
    ArrayWriter, Bulk, HEADER_LEN, Header, Ids, Limits, Op, ParsedReply, ParsedRequest, Phase, REPLY_BIT,
    Refusal, Reply, Request, Runs, RunsWriter, SeqBulk, goaway, parse_reply, parse_request, reply_bye,
    reply_decode, reply_error, reply_hello, reply_id, reply_info, reply_ping, reply_provenance,
    reply_sequence, reply_stats, request_array, request_bye, request_decode, request_hello, request_info,
    request_next, request_ping, request_provenance, request_runs, request_seq_alter, request_seq_array,
    request_seq_create, request_seq_info, request_seq_list, request_seq_next, request_seq_runs,
    request_stats, seq_id_reply,
};

/// More than any vector has.
const MAX_REPLY: u32 = 1 << 20;

/// Checks each vector of the file; how many were encoded, decoded and refused. The error names the first that failed.
pub(crate) fn check(file: &str) -> Result<Value> {
    let vectors: Vec<Value> = serde_json::from_str(&fs::read_to_string(file)?)?;
    let (mut encoded, mut decoded, mut refused) = (0, 0, 0);
    for vector in &vectors {
        let text = |field: &str| vector[field].as_str().unwrap_or_default();
        let named = || format!("{} '{}'", text("kind"), text("name"));
        if vector["kind"] == "refused" {
            check_refused(vector).with_context(named)?;
            refused += 1;
            continue;
        }
        let (values, again) = decode(vector).with_context(named)?;
        ensure!(values == vector["frame"], "{}: it was read as {values}", named());
        decoded += 1;
        if vector["encode"] == true {
            ensure!(again == bytes(vector)?, "{}: {again:02x?} was written", named());
            encoded += 1;
        }
    }
    Ok(json!({ "encoded": encoded, "decoded": decoded, "refused": refused }))
}

/// The values of a frame, as the vectors have them, and the bytes that the codec makes of what it read.
fn decode(vector: &Value) -> Result<(Value, Vec<u8>)> {
    let bytes = bytes(vector)?;
    let header = header(&bytes)?;
    let mut again = Vec::new();
    let body = if vector["kind"] == "request" {
        let request = request(&bytes, vector)?.context("it is refused")?;
        encode_request(&mut again, header.request_id, &request)?;
        asked(&request)?
    } else {
        let ParsedReply::Frame { consumed, reply, .. } = parse_reply(&bytes, MAX_REPLY)? else {
            bail!("more bytes are awaited");
        };
        ensure!(consumed == bytes.len(), "its length is read as {consumed}");
        encode_reply(&mut again, header, &reply);
        answered(&reply)?
    };
    let Header { op, status, request_id, .. } = header;
    Ok((json!({ "op": op, "status": status, "request_id": request_id.to_string(), "body": body }), again))
}

fn check_refused(vector: &Value) -> Result<()> {
    let bytes = bytes(vector)?;
    let (header, frame) = (header(&bytes)?, &vector["frame"]);
    let request_id = frame["request_id"].as_str().unwrap_or_default().parse::<u64>();
    let is_read = frame["op"] == header.op && request_id == Ok(header.request_id);
    ensure!(is_read, "its header is read as {header:?}");
    let limits = Limits::default();
    let refusal = match request(&bytes, vector)? {
        Err(refusal) => Some(refusal),
        Ok(Request::Array(bulk) | Request::Runs(bulk)) => limits.check_count(bulk.count).err(),
        Ok(Request::SeqArray(asked) | Request::SeqRuns(asked)) => limits.check_count(asked.bulk.count).err(),
        Ok(Request::SeqList(list)) => limits.check_list(list.limit).err(),
        Ok(_) => None,
    };
    let refusal = refusal.context("it was taken")?;
    let is_so = frame["status"] == refusal.status.code() && frame["body"]["closes"] == refusal.closes;
    ensure!(is_so, "it is refused otherwise: {refusal:?}");
    Ok(())
}

fn bytes(vector: &Value) -> Result<Vec<u8>> {
    let digits = vector["hex"].as_str().context("no bytes")?.as_bytes();
    let byte = |pair: &[u8]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?);
    digits.chunks(2).map(byte).collect()
}

fn header(bytes: &[u8]) -> Result<Header> {
    let head = bytes.first_chunk::<HEADER_LEN>().context("it is shorter than a header")?;
    Ok(Header::decode(*head))
}

/// As a server reads it.
fn request<'a>(bytes: &'a [u8], vector: &Value) -> Result<std::result::Result<Request<'a>, Refusal>> {
    let phase = if vector["phase"] == "greeting" { Phase::Greeting } else { Phase::Serving };
    match parse_request(bytes, phase, Limits::default().max_body) {
        ParsedRequest::Frame { consumed, request, .. } => {
            ensure!(consumed == bytes.len() || request.is_err(), "its length is read as {consumed}");
            Ok(request)
        }
        ParsedRequest::Incomplete { need } => bail!("it is incomplete, {need} bytes are awaited"),
    }
}

fn encode_request(out: &mut Vec<u8>, request_id: u64, request: &Request<'_>) -> Result<()> {
    match *request {
        Request::Hello(hello) => request_hello(out, request_id, &hello)?,
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
    Ok(())
}

/// The values of a request's body.
fn asked(request: &Request<'_>) -> Result<Value> {
    Ok(match request {
        Request::Hello(hello) => json!({
            "min_version": hello.min_version, "max_version": hello.max_version, "features": hello.features,
            "cluster": hello.cluster.to_string(), "token": str::from_utf8(hello.token)?,
            "client": str::from_utf8(hello.client)?,
        }),
        Request::Ping(bytes) => json!({ "bytes": str::from_utf8(bytes)? }),
        Request::Next { order } => json!({ "order": order.code() }),
        Request::Array(asked) | Request::Runs(asked) => bulk(*asked),
        Request::Decode { id } | Request::Provenance { id } => json!({ "id": id.to_string() }),
        Request::Info | Request::Stats | Request::Bye => json!({}),
        Request::SeqNext { name } | Request::SeqInfo { name } => json!({ "name": name.as_str() }),
        Request::SeqArray(asked) => of_sequence(asked),
        Request::SeqRuns(asked) => {
            let mut value = of_sequence(asked);
            value["contiguous"] = asked.contiguous.into();
            value
        }
        Request::SeqList(list) => {
            json!({ "limit": list.limit, "prefix": list.prefix, "after": list.after })
        }
        Request::SeqCreate { name, settings: json } | Request::SeqAlter { name, changes: json } => {
            json!({ "name": name.as_str(), "json": json })
        }
    })
}

fn bulk(bulk: Bulk) -> Value {
    json!({ "count": bulk.count, "wait_ms": bulk.wait_ms, "order": bulk.order.code() })
}

fn of_sequence(asked: &SeqBulk<'_>) -> Value {
    let mut value = bulk(asked.bulk);
    value["name"] = asked.name.as_str().into();
    value
}

fn encode_reply(out: &mut Vec<u8>, header: Header, reply: &Reply<'_>) {
    let (id, op) = (header.request_id, Op::from_code(header.op & !REPLY_BIT));
    match (reply, op) {
        (Reply::Hello(hello), _) => reply_hello(out, id, hello),
        (Reply::Ping(bytes), _) => reply_ping(out, id, bytes),
        (Reply::Next(number), Some(Op::SeqNext)) => out.extend(seq_id_reply(id, *number)),
        (Reply::Next(number), _) => reply_id(out, id, *number),
        (Reply::Array(ids), op) => encode_array(out, id, op, *ids),
        (Reply::Runs(runs), op) => encode_runs(out, id, op, *runs),
        (Reply::Decode(decoded), _) => reply_decode(out, id, *decoded),
        (Reply::Info(text), _) => reply_info(out, id, text),
        (Reply::Stats(text), _) => reply_stats(out, id, text),
        (Reply::Provenance(text), _) => reply_provenance(out, id, text),
        (Reply::Sequence(text), Some(op)) => reply_sequence(out, op, id, text),
        // Of an op without a name no such reply is read.
        (Reply::Sequence(_), None) => {}
        (Reply::Bye, _) => reply_bye(out, id),
        (Reply::GoAway, _) => goaway(out),
        (Reply::Error(error), _) => {
            let refusal = Refusal::new(error.status, error.text.clone().into_owned());
            let refusal = Refusal { retry_after_ms: error.retry_after_ms, ..refusal };
            reply_error(out, id, header.op & !REPLY_BIT, &refusal);
        }
    }
}

fn encode_array(out: &mut Vec<u8>, id: u64, op: Option<Op>, ids: Ids<'_>) {
    let count = ids.len() as u32;
    let mut writer = if op == Some(Op::SeqArray) {
        ArrayWriter::of_sequence(out, id, count)
    } else {
        ArrayWriter::begin(out, id, count)
    };
    ids.iter().for_each(|each| writer.ids(&[each]));
    writer.finish();
}

fn encode_runs(out: &mut Vec<u8>, id: u64, op: Option<Op>, runs: Runs<'_>) {
    let mut writer = if op == Some(Op::SeqRuns) {
        RunsWriter::of_sequence(out, id, runs.ids())
    } else {
        RunsWriter::begin(out, id, runs.ids())
    };
    runs.iter().for_each(|run| writer.push(run));
    writer.finish();
}

/// The values of a reply's body.
fn answered(reply: &Reply<'_>) -> Result<Value> {
    Ok(match reply {
        Reply::Hello(hello) => json!({
            "version": hello.version, "features": hello.features, "cluster": hello.cluster.to_string(),
            "epoch_ms": hello.epoch_ms.to_string(), "tick_us": hello.tick_us, "time_bits": hello.time_bits,
            "worker_bits": hello.worker_bits, "sequence_bits": hello.sequence_bits, "face": hello.face,
            "max_body": hello.limits.max_body, "max_count": hello.limits.max_count,
            "max_in_flight": hello.limits.max_in_flight, "idle_ms": hello.limits.idle_ms, "server": hello.server,
        }),
        Reply::Ping(bytes) => json!({ "bytes": str::from_utf8(bytes)? }),
        Reply::Next(id) => json!({ "id": id.to_string() }),
        Reply::Array(ids) => json!({ "ids": ids.iter().map(|id| id.to_string()).collect::<Vec<_>>() }),
        Reply::Runs(runs) => {
            let all: Vec<_> = runs
                .iter()
                .map(
                    |run| json!({ "first": run.first.to_string(), "count": run.count, "stride": run.stride }),
                )
                .collect();
            json!({ "count": runs.ids(), "runs": all })
        }
        Reply::Decode(decoded) => json!({
            "unix_ms": decoded.unix_ms.to_string(), "worker": decoded.worker, "sequence": decoded.sequence,
        }),
        Reply::Info(json) | Reply::Stats(json) | Reply::Provenance(json) | Reply::Sequence(json) => {
            json!({ "json": json })
        }
        Reply::Bye | Reply::GoAway => json!({}),
        Reply::Error(error) => json!({ "retry_after_ms": error.retry_after_ms, "text": error.text }),
    })
}
