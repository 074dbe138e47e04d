//! What carries the bytes of a link: TCP, or TLS on it.

use std::io;

use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

/// A connection that said HELLO.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// The half that is read.
pub(crate) trait Reading: AsyncRead + Unpin + Send + 'static {
    /// Reads what lies there, without waiting. `None`: nothing.
    fn read_now(&mut self, inbox: &mut Vec<u8>) -> Option<io::Result<usize>>;
}

impl Reading for OwnedReadHalf {
    /// Without asking the runtime whether something lies there: it may not have looked yet, and on several threads no
    /// turn of one of them says that it has.
    #[cfg(unix)]
    fn read_now(&mut self, inbox: &mut Vec<u8>) -> Option<io::Result<usize>> {
        loop {
            match rustix::io::read(self.as_ref(), rustix::buffer::spare_capacity(inbox)) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return None,
                read => return Some(read.map_err(io::Error::from)),
            }
        }
    }

    /// What the runtime did not find is not found.
    #[cfg(not(unix))]
    fn read_now(&mut self, _: &mut Vec<u8>) -> Option<io::Result<usize>> {
        None
    }
}

#[cfg(feature = "tls")]
impl Reading for tokio::io::ReadHalf<tokio_rustls::client::TlsStream<TcpStream>> {
    /// What the runtime did not find is not found.
    fn read_now(&mut self, inbox: &mut Vec<u8>) -> Option<io::Result<usize>> {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        use tokio::io::AsyncReadExt;

        match pin!(self.read_buf(inbox)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => Some(read),
            Poll::Pending => None,
        }
    }
}
