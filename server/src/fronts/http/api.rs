//! The service at `/api/leaf`: a counter of its own, whose clients know nothing but its four calls.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use xuid_engine::sequence::Demand;

use super::ask::{Ask, Denial, Got};
use super::framing::Request;
use super::reply::{number, quoted};
use super::target::Fields;

/// The step of what is created without one.
const STEP: u64 = 200;

/// What a request asks for; `None`: the path is none of this service.
pub(super) fn parse<'a>(
    request: &'a Request<'_>,
    path: &str,
    query: &'a str,
) -> Result<Option<Ask<'a>>, Denial> {
    match (path, request.method) {
        ("/api/leaf", "GET") => {
            let name = Fields::parse(query.as_bytes())?.take("biz_tag").unwrap_or_default();
            Ok(Some(Ask::Numbers { name, demand: Demand::ordered(1) }))
        }
        ("/api/leaf", "POST") => {
            let (fields, name) = Body::parse(request)?;
            let mut settings =
                json!({ "start": fields.number("max_id", 1)?, "step": fields.number("step", STEP)? });
            // As its own document spells it, and as it is spelled.
            if let Some(description) = fields.0.get("descprition").or_else(|| fields.0.get("description")) {
                settings["description"] = description.clone();
            }
            Ok(Some(Ask::Create { name, settings: settings.to_string() }))
        }
        ("/api/leaf/step", "PUT") => {
            let (fields, name) = Body::parse(request)?;
            let changes = json!({ "step": fields.number("step", 0)? }).to_string();
            Ok(Some(Ask::Alter { name, changes }))
        }
        ("/api/leaf/init/cache", "PUT") => {
            let (_, name) = Body::parse(request)?;
            Ok(Some(Ask::Info { name }))
        }
        ("/api/leaf", _) => Err(Denial::method("GET, POST")),
        ("/api/leaf/step" | "/api/leaf/init/cache", _) => Err(Denial::method("PUT")),
        _ => Ok(None),
    }
}

/// What a body says.
struct Body(Map<String, Value>);

impl Body {
    /// The fields, and the name among them.
    fn parse(request: &Request<'_>) -> Result<(Self, Cow<'static, [u8]>), Denial> {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(&request.body) else {
            return Err(invalid());
        };
        let Some(Value::String(tag)) = fields.remove("biz_tag") else { return Err(invalid()) };
        Ok((Self(fields), Cow::Owned(tag.into_bytes())))
    }

    fn number(&self, name: &str, absent: u64) -> Result<u64, Denial> {
        self.0.get(name).map_or(Ok(absent), |value| value.as_u64().ok_or_else(invalid))
    }
}

/// What the service says of a body that it cannot read.
const INVALID: &str = "param Invalid";

fn invalid() -> Denial {
    Denial::bad(INVALID)
}

pub(super) fn write(out: &mut Vec<u8>, got: &Got, pieces: &[xuid_protocol::Run]) {
    out.extend_from_slice(br#"{"code":0,"msg":"success","data":"#);
    match got {
        Got::Pieces => {
            out.extend_from_slice(b"{\"ID\":");
            number(out, pieces.first().map_or(0, |piece| piece.first));
            out.push(b'}');
        }
        _ => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

pub(super) fn write_error(out: &mut Vec<u8>, denial: &Denial) {
    let text = &*denial.refusal.text;
    let code: &[u8] = if text == INVALID { b"{\"code\":1000,\"msg\":" } else { b"{\"code\":1001,\"msg\":" };
    out.extend_from_slice(code);
    quoted(out, text);
    out.push(b'}');
}
