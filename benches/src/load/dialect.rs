//! What a server is asked, and how its replies are counted without understanding them.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail, ensure};
use xuid_protocol::{
    Bulk, HEADER_LEN, Header, Hello, Op, Order, PREFACE, ParsedReply, Reply, parse_reply, request_array,
    request_hello, request_next, request_runs,
};

/// How long ARRAY and RUNS may take on the server's side.
const WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Bytes of NEXT and of its reply, which the echo uses as well.
pub(super) const NEXT_REQUEST: usize = HEADER_LEN;
pub(super) const NEXT_REPLY: usize = HEADER_LEN + 8;

/// Ids of one ARRAY that is measured.
pub(super) const ARRAY_COUNT: u32 = 4_096;

/// What a piece of input held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanned {
    /// Replies that ended in it.
    pub replies: usize,
    /// Bytes that are done with; what is left is the short beginning of a reply.
    pub consumed: usize,
}

/// A way to ask a server, driven by [`drive`](super::drive).
pub trait Dialect {
    /// What must be said first on a connection.
    ///
    /// # Errors
    /// The server does not like it.
    fn greet(&mut self, stream: &mut TcpStream) -> Result<()>;

    /// Appends a request. All are of one length.
    fn request(&self, number: u64, out: &mut Vec<u8>);

    /// Counts the replies in `bytes`. `skip` is the connection's: bytes to come that need not be looked at.
    ///
    /// # Errors
    /// A reply is not the one hoped for.
    fn scan(&mut self, skip: &mut usize, bytes: &[u8]) -> Result<Scanned>;
}

