//! A client's socket below TLS, which knows what has come of a record that is not whole: TLS keeps it, and says that nothing came.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A record's type, version and length.
const HEAD: usize = 5;

/// TLS says something of its own now and then, which is short. So much without a word of the client's is not.
const MUCH: usize = 1_024;

/// The most that TLS keeps: what it has eaten, however much that was, lies nowhere.
const MOST: usize = 65_535;

/// The socket, and what TLS has read of it.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) stream: TcpStream,
    pub(crate) read: RecordsRead,
}

impl Records {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, read: RecordsRead::default() }
    }
}

/// What was read of the records.
#[derive(Debug, Default)]
pub(crate) struct RecordsRead {
    /// The head of the record that has begun, how much of the record was read, and how long it is.
    head: [u8; HEAD],
    got: usize,
    whole: usize,
    since: Option<Instant>,
    /// Read since TLS told something last, and since when.
    untold: usize,
    untold_since: Option<Instant>,
}

impl RecordsRead {
    /// So much was read.
    pub(crate) fn note(&mut self, mut bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let now = Instant::now();
        self.untold += bytes.len();
        self.untold_since.get_or_insert(now);
        while !bytes.is_empty() {
            let end = if self.got < HEAD { HEAD } else { self.whole };
            let (some, rest) = bytes.split_at(bytes.len().min(end - self.got));
            if self.got < HEAD {
                self.head[self.got..self.got + some.len()].copy_from_slice(some);
            }
            self.since.get_or_insert(now);
            (self.got, bytes) = (self.got + some.len(), rest);
            if self.got == HEAD {
                self.whole = HEAD + usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
            }
            if self.got >= HEAD && self.got == self.whole {
                (self.got, self.since) = (0, None);
            }
        }
    }

    /// TLS has told something of what was read.
    pub(crate) fn told(&mut self) {
        (self.untold, self.untold_since) = (0, None);
    }

    /// How much of what was read may lie in TLS, and since when: half a record, or much before it that means nothing yet.
    pub(crate) fn half(&self) -> Option<(usize, Instant)> {
        let is_much = self.untold.saturating_sub(self.got) >= MUCH;
        let much = self.untold_since.filter(|_| is_much).map(|since| (self.untold.min(MOST), since));
        much.or(self.since.map(|since| (self.got, since)))
    }
}

impl AsyncRead for Records {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, room);
        self.read.note(&room.filled()[before..]);
        read
    }
}

impl AsyncWrite for Records {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: u16) -> Vec<u8> {
        let mut bytes = vec![0x17, 3, 3];
        bytes.extend(len.to_be_bytes());
        bytes.resize(HEAD + usize::from(len), 7);
        bytes
    }

    #[test]
    fn half_a_record_is_known_wherever_it_was_cut() {
        let bytes = [record(300), record(0), record(20)].concat();
        let wholes = [305, 310, bytes.len()];
        for piece in 1..bytes.len() {
            let mut read = RecordsRead::default();
            let mut at = 0;
            for some in bytes.chunks(piece) {
                read.note(some);
                at += some.len();
                let begun = wholes.iter().rev().copied().find(|whole| *whole <= at).unwrap_or(0);
                let half = read.half().map(|(bytes, _)| bytes);
                assert_eq!(half, Some(at - begun).filter(|bytes| *bytes > 0), "{at}, by {piece}");
            }
        }
    }

    /// Half a message of the handshake, in records that are whole.
    #[test]
    fn much_of_which_nothing_was_told_is_half_of_something() {
        let mut read = RecordsRead::default();
        read.note(&record(1_000));
        assert_eq!(read.half(), None);
        read.note(&record(1_000));
        assert_eq!(read.half().map(|(bytes, _)| bytes), Some(2_010));
        read.told();
        assert_eq!(read.half(), None);
        // One that TLS understands, and half of a large one: that is half, and alone.
        read.note(&record(22));
        read.note(&record(5_000)[..3_000]);
        assert_eq!(read.half(), read.since.map(|since| (3_000, since)));
        for _ in 0..10_000 {
            read.note(&record(16_384));
        }
        assert_eq!(read.half().map(|(bytes, _)| bytes), Some(MOST), "the rest was eaten");
        read.told();
        let mut read = RecordsRead::default();
        read.note(&record(100)[..50]);
        read.told();
        assert_eq!(read.half().map(|(bytes, _)| bytes), Some(50), "what was told was before it");
    }
}
