//! What carries the bytes of a connection: TCP itself, or TLS on it.
//!
//! A connection is made for one or the other ([`Reading`], [`Writing`]), so that plain TCP pays nothing for the choice.
//!
//! # Invariants
//! - I1 `look`, `push` and `has_failed` ask the socket and not the runtime, which may not have looked yet;
//! - I2 what TLS took and the socket did not is not written yet ([`Writing::is_flushed`]). It is 64 KiB at most, and their
//!   records' heads.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::fronts::tls::records::Records;

/// Steps of one look within TLS. Every second one reads some 4 KiB off the socket, so these fill an inbox.
const STEPS: usize = 40;

/// The half that is read.
pub(crate) trait Reading {
    /// Reads into what `room` has to spare; 0 is the end.
    fn poll_read(&mut self, context: &mut Context<'_>, room: &mut Vec<u8>) -> Poll<io::Result<usize>>;

    /// Reads what lies in the socket. `WouldBlock`: nothing.
    fn look(&mut self, room: &mut Vec<u8>) -> io::Result<usize>;

    /// How much was read and not told, since it is half of something, and since when. Beside what `poll_read` put into its room.
    fn half(&self) -> Option<(usize, Instant)> {
        None
    }

    /// Whether the socket has failed, as where the client has reset it. The end of its input is no failure.
    fn has_failed(&self) -> bool;

    /// Whose bytes they are.
    fn peer(&self) -> io::Result<SocketAddr>;
}

/// The half that is written.
pub(crate) trait Writing {
    /// Whether the socket has everything that was taken.
    fn is_flushed(&self) -> bool;

    /// Takes some of `bytes`; where there are none, gives the socket what it lacks and takes 0.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Takes what fits at once. `WouldBlock`: nothing.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Gives the socket what it has room for.
    fn push(&mut self, bytes: &[u8]) -> io::Result<Pushed>;
}

/// What a push did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pushed {
    /// So many bytes were taken.
    pub(crate) taken: usize,
    /// The socket had room.
    pub(crate) moved: bool,
}

impl Reading for ReadHalf<'_> {
    fn poll_read(&mut self, context: &mut Context<'_>, room: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        pin!(self.read_buf(room)).poll(context)
    }

    fn look(&mut self, room: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(self.as_ref(), spare_capacity(room))?)
    }

    fn has_failed(&self) -> bool {
        has_failed(self.as_ref())
    }

    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
}

impl Writing for WriteHalf<'_> {
    fn is_flushed(&self) -> bool {
        true
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(self).poll_write(context, bytes) {
            Poll::Ready(Ok(0)) if !bytes.is_empty() => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WriteHalf::try_write(self, bytes)
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<Pushed> {
        match rustix::io::write(self.as_ref(), bytes) {
            Ok(taken) => Ok(Pushed { taken, moved: taken > 0 }),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Pushed::default()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Either half of TLS: both read and write one state, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsHalf<'s>(pub(crate) &'s Mutex<TlsStream<Records>>);

impl TlsHalf<'_> {
    fn lock(&self) -> MutexGuard<'_, TlsStream<Records>> {
        // Both halves are of one task, and nothing is awaited under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading for TlsHalf<'_> {
    fn poll_read(&mut self, context: &mut Context<'_>, room: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let mut tls = self.lock();
        let read = pin!(tls.read_buf(room)).poll(context);
        if matches!(read, Poll::Ready(Ok(1..))) {
            tls.get_mut().0.read.told();
        }
        read.map(|read| read.or_else(ended))
    }

    fn look(&mut self, room: &mut Vec<u8>) -> io::Result<usize> {
        let mut tls = self.lock();
        let (records, session) = tls.get_mut();
        let (begin, most) = (room.len(), room.capacity());
        room.resize(most, 0);
        let mut end = begin;
        // Where nothing comes of it, there was nothing.
        let mut outcome = Err(io::ErrorKind::WouldBlock.into());
        for _ in 0..STEPS {
            match session.reader().read(&mut room[end..]) {
                // The end, or no room.
                Ok(0) => {
                    outcome = Ok(0);
                    break;
                }
                Ok(count) => {
                    end += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    outcome = ended(error);
                    break;
                }
            }
            let read = session.read_tls(records).and_then(|count| {
                session.process_new_packets().map_err(io::Error::other)?;
                Ok(count)
            });
            if let Err(error) = read {
                outcome = ended(error);
                break;
            }
        }
        room.truncate(end);
        if end == begin {
            return outcome;
        }
        records.read.told();
        Ok(end - begin)
    }

    fn half(&self) -> Option<(usize, Instant)> {
        self.lock().get_ref().0.read.half()
    }

    fn has_failed(&self) -> bool {
        has_failed(&self.lock().get_ref().0.stream)
    }

    fn peer(&self) -> io::Result<SocketAddr> {
        self.lock().get_ref().0.stream.peer_addr()
    }
}

/// Asks the system, and takes neither bytes nor the error away.
fn has_failed(socket: &TcpStream) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    let found = poll(&mut asked, Some(&Timespec::default()));
    found.is_ok() && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Frames carry their lengths, so an end without TLS's own goodbye cuts nothing off unseen.
fn ended(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::UnexpectedEof { Ok(0) } else { Err(error) }
}

impl Writing for TlsHalf<'_> {
    fn is_flushed(&self) -> bool {
        !self.lock().get_ref().1.wants_write()
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut tls = self.lock();
        let tls = Pin::new(&mut *tls);
        if bytes.is_empty() { tls.poll_flush(context).map_ok(|()| 0) } else { tls.poll_write(context, bytes) }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The task that then waits for room asks again, with a waker.
        match self.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<Pushed> {
        let mut tls = self.lock();
        let (records, session) = tls.get_mut();
        let mut pushed = Pushed { taken: session.writer().write(bytes)?, moved: false };
        while session.wants_write() {
            match session.write_tls(&mut Socket(&records.stream)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => pushed.moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pushed)
    }
}

/// Off the socket itself, past the runtime.
impl Read for Records {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = rustix::io::read(&self.stream, &mut *bytes)?;
        self.read.note(&bytes[..count]);
        Ok(count)
    }
}

/// The socket itself, past the runtime, to be written to.
struct Socket<'s>(&'s TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
