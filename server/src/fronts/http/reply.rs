//! Replies as bytes.

/// What a head says beside the length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) allow: Option<&'static str>,
    /// When to come back, in milliseconds; 0: nothing is said.
    pub(super) retry_after_ms: u32,
}

pub(super) const TEXT: &str = "text/plain;charset=UTF-8";
pub(super) const JSON: &str = "application/json;charset=UTF-8";
pub(super) const PROBLEM: &str = "application/problem+json";

impl Head {
    pub(super) fn of(status: u16, kind: &'static str) -> Self {
        Self { status, kind, allow: None, retry_after_ms: 0 }
    }
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Stays,
    /// One of HTTP/1.0, which must be told.
    StaysOld,
    Closes,
}

/// The words that go with a status.
pub(super) fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

/// Appends a reply. The body of one to HEAD is counted and not sent.
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &Head,
    then: Then,
    is_headless: bool,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    body(out);
    let length = out.len() - start;
    if is_headless {
        out.truncate(start);
    }
    // The body is written first, since the head says how long it is; then they change places.
    let end = out.len();
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(digits.format(head.status).as_bytes());
    let parts = [" ", phrase(head.status), "\r\nContent-Type: ", head.kind, "\r\nCache-Control: no-store"];
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    if let Some(allow) = head.allow {
        out.extend_from_slice(b"\r\nAllow: ");
        out.extend_from_slice(allow.as_bytes());
    }
    if head.status == 401 {
        out.extend_from_slice(b"\r\nWWW-Authenticate: Bearer");
    }
    if head.retry_after_ms > 0 {
        out.extend_from_slice(b"\r\nRetry-After: ");
        out.extend_from_slice(digits.format(head.retry_after_ms.div_ceil(1_000)).as_bytes());
    }
    out.extend_from_slice(match then {
        Then::Stays => b"",
        Then::StaysOld => b"\r\nConnection: keep-alive",
        Then::Closes => b"\r\nConnection: close",
    });
    out.extend_from_slice(b"\r\nContent-Length: ");
    out.extend_from_slice(digits.format(length).as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    let head_len = out.len() - end;
    out[start..].rotate_right(head_len);
}

/// A number.
pub(super) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A text in JSON, with its quotes.
pub(super) fn quoted(out: &mut Vec<u8>, text: &str) {
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(out, text);
}

/// What `write` writes of each, with `between` between them.
pub(super) fn joined<T>(
    out: &mut Vec<u8>,
    between: u8,
    all: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    for (place, one) in all.enumerate() {
        if place > 0 {
            out.push(between);
        }
        write(out, one);
    }
}
