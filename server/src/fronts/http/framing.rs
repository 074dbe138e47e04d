//! Which bytes are one request of HTTP/1.
//!
//! The heads are `httparse`'s, the rest is ours, and stricter than RFC 9112 asks for: where two readers of the same bytes
//! could disagree about the end of a request, it is refused, and the connection closes.
//!
//! # Invariants
//! - F1 a body's length has one source: one Content-Length of digits, or one Transfer-Encoding that is `chunked`;
//! - F2 a request is whole in its inbox before it counts: [`MOST_HEAD`] and [`MOST_RAW_BODY`] bound what that holds;
//! - F3 lines end with CR LF, and neither stands anywhere else in a head or in the lines of a chunked body.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use httparse::{Header, Status};

/// The longest head of a request, in bytes.
pub(super) const MOST_HEAD: usize = 16 * 1024;

/// The longest body of a request, in bytes.
pub(super) const MOST_BODY: usize = 16 * 1024;

/// The longest body as it is sent, with the lines around its chunks.
pub(super) const MOST_RAW_BODY: usize = 2 * MOST_BODY;

/// The most header fields of a request.
const MOST_HEADERS: usize = 64;

/// The longest line of a chunked body.
const MOST_LINE: usize = 256;

/// What lies at the beginning of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// Not all of a request. Its client may wait to be told that it may send the body.
    Incomplete { awaits_continue: bool },
    /// No request that will be answered as one.
    Broken(Broken),
    /// A request, and how many bytes it has.
    Request(Request<'a>, usize),
}

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) status: u16,
    pub(super) why: &'static str,
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// It is of HTTP/1.0.
    pub(super) is_old: bool,
    /// Whether its client wants to go on with this connection.
    pub(super) keeps_alive: bool,
    /// What stands behind `Bearer`; empty if there is none.
    pub(super) token: &'a [u8],
    pub(super) content_type: Option<&'a [u8]>,
    /// A browser sends it for a page of another place.
    pub(super) is_of_other_page: bool,
    pub(super) body: Cow<'a, [u8]>,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(usize),
    Chunked,
}

/// What the fields of a head say.
#[derive(Debug, Default)]
struct Fields<'a> {
    hosts: usize,
    length: Option<&'a [u8]>,
    coding: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    is_of_other_page: bool,
    closes: bool,
    keeps_alive: bool,
    expects: Option<&'a [u8]>,
}

fn broken(status: u16, why: &'static str) -> Broken {
    Broken { status, why }
}

/// Looks for a request.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    try_parse(bytes).unwrap_or_else(Parsed::Broken)
}

fn try_parse(bytes: &[u8]) -> Result<Parsed<'_>, Broken> {
    let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let too_long = broken(431, "the head of a request has at most 16 KiB and 64 fields here");
    let len = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(len)) if len <= MOST_HEAD => len,
        Ok(Status::Partial) if bytes.len() <= MOST_HEAD => {
            check_lines(bytes)?;
            return Ok(Parsed::Incomplete { awaits_continue: false });
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(too_long),
        Err(httparse::Error::Version) => return Err(broken(505, "this port speaks HTTP/1.1 and HTTP/1.0")),
        Err(_) => return Err(broken(400, "this is no request of HTTP/1")),
    };
    check_lines(&bytes[..len])?;
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(broken(400, "this is no request of HTTP/1"));
    };
    let is_old = version == 0;
    let fields = Fields::read(head.headers)?;
    fields.check(is_old)?;
    let rest = &bytes[len..];
    let found = match fields.length(is_old)? {
        Length::Known(length) => rest.get(..length).map(|body| (Cow::Borrowed(body), length)),
        Length::Chunked => chunked(rest)?.map(|(body, length)| (Cow::Owned(body), length)),
    };
    let Some((body, length)) = found else {
        return Ok(Parsed::Incomplete { awaits_continue: fields.expects.is_some() && !is_old });
    };
    let request = Request {
        method,
        target,
        is_old,
        keeps_alive: if is_old { fields.keeps_alive && !fields.closes } else { !fields.closes },
        token: fields.authorization.and_then(bearer).unwrap_or_default(),
        content_type: fields.content_type,
        is_of_other_page: fields.is_of_other_page,
        body,
    };
    Ok(Parsed::Request(request, len + length))
}

impl Request<'_> {
    /// Whether its body is of that kind.
    pub(super) fn is_of(&self, kind: &[u8]) -> bool {
        let said = self.content_type.and_then(|said| said.split(|byte| *byte == b';').next());
        said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(kind))
    }
}

