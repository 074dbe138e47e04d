//! Replies that need no waiting, and refusals in the words of the protocol.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use xuid_engine::Id;
use xuid_protocol::{
    Decoded, EARLY_PINGS, Hello, HelloReply, Limits, Op, PREFACE, Refusal, Request, Status, reply_decode,
    reply_error, reply_hello, reply_info, reply_ping,
};

use crate::fronts::refusals::{SOON, TOO_MANY_CONNECTIONS, unauthenticated};
use crate::state::access::Admitted;
use crate::state::beside::{NoThread, beside};
use crate::state::metrics;
use crate::state::server::{Server, VERSION};

/// Greets a client, or says why not: version, then token, then cluster, so that a stranger learns as little as
/// possible. Returns what it may do.
pub(super) fn hello(
    server: &Server,
    limits: &Limits,
    request_id: u64,
    hello: &Hello<'_>,
    out: &mut Vec<u8>,
) -> Result<Admitted, Refusal> {
    let version = hello.pick_version()?;
    let admitted = server.access.admit(hello.token).ok_or_else(|| unauthenticated(hello.token, "HELLO"))?;
    let cluster = server.genesis.cluster;
    hello.check_cluster(cluster)?;
    let layout = server.genesis.layout;
    let reply = HelloReply {
        version,
        features: 0,
        cluster,
        epoch_ms: layout.epoch_ms(),
        tick_us: layout.tick_us(),
        time_bits: layout.time_bits(),
        worker_bits: layout.worker_bits(),
        sequence_bits: layout.sequence_bits(),
        face: layout.face().code(),
        limits: *limits,
        server: VERSION,
    };
    reply_hello(out, request_id, &reply);
    let token = admitted.token.as_ref().map(|(name, _)| &**name);
    tracing::debug!(client = ?hello.client_name(), token, "greeted");
    Ok(admitted)
}

/// A client that has said HELLO may send as many PINGs as it likes; one that has not proved its right yet may not.
pub(super) fn check_early_pings(so_far: u32) -> Result<(), Refusal> {
    if so_far < EARLY_PINGS {
        return Ok(());
    }
    let text = format!("{EARLY_PINGS} PINGs may come before HELLO, and this is one more: say HELLO first");
    Err(Refusal::new(Status::BAD_REQUEST, text).closing())
}

/// Answers what needs no ids.
pub(super) fn at_once(server: &Server, request_id: u64, request: Request<'_>, out: &mut Vec<u8>) {
    match request {
        Request::Ping(bytes) => reply_ping(out, request_id, bytes),
        Request::Decode { id } => {
            // The parser let only 63 bits through.
            let parts = server.engine.decode(Id::from_raw(id).unwrap_or_default());
            let decoded = Decoded { unix_ms: parts.unix_ms, worker: parts.worker, sequence: parts.sequence };
            reply_decode(out, request_id, decoded);
        }
        Request::Info => reply_info(out, request_id, &server.info().to_string()),
        _ => unreachable!("answered by the session itself"),
    }
}

/// What is known of where an id came from. It is read from files and asked of the registry, one request at a time. Of one
/// connection, whose turn `own` is, one stands in line with those of others: a thousand of them hold up nobody else's.
pub(super) async fn provenance(server: Arc<Server>, own: Arc<Semaphore>, id: u64) -> Result<String, Refusal> {
    // Neither is ever closed.
    let _own = own.acquire().await;
    let turns = Arc::clone(&server.origins_turn);
    let judged = in_turn(turns, move || server.provenance(Id::from_raw(id).unwrap_or_default()));
    judged.await?.map(|found| found.to_string()).ok_or_else(failed)
}

/// The figures. All names are asked for them, so they are made beside the connections of this thread, in the same turns as
/// [`provenance`].
pub(super) async fn stats(server: Arc<Server>, own: Arc<Semaphore>) -> Result<String, Refusal> {
    // Neither is ever closed.
    let _own = own.acquire().await;
    let turns = Arc::clone(&server.stats_turn);
    in_turn(turns, move || Value::Object(metrics::as_json(&server)).to_string()).await
}

/// Does work that blocks in its turn, in a task of its own: a connection whose client reads nothing looks at nothing that it
/// waits for, and would have the turn for as long. Who is gone stands in no line. An error if the work panics, or has no
/// thread.
async fn in_turn<T: Send + 'static>(
    turns: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        // It is never closed.
        let turn = turns.acquire_owned().await;
        let done = beside("xuid-question", move || {
            // Held to the end of it, which comes even if its asker has left: one that asks and leaves again and again must not
            // have many of them at work.
            let _turn = turn;
            work()
        });
        done.map_err(|error| no_thread(&error))?.await.map_err(|_| failed())
    });
    let done = task.join_next().await.and_then(Result::ok);
    done.unwrap_or_else(|| Err(failed()))
}

/// The next request may have one.
#[cold]
fn no_thread(error: &NoThread) -> Refusal {
    Refusal::new(Status::OVERLOADED, error.to_string()).retry_after(SOON)
}

fn failed() -> Refusal {
    let text = "the server failed on this request, and said why in its log: report it";
    Refusal::new(Status::INTERNAL, text)
}

/// A server without sequences is one that does not know their ops.
#[cold]
pub(super) fn no_sequences(op: Op) -> Refusal {
    let text = format!(
        "{op} is for named sequences, and this server has none (sequences is off): ask another server"
    );
    Refusal::new(Status::UNKNOWN_OP, text)
}

/// What one connection too many is told, in place of a reply to its HELLO.
pub(crate) fn refuse_connection() -> Vec<u8> {
    let mut out = Vec::new();
    let refusal = Refusal::new(Status::OVERLOADED, TOO_MANY_CONNECTIONS).retry_after(SOON);
    reply_error(&mut out, 0, Op::Hello.code(), &refusal);
    out
}

/// What a client is told that speaks anything but TLS to a port of TLS, by its first byte.
pub(crate) fn refuse_plain(first: u8) -> Vec<u8> {
    if first != PREFACE[0] {
        return b"This port speaks XUID/1, a binary protocol, within TLS, and this is not TLS.\r\n".to_vec();
    }
    let text = "this port speaks TLS only, and this is plain XUID/1: give the client a CA and TLS (--tls --ca FILE for xuid)";
    let mut out = Vec::new();
    reply_error(&mut out, 0, Op::Hello.code(), &Refusal::new(Status::BAD_REQUEST, text).closing());
    out
}
