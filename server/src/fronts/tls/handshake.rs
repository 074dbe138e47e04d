//! TLS at the beginning of a connection, for both ports.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::records::Records;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Why there is no TLS with a client.
#[derive(Debug)]
pub(crate) enum NoTls {
    /// It does not speak TLS, and was told so. What it sends should be read for a moment, or a reset would overtake that.
    Plain(TcpStream),
    /// It is gone, or the handshake failed. The same holds for the alert that says why.
    Failed(io::Error, TcpStream),
}

/// Shakes hands. A client that speaks something else gets `plain` for an answer, in one write, which a new socket has room
/// for.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    plain: impl FnOnce(u8) -> Vec<u8>,
) -> Result<TlsStream<Records>, NoTls> {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) => return Err(NoTls::Failed(io::ErrorKind::UnexpectedEof.into(), stream)),
        Ok(_) => {}
        Err(error) => return Err(NoTls::Failed(error, stream)),
    }
    if first != [HANDSHAKE] {
        let _ = rustix::io::write(&stream, &plain(first[0]));
        return Err(NoTls::Plain(stream));
    }
    let shaking = TlsAcceptor::from(config).accept(Records::new(stream)).into_fallible();
    let mut tls = shaking.await.map_err(|(error, records)| NoTls::Failed(error, records.stream))?;
    tls.get_mut().0.read.told();
    Ok(tls)
}
