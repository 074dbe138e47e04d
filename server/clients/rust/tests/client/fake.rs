//! A server in the hands of a test: it accepts, greets, reads and answers when the test says so.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use xuid_client::{Client, ClusterId, Limits, Options};
use xuid_protocol::{
    Bulk, HelloReply, Order, ParsedRequest, Phase, Preface, Refusal, Request, RunsWriter, SeqBulk, SeqList,
    Status, check_preface, goaway, parse_request, reply_error, reply_hello, reply_id,
};

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fails instead of hanging.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("this should have happened by now")
}

/// A request with memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Ping(Vec<u8>),
    Next(Order),
    Array(Bulk),
    Runs(Bulk),
    Decode(u64),
    Info,
    Stats,
    SeqNext(String),
    /// Name, request, and whether it is to be one run.
    SeqArray(String, Bulk, bool),
    SeqRuns(String, Bulk, bool),
    SeqInfo(String),
    /// Limit, prefix, and the last name before.
    SeqList(u32, String, String),
    /// Name and JSON.
    SeqCreate(String, String),
    SeqAlter(String, String),
    Bye,
}

/// What a client said in HELLO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) cluster: ClusterId,
    pub(crate) token: Vec<u8>,
    pub(crate) client: String,
}

/// A listener on any free port.
#[derive(Debug)]
pub(crate) struct Fake {
    listener: TcpListener,
    pub(crate) addr: SocketAddr,
    pub(crate) cluster: ClusterId,
    pub(crate) limits: Limits,
}

impl Fake {
    pub(crate) async fn start(cluster: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self { listener, addr, cluster: cluster_id(cluster), limits: Limits::default() }
    }

    /// The next connection, not greeted yet.
    pub(crate) async fn accept(&self) -> Peer {
        soon(self.try_accept()).await.unwrap()
    }

    /// The next connection, whenever it comes.
    pub(crate) async fn try_accept(&self) -> std::io::Result<Peer> {
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Peer { stream, inbox: Vec::new(), phase: None })
    }

    /// The next connection, greeted.
    pub(crate) async fn greet(&self) -> Peer {
        self.greet_as(self.cluster).await
    }

    /// The next connection, greeted as a server of another cluster would.
    pub(crate) async fn greet_as(&self, cluster: ClusterId) -> Peer {
        let mut peer = self.accept().await;
        let (request_id, _) = peer.hello().await;
        peer.welcome(request_id, cluster, self.limits).await;
        peer
    }

    /// Whether somebody knocks.
    pub(crate) async fn has_caller(&self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.listener.accept()).await.is_ok()
    }

    /// A client of this server, and the other end.
    pub(crate) async fn pair(&self, options: Options) -> (Client, Peer) {
        let (client, peer) = tokio::join!(Client::connect(self.addr, options), self.greet());
        (client.unwrap(), peer)
    }

    /// A client that has lost its connection to this server.
    pub(crate) async fn lost_by(&self, options: Options) -> Client {
        let (client, peer) = self.pair(options).await;
        drop(peer);
        while client.is_connected() {
            tokio::task::yield_now().await;
        }
        client
    }
}

/// Two servers and a client that begins at the one that is called `a` here: which of them that is, the client draws.
pub(crate) struct Pair {
    pub(crate) b: Fake,
    pub(crate) client: Client,
    pub(crate) at_a: Peer,
    pub(crate) a: Fake,
}

impl Pair {
    pub(crate) async fn start(options: Options) -> Self {
        let (a, b) = (Fake::start(1).await, Fake::start(1).await);
        let connect = Client::connect_any([a.addr, b.addr], options);
        let (client, at_a, at_b) = soon(async { tokio::join!(connect, a.greet(), b.greet()) }).await;
        let client = client.unwrap();
        let is_at_a = *client.served().server == *a.addr.to_string();
        let (a, at_a, b, mut at_b) = if is_at_a { (a, at_a, b, at_b) } else { (b, at_b, a, at_a) };
        at_b.expect_end().await;
        Self { b, client, at_a, a }
    }
}

