//! Leaf's paths, for its clients as they are.

use xuid_engine::sequence::Demand;
use xuid_engine::{Engine, Id};
use xuid_protocol::{Order, Status};

use super::ask::{Ask, Denial, Got};
use super::reply::{number, quoted};
use super::target::{Fields, segment};
use crate::text::human_time;

/// What a path asks for; `None`: it is none of Leaf's. A HEAD would waste an id; with other methods Leaf does the same.
pub(super) fn parse<'a>(
    method: &str,
    path: &'a str,
    query: &str,
    engine: &Engine,
) -> Result<Option<Ask<'a>>, Denial> {
    if path == "/decodeSnowflakeId" {
        let id = Fields::parse(query.as_bytes())?.take("snowflakeId");
        let id = id.and_then(|id| str::from_utf8(&id).ok()?.parse().ok());
        let parts = id.and_then(|id| Some((id, engine.decode(Id::from_raw(id)?))));
        return Ok(Some(Ask::Ready(Got::Parts(parts))));
    }
    let issues = |ask| if method == "HEAD" { Err(Denial::method("GET, POST")) } else { Ok(Some(ask)) };
    if let Some(tag) = path.strip_prefix("/api/segment/get/") {
        return issues(Ask::Numbers { name: segment(tag)?, demand: Demand::ordered(1) });
    }
    if path.starts_with("/api/snowflake/get/") {
        return issues(Ask::Ids { count: 1, order: Order::Any, wait: None });
    }
    Ok(None)
}

/// The first number.
pub(super) fn write_number(out: &mut Vec<u8>, pieces: &[xuid_protocol::Run]) {
    number(out, pieces.first().map_or(0, |piece| piece.first));
}

/// What an id says.
pub(super) fn write_parts(out: &mut Vec<u8>, parts: Option<(u64, xuid_engine::Parts)>) {
    let text = match parts {
        Some((_, parts)) => {
            let time = human_time::rfc3339_ms(parts.unix_ms).replace('T', " ").replace('Z', "");
            format!(
                r#"{{"timestamp":"{}({time})","sequenceId":"{}","workerId":"{}"}}"#,
                parts.unix_ms, parts.sequence, parts.worker
            )
        }
        None => r#"{"errorMsg":"snowflakeId is no id"}"#.to_owned(),
    };
    out.extend_from_slice(text.as_bytes());
}

/// What Leaf's clients know of a failure: Spring's page in JSON, and behind that our own sentence.
pub(super) fn write_error(out: &mut Vec<u8>, denial: &Denial, status: u16, phrase: &str, path: &str) {
    let code = match denial.refusal.status {
        Status::NO_SEQUENCE | Status::BAD_REQUEST | Status::UNKNOWN_OP | Status::FORBIDDEN => -2,
        Status::OVERLOADED | Status::EXHAUSTED | Status::STORE_AWAY | Status::STORE_BEHIND | Status::RATE => {
            -3
        }
        _ => -1,
    };
    let now = human_time::now_ns() / 1_000_000;
    let front = format!(
        r#"{{"timestamp":{now},"status":{status},"error":"{phrase}","message":"Result{{id={code}, status=EXCEPTION}}","path":"#
    );
    out.extend_from_slice(front.as_bytes());
    quoted(out, path);
    out.extend_from_slice(b",\"detail\":");
    quoted(out, &denial.refusal.text);
    out.push(b'}');
}
