//! One connection to a server, as the commands need it: no pool, no reconnecting. Programs use the client crate.
//!
//! # Invariants
//! - I1 a reply is read into no more memory than the request gave reason for, whatever the server claims in HELLO or in
//!   the reply's header;
//! - I2 ids are as many as were asked for, and each is one that XUID/1 knows.

#[cfg(test)]
mod tests;

use std::env::VarError;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use xuid_engine::registry::printable;
use xuid_engine::{Face, Layout, LayoutError};
use xuid_load::Wire;
use xuid_protocol::{
    Bulk, ClusterId, Decoded, Hello, HelloReply, LAST_ID, Limits, Op, Order, PREFACE, ParsedReply,
    REPLY_ROOM, Reply, SeqBulk, SeqList, SequenceName, Status, VERSION, parse_reply, reply_max,
    request_array, request_decode, request_hello, request_info, request_provenance, request_seq_alter,
    request_seq_array, request_seq_create, request_seq_info, request_seq_list,
};

use crate::fronts::buffers::Inbox;
use crate::state::beside::beside;

/// No server is that far away.
const CONNECT: Duration = Duration::from_secs(5);

/// A server that answers HELLO later than this is none.
const GREETING: Duration = Duration::from_secs(5);

/// How long ids may take that a person waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What carries the bytes.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn connect(address: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let end = Instant::now() + CONNECT;
        let connecting = timeout_at(end, async { connect(&look_up(address).await?, end).await });
        let connected = connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connected.with_context(|| {
            format!("failed to connect to {address} (is a server there? start one with `xuid serve`)")
        })?;
        stream.set_nodelay(true).context("failed to set up the connection")?;
        let Some(config) = tls else { return Ok(Self::Plain(stream)) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .with_context(|| format!("{host} is no name that a certificate can have"))?;
        let shaking = timeout(GREETING, TlsConnector::from(Arc::clone(config)).connect(name, stream)).await;
        let shaken = shaking.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).with_context(|| {
            format!(
                "no TLS with {address} (does it speak TLS, does --ca vouch for it under that name, and may it have one more \
                 connection?)"
            )
        })?;
        Ok(Self::Tls(Box::new(shaken)))
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn read_buf(&mut self, room: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read_buf(room).await,
            Self::Tls(stream) => stream.read_buf(room).await,
        }
    }
}

/// The addresses of a server's name, or the one that it is. A name may be looked up for minutes, beside this thread.
async fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let name = address.to_owned();
    let found = beside("xuid-look-up", move || name.to_socket_addrs().map(Iterator::collect));
    found.map_err(io::Error::other)?.await.map_err(io::Error::other)?
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

/// A connection that said HELLO.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    inbox: Inbox,
    outbox: Vec<u8>,
    last_request: u64,
    address: String,
    limits: Limits,
    cluster: ClusterId,
    layout: Result<Layout, LayoutError>,
}

/// A connection that said HELLO, without what drives it: a load generator has its own loop.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// Does not block.
    pub(crate) wire: Wire,
    /// What was read behind the reply to HELLO.
    pub(crate) inbox: Inbox,
    pub(crate) limits: Limits,
    pub(crate) cluster: ClusterId,
}

/// The server ended the connection, or it broke. Another one may serve.
#[derive(Debug)]
pub(crate) struct Ended {
    address: String,
    source: Option<io::Error>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            None => write!(f, "{} closed the connection", self.address),
            Some(_) => write!(f, "the connection to {} broke", self.address),
        }
    }
}

impl Error for Ended {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The server answered that it does not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: Status,
    text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refused {}

impl Connection {
    /// Connects and greets, with the token in `XUID_TOKEN` if there is one; within TLS, if that is given.
    pub(crate) async fn connect(address: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let stream = Stream::connect(address, tls).await?;
        let (inbox, outbox) = (Inbox::default(), PREFACE.to_vec());
        let address = address.to_owned();
        let (limits, cluster, layout) = (Limits::default(), ClusterId::ANY, Ok(Layout::default()));
        let mut connection =
            Self { stream, inbox, outbox, last_request: 0, address, limits, cluster, layout };
        let greeted = timeout(GREETING, connection.greet()).await;
        greeted.with_context(|| {
            let address = &connection.address;
            format!("{address} did not answer HELLO within {GREETING:?}: does it speak XUID/1 (is that the port of `--listen`?)")
        })??;
        Ok(connection)
    }