/// The first choice of a client goes away with a call in flight, which the other server answers with 1. Its end.
pub(crate) async fn moved_on(client: &Client, mut first: Peer, other: &Fake) -> Peer {
    let leaving = async {
        first.expect(Asked::Next(Order::Any)).await;
        drop(first);
        let mut peer = other.greet().await;
        peer.serve(1).await;
        peer
    };
    let (next, peer) = soon(async { tokio::join!(client.next(Order::Any), leaving) }).await;
    assert_eq!(next.unwrap(), 1);
    peer
}

pub(crate) fn cluster_id(byte: u8) -> ClusterId {
    ClusterId::from_bytes([byte; 16])
}

/// What a server of this cluster says to HELLO.
pub(crate) fn hello_reply(cluster: ClusterId, limits: Limits) -> HelloReply<'static> {
    HelloReply {
        version: 1,
        features: 0,
        cluster,
        epoch_ms: 1_524_153_600_000,
        tick_us: 1_000,
        time_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        face: 0,
        limits,
        server: "fake",
    }
}

/// Options that do not pause for long.
pub(crate) fn quick() -> Options {
    Options::new().backoff(Duration::from_millis(1), Duration::from_millis(20))
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    inbox: Vec<u8>,
    /// `None`: the preface is still to come.
    phase: Option<Phase>,
}

impl Peer {
    /// Reads preface and HELLO.
    pub(crate) async fn hello(&mut self) -> (u64, Greeting) {
        self.try_hello().await.expect("preface and HELLO")
    }

