//! Commands of the protocol of Redis that bring ids or numbers.

use std::io;

use super::wanted::{Form, Result, Wanted, exactly, order_name, run, status_named};
use crate::client::{ClientError, Refusal};
use crate::resp::{Resp, RespValue, frame};
use crate::status;

/// A connection that ended, or a server that broke the protocol.
pub(super) fn failed(error: anyhow::Error) -> ClientError {
    match error.downcast::<io::Error>() {
        Ok(ended) => ClientError::Ended(ended),
        Err(_) => ClientError::Broken("what it sent is no reply"),
    }
}

pub(super) fn request(wanted: &Wanted<'_>) -> Vec<u8> {
    let ids = format!("@{}", order_name(wanted.order));
    let key = wanted.sequence.map_or(&*ids, |(name, _)| name);
    let count = wanted.count.to_string();
    match (wanted.form, wanted.sequence) {
        (Form::One, _) => frame(&["INCR", key]),
        (Form::List, _) => frame(&["XUID.BATCH", &count, key]),
        (Form::Piece, Some(_)) => frame(&["INCRBY", key, &count]),
        (Form::Runs | Form::Piece, _) => frame(&["XUID.RUNS", &count, key]),
    }
}

pub(super) fn reply(client: &mut Resp, wanted: &Wanted<'_>) -> Result<Vec<u64>> {
    let reply = client.reply().map_err(failed)?;
    if let RespValue::Error(text) = reply {
        return Err(refusal(text)?.into());
    }
    let count = u64::from(wanted.count);
    let numbers = match (wanted.form, &reply) {
        // The last one of a piece.
        (Form::One | Form::Piece, RespValue::Integer(last)) => {
            let stride = wanted.sequence.map_or(1, |(_, increment)| increment);
            let last = u64::try_from(*last).ok();
            let first = last.and_then(|last| last.checked_sub((count - 1) * stride));
            run(first.ok_or(NO_IDS)?, count, stride).collect()
        }
        (Form::List, RespValue::List(each)) => each.iter().map(number).collect::<Result<_>>()?,
        (Form::Runs | Form::Piece, RespValue::List(runs)) => {
            let mut numbers = Vec::new();
            for each in runs {
                let RespValue::List(parts) = each else { return Err(NO_IDS) };
                let [first, count, stride] = &parts[..] else { return Err(NO_IDS) };
                numbers.extend(run(number(first)?, number(count)?, number(stride)?));
            }
            numbers
        }
        _ => return Err(NO_IDS),
    };
    exactly(numbers, wanted)
}

const NO_IDS: ClientError = ClientError::Broken("a reply without the ids that were asked for");

fn number(value: &RespValue) -> Result<u64> {
    match value {
        RespValue::Integer(number) => u64::try_from(*number).map_err(|_| NO_IDS),
        RespValue::Bulk(_) => value.text().ok().and_then(|text| text.parse().ok()).ok_or(NO_IDS),
        _ => Err(NO_IDS),
    }
}

/// `KIND retry in N ms: text`, or `KIND text`.
fn refusal(text: String) -> Result<Refusal> {
    let kind = text.split(' ').next().unwrap_or_default();
    // One kind for all that has no other.
    let status = match kind {
        "ERR" if text.contains("a call asks for") => status::COUNT,
        "ERR" => status::BAD_REQUEST,
        kind => status_named(kind)?,
    };
    let pause = text.split_once("retry in ").and_then(|(_, rest)| rest.split_once(" ms"));
    let retry_after_ms = pause.and_then(|(pause, _)| pause.parse().ok()).unwrap_or_default();
    Ok(Refusal { status, retry_after_ms, text })
}
