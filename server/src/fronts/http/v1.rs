//! Our own paths. Ids are texts, since readers of JSON round numbers; no GET issues one, since caches and link checkers
//! send those.

use std::time::Duration;

use serde_json::{Map, Value, json};
use xuid_engine::sequence::Demand;
use xuid_engine::{Engine, Id};
use xuid_protocol::{LIST_MAX, Order, Refusal, Status, WAIT_CAP};

use super::ask::{Ask, Denial, Form, Got};
use super::framing::Request;
use super::reply::{joined, number, phrase, quoted};
use super::target::{Fields, segment};
use crate::state::sequences::as_json;
use crate::text::human_time::rfc3339_ms;

/// What these paths are, for programs.
const OPENAPI: &str = include_str!("openapi.json");

/// Sequences on a page whose length is not said.
const PAGE: u32 = 100;

/// What a request asks for, and in which form.
pub(super) fn parse<'a>(
    request: &Request<'_>,
    path: &'a str,
    query: &str,
    engine: &Engine,
) -> Result<(Ask<'a>, Form), Denial> {
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    let query = Fields::parse(query.as_bytes())?;
    let is_get = matches!(request.method, "GET" | "HEAD");
    match (&parts[..], request.method) {
        (["ids"], "POST") => ids(request, query),
        (["sequences"], _) if is_get => list(query),
        (["sequences" | "openapi.json"] | ["decode", _], _) if !is_get => Err(Denial::method("GET, HEAD")),
        (["sequences", name, "next"], "POST") if !name.is_empty() => numbers(request, query, name),
        (["ids"] | ["sequences", _, "next"], method) if method != "POST" => Err(Denial::method("POST")),
        (["sequences", name], method) if !name.is_empty() => {
            let name = segment(name)?;
            query.end("none")?;
            let ask = match method {
                _ if is_get => Ask::Info { name },
                "PUT" => Ask::Create { name, settings: Body::text(request)? },
                "PATCH" => Ask::Alter { name, changes: Body::text(request)? },
                _ => return Err(Denial::method("GET, HEAD, PUT, PATCH")),
            };
            Ok((ask, Form::One))
        }
        (["decode", id], _) if !id.is_empty() && is_get => decode(&segment(id)?, &query, engine),
        (["openapi.json"], _) if is_get => Ok((Ask::Ready(Got::OpenApi), Form::One)),
        _ => Err(Denial::not_found()),
    }
}

fn ids<'a>(request: &Request<'_>, query: Fields<'_>) -> Result<(Ask<'a>, Form), Denial> {
    let form = form(query)?;
    let mut body = Body::parse(request)?;
    let count = body.count()?;
    let order = body.order(&[Order::Any, Order::Fresh, Order::Ordered])?.unwrap_or_default();
    let most = WAIT_CAP.as_millis() as u64;
    let wait = body.number("wait_ms", most)?.map(Duration::from_millis);
    body.end("count, order, wait_ms")?;
    Ok((Ask::Ids { count, order, wait }, form))
}

fn numbers<'a>(request: &Request<'_>, query: Fields<'_>, name: &'a str) -> Result<(Ask<'a>, Form), Denial> {
    let (name, form) = (segment(name)?, form(query)?);
    let mut body = Body::parse(request)?;
    let count = body.count()?;
    let demand = match body.order(&[Order::Any, Order::Ordered])? {
        Some(Order::Any) => Demand::any(count),
        _ => Demand::ordered(count),
    };
    let contiguous = body.boolean("contiguous")?;
    body.end("count, order, contiguous")?;
    let demand = if contiguous { demand.contiguous() } else { demand };
    Ok((Ask::Numbers { name, demand }, form))
}

fn list<'a>(mut query: Fields<'_>) -> Result<(Ask<'a>, Form), Denial> {
    let after = query.take("after").unwrap_or_default().into_owned();
    let after = String::from_utf8(after).map_err(|_| Denial::bad("after is not UTF-8"))?;
    let limit = match query.take("limit") {
        None => PAGE,
        Some(text) => {
            let limit =
                str::from_utf8(&text).ok().filter(|text| is_digits(text)).and_then(|text| text.parse().ok());
            let limit = limit.filter(|limit| (1..=LIST_MAX).contains(limit));
            limit.ok_or_else(|| Denial::bad(format!("limit is a number from 1 to {LIST_MAX}")))?
        }
    };
    query.end("after, limit")?;
    Ok((Ask::List { after, limit }, Form::List))
}

fn decode<'a>(text: &[u8], query: &Fields<'_>, engine: &Engine) -> Result<(Ask<'a>, Form), Denial> {
    query.end("none")?;
    let text = str::from_utf8(text).ok().filter(|text| is_digits(text));
    let id = text.and_then(|text| Id::from_raw(text.parse().ok()?));
    let id = id.ok_or_else(|| Denial::bad("an id is a number from 0 to 9223372036854775807"))?;
    Ok((Ask::Ready(Got::Parts(Some((id.raw(), engine.decode(id))))), Form::One))
}