impl<'a> Fields<'a> {
    fn read(headers: &[Header<'a>]) -> Result<Self, Broken> {
        let mut fields = Self::default();
        let once = |field: &mut Option<&'a [u8]>, value, why| match field.replace(value) {
            None => Ok(()),
            Some(_) => Err(broken(400, why)),
        };
        for Header { name, value } in headers {
            // By their lengths first: most fields are of no interest here.
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
            match name.len() {
                4 if is("host") => fields.hosts += 1,
                6 if is("expect") => once(&mut fields.expects, value, "Expect stands there twice")?,
                10 if is("connection") => fields.connection(value),
                12 if is("content-type") => {
                    once(&mut fields.content_type, value, "Content-Type stands there twice")?;
                }
                13 if is("authorization") => {
                    once(&mut fields.authorization, value, "Authorization stands there twice")?;
                }
                14 if is("content-length") => {
                    once(&mut fields.length, value, "Content-Length stands there twice")?;
                }
                14 if is("sec-fetch-site") => {
                    let is_own = [&b"same-origin"[..], b"none"].contains(&value.trim_ascii());
                    fields.is_of_other_page |= !is_own;
                }
                17 if is("transfer-encoding") => {
                    once(&mut fields.coding, value, "Transfer-Encoding stands there twice")?;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn check(&self, is_old: bool) -> Result<(), Broken> {
        if self.hosts > 1 || self.hosts == 0 && !is_old {
            return Err(broken(400, "a request has one Host"));
        }
        match self.expects {
            Some(expects) if !expects.eq_ignore_ascii_case(b"100-continue") => {
                Err(broken(417, "nothing but 100-continue can be expected here"))
            }
            _ => Ok(()),
        }
    }

    fn length(&self, is_old: bool) -> Result<Length, Broken> {
        match (self.length, self.coding) {
            (None, None) => Ok(Length::Known(0)),
            (Some(digits), None) => {
                let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                if !is_number || digits.len() > 19 {
                    return Err(broken(400, "Content-Length is no number"));
                }
                let length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                let length = length.filter(|length| *length <= MOST_BODY);
                length.map(Length::Known).ok_or_else(too_large)
            }
            (None, Some(coding)) if !is_old && coding.eq_ignore_ascii_case(b"chunked") => Ok(Length::Chunked),
            (None, Some(_)) => {
                Err(broken(400, "a Transfer-Encoding is chunked here, and none goes with HTTP/1.0"))
            }
            (Some(_), Some(_)) => Err(broken(400, "Content-Length and Transfer-Encoding do not go together")),
        }
    }
}

fn too_large() -> Broken {
    broken(413, "the body of a request has at most 16 KiB here")
}

/// What stands behind the scheme of the one kind of authorization there is.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// F3 for a head, or the part of one that there is.
fn check_lines(head: &[u8]) -> Result<(), Broken> {
    let is_bare = |(at, byte): (usize, &u8)| match byte {
        b'\n' => at == 0 || head[at - 1] != b'\r',
        b'\r' => head.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    if head.iter().enumerate().any(is_bare) {
        return Err(broken(400, "a line of a head ends with CR LF, and neither stands anywhere else"));
    }
    Ok(())
}

/// The body in chunks at the front, and how many bytes it has as it is sent; `None`: it is not whole yet.
fn chunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Broken> {
    let (mut body, mut at) = (Vec::new(), 0);
    let whole = loop {
        let Some(size_line) = line(&bytes[at..])? else { break false };
        at += size_line.len() + 2;
        let size = chunk_size(size_line)?;
        if size == 0 {
            break trailer(bytes, &mut at)?;
        }
        if body.len() + size > MOST_BODY {
            return Err(too_large());
        }
        let Some(data) = bytes.get(at..at + size) else { break false };
        let end = bytes.get(at + size..).unwrap_or_default();
        if !b"\r\n".starts_with(&end[..end.len().min(2)]) {
            return Err(broken(400, "a chunk is longer or shorter than it says"));
        }
        if end.len() < 2 {
            break false;
        }
        body.extend_from_slice(data);
        at += size + 2;
    };
    if at > MOST_RAW_BODY || !whole && bytes.len() > MOST_RAW_BODY {
        return Err(too_large());
    }
    Ok(whole.then_some((body, at)))
}

/// Steps over the fields behind the last chunk, which say nothing here; false if they are not whole yet.
fn trailer(bytes: &[u8], at: &mut usize) -> Result<bool, Broken> {
    loop {
        let Some(field) = line(&bytes[*at..])? else { return Ok(false) };
        *at += field.len() + 2;
        if field.is_empty() {
            return Ok(true);
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Broken> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    let is_size = (1..=8).contains(&digits) && (extension.is_empty() || extension[0] == b';');
    let size = str::from_utf8(size).ok().filter(|_| is_size);
    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
    size.ok_or(broken(400, "the size of a chunk is a hexadecimal number of up to 8 digits"))
}

/// The line at the front, without its end; `None`: it is not whole yet.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Broken> {
    let wrong = broken(400, "a line of a chunked body ends with CR LF, and is shorter than 256 bytes");
    let bytes = &bytes[..bytes.len().min(MOST_LINE)];
    let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if bytes.len() == MOST_LINE { Err(wrong) } else { Ok(None) };
    };
    match bytes[end..] {
        [b'\r', b'\n', ..] => Ok(Some(&bytes[..end])),
        [b'\r'] if bytes.len() < MOST_LINE => Ok(None),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n";

    fn status(text: &str) -> u16 {
        match parse(text.as_bytes()) {
            Parsed::Broken(broken) => broken.status,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn whole(bytes: &[u8]) -> (Request<'_>, usize) {
        match parse(bytes) {
            Parsed::Request(request, consumed) => (request, consumed),
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
        }
    }

    fn with(fields: &str, body: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}")
    }

    #[test]
    fn a_request_is_whole_at_its_last_byte_and_not_before() {
        let length = with("Content-Length: 5\r\n", "hello");
        let chunks = with("Transfer-Encoding: chunked\r\n", "3;x=y\r\nhel\r\n02\r\nlo\r\n0\r\nA: b\r\n\r\n");
        for text in [GET, &length, &chunks] {
            for cut in 0..text.len() {
                let parsed = parse(&text.as_bytes()[..cut]);
                assert!(matches!(parsed, Parsed::Incomplete { .. }), "{text:?} up to {cut}: {parsed:?}");
            }
            let followed = format!("{text}GET");
            let (request, consumed) = whole(followed.as_bytes());
            assert_eq!(consumed, text.len());
            assert!(matches!(&*request.body, b"" | b"hello"), "{request:?}");
            assert_eq!(request.body.is_empty(), text == GET);
        }
    }

    #[test]
    fn what_two_readers_could_take_for_different_requests_is_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding:\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding\r\n",
            "Host: y\r\n",
            "A: b\nTransfer-Encoding: chunked\r\n",
            "A: b\r\n Transfer-Encoding: chunked\r\n",
            "A: b\rTransfer-Encoding: chunked\r\n",
            "A: b\0\r\n",
            "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        ] {
            assert_eq!(status(&with(fields, "0\r\n\r\n")), 400, "{fields:?}");
        }
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\nHost: x\n\n",
            "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /\r\n\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(status(text), 400, "{text:?}");
        }
    }

    #[test]
    fn chunks_that_lie_are_refused() {
        for body in [
            "5\r\nhelloX\r\n0\r\n\r\n",
            "5\r\nhell\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "\r\nhello\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "-1\r\n",
            "000000005\r\nhello\r\n0\r\n\r\n",
            "5\nhello\n0\n\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA: b\r\r\n\r\n",
        ] {
            assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", body)), 400, "{body:?}");
        }
        let long = format!("5;{}\r\n", "x".repeat(MOST_LINE));
        assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", &long)), 400);
    }

    #[test]
    fn heads_and_bodies_have_bounds_that_are_told_before_there_is_memory_for_more() {
        let most = format!("Content-Length: {MOST_BODY}\r\n");
        assert_eq!(parse(with(&most, "").as_bytes()), Parsed::Incomplete { awaits_continue: false });
        assert_eq!(status(&with(&format!("Content-Length: {}\r\n", MOST_BODY + 1), "")), 413);
        assert_eq!(status(&with("Content-Length: 9223372036854775807\r\n", "")), 413);
        assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", "7fffffff\r\n")), 413);
        assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", "ffffffff\r\n")), 413);
        // Many small chunks, and many fields behind them: it is the bytes on the wire that are bounded.
        let small = "1;xxxxxxxx\r\na\r\n".repeat(MOST_RAW_BODY / 14);
        assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", &small)), 413);
        let fields = format!("0\r\n{}", "A: b\r\n".repeat(MOST_RAW_BODY / 6 + 1));
        assert_eq!(status(&with("Transfer-Encoding: chunked\r\n", &fields)), 413);
        let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n", "a".repeat(MOST_HEAD));
        assert_eq!((status(&long), status(&format!("{long}\r\n"))), (431, 431));
        assert_eq!(status(&with(&"A: b\r\n".repeat(MOST_HEADERS), "")), 431);
        assert_eq!(status("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505);
    }

    #[test]
    fn fields_are_read_whatever_their_case() {
        let text = with(
            "CONTENT-type: application/JSON\r\nauthorization: bearer  s3cret \r\nConnection: x, Close\r\n",
            "",
        );
        let (request, _) = whole(text.as_bytes());
        assert_eq!((request.method, request.target, request.token), ("POST", "/", &b"s3cret"[..]));
        assert_eq!(request.content_type, Some(&b"application/JSON"[..]));
        assert!(!request.keeps_alive && !request.is_old);
        let keeps = |text: &str| whole(text.as_bytes()).0.keeps_alive;
        assert!(keeps(GET) && !keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(whole(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\n\r\n").0.token.is_empty());
    }

    #[test]
    fn a_client_that_waits_to_send_its_body_is_known() {
        let text = with("Expect: 100-continue\r\nContent-Length: 2\r\n", "");
        assert_eq!(parse(text.as_bytes()), Parsed::Incomplete { awaits_continue: true });
        assert_eq!(status(&with("Expect: a-miracle\r\n", "")), 417);
    }

    proptest::proptest! {
        #[test]
        fn rubbish_never_panics_and_no_request_is_longer_than_its_bytes(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
            head in proptest::prelude::any::<bool>(),
        ) {
            let mut input = if head { with("Transfer-Encoding: chunked\r\n", "").into_bytes() } else { Vec::new() };
            input.extend(bytes);
            if let Parsed::Request(_, consumed) = parse(&input) {
                assert!(consumed <= input.len());
            }
        }
    }
}
