//! The first bytes of a connection, and what is said to those who meant another port.

use std::fmt::{self, Display};

/// What a client sends first. The first byte is no ASCII and no UTF-8, so no text protocol begins with it; the rest
/// is changed by anything that translates line ends or stops at a control-Z.
pub const PREFACE: [u8; 8] = [0x89, b'X', b'U', b'I', b'D', 0x0d, 0x0a, 0x1a];

/// What the first bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preface {
    /// Right so far.
    Incomplete {
        /// Bytes that must be there before it makes sense to look again.
        need: usize,
    },
    /// XUID/1: take [`PREFACE`]'s 8 bytes off, frames follow.
    Whole,
    /// Something else: write [`foreign_answer`] and close.
    Foreign(Foreign),
}

/// What speaks instead of XUID/1, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// The method of an HTTP request.
    Http,
    /// The first record of a TLS handshake.
    Tls,
    /// The first byte of the preface, and then not the rest: damaged on its way.
    Damaged,
    /// Anything else.
    Other,
}

/// Looks at the first bytes of a connection.
///
/// ```
/// use xuid_protocol::{Foreign, PREFACE, Preface, check_preface};
/// assert_eq!(check_preface(&PREFACE[..3]), Preface::Incomplete { need: 8 });
/// assert_eq!(check_preface(&PREFACE), Preface::Whole);
/// assert_eq!(check_preface(b"GET / HTTP/1.1"), Preface::Foreign(Foreign::Http));
/// ```
#[must_use]
pub fn check_preface(buf: &[u8]) -> Preface {
    let len = buf.len().min(PREFACE.len());
    match (buf[..len] == PREFACE[..len], len) {
        (true, 8) => Preface::Whole,
        (true, _) => Preface::Incomplete { need: PREFACE.len() },
        (false, _) => Preface::Foreign(classify(buf)),
    }
}

fn classify(buf: &[u8]) -> Foreign {
    const METHODS: [&[u8]; 10] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"TRACE ",
        b"CONNECT ",
        b"PRI ",
    ];
    let begins = |method: &&[u8]| {
        let len = method.len().min(buf.len());
        buf[..len] == method[..len]
    };
    match buf.first() {
        Some(0x89) => Foreign::Damaged,
        Some(0x16) => Foreign::Tls,
        _ if METHODS.iter().any(begins) => Foreign::Http,
        _ => Foreign::Other,
    }
}

impl Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "this is HTTP",
            Self::Tls => "this is TLS",
            Self::Damaged => {
                "this begins like it, but bytes were changed on the way, as by a translation of line ends"
            }
            Self::Other => "this is something else",
        })
    }
}

/// A fatal TLS alert `handshake_failure`, in a record of its own (RFC 8446, 5.1 and 6.2).
const TLS_ALERT: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28];

/// Appends what answers a foreign protocol, in words that it understands: an alert to TLS, a response of HTTP/1.0 to
/// HTTP, and to anything else one line of ASCII, which is the body of that response, too. `admin` is where HTTP is
/// served, if anywhere; it must be ASCII without line ends, as any socket address is.
pub fn foreign_answer(out: &mut Vec<u8>, foreign: Foreign, admin: Option<&dyn Display>) {
    let line = foreign_line(foreign, admin);
    match foreign {
        Foreign::Tls => out.extend(TLS_ALERT),
        Foreign::Http => {
            let head = format!(
                "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                line.len()
            );
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(line.as_bytes());
        }
        Foreign::Damaged | Foreign::Other => out.extend_from_slice(line.as_bytes()),
    }
}

fn foreign_line(foreign: Foreign, admin: Option<&dyn Display>) -> String {
    match admin {
        Some(admin) => format!(
            "This port speaks XUID/1, a binary protocol, and {foreign}. HTTP (/readyz, /metrics) is at http://{admin}/\r\n"
        ),
        None => {
            format!(
                "This port speaks XUID/1, a binary protocol, and {foreign}. This server serves no HTTP.\r\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_the_preface_is_incomplete_and_every_change_is_foreign() {
        assert_eq!(check_preface(&[]), Preface::Incomplete { need: 8 });
        for cut in 1..8 {
            assert_eq!(check_preface(&PREFACE[..cut]), Preface::Incomplete { need: 8 });
            let mut torn = PREFACE;
            torn[cut] ^= 1;
            assert_eq!(check_preface(&torn), Preface::Foreign(Foreign::Damaged));
            // A byte that is wrong is told without waiting for the rest.
            assert_eq!(check_preface(&torn[..=cut]), Preface::Foreign(Foreign::Damaged));
        }
        assert_eq!(check_preface(&[&PREFACE[..], &[1, 2, 3]].concat()), Preface::Whole);
    }

    #[test]
    fn others_are_told_apart_and_each_gets_words_it_understands() {
        let cases: [(&[u8], Foreign); 6] = [
            (b"G", Foreign::Http),
            (b"POST / HTTP/1.1\r\n", Foreign::Http),
            (b"GETTING", Foreign::Other),
            (&[0x16, 3, 1], Foreign::Tls),
            (b"\n", Foreign::Other),
            (&[0; 64], Foreign::Other),
        ];
        for (bytes, kind) in cases {
            assert_eq!(check_preface(bytes), Preface::Foreign(kind), "{bytes:?}");
            for admin in [Some(&"127.0.0.1:7655" as &dyn Display), None] {
                let mut out = Vec::new();
                foreign_answer(&mut out, kind, admin);
                if kind == Foreign::Tls {
                    assert_eq!(out, TLS_ALERT);
                    continue;
                }
                let said = String::from_utf8(out).unwrap();
                let line = match said.split_once("\r\n\r\n") {
                    Some((head, body)) if kind == Foreign::Http => {
                        assert!(head.starts_with("HTTP/1.0 400 "), "{said}");
                        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{said}");
                        body
                    }
                    _ => &said,
                };
                assert_eq!(line.len() < said.len(), kind == Foreign::Http, "{said}");
                assert!(line.is_ascii() && line.contains("XUID/1"), "{line}");
                assert_eq!(line.contains("127.0.0.1:7655"), admin.is_some(), "{line}");
                assert_eq!(line.find('\n'), Some(line.len() - 1), "{line:?}");
            }
        }
    }
}
