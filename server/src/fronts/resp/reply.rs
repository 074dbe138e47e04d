//! Replies, in the two versions of the protocol.

use xuid_protocol::{Refusal, Status};

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(&'static str),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    List(Vec<Self>),
    /// In version 2 a list of keys and values in turn.
    Map(Vec<(&'static str, Self)>),
}

impl Reply {
    /// An id as a text: libraries for JavaScript round integers above 2^53.
    pub(super) fn id(id: u64) -> Self {
        Self::bulk(id.to_string())
    }

    /// How many there are of something.
    pub(super) fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// A text.
    pub(super) fn bulk(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into_bytes())
    }

    /// Appends it.
    pub(super) fn write(&self, is_version_3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Integer(number) => line(out, b':', itoa::Buffer::new().format(*number)),
            Self::Bulk(bytes) => write_bulk(out, bytes),
            Self::Null => out.extend_from_slice(if is_version_3 { b"_\r\n" } else { b"$-1\r\n" }),
            Self::List(list) => {
                write_length(out, b'*', list.len());
                for reply in list {
                    reply.write(is_version_3, out);
                }
            }
            Self::Map(map) => {
                if is_version_3 {
                    write_length(out, b'%', map.len());
                } else {
                    write_length(out, b'*', 2 * map.len());
                }
                for (key, value) in map {
                    write_bulk(out, key.as_bytes());
                    value.write(is_version_3, out);
                }
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, kind: u8, number: u64) {
    line(out, kind, itoa::Buffer::new().format(number));
}

/// An id or a number as an integer.
pub(super) fn write_integer(out: &mut Vec<u8>, number: u64) {
    write_number(out, b':', number);
}

/// The head of a list (`*`) or a map (`%`).
pub(super) fn write_length(out: &mut Vec<u8>, kind: u8, len: usize) {
    write_number(out, kind, len as u64);
}

/// A bulk string.
pub(super) fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    write_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// An id as a bulk string.
pub(super) fn write_id(out: &mut Vec<u8>, id: u64) {
    write_bulk(out, itoa::Buffer::new().format(id).as_bytes());
}

/// An error: its kind in capitals, and a sentence in one line.
pub(super) fn write_error(out: &mut Vec<u8>, kind: &str, text: &str) {
    out.push(b'-');
    out.extend_from_slice(kind.as_bytes());
    out.push(b' ');
    out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// A refusal, with the kind of its status and the pause after which the command is worth repeating.
pub(super) fn write_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    let kind = match refusal.status {
        Status::VERSION => "NOPROTO",
        Status::NO_SEQUENCE => "NOSEQ",
        Status::EXHAUSTED => "EXHAUSTED",
        Status::EXISTS => "EXISTS",
        Status::FORBIDDEN => "NOPERM",
        Status::NO_ORDER => "NOORDER",
        Status::UNAUTHENTICATED => "WRONGPASS",
        Status::STORE_AWAY => "STOREAWAY",
        Status::STORE_BEHIND => "STOREBEHIND",
        Status::OVERLOADED => "OVERLOADED",
        Status::RATE => "RATE",
        Status::NOT_READY => "NOTREADY",
        Status::CLOCK_BEHIND => "CLOCKBEHIND",
        Status::WINDOW_LOST => "WINDOWLOST",
        Status::SHUTTING_DOWN => "SHUTTINGDOWN",
        Status::INTERNAL => "INTERNAL",
        _ => "ERR",
    };
    match refusal.retry_after_ms {
        0 => write_error(out, kind, &refusal.text),
        pause => write_error(out, kind, &format!("retry in {pause} ms: {}", refusal.text)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn written(reply: &Reply, is_version_3: bool) -> String {
        let mut out = Vec::new();
        reply.write(is_version_3, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_are_written_as_the_protocol_has_them() {
        let list = Reply::List(vec![Reply::id(1 << 62), Reply::Integer(-7), Reply::Null]);
        assert_eq!(written(&list, false), "*3\r\n$19\r\n4611686018427387904\r\n:-7\r\n$-1\r\n");
        assert_eq!(written(&list, true), "*3\r\n$19\r\n4611686018427387904\r\n:-7\r\n_\r\n");
        let map = Reply::Map(vec![("proto", Reply::Integer(3)), ("ok", Reply::Simple("OK"))]);
        assert_eq!(written(&map, false), "*4\r\n$5\r\nproto\r\n:3\r\n$2\r\nok\r\n+OK\r\n");
        assert_eq!(written(&map, true), "%2\r\n$5\r\nproto\r\n:3\r\n$2\r\nok\r\n+OK\r\n");
    }

    #[test]
    fn a_refusal_is_one_line_with_its_kind_and_its_pause() {
        let mut out = Vec::new();
        let refusal = Refusal::new(Status::STORE_AWAY, "a\r\nb").retry_after(Duration::from_millis(250));
        write_refusal(&mut out, &refusal);
        write_refusal(&mut out, &Refusal::new(Status::COUNT, "c"));
        assert_eq!(String::from_utf8(out).unwrap(), "-STOREAWAY retry in 250 ms: a  b\r\n-ERR c\r\n");
    }
}