fn form(mut query: Fields<'_>) -> Result<Form, Denial> {
    let form = match query.take("as").as_deref() {
        None | Some(b"ids") => Form::List,
        Some(b"runs") => Form::Runs,
        Some(_) => return Err(Denial::bad("as is ids or runs")),
    };
    query.end("as")?;
    Ok(form)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The fields of a body that were not read yet.
struct Body(Map<String, Value>);

impl Body {
    /// The body as it is, if it is JSON by its type.
    fn text(request: &Request<'_>) -> Result<String, Denial> {
        if !request.is_of(b"application/json") {
            return Err(Denial::media_type());
        }
        let text = str::from_utf8(&request.body).ok().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| Denial::bad("the body is no JSON: send an object, if only {}"))
    }

    fn parse(request: &Request<'_>) -> Result<Self, Denial> {
        match serde_json::from_str(&Self::text(request)?) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Denial::bad("the body is no JSON object")),
            Err(error) => Err(Denial::bad(format!("the body is not JSON: {error}"))),
        }
    }

    /// How many ids; whether that many may be asked for is the limits' to say.
    fn count(&mut self) -> Result<u32, Denial> {
        Ok(self.number("count", u64::from(u32::MAX))?.unwrap_or(1) as u32)
    }

    fn number(&mut self, name: &str, most: u64) -> Result<Option<u64>, Denial> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        // 1.0 is an integer in JSON, too.
        let whole = || value.as_f64().filter(|value| value.fract() == 0.0)?.to_string().parse().ok();
        let number = value.as_u64().or_else(whole).filter(|number| *number <= most);
        number
            .map(Some)
            .ok_or_else(|| Denial::bad(format!("{name} is {value}; allowed is a number up to {most}")))
    }

    fn boolean(&mut self, name: &str) -> Result<bool, Denial> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(is_on)) => Ok(is_on),
            Some(value) => Err(Denial::bad(format!("{name} is {value}; allowed is true or false"))),
        }
    }

    fn order(&mut self, allowed: &[Order]) -> Result<Option<Order>, Denial> {
        let Some(value) = self.0.remove("order") else { return Ok(None) };
        let found = allowed.iter().find(|order| value.as_str() == Some(order.name())).copied();
        let names: Vec<_> = allowed.iter().map(|order| order.name()).collect();
        let wrong = || Denial::bad(format!("order is {value}; allowed here: {}", names.join(", ")));
        found.map(Some).ok_or_else(wrong)
    }

    fn end(&self, known: &str) -> Result<(), Denial> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Denial::bad(format!("{name:?} is no field here; known are {known}"))),
        }
    }
}

pub(super) fn write(out: &mut Vec<u8>, got: &Got, form: Form, pieces: &[xuid_protocol::Run]) {
    let value = match got {
        Got::Pieces => return write_pieces(out, form, pieces),
        Got::OpenApi => return out.extend_from_slice(OPENAPI.as_bytes()),
        Got::Sequence { info, .. } => as_json(info),
        Got::Sequences(all) => json!({ "sequences": all.iter().map(as_json).collect::<Vec<_>>() }),
        Got::Parts(parts) => {
            let Some((id, parts)) = parts else { return };
            json!({
                "id": id.to_string(),
                "unix_ms": parts.unix_ms,
                "time": rfc3339_ms(parts.unix_ms),
                "worker": parts.worker,
                "sequence": parts.sequence,
            })
        }
    };
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(out, &value);
}

fn write_pieces(out: &mut Vec<u8>, form: Form, pieces: &[xuid_protocol::Run]) {
    let write_text = |out: &mut Vec<u8>, id: u64| {
        out.push(b'"');
        number(out, id);
        out.push(b'"');
    };
    if form == Form::Runs {
        out.extend_from_slice(b"{\"runs\":[");
        joined(out, b',', pieces.iter(), |out, piece| {
            out.extend_from_slice(b"{\"first\":");
            write_text(out, piece.first);
            out.extend_from_slice(b",\"count\":");
            number(out, piece.count);
            out.extend_from_slice(b",\"stride\":");
            number(out, piece.stride);
            out.push(b'}');
        });
    } else {
        out.extend_from_slice(b"{\"ids\":[");
        joined(out, b',', pieces.iter().copied().flatten(), write_text);
    }
    out.extend_from_slice(b"]}");
}

/// The status of HTTP that says the same.
pub(super) fn status_of(status: Status) -> u16 {
    match status {
        Status::BAD_REQUEST | Status::COUNT => 400,
        Status::UNAUTHENTICATED => 401,
        Status::FORBIDDEN => 403,
        Status::NO_SEQUENCE | Status::UNKNOWN_OP => 404,
        Status::EXISTS | Status::EXHAUSTED | Status::NO_ORDER => 409,
        Status::TOO_LARGE => 413,
        Status::RATE => 429,
        Status::INTERNAL => 500,
        other if other.is_retryable() => 503,
        _ => 400,
    }
}

/// A problem as RFC 9457 has it, with the status of XUID/1 beside that of HTTP.
pub(super) fn write_problem(out: &mut Vec<u8>, status: u16, refusal: &Refusal) {
    let front = format!(r#"{{"type":"about:blank","title":"{}","status":{status},"detail":"#, phrase(status));
    out.extend_from_slice(front.as_bytes());
    quoted(out, &refusal.text);
    out.extend_from_slice(b",\"code\":");
    quoted(out, &refusal.status.to_string());
    if refusal.retry_after_ms > 0 {
        out.extend_from_slice(b",\"retry_after_ms\":");
        number(out, refusal.retry_after_ms);
    }
    out.push(b'}');
}
