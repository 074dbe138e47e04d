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

/// What is wrong with a bulk string that is longer than its header says.
const NO_LINE_END: &str = "invalid bulk: no line ends behind it";

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
            Some(_) => return Parsed::Broken(NO_LINE_END),
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

/// What must hold for input of any bytes, beside a foreign parser. One body serves the property tests here and the fuzz
/// target `resp`.
#[cfg(any(test, fuzzing))]
pub(crate) fn any_bytes(bytes: &[u8]) {
    use redis_protocol::resp2::decode::decode;
    use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

    let mut places = Vec::new();
    let found = parse(bytes, &mut places);
    if let Parsed::Command { consumed } = found {
        assert!(consumed <= bytes.len() && places.len() <= MOST_ARGUMENTS);
        assert!(places.iter().all(|place| place.end <= consumed), "{places:?} of {consumed}");
        // What is behind a command changes nothing, and a part of one is none.
        let mut again = Vec::new();
        assert_eq!((parse(&bytes[..consumed], &mut again), &again), (Parsed::Command { consumed }, &places));
        assert_eq!(parse(&bytes[..consumed - 1], &mut again), Parsed::Incomplete);
    }
    // A number of many digits makes the foreign parser ask for memory; signs are read in another way there.
    let mut runs = bytes.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let is_long = runs.any(|run| run.len() > 4 && run[0].is_ascii_digit());
    if bytes.first() != Some(&b'*') || is_long || bytes.iter().any(|byte| matches!(byte, b'+' | b'-')) {
        return;
    }
    let theirs = decode(bytes);
    if let Ok(Some((OwnedFrame::Array(theirs), consumed))) = &theirs
        && theirs.iter().all(|frame| matches!(frame, OwnedFrame::BulkString(_)))
    {
        if found == Parsed::Broken(NO_LINE_END) {
            // The foreign parser passes over two bytes behind a bulk, whatever they are.
            let next_line = |from: usize| {
                from + bytes[from..].split_inclusive(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len)
            };
            let header = places.last().map_or_else(|| next_line(0), |last| last.end + 2);
            let end = next_line(header) + theirs[places.len()].as_bytes().map_or(0, <[u8]>::len);
            assert_ne!(bytes.get(end..end + 2), Some(&b"\r\n"[..]));
            return;
        }
        // Where both take bytes for an array of bulks within our bounds, they find the same.
        assert_eq!(found, Parsed::Command { consumed: *consumed });
        assert!(
            places
                .iter()
                .map(|place| &bytes[place.clone()])
                .eq(theirs.iter().filter_map(Resp2Frame::as_bytes))
        );
    } else if let Parsed::Command { .. } = found {
        assert!(places.is_empty() || !matches!(theirs, Ok(None)), "they find it incomplete");
    }
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
    fn a_bulk_that_is_longer_than_it_says_is_none_whatever_the_foreign_parser_takes_it_for() {
        for longer in [&b"*1\r\n$1\r\nxyz"[..], b"*2\r\n$1\r\nx\r\n$2\r\nxy\rz"] {
            assert_eq!(parsed(longer).0, Parsed::Broken(NO_LINE_END));
            assert!(matches!(decode(longer), Ok(Some(_))));
            any_bytes(longer);
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

        #[test]
        fn what_the_foreign_parser_takes_for_a_command_is_one(
            bytes in "(\\*[0-9]{0,2}|\\$[0-9]{0,2}|[a-c\\-+]|\r\n|\r|\n){0,12}",
        ) {
            any_bytes(bytes.as_bytes());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            any_bytes(&bytes);
        }
    }
}