    async fn greet(&mut self) -> Result<()> {
        let token = match std::env::var("XUID_TOKEN") {
            Ok(token) => token,
            Err(VarError::NotPresent) => String::new(),
            Err(VarError::NotUnicode(_)) => {
                bail!(
                    "the token in XUID_TOKEN is not UTF-8 text, and that of a server always is: check the variable"
                )
            }
        };
        let hello = Hello { token: token.as_bytes(), ..Hello::new("xuid") };
        let request_id = self.next_request();
        request_hello(&mut self.outbox, request_id, &hello)?;
        self.flush().await?;
        (self.limits, self.cluster, self.layout) = self
            .receive(REPLY_ROOM, |_, reply| match reply {
                Reply::Hello(hello) if hello.version == VERSION => Ok((hello.limits, hello.cluster, layout_of(&hello))),
                Reply::Hello(hello) => Err(anyhow::anyhow!(
                    "the server picked version {} of the protocol, and only version {VERSION} was offered: it is no server of \
                     XUID/1",
                    hello.version
                )),
                other => Err(unexpected(&other)),
            })
            .await??;
        Ok(())
    }

    /// Whose ids come from it.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// How its ids are split, or why what it says is no layout.
    pub(crate) fn layout(&self) -> Result<Layout, LayoutError> {
        self.layout.clone()
    }

    /// Takes the connection out of this runtime.
    pub(crate) fn into_greeted(self) -> Result<Greeted> {
        let detached = |stream: TcpStream| stream.into_std().context("failed to set up the connection");
        let wire = match self.stream {
            Stream::Plain(stream) => Wire::Plain(detached(stream)?),
            Stream::Tls(stream) => {
                let (stream, session) = stream.into_inner();
                Wire::Tls { socket: detached(stream)?, session: Box::new(session) }
            }
        };
        Ok(Greeted { wire, inbox: self.inbox, limits: self.limits, cluster: self.cluster })
    }

