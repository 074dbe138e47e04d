//! A blocking client of XUID/1 over one TCP connection, strict about what it is sent.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use thiserror::Error;

use crate::frame::{Fields, Frame, HEADER_LEN, PREFACE, encode, hello_body, op};
use crate::oracle::Run;

/// No reply may take longer than this: a server that hangs fails the test instead of stopping it.
const READ_LIMIT: Duration = Duration::from_mins(1);

/// What a caller asks of an id's age and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// May come from the reserve.
    Any = 0,
    /// A timestamp of now.
    Fresh = 1,
    /// Greater than every earlier ordered id.
    Ordered = 2,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 3] = [Order::Any, Order::Fresh, Order::Ordered];
}

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("status {status:04x}, retry after {retry_after_ms} ms: {text}")]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// When to come back.
    pub retry_after_ms: u32,
    /// What the server says about it.
    pub text: String,
}

impl Refusal {
    /// Whether the same request may be tried again.
    pub fn is_retryable(&self) -> bool {
        self.status & 0x8000 != 0
    }
}

/// What can go wrong with a request.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The connection ended: closed, reset or timed out.
    #[error("the connection ended: {0}")]
    Ended(#[from] io::Error),
    /// The server answered with an error.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server broke the protocol.
    #[error("the server broke the protocol: {0}")]
    Broken(&'static str),
}

type Result<T> = std::result::Result<T, ClientError>;

/// What HELLO was answered.
#[derive(Debug, Clone)]
pub struct Hello {
    /// The version both speak.
    pub version: u16,
    /// The cluster's id.
    pub cluster: [u8; 16],
    /// The epoch in Unix milliseconds.
    pub epoch_ms: u64,
    /// The length of a tick in microseconds.
    pub tick_us: u32,
    /// Bits of time, worker and sequence.
    pub bits: (u8, u8, u8),
    /// What callers see of them.
    pub face: u8,
    /// The longest request body.
    pub max_body: u32,
    /// The most ids of one request.
    pub max_count: u32,
    /// The most requests in flight.
    pub max_in_flight: u32,
    /// When a silent connection is closed.
    pub idle_ms: u32,
    /// The server's version.
    pub server: String,
}

/// The fields of an id, by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Unix milliseconds of its tick.
    pub unix_ms: u64,
    /// Its worker.
    pub worker: u32,
    /// Its sequence.
    pub sequence: u32,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    inbox: Vec<u8>,
    consumed: usize,
    outbox: Vec<u8>,
    next_request: u64,
    going_away: bool,
}

impl Client {
    /// Connects and sends the preface, nothing more.
    pub fn preface(addr: SocketAddr) -> Result<Self> {
        let mut client = Self::silent(addr)?;
        client.outbox.extend_from_slice(&PREFACE);
        Ok(client)
    }

