//! Requests over HTTP that bring ids or numbers: Leaf's paths for one, and those below `/v1` for more.

use serde_json::{Value, json};

use super::wanted::{Form, Result, Wanted, exactly, order_name, run, status_named};
use crate::client::{ClientError, Order, Refusal};
use crate::http::HttpConnection;
use crate::status;

pub(super) fn request(wanted: &Wanted<'_>) -> Vec<u8> {
    let Wanted { sequence, count, order, wait, form } = *wanted;
    match (form, sequence, order) {
        (Form::One, Some((name, _)), _) => return get(&format!("/api/segment/get/{name}")),
        (Form::One, None, Order::Any) => return get("/api/snowflake/get/any"),
        _ => {}
    }
    let mut body = json!({ "count": count, "order": order_name(order) });
    let path = if let Some((name, _)) = sequence {
        if form == Form::Piece {
            body["contiguous"] = json!(true);
        }
        format!("/v1/sequences/{name}/next")
    } else {
        body["wait_ms"] = json!(wait.as_millis() as u64);
        "/v1/ids".to_owned()
    };
    let query = if matches!(form, Form::Runs | Form::Piece) { "?as=runs" } else { "" };
    let (body, fields) = (body.to_string(), "Host: x\r\nContent-Type: application/json\r\nContent-Length");
    format!("POST {path}{query} HTTP/1.1\r\n{fields}: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

pub(super) fn reply(connection: &mut HttpConnection, wanted: &Wanted<'_>) -> Result<Vec<u64>> {
    let (code, text) = connection.reply()?;
    if code == 200
        && let Ok(number) = text.parse()
    {
        return exactly(vec![number], wanted);
    }
    let body: Value = serde_json::from_str(&text).map_err(|_| NO_IDS)?;
    if code != 200 {
        return Err(refusal(&body)?.into());
    }
    let list = |of: &str| body[of].as_array().ok_or(NO_IDS);
    let numbers = match wanted.form {
        Form::One | Form::List => list("ids")?.iter().map(number).collect::<Result<_>>()?,
        Form::Runs | Form::Piece => {
            let mut numbers = Vec::new();
            for each in list("runs")? {
                let part = |of: &str| each[of].as_u64().ok_or(NO_IDS);
                numbers.extend(run(number(&each["first"])?, part("count")?, part("stride")?));
            }
            numbers
        }
    };
    exactly(numbers, wanted)
}

const NO_IDS: ClientError = ClientError::Broken("a reply without the ids that were asked for");

fn number(text: &Value) -> Result<u64> {
    text.as_str().and_then(|text| text.parse().ok()).ok_or(NO_IDS)
}

/// A problem of `/v1`, or Leaf's page, which says no more than a sentence.
fn refusal(body: &Value) -> Result<Refusal> {
    let text = body["detail"].as_str().unwrap_or_default().to_owned();
    let status = match body["code"].as_str() {
        Some(code) => status_named(code)?,
        None if text.contains("issued its last number") => status::EXHAUSTED,
        None if text.contains("closed") || text.contains("shutting down") => status::SHUTTING_DOWN,
        None => status::OVERLOADED,
    };
    let retry_after_ms = body["retry_after_ms"].as_u64().unwrap_or_default() as u32;
    Ok(Refusal { status, retry_after_ms, text })
}