    /// Reads preface and HELLO; `None` when the client closed before.
    pub(crate) async fn try_hello(&mut self) -> Option<(u64, Greeting)> {
        while check_preface(&self.inbox) != Preface::Whole {
            if !self.fill().await {
                return None;
            }
        }
        self.inbox.drain(..8);
        self.phase = Some(Phase::Greeting);
        loop {
            let parsed = parse_request(&self.inbox, Phase::Greeting, Limits::default().max_body);
            if let ParsedRequest::Frame { consumed, request_id, request, .. } = parsed {
                let Ok(Request::Hello(hello)) = request else { panic!("{request:?} instead of HELLO") };
                assert_eq!(hello.pick_version(), Ok(1));
                let client = hello.client_name().into_owned();
                let greeting = Greeting { cluster: hello.cluster, token: hello.token.to_vec(), client };
                self.inbox.drain(..consumed);
                return Some((request_id, greeting));
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Answers HELLO.
    pub(crate) async fn welcome(&mut self, request_id: u64, cluster: ClusterId, limits: Limits) {
        self.try_welcome(request_id, cluster, limits).await.unwrap();
    }

    /// An error when the client closed.
    pub(crate) async fn try_welcome(
        &mut self,
        request_id: u64,
        cluster: ClusterId,
        limits: Limits,
    ) -> std::io::Result<()> {
        self.phase = Some(Phase::Serving);
        let reply = hello_reply(cluster, limits);
        self.try_send(|out| reply_hello(out, request_id, &reply)).await
    }

    /// The next request, or `None` when the client closed.
    pub(crate) async fn ask(&mut self) -> Option<(u64, Asked)> {
        loop {
            if let Some(asked) = self.asked() {
                return Some(asked);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// The next request that was received already.
    fn asked(&mut self) -> Option<(u64, Asked)> {
        let ParsedRequest::Frame { consumed, request_id, request, .. } =
            parse_request(&self.inbox, Phase::Serving, Limits::default().max_body)
        else {
            return None;
        };
        let asked = match request.unwrap() {
            Request::Ping(bytes) => Asked::Ping(bytes.to_vec()),
            Request::Next { order } => Asked::Next(order),
            Request::Array(bulk) => Asked::Array(bulk),
            Request::Runs(bulk) => Asked::Runs(bulk),
            Request::Decode { id } => Asked::Decode(id),
            Request::Info => Asked::Info,
            Request::Stats => Asked::Stats,
            Request::SeqNext { name } => Asked::SeqNext(name.to_string()),
            Request::SeqArray(SeqBulk { name, bulk, contiguous }) => {
                Asked::SeqArray(name.to_string(), bulk, contiguous)
            }
            Request::SeqRuns(SeqBulk { name, bulk, contiguous }) => {
                Asked::SeqRuns(name.to_string(), bulk, contiguous)
            }
            Request::SeqInfo { name } => Asked::SeqInfo(name.to_string()),
            Request::SeqList(SeqList { limit, prefix, after }) => {
                Asked::SeqList(limit, prefix.to_owned(), after.to_owned())
            }
            Request::SeqCreate { name, settings } => Asked::SeqCreate(name.to_string(), settings.to_owned()),
            Request::SeqAlter { name, changes } => Asked::SeqAlter(name.to_string(), changes.to_owned()),
            Request::Bye => Asked::Bye,
            Request::Hello(_) => panic!("HELLO again"),
            Request::Provenance { .. } => unreachable!("nobody asks"),
        };
        self.inbox.drain(..consumed);
        Some((request_id, asked))
    }

    /// The id of the next request, which must be that.
    pub(crate) async fn expect(&mut self, expected: Asked) -> u64 {
        let (request_id, asked) = self.ask().await.expect("a request");
        assert_eq!(asked, expected);
        request_id
    }

    /// Answers the next request, a NEXT of any order, with that id.
    pub(crate) async fn serve(&mut self, id: u64) {
        let (request_id, asked) = self.ask().await.expect("a request");
        assert!(matches!(asked, Asked::Next(_)), "{asked:?}");
        self.send(|out| reply_id(out, request_id, id)).await;
    }

    /// Answers the next request, a RUNS, with consecutive ids from `first`; how many.
    pub(crate) async fn serve_runs(&mut self, first: u64) -> u64 {
        let (request_id, asked) = self.ask().await.expect("a request");
        let Asked::Runs(bulk) = asked else { panic!("{asked:?} instead of RUNS") };
        self.send_runs(request_id, first, bulk.count).await.unwrap();
        u64::from(bulk.count)
    }

    /// Consecutive ids as runs of up to 1,000.
    pub(crate) async fn send_runs(&mut self, request_id: u64, first: u64, count: u32) -> std::io::Result<()> {
        self.try_send(|out| {
            let mut writer = RunsWriter::begin(out, request_id, count);
            for at in (0..count).step_by(1_000) {
                writer.run(first + u64::from(at), 1_000.min(count - at));
            }
            writer.finish();
        })
        .await
    }

    /// Refuses the next request.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) {
        let (request_id, asked) = self.ask().await.expect("a request");
        let op = match asked {
            Asked::Runs(_) => 0x12,
            Asked::SeqNext(_) => 0x30,
            Asked::SeqRuns(..) => 0x32,
            Asked::SeqCreate(..) => 0x3a,
            _ => 0x10,
        };
        self.send(|out| reply_error(out, request_id, op, refusal)).await;
    }

    /// Refuses the next request with OVERLOADED for `pause`.
    pub(crate) async fn overload(&mut self, pause: Duration) {
        self.refuse(&Refusal::new(Status::OVERLOADED, "nothing left").retry_after(pause)).await;
    }

    pub(crate) async fn goaway(&mut self) {
        self.send(goaway).await;
    }

    /// Waits until the client closed, without another request.
    pub(crate) async fn expect_end(&mut self) {
        let asked = self.ask().await;
        assert_eq!(asked, None);
    }

    pub(crate) async fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.try_send(encode).await.unwrap();
    }

    /// An error when the client closed.
    pub(crate) async fn try_send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> std::io::Result<()> {
        let mut out = Vec::new();
        encode(&mut out);
        soon(self.stream.write_all(&out)).await
    }

    /// Reads something; `false` at the end, orderly or not.
    async fn fill(&mut self) -> bool {
        soon(self.stream.read_buf(&mut self.inbox)).await.is_ok_and(|read| read > 0)
    }
}
