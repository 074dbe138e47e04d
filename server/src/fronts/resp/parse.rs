//! Commands out of bytes: arrays of bulk strings, and lines as a person types them.
//!
//! # Invariants
//! - I1 a command is known by its places in the input: nothing is copied, and no memory is kept for what a header merely
//!   claims;
//! - I2 a command has at most [`MOST_COMMAND`] bytes and [`MOST_ARGUMENTS`] arguments. What claims more is refused by its
//!   header.

use std::ops::Range;

/// The longest command, with all that frames it.
pub(super) const MOST_COMMAND: usize = 64 * 1024;

/// The most arguments of a command, its name included.
pub(super) const MOST_ARGUMENTS: usize = 1_024;

/// `*1024\r\n` and `$65536\r\n` are shorter, and so is any number that is allowed.
const MOST_HEADER: usize = 24;

/// What stands at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A part of a command.
    Incomplete,
    /// A whole command of so many bytes. One without an argument asks for nothing.
    Command { consumed: usize },
    /// No command, and there is no telling where the next one begins.
    Broken(&'static str),
}

/// A line that holds a number, behind the byte that says of what.
enum Header {
    Incomplete,
    /// `None`: of something that is absent.
    Number(Option<usize>, usize),
    Broken,
}

/// Looks for a command at the front, and puts the places of its arguments into `arguments`.
pub(super) fn parse(bytes: &[u8], arguments: &mut Vec<Range<usize>>) -> Parsed {
    arguments.clear();
    match bytes.first() {
        None => Parsed::Incomplete,
        Some(b'*') => array(bytes, arguments),
        Some(0x16) => Parsed::Broken("this is TLS, and the port is plain"),
        Some(_) => line(bytes, arguments),
    }
}

fn array(bytes: &[u8], arguments: &mut Vec<Range<usize>>) -> Parsed {
    let (count, mut at) = match header(bytes, 0) {
        Header::Incomplete => return Parsed::Incomplete,
        Header::Number(count, at) if count.is_none_or(|count| count <= MOST_ARGUMENTS) => {
            (count.unwrap_or(0), at)
        }
        Header::Number(..) | Header::Broken => return Parsed::Broken("invalid multibulk length"),
    };
    for _ in 0..count {
        match bytes.get(at) {
            None => return Parsed::Incomplete,
            Some(b'$') => {}
            Some(_) => return Parsed::Broken("expected '$'"),
        }
        let (len, begin) = match header(bytes, at) {
            Header::Incomplete => return Parsed::Incomplete,
            Header::Number(Some(len), begin) if len <= MOST_COMMAND => (len, begin),
            Header::Number(..) | Header::Broken => return Parsed::Broken("invalid bulk length"),
        };
        let end = begin + len;
        if end + 2 > MOST_COMMAND {
            return Parsed::Broken("too big command: it may have 65536 bytes");
        }
        match bytes.get(end..end + 2) {
            None => return Parsed::Incomplete,
            Some(b"\r\n") => {}
            Some(_) => return Parsed::Broken("invalid bulk: no line ends behind it"),
        }
        arguments.push(begin..end);
        at = end + 2;
    }
    Parsed::Command { consumed: at }
}

/// The number between the byte at `at` and the end of the line, and where the next line begins.
fn header(bytes: &[u8], at: usize) -> Header {
    let rest = &bytes[at + 1..bytes.len().min(at + MOST_HEADER)];
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        return if rest.len() + 1 < MOST_HEADER { Header::Incomplete } else { Header::Broken };
    };
    let next = at + 1 + end + 1;
    let digits = rest[..end].strip_suffix(b"\r").and_then(|text| str::from_utf8(text).ok());
    match digits {
        Some("-1") => Header::Number(None, next),
        // A plus in front would be a number, too.
        Some(digits) if !digits.starts_with('+') => {
            digits.parse().map_or(Header::Broken, |number| Header::Number(Some(number), next))
        }
        _ => Header::Broken,
    }
}

