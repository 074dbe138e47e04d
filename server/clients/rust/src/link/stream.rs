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
    /// Reads what lies there, and waits for nothing else. `None`: nothing.
    fn read_now(&mut self, inbox: &mut Vec<u8>) -> impl Future<Output = Option<io::Result<usize>>> + Send;
}

impl Reading for OwnedReadHalf {
    /// Without asking the runtime whether something lies there: it may not have looked yet, and on several threads no
    /// turn of one of them says that it has.
    #[cfg(unix)]
    async fn read_now(&mut self, inbox: &mut Vec<u8>) -> Option<io::Result<usize>> {
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
    async fn read_now(&mut self, _: &mut Vec<u8>) -> Option<io::Result<usize>> {
        None
    }
}

#[cfg(feature = "tls")]
pub(crate) use within_tls::TlsRead;

#[cfg(feature = "tls")]
mod within_tls {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, ReadBuf, ReadHalf, WriteHalf, split};
    use tokio::time::timeout;
    use tokio_rustls::client::TlsStream;

    use super::{AsyncRead, Reading, TcpStream, io};

    /// How long the runtime may take to find what lies in the socket: as long as a call waits for a last look.
    const LAST_LOOK: Duration = Duration::from_secs(1);

    /// The half of TLS that is read.
    #[derive(Debug)]
    pub(crate) struct TlsRead {
        half: ReadHalf<TlsStream<TcpStream>>,
        /// The socket once more, to look whether something lies there. `None`: it could not be had.
        #[cfg(unix)]
        socket: Option<std::net::TcpStream>,
    }

    impl TlsRead {
        /// Both halves of a connection.
        pub(crate) fn split(stream: TlsStream<TcpStream>) -> (Self, WriteHalf<TlsStream<TcpStream>>) {
            #[cfg(unix)]
            let socket = {
                use std::os::fd::AsFd;
                stream.get_ref().0.as_fd().try_clone_to_owned().ok().map(std::net::TcpStream::from)
            };
            let (half, write) = split(stream);
            let read = Self {
                half,
                #[cfg(unix)]
                socket,
            };
            (read, write)
        }

        /// Whether bytes, the end or an error lie in the socket. The runtime may not have looked yet.
        pub(super) fn has_more(&self) -> bool {
            #[cfg(unix)]
            return self.socket.as_ref().is_some_and(
                |socket| !matches!(socket.peek(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock),
            );
            #[cfg(not(unix))]
            false
        }
    }

    impl AsyncRead for TlsRead {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.half).poll_read(context, room)
        }
    }

    impl Reading for TlsRead {
        /// TLS reads through the runtime, which is waited for if something lies in the socket.
        async fn read_now(&mut self, inbox: &mut Vec<u8>) -> Option<io::Result<usize>> {
            match pin!(self.half.read_buf(inbox)).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(read) => return Some(read),
                Poll::Pending if self.has_more() => {}
                Poll::Pending => return None,
            }
            timeout(LAST_LOOK, self.half.read_buf(inbox)).await.ok()
        }
    }
}

#[cfg(test)]
#[cfg(all(feature = "tls", unix))]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use rcgen::{CertificateParams, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
    use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

    use super::*;

    /// Both ends of a connection within TLS.
    async fn pair() -> (client::TlsStream<TcpStream>, server::TlsStream<TcpStream>) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap()
        };
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap()
        };
        tokio::join!(connect, accept)
    }

    /// As in a process that was stopped: it wakes with timers that are over, and a socket that nothing has looked into.
    #[tokio::test]
    async fn what_lies_in_the_socket_is_found_within_tls_before_the_runtime_has_looked() {
        let (client, mut server) = pair().await;
        let (mut read, _write) = TlsRead::split(client);
        let mut inbox = Vec::with_capacity(16);
        server.write_all(b"1").await.unwrap();
        read.read_buf(&mut inbox).await.unwrap();
        assert!(read.read_now(&mut inbox).await.is_none(), "nothing more was said");
        // From here on nothing is waited for: the runtime has no turn.
        let write = pin!(server.write_all(b"2")).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(write, Poll::Ready(Ok(()))), "{write:?}");
        while !read.has_more() {
            std::hint::spin_loop();
        }
        let found = read.read_now(&mut inbox).await;
        assert!(matches!(found, Some(Ok(1))) && inbox == b"12", "{found:?}");
        drop(server);
        while !read.has_more() {
            std::hint::spin_loop();
        }
        assert!(read.read_now(&mut inbox).await.is_some(), "the end lies there, too");
    }
}