/// Preface and HELLO, and the reply to them.
fn hello(stream: &mut TcpStream) -> Result<()> {
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 0, &Hello::new("load"))?;
    stream.write_all(&bytes)?;
    let mut head = [0; HEADER_LEN];
    stream.read_exact(&mut head)?;
    let header = Header::decode(head);
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body)?;
    ensure!(header.status == 0, "HELLO was refused: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// Says what an error reply at the front of `bytes` says.
#[cold]
fn refused(bytes: &[u8]) -> anyhow::Error {
    match parse_reply(bytes, u32::MAX) {
        Ok(ParsedReply::Frame { reply: Reply::Error(error), .. }) => {
            anyhow::anyhow!("the server refused, and the run is void: {}: {}", error.status, error.text)
        }
        other => anyhow::anyhow!("the server answered something else, and the run is void: {other:?}"),
    }
}

/// The first eight bytes of a successful reply, as a number.
fn front(op: Op, body_len: u32) -> u64 {
    u128::from_le_bytes(Header::reply(op, body_len, 0).encode()) as u64
}

/// NEXT of any order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Next;

impl Dialect for Next {
    fn greet(&mut self, stream: &mut TcpStream) -> Result<()> {
        hello(stream)
    }

    fn request(&self, number: u64, out: &mut Vec<u8>) {
        request_next(out, number, Order::Any);
    }

    fn scan(&mut self, _: &mut usize, bytes: &[u8]) -> Result<Scanned> {
        let wanted = front(Op::Next, 8);
        let (frames, _) = bytes.as_chunks::<NEXT_REPLY>();
        let mut wrong = 0;
        for frame in frames {
            wrong |= frame.first_chunk().map_or(0, |front| u64::from_le_bytes(*front)) ^ wanted;
        }
        if wrong != 0 {
            let odd = frames.iter().position(|frame| frame[..8] != wanted.to_le_bytes()).unwrap_or(0);
            return Err(refused(&bytes[odd * NEXT_REPLY..]));
        }
        Ok(Scanned { replies: frames.len(), consumed: frames.len() * NEXT_REPLY })
    }
}

/// ARRAY or RUNS.
#[derive(Debug, Clone, Copy)]
pub struct Many {
    op: Op,
    bulk: Bulk,
}

/// ARRAY of `count` ids of any order.
#[must_use]
pub fn array(count: u32) -> Many {
    Many { op: Op::Array, bulk: Bulk::new(count, Order::Any, WAIT) }
}

/// RUNS of `count` ids of any order.
#[must_use]
pub fn runs(count: u32) -> Many {
    Many { op: Op::Runs, bulk: Bulk::new(count, Order::Any, WAIT) }
}

impl Dialect for Many {
    fn greet(&mut self, stream: &mut TcpStream) -> Result<()> {
        hello(stream)
    }

    fn request(&self, number: u64, out: &mut Vec<u8>) {
        match self.op {
            Op::Array => request_array(out, number, self.bulk),
            _ => request_runs(out, number, self.bulk),
        }
    }

    fn scan(&mut self, skip: &mut usize, bytes: &[u8]) -> Result<Scanned> {
        let (mut replies, mut at) = (0, 0);
        loop {
            let skipped = (*skip).min(bytes.len() - at);
            *skip -= skipped;
            at += skipped;
            if skipped > 0 && *skip == 0 {
                replies += 1;
            }
            // The header and, behind it, the count.
            let Some((head, rest)) = bytes[at..].split_first_chunk::<HEADER_LEN>() else { break };
            let Some(count) = rest.first_chunk() else { break };
            let header = Header::decode(*head);
            if header.status != 0 || header.op != self.op.code() | xuid_protocol::REPLY_BIT {
                return Err(refused(&bytes[at..]));
            }
            let count = u32::from_le_bytes(*count);
            ensure!(count == self.bulk.count, "{count} ids where {} were asked for", self.bulk.count);
            *skip = HEADER_LEN + header.body_len as usize;
        }
        Ok(Scanned { replies, consumed: at })
    }
}

/// `INCR` of one key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Incr;

impl Dialect for Incr {
    fn greet(&mut self, _: &mut TcpStream) -> Result<()> {
        Ok(())
    }

    fn request(&self, _: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n$2\r\nid\r\n");
    }

    fn scan(&mut self, _: &mut usize, bytes: &[u8]) -> Result<Scanned> {
        let (mut ends, mut errors) = (0_usize, 0_usize);
        // In pieces whose counts fit a byte, so that the compiler counts many at a time.
        for piece in bytes.chunks(255) {
            let (mut newlines, mut dashes) = (0_u8, 0_u8);
            for byte in piece {
                newlines += u8::from(*byte == b'\n');
                dashes += u8::from(*byte == b'-');
            }
            ends += usize::from(newlines);
            errors += usize::from(dashes);
        }
        if errors > 0 {
            bail!("Redis answered an error: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
        }
        let unfinished = bytes.iter().rev().take_while(|byte| **byte != b'\n').count();
        Ok(Scanned { replies: ends, consumed: bytes.len() - unfinished })
    }
}

/// Frames of NEXT's sizes, which nobody looks at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Dialect for Echo {
    fn greet(&mut self, _: &mut TcpStream) -> Result<()> {
        Ok(())
    }

    fn request(&self, number: u64, out: &mut Vec<u8>) {
        request_next(out, number, Order::Any);
    }

    fn scan(&mut self, _: &mut usize, bytes: &[u8]) -> Result<Scanned> {
        let replies = bytes.len() / NEXT_REPLY;
        Ok(Scanned { replies, consumed: replies * NEXT_REPLY })
    }
}

/// Understands every reply and keeps the ids, for a short pass that is not timed.
#[derive(Debug)]
pub struct Witness<D> {
    dialect: D,
    ids: Vec<u64>,
}

impl<D: Dialect> Witness<D> {
    /// Asks as `dialect` does.
    pub fn new(dialect: D) -> Self {
        Self { dialect, ids: Vec::new() }
    }

    /// How many ids came, or which came twice.
    ///
    /// # Errors
    /// One that came twice.
    pub fn verdict(mut self) -> Result<usize> {
        self.ids.sort_unstable();
        match self.ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => bail!("the id {} came twice", pair[0]),
            None => Ok(self.ids.len()),
        }
    }
}

impl<D: Dialect> Dialect for Witness<D> {
    fn greet(&mut self, stream: &mut TcpStream) -> Result<()> {
        self.dialect.greet(stream)
    }

    fn request(&self, number: u64, out: &mut Vec<u8>) {
        self.dialect.request(number, out);
    }

