//! tinyid's paths, for its clients as they are.

use std::borrow::Cow;

use xuid_engine::sequence::Demand;
use xuid_protocol::Status;

use super::ask::{Ask, Denial, Form};
use super::framing::Request;
use super::reply::{joined, number, quoted};
use super::target::Fields;

/// The most ids of one request.
const MOST_IDS: i64 = 100_000;

/// So much of a segment is used when its client asks for the next one, in hundredths.
const LOADING: u64 = 20;

/// Where its clients say their token.
pub(super) const TOKEN_PLACE: &str = "the parameter token";

/// What clients send.
pub(super) struct Call<'a> {
    name: Option<Cow<'a, [u8]>>,
    pub(super) token: Cow<'a, [u8]>,
    batch: Option<Cow<'a, [u8]>>,
    is_segment: bool,
}

impl<'a> Call<'a> {
    /// A call, if the path is one of tinyid's.
    pub(super) fn parse(
        request: &'a Request<'_>,
        path: &str,
        query: &'a str,
    ) -> Result<Option<Self>, Denial> {
        let is_segment = match path {
            "/tinyid/id/nextId" | "/tinyid/id/nextIdSimple" => false,
            "/tinyid/id/nextSegmentId" | "/tinyid/id/nextSegmentIdSimple" => true,
            _ => return Ok(None),
        };
        if !matches!(request.method, "GET" | "POST") {
            return Err(Denial::method("GET, POST"));
        }
        let mut fields = Fields::parse(query.as_bytes())?;
        if request.is_of(b"application/x-www-form-urlencoded") {
            fields = fields.and(Fields::parse(&request.body)?);
        }
        let (name, token, batch) = (fields.take("bizType"), fields.take("token"), fields.take("batchSize"));
        Ok(Some(Self { name, token: token.unwrap_or_default(), batch, is_segment }))
    }

    /// Whose numbers it asks for; empty where it does not say.
    pub(super) fn name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or_default()
    }

    /// What it asks for.
    pub(super) fn ask(self) -> Result<(Ask<'a>, Form), Denial> {
        let Some(name) = self.name else { return Err(Denial::bad("bizType is missing")) };
        if self.is_segment {
            return Ok((Ask::Segment { name }, Form::Runs));
        }
        let count = match self.batch.as_deref() {
            None | Some(b"") => 1,
            Some(digits) => str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse::<i64>().ok())
                .ok_or_else(|| Denial::bad("batchSize is no number"))?,
        };
        let count = u32::try_from(count.clamp(1, MOST_IDS)).unwrap_or(1);
        let form = if count == 1 { Form::One } else { Form::List };
        Ok((Ask::Numbers { name, demand: Demand::ordered(count) }, form))
    }
}

/// Ids, or a segment.
pub(super) fn write(out: &mut Vec<u8>, form: Form, is_simple: bool, pieces: &[xuid_protocol::Run]) {
    let (front, back): (&[u8], &[u8]) = match (is_simple, form) {
        (true, _) => (b"", b""),
        (false, Form::Runs) => (b"{\"data\":", b",\"code\":200,\"message\":\"\"}"),
        (false, _) => (b"{\"data\":[", b"],\"code\":200,\"message\":\"\"}"),
    };
    out.extend_from_slice(front);
    match form {
        Form::Runs => write_segment(out, is_simple, pieces),
        _ => joined(out, b',', pieces.iter().copied().flatten(), number),
    }
    out.extend_from_slice(back);
}

/// The ids of a segment are those in (current, max] that leave the remainder.
fn write_segment(out: &mut Vec<u8>, is_simple: bool, pieces: &[xuid_protocol::Run]) {
    let [piece] = pieces else { return };
    let Some(last) = piece.last() else { return };
    let (first, delta) = (piece.first.cast_signed(), u64::from(piece.stride));
    let current = first - 1;
    let loading = current + ((last - piece.first + 1) * LOADING / 100).cast_signed();
    let remainder = piece.first % delta;
    let text = if is_simple {
        format!("{current},{loading},{last},{delta},{remainder}")
    } else {
        format!(
            r#"{{"maxId":{last},"loadingId":{loading},"currentId":{current},"delta":{delta},"remainder":{remainder}}}"#
        )
    };
    out.extend_from_slice(text.as_bytes());
}

/// What tinyid's clients know of a failure; those of the simple paths get nothing.
pub(super) fn write_error(out: &mut Vec<u8>, is_simple: bool, denial: &Denial) {
    if is_simple {
        return;
    }
    if matches!(denial.refusal.status, Status::UNAUTHENTICATED | Status::FORBIDDEN) {
        out.extend_from_slice(br#"{"data":null,"code":5,"message":"token is error"}"#);
        return;
    }
    out.extend_from_slice(br#"{"data":null,"code":6,"message":"#);
    quoted(out, &denial.refusal.text);
    out.push(b'}');
}
