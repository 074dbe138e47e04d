//! Replies that need no waiting, and refusals in the words of the protocol.

use std::time::Duration;

use serde_json::Value;
use xuid_engine::{Id, IdError, IdErrorKind};
use xuid_protocol::{
    Decoded, EARLY_PINGS, Hello, HelloReply, Limits, Op, PREFACE, Refusal, Request, Status, reply_decode,
    reply_error, reply_hello, reply_info, reply_ping, reply_stats,
};

use crate::state::access::Admitted;
use crate::state::id_limit::{AboveLimit, LimitBy};
use crate::state::metrics;
use crate::state::server::{Server, VERSION};

/// How soon to come back where the engine names no time.
pub(super) const SOON: Duration = Duration::from_secs(1);

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
    let admitted = server.access.admit(hello.token).ok_or_else(|| unauthenticated(hello.token))?;
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
        limits: *limits,
        server: VERSION,
    };
    reply_hello(out, request_id, &reply);
    let token = admitted.token.as_ref().map(|(name, _)| &**name);
    tracing::debug!(client = ?hello.client_name(), token, "greeted");
    Ok(admitted)
}

#[cold]
fn unauthenticated(given: &[u8]) -> Refusal {
    let text = if given.is_empty() {
        "this server wants a token in HELLO, and none was sent: set the client's token (XUID_TOKEN for xuid)"
    } else {
        "the token in HELLO is not this server's: check the client's token (XUID_TOKEN for xuid)"
    };
    Refusal::new(Status::UNAUTHENTICATED, text)
}

/// More ids a second than the client's token or address may take.
#[cold]
pub(super) fn above_limit(above: AboveLimit, count: u32) -> Refusal {
    let AboveLimit { by, ids_per_second, pause } = above;
    let whose = match by {
        LimitBy::Token => "token may take",
        LimitBy::Address => "address (of IPv6: its /64) may take",
    };
    let text = format!(
        "this client's {whose} {ids_per_second} ids a second here, with all that use it, and {count} more are above that: try \
         again after the pause, or ask for fewer"
    );
    // Not 0, which would say that there is no point.
    Refusal::new(Status::RATE, text).retry_after(pause.max(Duration::from_millis(1)))
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
            let parts = server.genesis.layout.decode(Id::from_raw(id).unwrap_or_default());
            let decoded = Decoded { unix_ms: parts.unix_ms, worker: parts.worker, sequence: parts.sequence };
            reply_decode(out, request_id, decoded);
        }
        Request::Info => reply_info(out, request_id, &server.info().to_string()),
        Request::Stats => reply_stats(out, request_id, &Value::Object(metrics::as_json(server)).to_string()),
        _ => unreachable!("answered by the session itself"),
    }
}

/// The protocol's word for why there are no ids. What the engine waits for is not in its error, and a client can't ask
/// its status: it is told here.
#[cold]
pub(super) fn refusal(server: &Server, error: IdError) -> Refusal {
    let status = match error.kind() {
        IdErrorKind::NotReady => Status::NOT_READY,
        IdErrorKind::Overloaded => Status::OVERLOADED,
        IdErrorKind::ClockBehind => Status::CLOCK_BEHIND,
        IdErrorKind::WindowLost => Status::WINDOW_LOST,
        IdErrorKind::Exhausted => Status::EXHAUSTED,
        IdErrorKind::ShuttingDown => Status::SHUTTING_DOWN,
        _ => Status::INTERNAL,
    };
    let notes = match status {
        Status::NOT_READY | Status::WINDOW_LOST | Status::EXHAUSTED => server.readiness().notes.join("; "),
        _ => String::new(),
    };
    let text = if notes.is_empty() { error.to_string() } else { format!("{error}. Now: {notes}") };
    let refusal = Refusal::new(status, text);
    match error.retry_after() {
        Some(pause) => refusal.retry_after(pause),
        None if status.is_retryable() => refusal.retry_after(SOON),
        None => refusal,
    }
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
pub(crate) fn refuse_connection(out: &mut Vec<u8>) {
    let text =
        "this server has as many connections as it may (max_connections): close some, or come back later";
    reply_error(out, 0, Op::Hello.code(), &Refusal::new(Status::OVERLOADED, text).retry_after(SOON));
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