/// A command in one line, its words apart by spaces.
fn line(bytes: &[u8], arguments: &mut Vec<Range<usize>>) -> Parsed {
    let Some(end) = bytes[..bytes.len().min(MOST_COMMAND)].iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < MOST_COMMAND {
            Parsed::Incomplete
        } else {
            Parsed::Broken("too big inline request")
        };
    };
    let mut begin = None;
    for (at, byte) in bytes[..=end].iter().enumerate() {
        match byte {
            b'"' | b'\'' => return Parsed::Broken("quotes in an inline request: send an array"),
            b' ' | b'\t' | b'\r' | b'\n' => arguments.extend(begin.take().map(|begin| begin..at)),
            _ => _ = begin.get_or_insert(at),
        }
        if arguments.len() > MOST_ARGUMENTS {
            return Parsed::Broken("too many words in an inline request");
        }
    }
    Parsed::Command { consumed: end + 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis_protocol::resp2::decode::decode;
    use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

    use super::*;

    fn parsed(bytes: &[u8]) -> (Parsed, Vec<&[u8]>) {
        let mut places = Vec::new();
        let parsed = parse(bytes, &mut places);
        (parsed, places.into_iter().map(|place| &bytes[place]).collect())
    }

    fn framed(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn a_command_is_an_array_or_a_line() {
        let incr: Vec<&[u8]> = vec![b"INCR", b"orders"];
        assert_eq!(
            parsed(b"*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n*1"),
            (Parsed::Command { consumed: 26 }, incr.clone())
        );
        assert_eq!(parsed(b"INCR  orders\r\nPI"), (Parsed::Command { consumed: 14 }, incr.clone()));
        assert_eq!(parsed(b"\tINCR orders\n"), (Parsed::Command { consumed: 13 }, incr));
        for nothing in [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b" \n"] {
            assert_eq!(parsed(nothing), (Parsed::Command { consumed: nothing.len() }, vec![]));
        }
    }

    #[test]
    fn what_claims_too_much_is_refused_by_its_header() {
        for claim in [
            &b"*1025\r\n"[..],
            b"*2147483648\r\n",
            b"*99999999999999999999999999",
            b"*x\r\n",
            b"*1\n",
            b"*1\r\n$1073741824\r\n",
            b"*1\r\n$65537\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$+1\r\n",
            b"*1\r\n:1\r\n",
            b"*2\r\n$65000\r\n",
            b"*1\r\n$1\r\nxyz",
            b"INCR \"a b\"\r\n",
        ] {
            let mut input = claim.to_vec();
            if input.ends_with(b"$65000\r\n") {
                input.extend_from_slice(&vec![b'x'; 65_000]);
                input.extend_from_slice(b"\r\n$600\r\n");
            }
            assert!(matches!(parsed(&input).0, Parsed::Broken(_)), "{}", claim.escape_ascii());
        }
        assert!(matches!(parsed(&vec![b'x'; MOST_COMMAND]).0, Parsed::Broken(_)));
        assert_eq!(parsed(&vec![b'x'; MOST_COMMAND - 1]).0, Parsed::Incomplete);
    }

    proptest! {
        /// Whatever the arguments are: the whole is found, each part of it is a part, and the foreign parser agrees.
        #[test]
        fn a_frame_is_found_as_a_foreign_parser_finds_it(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
            behind in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let frame = framed(&arguments);
            for cut in 0..frame.len() {
                prop_assert_eq!(parsed(&frame[..cut]).0, Parsed::Incomplete, "cut at {}", cut);
            }
            let input = [frame.clone(), behind].concat();
            let (found, slices) = parsed(&input);
            prop_assert_eq!(found, Parsed::Command { consumed: frame.len() });
            prop_assert_eq!(&slices, &arguments);
            let (theirs, consumed) = decode(&input).unwrap().unwrap();
            let OwnedFrame::Array(theirs) = theirs else { panic!("no array") };
            let theirs: Vec<_> = theirs.iter().map(|frame| frame.as_bytes().unwrap().to_vec()).collect();
            prop_assert_eq!((theirs, consumed), (arguments, frame.len()));
        }

        /// Where both take bytes for an array of bulks within our bounds, they find the same.
        #[test]
        fn what_the_foreign_parser_takes_for_a_command_is_one(
            bytes in "(\\*[0-9]{0,2}|\\$[0-9]{0,2}|[a-c\\-+]|\r\n|\r|\n){0,12}",
        ) {
            let bytes = bytes.as_bytes();
            let (found, slices) = parsed(bytes);
            let theirs = decode(bytes);
            let is_array = bytes.first() == Some(&b'*');
            if let (true, Ok(Some((OwnedFrame::Array(theirs), consumed)))) = (is_array, &theirs)
                && theirs.iter().all(|frame| matches!(frame, OwnedFrame::BulkString(_)))
            {
                prop_assert_eq!(found, Parsed::Command { consumed: *consumed });
                let theirs: Vec<_> = theirs.iter().map(|frame| frame.as_bytes().unwrap()).collect();
                prop_assert_eq!(slices, theirs);
            } else if let (true, Parsed::Command { consumed }) = (is_array, &found) {
                prop_assert!(*consumed <= bytes.len());
                prop_assert!(slices.is_empty() || !matches!(theirs, Ok(None)), "they find it incomplete");
            }
        }
    }
}
