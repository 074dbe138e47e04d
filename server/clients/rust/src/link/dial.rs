//! From an address to a greeted connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use xuid_protocol::{
    BadReply, ClusterId, HEADER_LEN, PREFACE, ParsedReply, Reply, VERSION, parse_reply, request_hello,
};

use crate::error::{Breach, ClientError};
use crate::link::look_up::look_up;
use crate::link::stream::Stream;
use crate::options::Options;
use crate::served::Served;

/// The request id of HELLO; those of `Pending` are above.
const HELLO_ID: u64 = 1;

/// The most bytes of HELLO's reply: an error text of 65,535, and room to grow.
const GREETING_MAX: u32 = 128 * 1_024;

/// The most bytes that are shown of a text.
const WORDS_SHOWN: usize = 100;

/// No dial takes longer: a clock has an end.
const LONGEST: Duration = Duration::from_hours(24);

/// A connection that said HELLO and was answered.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) stream: Stream,
    pub(crate) served: Served,
    /// What was received behind the answer.
    pub(crate) inbox: Vec<u8>,
}

/// Connects and says HELLO, within `connect_timeout`.
pub(crate) async fn dial(server: &Arc<str>, options: &Options) -> Result<Greeted, ClientError> {
    let unreachable =
        |source: io::Error| ClientError::Unreachable { server: Arc::clone(server), source: Arc::new(source) };
    let end = Instant::now() + options.connect_timeout.min(LONGEST);
    let greeted = async {
        let thread = thread::Builder::new().name("xuid-look-up".to_owned());
        let addresses = look_up(server, thread).await.map_err(unreachable)?;
        let stream = connect(&addresses, end).await.map_err(unreachable)?;
        // Without it a small request waits for the acknowledgement of the one before, 40 ms and more.
        stream.set_nodelay(true).map_err(unreachable)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            // On the heap: a handshake is large, and a plain connection must not pay for the room.
            return Box::pin(greet_in_tls(server, stream, tls, options)).await;
        }
        let mut stream = stream;
        let (about, inbox) = greet(server, &mut stream, options).await?;
        Ok::<_, ClientError>(Greeted { stream: Stream::Plain(stream), served: about, inbox })
    };
    match timeout_at(end, greeted).await {
        Ok(greeted) => greeted,
        Err(_) => Err(unreachable(io::ErrorKind::TimedOut.into())),
    }
}

