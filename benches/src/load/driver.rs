//! Load on one server from the calling thread, by the same loop as `xuid bench`'s.
//!
//! # Invariants
//! - I1 a reply that is not the one hoped for makes the run void: a figure never contains refusals;
//! - I2 at the end every request was answered before the connection closes, so that nothing spills into the next run.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType};
use xuid_load::{
    Ask, Dialect, DuplicateCheck, Link, LoadThread, Progress, Recorder, Results, Shape, Turns, Wire,
};
use xuid_protocol::{HEADER_LEN, Header, Hello, Order, PREFACE, request_hello};

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Connections at once.
    pub(super) connections: usize,
    /// Requests in flight on each.
    pub(super) in_flight: u32,
    /// Not measured, at the beginning.
    pub(super) warm_up: Duration,
    /// Measured.
    pub(super) span: Duration,
    /// Bytes below which a connection's replies are not worth waking for; at most what a window's replies come to.
    pub(super) low_water: usize,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    results: Results,
    span: Duration,
}

impl Outcome {
    /// Replies a second.
    pub(super) fn rate(&self) -> f64 {
        self.results.requests as f64 / self.span.as_secs_f64()
    }

    /// Bytes a second.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.results.received as f64 / self.span.as_secs_f64()
    }

    /// The median latency in microseconds.
    pub(super) fn p50_us(&self) -> f64 {
        self.results.latency.value_at_quantile(0.5) as f64 / 1_000.0
    }
}

/// NEXT, ARRAY or RUNS of so many ids of any order.
pub(super) fn ask(shape: Shape, count: u32) -> impl Fn(&mut TcpStream) -> Result<Ask> + Copy {
    let ask = Ask { shape, count, order: Order::Any, wait: Duration::from_secs(1) };
    move |stream| greet(stream).map(|()| ask)
}

/// Preface and HELLO, and the reply to them.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> Result<()> {
    greet_with(stream, b"")
}

/// The same with a token.
pub(super) fn greet_with(stream: &mut (impl Read + Write), token: &[u8]) -> Result<()> {
    stream.write_all(&greeting(token)?)?;
    let mut head = [0; HEADER_LEN];
    stream.read_exact(&mut head)?;
    let header = Header::decode(head);
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body)?;
    ensure!(header.status == 0, "HELLO was refused: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// What a client says first.
pub(super) fn greeting(token: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 0, &Hello { token, ..Hello::new("load") })?;
    Ok(bytes)
}

/// A connection from this address of our own.
pub(super) fn connect_from(from: Ipv4Addr, address: SocketAddr) -> Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &address).with_context(|| format!("connecting to {address}"))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection that has been greeted, with so many requests in flight at most.
pub(super) fn link<D: Dialect>(stream: TcpStream, dialect: D, in_flight: u32) -> Result<Link<D>> {
    stream.set_nonblocking(true)?;
    Ok(Link::new(Wire::from(stream), "the server", Vec::new(), dialect, in_flight, None))
}

/// Runs connections on this thread to the end of the run, as its thread `seat`.
pub(super) fn run<D: Dialect>(
    links: Vec<Link<D>>,
    progress: &Arc<Progress>,
    seat: usize,
    is_open: bool,
) -> Result<Results> {
    let mut thread = LoadThread::new(progress, seat, None, is_open)?;
    Turns::new(links, &mut thread)?.run()?;
    Ok(thread.results)
}

/// I1.
pub(super) fn check(results: &Results) -> Result<()> {
    let failures = results.failures.keys().chain(&results.refusal);
    let why =
        failures.map(String::as_str).chain((results.unanswered > 0).then_some("replies are missing")).next();
    ensure!(why.is_none(), "the run is void: {}", why.unwrap_or_default());
    ensure!(results.requests > 0, "no reply came: the run is void");
    Ok(())
}

/// Drives a server until the load's time is over. `open` says on a new connection what must be said first.
pub(super) fn drive<D: Dialect>(
    open: impl Fn(&mut TcpStream) -> Result<D>,
    address: SocketAddr,
    load: Load,
) -> Result<Outcome> {
    recorded(open, address, load, None)
}

fn recorded<D: Dialect>(
    open: impl Fn(&mut TcpStream) -> Result<D>,
    address: SocketAddr,
    load: Load,
    recorder: Option<Recorder>,
) -> Result<Outcome> {
    let mut links = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        let dialect = open(&mut stream)?;
        stream.set_nonblocking(true)?;
        set_low_water(&stream, load.low_water)?;
        links.push(Link::new(stream, "the server", Vec::new(), dialect, load.in_flight, None));
    }
    let progress = Arc::new(Progress::new(1, load.warm_up, load.span));
    let mut thread = LoadThread::new(&progress, 0, recorder, false)?;
    Turns::new(links, &mut thread)?.run()?;
    let results = thread.results;
    check(&results)?;
    Ok(Outcome { results, span: load.span })
}

/// Requests that are looked at, at least.
const WITNESSED: u64 = 2_000;

/// A short pass on two connections that is not timed: no id comes twice.
pub(super) fn witness<D: Dialect>(
    open: impl Fn(&mut TcpStream) -> Result<D>,
    address: SocketAddr,
) -> Result<()> {
    witness_slow(open, address, WITNESSED)
}

/// The same where so few requests are answered in that time.
pub(super) fn witness_slow<D: Dialect>(
    open: impl Fn(&mut TcpStream) -> Result<D>,
    address: SocketAddr,
    least: u64,
) -> Result<()> {
    let load = Load {
        connections: 2,
        in_flight: 10,
        warm_up: Duration::ZERO,
        span: Duration::from_millis(200),
        low_water: 1,
    };
    let check = DuplicateCheck::start(1 << 28, || ())?;
    let outcome = recorded(open, address, load, Some(check.recorder()))?;
    let verdict = check.finish()?;
    ensure!(verdict.duplicates == 0, "ids came twice, such as {:?}", verdict.shown);
    ensure!(outcome.results.requests >= least && verdict.unseen == 0, "only {} ids came", verdict.ids);
    Ok(())
}

/// Has a reader of the socket sleep until so many bytes are there. A thread that is woken for the first piece of a
/// reply, and again for the rest, costs a server that shares a machine with it more than the server's own work.
#[expect(unsafe_code, reason = "rustix has no SO_RCVLOWAT")]
pub(super) fn set_low_water(stream: &TcpStream, bytes: usize) -> std::io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(std::io::Error::other)?;
    let len = size_of_val(&bytes) as libc::socklen_t;
    let (socket, value) = (stream.as_raw_fd(), (&raw const bytes).cast());
    // SAFETY: the socket is open, and `value` points to as many bytes as are said.
    let done = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, len) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