    /// Whole frames, one after another.
    fn scan(&mut self, _: &mut usize, bytes: &[u8]) -> Result<Scanned> {
        let mut scanned = Scanned { replies: 0, consumed: 0 };
        while let ParsedReply::Frame { consumed, reply, .. } =
            parse_reply(&bytes[scanned.consumed..], u32::MAX)?
        {
            match reply {
                Reply::Next(id) => self.ids.push(id),
                Reply::Array(ids) => self.ids.extend(ids.iter()),
                Reply::Runs(runs) => self.ids.extend(runs.iter().flatten()),
                _ => return Err(refused(&bytes[scanned.consumed..])),
            }
            scanned.replies += 1;
            scanned.consumed += consumed;
        }
        Ok(scanned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `bytes` cut into pieces of `piece`, as the driver does.
    fn scan_in_pieces(dialect: &mut impl Dialect, bytes: &[u8], piece: usize) -> Result<usize> {
        let (mut replies, mut skip, mut carry) = (0, 0, Vec::new());
        for part in bytes.chunks(piece) {
            carry.extend_from_slice(part);
            let scanned = dialect.scan(&mut skip, &carry)?;
            replies += scanned.replies;
            carry.drain(..scanned.consumed);
        }
        assert!(carry.is_empty(), "{carry:?}");
        Ok(replies)
    }

    fn frames(count: u64, write: impl Fn(&mut Vec<u8>, u64)) -> Vec<u8> {
        let mut bytes = Vec::new();
        (0..count).for_each(|number| write(&mut bytes, number));
        bytes
    }

    #[test]
    fn replies_are_counted_the_same_however_they_are_cut() {
        let next = frames(50, |out, id| xuid_protocol::reply_id(out, id, id));
        let lists = frames(50, |out, id| {
            let mut writer = xuid_protocol::ArrayWriter::begin(out, id, 10);
            writer.run(id * 10, 10);
            writer.finish();
        });
        let numbers = frames(50, |out, id| out.extend_from_slice(format!(":{}\r\n", id * id).as_bytes()));
        for piece in [1, 7, 24, 100, 1_000, 100_000] {
            assert_eq!(scan_in_pieces(&mut Next, &next, piece).unwrap(), 50);
            assert_eq!(scan_in_pieces(&mut array(10), &lists, piece).unwrap(), 50);
            assert_eq!(scan_in_pieces(&mut Incr, &numbers, piece).unwrap(), 50);
        }
    }

    #[test]
    fn a_refusal_voids_the_run() {
        let refusal = xuid_protocol::Refusal::new(xuid_protocol::Status::OVERLOADED, "nothing left");
        let mut bytes = frames(3, |out, id| xuid_protocol::reply_id(out, id, id));
        xuid_protocol::reply_error(&mut bytes, 3, Op::Next.code(), &refusal);
        let error = Next.scan(&mut 0, &bytes).unwrap_err();
        assert!(error.to_string().contains("nothing left"), "{error}");
        assert!(array(10).scan(&mut 0, &bytes).is_err(), "NEXT's reply is not ARRAY's");
        assert!(Incr.scan(&mut 0, b":1\r\n-ERR\r\n").is_err());
    }

    #[test]
    fn an_id_that_comes_twice_is_seen() {
        for (ids, unique) in [([1, 2, 3], true), ([1, 2, 1], false)] {
            let mut witness = Witness::new(Next);
            let bytes = frames(3, |out, id| xuid_protocol::reply_id(out, id, ids[id as usize]));
            assert_eq!(scan_in_pieces(&mut witness, &bytes, 7).unwrap(), 3);
            assert_eq!(witness.verdict().is_ok(), unique);
        }
        for (apart, unique) in [(10, true), (9, false)] {
            let mut witness = Witness::new(array(10));
            let bytes = frames(3, |out, id| {
                let mut writer = xuid_protocol::ArrayWriter::begin(out, id, 10);
                writer.run(id * apart, 10);
                writer.finish();
            });
            assert_eq!(scan_in_pieces(&mut witness, &bytes, 50).unwrap(), 3);
            assert_eq!(witness.verdict().ok(), unique.then_some(30));
        }
    }
}