    /// A number for the next request.
    fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Sends what was appended.
    async fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.outbox).await;
        self.outbox.clear();
        Ok(sent.map_err(|error| self.ended(Some(error)))?)
    }

    fn ended(&self, source: Option<io::Error>) -> Ended {
        Ended { address: self.address.clone(), source }
    }

    /// The next reply, whose body is at most `most` bytes. GOAWAY is one too, of request 0.
    async fn receive<T>(&mut self, most: u32, take: impl FnOnce(u64, Reply<'_>) -> T) -> Result<T> {
        loop {
            let need = match parse_reply(self.inbox.rest(), most) {
                Ok(ParsedReply::Incomplete { need }) => need,
                Ok(ParsedReply::Frame { .. }) => break,
                Err(error) => {
                    bail!("{} does not speak XUID/1 (is that the port of `--listen`?): {error}", self.address)
                }
            };
            let read = self.stream.read_buf(self.inbox.room(need.max(64 * 1024))).await;
            match read {
                Ok(1..) => {}
                Ok(_) => return Err(self.ended(None).into()),
                Err(error) => return Err(self.ended(Some(error)).into()),
            }
        }
        // Parsed a second time, because the borrow checker cannot see that the loop ends with the frame it found.
        let Ok(ParsedReply::Frame { consumed, request_id, reply, .. }) = parse_reply(self.inbox.rest(), most)
        else {
            bail!("a reply of {} vanished", self.address)
        };
        let taken = take(request_id, reply);
        self.inbox.consume(consumed);
        Ok(taken)
    }

    /// So many ids, or as many as the server gives at a time, or why not.
    pub(crate) async fn ids(&mut self, count: u32, order: Order) -> Result<Vec<u64>> {
        let count = count.min(self.limits.max_count);
        if count == 0 {
            bail!("{} says that it gives 0 ids a request: it is no server of XUID/1", self.address);
        }
        let request_id = self.next_request();
        request_array(&mut self.outbox, request_id, Bulk::new(count, order, PATIENCE));
        self.flush().await?;
        let most = count.saturating_mul(8).saturating_add(REPLY_ROOM);
        let ids = self.answered(most, |id, reply| match reply {
            Reply::Array(ids) if id == request_id => Ok(ids.iter().collect()),
            other => Err(unexpected(other)),
        });
        let ids = ids.await?;
        self.checked(count, ids)
    }

    /// What the server says of itself.
    pub(crate) async fn info(&mut self) -> Result<serde_json::Value> {
        let request_id = self.next_request();
        request_info(&mut self.outbox, request_id);
        self.flush().await?;
        let info = self.answered(reply_max(Op::Info, 0), |id, reply| match reply {
            Reply::Info(json) if id == request_id => {
                serde_json::from_str(json).context("what INFO says is no JSON")
            }
            other => Err(unexpected(other)),
        });
        info.await
    }

    /// What the server knows of where an id came from.
    pub(crate) async fn provenance(&mut self, id: u64) -> Result<serde_json::Value> {
        let request_id = self.next_request();
        request_provenance(&mut self.outbox, request_id, id);
        self.flush().await?;
        let found = self.answered(reply_max(Op::Provenance, 0), |id, reply| match reply {
            Reply::Provenance(json) if id == request_id => {
                serde_json::from_str(json).context("what the server says of an id is no JSON")
            }
            other => Err(unexpected(other)),
        });
        found.await
    }

    /// So many numbers of a sequence, or as many as the server gives at a time, or why not.
    pub(crate) async fn numbers(
        &mut self,
        name: SequenceName<'_>,
        count: u32,
        order: Order,
    ) -> Result<Vec<u64>> {
        let count = count.min(self.limits.max_count).max(1);
        let request_id = self.next_request();
        request_seq_array(&mut self.outbox, request_id, SeqBulk::new(name, count, order, PATIENCE));
        self.flush().await?;
        let numbers = self.answered(reply_max(Op::SeqArray, count), |id, reply| match reply {
            Reply::Array(numbers) if id == request_id => Ok(numbers.iter().collect()),
            other => Err(unexpected(other)),
        });
        let numbers = numbers.await?;
        self.checked(count, numbers)
    }

    /// What the server says of an id.
    pub(crate) async fn decode(&mut self, id: u64) -> Result<Decoded> {
        let request_id = self.next_request();
        request_decode(&mut self.outbox, request_id, id);
        self.flush().await?;
        self.answered(reply_max(Op::Decode, 0), |id, reply| match reply {
            Reply::Decode(decoded) if id == request_id => Ok(*decoded),
            other => Err(unexpected(other)),
        })
        .await
    }

    /// What the server knows of a sequence.
    pub(crate) async fn sequence(&mut self, name: SequenceName<'_>) -> Result<serde_json::Value> {
        self.about_sequences(|out, id| request_seq_info(out, id, name)).await
    }

    /// A page of all sequences.
    pub(crate) async fn sequences(
        &mut self,
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Result<serde_json::Value> {
        self.about_sequences(|out, id| request_seq_list(out, id, SeqList { limit, prefix, after })).await
    }

    /// A new sequence.
    pub(crate) async fn create_sequence(
        &mut self,
        name: SequenceName<'_>,
        settings: &str,
    ) -> Result<serde_json::Value> {
        self.about_sequences(|out, id| request_seq_create(out, id, name, settings)).await
    }

    /// Another one.
    pub(crate) async fn alter_sequence(
        &mut self,
        name: SequenceName<'_>,
        changes: &str,
    ) -> Result<serde_json::Value> {
        self.about_sequences(|out, id| request_seq_alter(out, id, name, changes)).await
    }

    async fn about_sequences(&mut self, ask: impl FnOnce(&mut Vec<u8>, u64)) -> Result<serde_json::Value> {
        let request_id = self.next_request();
        ask(&mut self.outbox, request_id);
        self.flush().await?;
        let json = self.answered(reply_max(Op::SeqInfo, 0), |id, reply| match reply {
            Reply::Sequence(json) if id == request_id => {
                serde_json::from_str(json).context("what the server says of a sequence is no JSON")
            }
            other => Err(unexpected(other)),
        });
        json.await
    }

    /// What `take` makes of the first reply that is no GOAWAY.
    async fn answered<T>(&mut self, most: u32, take: impl Fn(u64, &Reply<'_>) -> Result<T>) -> Result<T> {
        // One limit, however many frames come instead.
        let answered = timeout(PATIENCE * 2, async {
            loop {
                let reply = self.receive(most, |id, reply| match reply {
                    Reply::GoAway => None,
                    reply => Some(take(id, &reply)),
                });
                if let Some(taken) = reply.await? {
                    return taken;
                }
            }
        });
        answered.await.with_context(|| format!("{} does not answer", self.address))?
    }

    /// The ids of a reply, if they are what was asked for.
    fn checked(&self, count: u32, ids: Vec<u64>) -> Result<Vec<u64>> {
        let (server, came) = (&self.address, ids.len());
        if came != count as usize {
            bail!("{server} was asked for {count} ids and answered {came}");
        }
        if let Some(id) = ids.iter().find(|id| **id > LAST_ID) {
            bail!("{server} answered {id}, which is no id: the highest is {LAST_ID}");
        }
        Ok(ids)
    }
}

fn layout_of(hello: &HelloReply<'_>) -> Result<Layout, LayoutError> {
    let HelloReply { time_bits, worker_bits, sequence_bits, face, tick_us, epoch_ms, .. } = *hello;
    let face = Face::from_code(face).ok_or(LayoutError::FaceCode { code: face })?;
    Ok(Layout::new(time_bits, worker_bits, sequence_bits, tick_us, epoch_ms)?.with_face(face))
}

/// A reply that was not hoped for, as an error: mostly it is a [`Refused`].
fn unexpected(reply: &Reply<'_>) -> anyhow::Error {
    let Reply::Error(error) = reply else { return anyhow::anyhow!("the server answered another question") };
    let again = match error.retry_after_ms {
        0 => String::new(),
        // The engine's own words end with it.
        _ if error.text.contains("try again in") => String::new(),
        _ => format!(" (try again in {:?})", error.retry_after()),
    };
    let text = format!("{}: {}{again}", error.status, printable(&error.text));
    Refused { status: error.status, text }.into()
}