    /// Connects and sends nothing.
    pub fn silent(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_LIMIT))?;
        stream.set_write_timeout(Some(READ_LIMIT))?;
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Ok(Self { stream, inbox, consumed: 0, outbox, next_request: 1, going_away: false })
    }

    /// Connects, says HELLO and returns the answer with the connection.
    pub fn hello(addr: SocketAddr) -> Result<(Self, Hello)> {
        let mut client = Self::preface(addr)?;
        let reply = client.call(op::HELLO, &hello_body(1, 1, [0; 16]))?;
        let hello = parse_hello(&reply).ok_or(ClientError::Broken("the reply to HELLO is too short"))?;
        Ok((client, hello))
    }

    /// Connects and says HELLO.
    pub fn connect(addr: SocketAddr) -> Result<Self> {
        Ok(Self::hello(addr)?.0)
    }

    /// Connects and says HELLO, which must be answered within `limit`; later answers may take as long as ever.
    pub fn connect_within(addr: SocketAddr, limit: Duration) -> Result<Self> {
        let mut client = Self::preface(addr)?;
        client.set_read_limit(limit)?;
        client.call(op::HELLO, &hello_body(1, 1, [0; 16]))?;
        client.set_read_limit(READ_LIMIT)?;
        Ok(client)
    }

    /// Where the server is.
    pub fn peer(&self) -> Result<SocketAddr> {
        Ok(self.stream.peer_addr()?)
    }

    /// Queues a request and returns its id; [`Self::flush`] sends it.
    pub fn push(&mut self, op: u8, body: &[u8]) -> u64 {
        let request_id = self.next_request;
        self.next_request += 1;
        encode(&mut self.outbox, op, 0, request_id, body);
        request_id
    }

    /// Queues bytes as they are.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Sends what is queued.
    pub fn flush(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.outbox);
        self.outbox.clear();
        Ok(sent?)
    }

    /// The next frame, GOAWAY excepted: that is noted and passed over.
    pub fn recv(&mut self) -> Result<Frame> {
        self.fill_frame()?;
        let at = self.consumed;
        let frame = parse_frame(&self.inbox[at..]).ok_or(ClientError::Broken("half a frame"))?;
        self.consumed += HEADER_LEN + frame.body.len();
        if frame.op == op::GOAWAY {
            self.going_away = true;
            return self.recv();
        }
        if frame.op & 0x80 == 0 {
            return Err(ClientError::Broken("a frame without bit 7 in its op is no reply"));
        }
        if frame.flags != 0 {
            return Err(ClientError::Broken("flags are 0 in version 1"));
        }
        Ok(frame)
    }

    /// Waits for a GOAWAY, which must be what comes next.
    pub fn goaway(&mut self) -> Result<()> {
        self.fill_frame()?;
        let frame = parse_frame(&self.inbox[self.consumed..]).ok_or(ClientError::Broken("half a frame"))?;
        if frame.op != op::GOAWAY || frame.request_id != 0 || !frame.body.is_empty() {
            return Err(ClientError::Broken("a GOAWAY was to come"));
        }
        self.consumed += HEADER_LEN;
        self.going_away = true;
        Ok(())
    }

    /// One request, one reply: the body, or the refusal.
    pub fn call(&mut self, op: u8, body: &[u8]) -> Result<Vec<u8>> {
        let request_id = self.push(op, body);
        self.flush()?;
        let frame = self.recv()?;
        // An error that belongs to no request: the server has no room for this connection.
        let is_of_none = frame.request_id == 0 && frame.status != 0;
        if !is_of_none && (frame.request_id != request_id || frame.op != op | 0x80) {
            return Err(ClientError::Broken("a reply to another request"));
        }
        accept(frame)
    }

    /// One id.
    pub fn next(&mut self, order: Order) -> Result<u64> {
        let body = self.call(op::NEXT, &[order as u8])?;
        Fields::new(&body).u64().ok_or(ClientError::Broken("the reply to NEXT is too short"))
    }

    /// One id, or none if it is refused for now.
    pub fn try_next(&mut self, order: Order) -> Result<Option<u64>> {
        match self.next(order) {
            Ok(id) => Ok(Some(id)),
            Err(ClientError::Refused(refusal)) if refusal.is_retryable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `count` NEXT requests in one write; each id goes to `take`. Returns the refusals, which are not errors here.
    pub fn next_pipelined(
        &mut self,
        count: usize,
        order: Order,
        mut take: impl FnMut(u64),
    ) -> Result<Vec<Refusal>> {
        let first = self.next_request;
        for _ in 0..count {
            self.push(op::NEXT, &[order as u8]);
        }
        self.flush()?;
        let (mut seen, mut refusals) = (vec![false; count], Vec::new());
        for _ in 0..count {
            let frame = self.recv()?;
            let slot = usize::try_from(frame.request_id.wrapping_sub(first)).unwrap_or(usize::MAX);
            match seen.get_mut(slot) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(ClientError::Broken("a reply to no request, or a second one")),
            }
            match accept(frame) {
                Ok(body) => take(Fields::new(&body).u64().ok_or(ClientError::Broken("no id in a reply"))?),
                Err(ClientError::Refused(refusal)) => refusals.push(refusal),
                Err(other) => return Err(other),
            }
        }
        Ok(refusals)
    }

    /// Exactly `count` ids.
    pub fn array(&mut self, count: u32, wait: Duration, order: Order) -> Result<Vec<u64>> {
        let body = self.call(op::ARRAY, &bulk_body(count, wait, order))?;
        let mut fields = Fields::new(&body);
        if fields.u32() != Some(count) || fields.u32() != Some(0) {
            return Err(ClientError::Broken("ARRAY is all or nothing: the count differs"));
        }
        let ids: Vec<u64> = std::iter::from_fn(|| fields.u64()).take(count as usize).collect();
        if ids.len() != count as usize {
            return Err(ClientError::Broken("ARRAY says more ids than it carries"));
        }
        Ok(ids)
    }

    /// Exactly `count` ids as runs, checked: exact sum, no overlap inside the reply, ascending when ordered.
    pub fn runs(&mut self, count: u32, wait: Duration, order: Order) -> Result<Vec<Run>> {
        let body = self.call(op::RUNS, &bulk_body(count, wait, order))?;
        let mut fields = Fields::new(&body);
        let (said, len) = (fields.u32(), fields.u32().unwrap_or(0));
        let mut runs = Vec::with_capacity(len.min(count) as usize);
        for _ in 0..len {
            let (Some(first), Some(count), Some(stride)) = (fields.u64(), fields.u32(), fields.u32()) else {
                return Err(ClientError::Broken("RUNS says more runs than it carries"));
            };
            runs.push(Run { first, count, stride });
        }
        let sum: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if said != Some(count) || sum != u64::from(count) {
            return Err(ClientError::Broken("RUNS is all or nothing: the count differs"));
        }
        check_runs(&runs, order)?;
        Ok(runs)
    }

    /// The fields of an id.
    pub fn decode(&mut self, id: u64) -> Result<Decoded> {
        let body = self.call(op::DECODE, &id.to_le_bytes())?;
        let mut fields = Fields::new(&body);
        match (fields.u64(), fields.u32(), fields.u32()) {
            (Some(unix_ms), Some(worker), Some(sequence)) => Ok(Decoded { unix_ms, worker, sequence }),
            _ => Err(ClientError::Broken("the reply to DECODE is too short")),
        }
    }

    /// INFO or STATS: the text of the reply.
    pub fn text(&mut self, op: u8) -> Result<String> {
        let body = self.call(op, &[])?;
        String::from_utf8(body).map_err(|_| ClientError::Broken("a text that is not UTF-8"))
    }

    /// Whether GOAWAY was seen.
    pub fn is_going_away(&self) -> bool {
        self.going_away
    }

    /// Sets how long a reply may take.
    pub fn set_read_limit(&mut self, limit: Duration) -> Result<()> {
        Ok(self.stream.set_read_timeout(Some(limit))?)
    }

    /// Says that nothing more will be sent.
    pub fn shut_write(&mut self) -> Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Everything up to the end of the connection, frames or not; a reset counts as an end.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>> {
        let mut bytes = self.inbox.split_off(self.consumed);
        self.inbox.clear();
        self.consumed = 0;
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(bytes),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(bytes),
        }
    }

    /// Reads until a whole frame lies at `consumed`.
    fn fill_frame(&mut self) -> Result<()> {
        while !has_frame(&self.inbox[self.consumed..]) {
            if self.consumed > 0 && self.consumed * 2 >= self.inbox.len() {
                self.inbox.drain(..self.consumed);
                self.consumed = 0;
            }
            let old = self.inbox.len();
            self.inbox.resize(old + 64 * 1024, 0);
            let read = self.stream.read(&mut self.inbox[old..]);
            self.inbox.truncate(old + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }
}

/// The body of ARRAY and RUNS.
fn bulk_body(count: u32, wait: Duration, order: Order) -> [u8; 12] {
    let mut body = [0; 12];
    body[..4].copy_from_slice(&count.to_le_bytes());
    body[4..8].copy_from_slice(&(wait.as_millis() as u32).to_le_bytes());
    body[8] = order as u8;
    body
}

fn has_frame(bytes: &[u8]) -> bool {
    Fields::new(bytes)
        .u32()
        .is_some_and(|body_len| bytes.len() - HEADER_LEN.min(bytes.len()) >= body_len as usize)
        && bytes.len() >= HEADER_LEN
}

fn parse_frame(bytes: &[u8]) -> Option<Frame> {
    let mut fields = Fields::new(bytes);
    let body_len = fields.u32()? as usize;
    let (op, flags, status, request_id) = (fields.u8()?, fields.u8()?, fields.u16()?, fields.u64()?);
    Some(Frame { op, flags, status, request_id, body: fields.bytes(body_len)?.to_vec() })
}

fn parse_hello(body: &[u8]) -> Option<Hello> {
    let mut fields = Fields::new(body);
    let version = fields.u16()?;
    let _reserved = (fields.u16()?, fields.u32()?);
    let cluster = fields.bytes(16)?.try_into().ok()?;
    let (epoch_ms, tick_us) = (fields.u64()?, fields.u32()?);
    let bits = (fields.u8()?, fields.u8()?, fields.u8()?);
    let face = fields.u8()?;
    let (max_body, max_count, max_in_flight, idle_ms) =
        (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    let len = usize::from(fields.u8()?);
    let server = String::from_utf8_lossy(fields.bytes(len)?).into_owned();
    Some(Hello {
        version,
        cluster,
        epoch_ms,
        tick_us,
        bits,
        face,
        max_body,
        max_count,
        max_in_flight,
        idle_ms,
        server,
    })
}

/// The body of a successful reply, or its refusal.
fn accept(frame: Frame) -> Result<Vec<u8>> {
    if frame.status == 0 {
        return Ok(frame.body);
    }
    let refusal = parse_refusal(&frame).ok_or(ClientError::Broken("an error reply that is too short"))?;
    Err(refusal.into())
}

/// The error that a frame carries.
pub(crate) fn parse_refusal(frame: &Frame) -> Option<Refusal> {
    let mut fields = Fields::new(&frame.body);
    let (retry_after_ms, len) = (fields.u32()?, usize::from(fields.u16()?));
    let text = String::from_utf8(fields.bytes(len)?.to_vec()).ok()?;
    Some(Refusal { status: frame.status, retry_after_ms, text })
}

/// Runs of one reply never overlap; ordered ones ascend.
fn check_runs(runs: &[Run], order: Order) -> Result<()> {
    let mut spans = Vec::with_capacity(runs.len());
    for run in runs {
        if run.count == 0 || (run.stride == 0 && run.count > 1) {
            return Err(ClientError::Broken("an empty run, or one that stands still"));
        }
        spans.push((run.first, run.first + u64::from(run.count - 1) * u64::from(run.stride)));
    }
    let ascends = |spans: &[(u64, u64)]| spans.windows(2).all(|pair| pair[0].1 < pair[1].0);
    if order == Order::Ordered && !ascends(&spans) {
        return Err(ClientError::Broken("ordered runs that do not ascend"));
    }
    if runs.iter().all(|run| run.stride == 1) {
        spans.sort_unstable();
        if !ascends(&spans) {
            return Err(ClientError::Broken("runs of one reply overlap"));
        }
        return Ok(());
    }
    let mut seen = HashSet::new();
    for run in runs {
        for step in 0..u64::from(run.count) {
            if !seen.insert(run.first + step * u64::from(run.stride)) {
                return Err(ClientError::Broken("runs of one reply overlap"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that reads `requests` bytes, then writes `replies` and closes.
    fn scripted(requests: usize, replies: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut vec![0; requests]).unwrap();
            for byte in replies.chunks(7) {
                stream.write_all(byte).unwrap();
            }
        });
        addr
    }

    fn reply(op: u8, status: u16, request_id: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, op | 0x80, 0, request_id, body);
        out[6..8].copy_from_slice(&status.to_le_bytes());
        out
    }

    #[test]
    fn pipelined_replies_may_come_in_any_order_but_only_once() {
        let frames = [
            reply(op::NEXT, 0, 2, &20_u64.to_le_bytes()),
            reply(op::NEXT, 0x8011, 3, &[9, 0, 0, 0, 2, 0, b'n', b'o']),
            reply(op::NEXT, 0, 1, &10_u64.to_le_bytes()),
        ];
        let mut client = Client::silent(scripted(17 * 3, frames.concat())).unwrap();
        let mut ids = Vec::new();
        let refusals = client.next_pipelined(3, Order::Any, |id| ids.push(id)).unwrap();
        assert_eq!(ids, [20, 10]);
        assert_eq!(refusals, [Refusal { status: 0x8011, retry_after_ms: 9, text: "no".into() }]);
        let twice = [reply(op::NEXT, 0, 1, &[0; 8]), reply(op::NEXT, 0, 1, &[0; 8])];
        let mut client = Client::silent(scripted(17 * 2, twice.concat())).unwrap();
        assert!(matches!(client.next_pipelined(2, Order::Any, |_| ()), Err(ClientError::Broken(_))));
    }

    #[test]
    fn a_goaway_is_noted_and_the_reply_behind_it_is_read() {
        let mut bytes = Vec::new();
        encode(&mut bytes, op::GOAWAY, 0, 0, &[]);
        bytes.extend(reply(op::NEXT, 0, 1, &77_u64.to_le_bytes()));
        let mut client = Client::silent(scripted(17, bytes)).unwrap();
        assert_eq!(client.next(Order::Any).unwrap(), 77);
        assert!(client.is_going_away());
        assert!(matches!(client.recv(), Err(ClientError::Ended(_))));
    }

    #[test]
    fn runs_that_overlap_or_miss_the_count_are_a_breach() {
        let run = |first, count| Run { first, count, stride: 1 };
        assert!(check_runs(&[run(10, 5), run(15, 5)], Order::Ordered).is_ok());
        assert!(check_runs(&[run(15, 5), run(10, 5)], Order::Any).is_ok());
        assert!(check_runs(&[run(15, 5), run(10, 5)], Order::Ordered).is_err());
        assert!(check_runs(&[run(15, 5), run(10, 6)], Order::Any).is_err());
        let strided = Run { first: 1, count: 3, stride: 2 };
        assert!(check_runs(&[strided, run(2, 1)], Order::Any).is_ok());
        assert!(check_runs(&[strided, run(3, 1)], Order::Any).is_err());
        let mut short = 4_u32.to_le_bytes().to_vec();
        short.extend([1, 0, 0, 0]);
        short.extend([0; 8]);
        short.extend([3, 0, 0, 0, 1, 0, 0, 0]);
        let mut client = Client::silent(scripted(28, reply(op::RUNS, 0, 1, &short))).unwrap();
        let answer = client.runs(4, Duration::from_millis(1), Order::Any);
        assert!(matches!(answer, Err(ClientError::Broken(_))), "{answer:?}");
    }
}
