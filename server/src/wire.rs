//! One connection to a server, as the commands need it: no pool, no reconnecting. Programs use the client crate.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xuid_protocol::{
    Bulk, ClusterId, Hello, Limits, Order, PREFACE, ParsedReply, Reply, parse_reply, request_array,
    request_hello,
};

use crate::session::Inbox;

/// No server is that far away.
const CONNECT: Duration = Duration::from_secs(5);

/// How long ids may take that a person waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes beyond the ids that any reply may have: INFO and STATS are some kilobytes.
const REPLY_ROOM: u32 = 1 << 20;

/// A connection that said HELLO.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Vec<u8>,
    last_request: u64,
    address: String,
    limits: Limits,
    cluster: ClusterId,
}

/// A connection that said HELLO, without what drives it: a load generator has its own loop.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// Does not block.
    pub(crate) stream: std::net::TcpStream,
    /// What was read behind the reply to HELLO.
    pub(crate) inbox: Inbox,
    pub(crate) limits: Limits,
    pub(crate) cluster: ClusterId,
}

impl Wire {
    /// Connects and greets, with the token in `XUID_TOKEN` if there is one.
    pub(crate) async fn connect(address: &str) -> Result<Self> {
        let connecting = timeout(CONNECT, TcpStream::connect(address)).await;
        let connected = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = connected.with_context(|| {
            format!("failed to connect to {address} (is a server there? start one with `xuid serve`)")
        })?;
        stream.set_nodelay(true).context("failed to set up the connection")?;
        let (inbox, outbox) = (Inbox::default(), PREFACE.to_vec());
        let address = address.to_owned();
        let (limits, cluster) = (Limits::default(), ClusterId::ANY);
        let mut wire = Self { stream, inbox, outbox, last_request: 0, address, limits, cluster };
        wire.greet().await?;
        Ok(wire)
    }

    async fn greet(&mut self) -> Result<()> {
        let token = std::env::var("XUID_TOKEN").unwrap_or_default();
        let hello = Hello { token: token.as_bytes(), ..Hello::new("xuid") };
        let request_id = self.next_request();
        request_hello(&mut self.outbox, request_id, &hello)?;
        self.flush().await?;
        (self.limits, self.cluster) = self
            .receive(|_, reply| match reply {
                Reply::Hello(hello) => Ok((hello.limits, hello.cluster)),
                other => Err(unexpected(&other)),
            })
            .await??;
        Ok(())
    }

    /// Takes the connection out of this runtime.
    pub(crate) fn into_greeted(self) -> Result<Greeted> {
        let stream = self.stream.into_std().context("failed to set up the connection")?;
        Ok(Greeted { stream, inbox: self.inbox, limits: self.limits, cluster: self.cluster })
    }

    /// A number for the next request.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Sends what was appended.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.outbox).await;
        self.outbox.clear();
        sent.with_context(|| format!("the connection to {} broke", self.address))
    }

    /// The next reply. GOAWAY is one too, of request 0.
    pub(crate) async fn receive<T>(&mut self, take: impl FnOnce(u64, Reply<'_>) -> T) -> Result<T> {
        let most = REPLY_ROOM + 16 * self.limits.max_count;
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
                Ok(_) => bail!("{} closed the connection", self.address),
                Err(error) => {
                    return Err(error).with_context(|| format!("the connection to {} broke", self.address));
                }
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

    /// So many ids, or why not.
    pub(crate) async fn ids(&mut self, count: u32, order: Order) -> Result<Vec<u64>> {
        let count = count.min(self.limits.max_count);
        let request_id = self.next_request();
        request_array(&mut self.outbox, request_id, Bulk::new(count, order, PATIENCE));
        self.flush().await?;
        loop {
            let reply = self.receive(|id, reply| match reply {
                Reply::GoAway => None,
                Reply::Array(ids) if id == request_id => Some(Ok(ids.iter().collect())),
                other => Some(Err(unexpected(&other))),
            });
            let reply = timeout(PATIENCE * 2, reply).await;
            if let Some(ids) = reply.with_context(|| format!("{} does not answer", self.address))?? {
                return ids;
            }
        }
    }
}

/// A reply that was not hoped for, as an error: mostly it is one.
fn unexpected(reply: &Reply<'_>) -> anyhow::Error {
    match reply {
        Reply::Error(error) if error.retry_after_ms > 0 => {
            anyhow::anyhow!("{}: {} (try again in {:?})", error.status, error.text, error.retry_after())
        }
        Reply::Error(error) => anyhow::anyhow!("{}: {}", error.status, error.text),
        other => anyhow::anyhow!("the server answered another question: {other:?}"),
    }
}
