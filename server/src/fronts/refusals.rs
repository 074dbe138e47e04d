//! Why a client does not get what it asked for, in the words that every front has: a status, a pause and a sentence.

use std::fmt;
use std::time::Duration;

use xuid_engine::sequence::{ControlError, SequenceError, SequenceErrorKind, SequenceName};
use xuid_engine::{IdError, IdErrorKind};
use xuid_protocol::{Refusal, Status};

use crate::state::id_limit::{AboveLimit, LimitBy};
use crate::state::server::Server;

/// What one connection too many is told.
pub(crate) const TOO_MANY_CONNECTIONS: &str =
    "this server has as many connections as it may (max_connections): close some, or come back later";

/// How soon to come back where the engine names no time.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// A token is asked for, and this is none of ours. `place` is where the client says one.
#[cold]
pub(crate) fn unauthenticated(given: &[u8], place: &str) -> Refusal {
    let text = if given.is_empty() {
        format!(
            "this server wants a token in {place}, and none was sent: set the client's token (XUID_TOKEN for xuid)"
        )
    } else {
        format!("the token in {place} is not this server's: check the client's token (XUID_TOKEN for xuid)")
    };
    Refusal::new(Status::UNAUTHENTICATED, text)
}

/// More ids a second than the client's token or address may take.
#[cold]
pub(crate) fn above_limit(above: AboveLimit, count: u32) -> Refusal {
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

/// The protocol's word for why there are no ids. What the engine waits for is not in its error, and a client can't ask
/// its status: it is told here.
#[cold]
pub(crate) fn of_ids(server: &Server, error: IdError) -> Refusal {
    let status = match error.kind() {
        IdErrorKind::NotReady => Status::NOT_READY,
        IdErrorKind::Overloaded => Status::OVERLOADED,
        IdErrorKind::ClockBehind => Status::CLOCK_BEHIND,
        IdErrorKind::WindowLost => Status::WINDOW_LOST,
        IdErrorKind::Exhausted => Status::EXHAUSTED,
        IdErrorKind::ShuttingDown => Status::SHUTTING_DOWN,
        IdErrorKind::NoOrder => Status::NO_ORDER,
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

/// The protocol's word for why there are no numbers.
#[cold]
pub(crate) fn of_numbers(error: SequenceError, name: &SequenceName) -> Refusal {
    let status = match error.kind() {
        SequenceErrorKind::NoSequence => Status::NO_SEQUENCE,
        SequenceErrorKind::StoreAway => Status::STORE_AWAY,
        SequenceErrorKind::StoreBehind => Status::STORE_BEHIND,
        SequenceErrorKind::Overloaded => Status::OVERLOADED,
        SequenceErrorKind::Exhausted => Status::EXHAUSTED,
        SequenceErrorKind::Count => Status::COUNT,
        SequenceErrorKind::ShuttingDown => Status::SHUTTING_DOWN,
        _ => Status::INTERNAL,
    };
    let refusal = Refusal::new(status, format!("sequence {name:?}: {error}"));
    match error.retry_after() {
        Some(pause) => refusal.retry_after(pause),
        None if status.is_retryable() => refusal.retry_after(SOON),
        None => refusal,
    }
}

/// The client's token has no right to that.
#[cold]
pub(crate) fn forbidden(op: impl fmt::Display, name: &str) -> Refusal {
    let text = format!(
        "this client's token may not use {op} on the sequence {name:?}: ask for a token with that right and name (names, \
         rights in the file of tokens)"
    );
    Refusal::new(Status::FORBIDDEN, text)
}

/// It was created between a look-up that found nothing and the question what there is instead.
pub(crate) fn again(name: &SequenceName) -> Refusal {
    Refusal::new(Status::OVERLOADED, format!("the sequence {name:?} was created just now: ask again"))
        .retry_after(SOON)
}

/// The protocol's word for why a question about names has no answer.
#[cold]
pub(crate) fn of_control(error: &ControlError) -> Refusal {
    let status = match error {
        ControlError::NoSequence { .. } => Status::NO_SEQUENCE,
        ControlError::Exists { .. } => Status::EXISTS,
        ControlError::Name(_) | ControlError::Refused { .. } => Status::BAD_REQUEST,
        ControlError::StoreBehind { .. } => Status::STORE_BEHIND,
        // The same request again finds out, and changes nothing twice.
        ControlError::StoreAway { .. } | ControlError::Unknown { .. } => Status::STORE_AWAY,
        ControlError::ShuttingDown => Status::SHUTTING_DOWN,
        _ => Status::INTERNAL,
    };
    let hint = match error {
        ControlError::NoSequence { .. } => {
            ": create it (`xuid sequence create`), or allow its creation (sequence_create)"
        }
        ControlError::Exists { .. } => ": nothing was changed; alter it, or use another name",
        _ => "",
    };
    let refusal = Refusal::new(status, format!("{error}{hint}"));
    if status.is_retryable() { refusal.retry_after(SOON) } else { refusal }
}