/// To the first address of a name that takes it, each in its share of the time: one that is silent must not take it all.
async fn connect(addresses: &[SocketAddr], end: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let share = end.saturating_duration_since(Instant::now()) / left;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

#[cfg(feature = "tls")]
async fn greet_in_tls(
    server: &Arc<str>,
    stream: TcpStream,
    tls: &crate::tls::Tls,
    options: &Options,
) -> Result<Greeted, ClientError> {
    let mut stream = shake_hands(server, stream, tls).await?;
    let greeted = greet(server, &mut stream, options).await;
    let (about, inbox) = greeted.map_err(|error| behind_handshake(server, error))?;
    Ok(Greeted { stream: Stream::Tls(Box::new(stream)), served: about, inbox })
}

#[cfg(feature = "tls")]
async fn shake_hands(
    server: &Arc<str>,
    stream: TcpStream,
    tls: &crate::tls::Tls,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ClientError> {
    let failed = |source: io::Error| {
        let (server, source) = (Arc::clone(server), Arc::new(source));
        // What was said in the handshake stays so; else the server went.
        if source.kind() == io::ErrorKind::InvalidData {
            ClientError::Tls { server, source }
        } else {
            ClientError::Unreachable { server, source }
        }
    };
    let host = server.rsplit_once(':').map_or(&**server, |(host, _)| host);
    let name =
        tokio_rustls::rustls::pki_types::ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    tokio_rustls::TlsConnector::from(Arc::clone(&tls.config)).connect(name, stream).await.map_err(failed)
}

/// A server that refuses the client's certificate says so behind the handshake.
#[cfg(feature = "tls")]
fn behind_handshake(server: &Arc<str>, error: ClientError) -> ClientError {
    match error {
        ClientError::Lost { source: Some(source), .. } if source.kind() == io::ErrorKind::InvalidData => {
            ClientError::Tls { server: Arc::clone(server), source }
        }
        other => other,
    }
}

async fn greet(
    server: &Arc<str>,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    options: &Options,
) -> Result<(Served, Vec<u8>), ClientError> {
    let lost = |source| ClientError::lost(server, source);
    let mut hello = PREFACE.to_vec();
    if let Err(long) = request_hello(&mut hello, HELLO_ID, &options.hello()) {
        let allowed = "a length of at most 255 bytes";
        return Err(ClientError::Invalid { name: long.field, found: long.len as u64, allowed });
    }
    stream.write_all(&hello).await.map_err(|error| lost(Some(error)))?;
    stream.flush().await.map_err(|error| lost(Some(error)))?;
    let mut inbox = Vec::with_capacity(HEADER_LEN + 512);
    loop {
        match read_greeting(server, &inbox)? {
            Some((answer, consumed)) => {
                inbox.drain(..consumed);
                expect_cluster(&answer, options.cluster)?;
                return Ok((answer, inbox));
            }
            None if stream.read_buf(&mut inbox).await.map_err(|error| lost(Some(error)))? == 0 => {
                let early = "it was closed before HELLO was answered";
                return Err(lost(Some(io::Error::new(io::ErrorKind::UnexpectedEof, early))));
            }
            None => {}
        }
    }
}

/// A server refuses by itself what HELLO expected of it. One that does not is not believed either.
fn expect_cluster(answer: &Served, expected: ClusterId) -> Result<(), ClientError> {
    if expected == ClusterId::ANY || answer.cluster == expected {
        return Ok(());
    }
    let (server, found) = (Arc::clone(&answer.server), answer.cluster);
    Err(ClientError::WrongCluster { server, found, expected })
}

/// The first line of what is no frame, if it is a text.
fn words(inbox: &[u8]) -> Option<Box<str>> {
    let line = inbox.split(|byte| matches!(byte, b'\r' | b'\n')).next()?;
    let line = &line[..line.len().min(WORDS_SHOWN)];
    let is_text = line.len() > 3 && line.iter().all(|byte| matches!(byte, b' '..=b'~'));
    is_text.then(|| String::from_utf8_lossy(line).into())
}

/// The answer to HELLO and its length; `None`: there is more to come.
fn read_greeting(server: &Arc<str>, inbox: &[u8]) -> Result<Option<(Served, usize)>, ClientError> {
    let protocol = |breach: Breach| ClientError::protocol(server, breach);
    let bad = |bad: BadReply| protocol(words(inbox).map_or_else(|| bad.into(), Breach::Words));
    match parse_reply(inbox, GREETING_MAX).map_err(bad)? {
        ParsedReply::Incomplete { .. } => Ok(None),
        ParsedReply::Frame { consumed, reply, request_id, .. } => match reply {
            Reply::Hello(hello) if hello.version != VERSION => Err(protocol(Breach::Version(hello.version))),
            Reply::Hello(hello) => Ok(Some((Served::new(server, &hello), consumed))),
            Reply::Error(error) => Err(ClientError::refused(server, &error)),
            // It leaves before we came.
            Reply::GoAway => Err(ClientError::lost(server, None)),
            _ => Err(protocol(Breach::UnknownRequest(request_id))),
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn an_address_that_is_silent_leaves_time_for_the_next_one() {
        let listen = |backlog| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket.listen(backlog).unwrap()
        };
        let (full, open) = (listen(0), listen(16));
        let silent = full.local_addr().unwrap();
        // What fills its backlog; the next one is not answered.
        let mut filling: Vec<_> = (0..4).map(|_| Box::pin(TcpStream::connect(silent))).collect();
        for one in &mut filling {
            let _ = timeout(Duration::from_millis(20), one).await;
        }
        let begun = Instant::now();
        let addresses = [silent, open.local_addr().unwrap()];
        let found = connect(&addresses, begun + Duration::from_secs(2)).await.unwrap();
        assert_eq!(found.peer_addr().unwrap(), addresses[1]);
        assert!(begun.elapsed() >= Duration::from_millis(900), "the first address was silent");
        let none = connect(&addresses[..1], Instant::now() + Duration::from_millis(50)).await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
