//! One thread that keeps a window of requests in flight on each of some connections, and counts replies.
//!
//! It must be cheaper than any server it drives: requests are bytes made beforehand, a window is refilled by one write
//! for all replies of one read, and replies are counted and not understood.
//!
//! # Invariants
//! - I1 a connection never has more requests in flight than its window, and exactly that many while it is measured;
//! - I2 a reply that is not the one hoped for ends the run: a figure never contains refusals;
//! - I3 at the end every request was answered before the connection closes, so that nothing spills into the next run;
//! - I4 nobody waits for more than is in flight: a full window's replies come to the low water, and the last are taken
//!   without one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;

use super::dialect::{Dialect, Scanned};

/// The largest piece that is read at once, and what of it may be an unfinished reply.
pub(super) const PIECE: usize = 256 * 1024;
const CARRY: usize = 64;

/// A server that says nothing for so long has hung up on us without a word.
const SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Latencies above this are recorded as this, in nanoseconds.
const SLOWEST: u64 = 10_000_000_000;

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections at once.
    pub connections: usize,
    /// Requests in flight on each.
    pub in_flight: usize,
    /// Not measured, at the beginning.
    pub warm_up: Duration,
    /// Measured.
    pub span: Duration,
    /// Bytes below which a connection's replies are not worth waking for; at most what a window's replies come to.
    pub low_water: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Replies within the measured time.
    pub replies: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The measured time.
    pub elapsed: Duration,
    /// From a request to its reply, in nanoseconds; only where one is in flight in all.
    pub latency: Option<Histogram<u64>>,
}

impl Outcome {
    /// Replies a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.replies as f64 / self.elapsed.as_secs_f64()
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }

    /// The median latency in microseconds; not a number where latency was not recorded.
    #[must_use]
    pub fn p50_us(&self) -> f64 {
        self.latency.as_ref().map_or(f64::NAN, |latency| latency.value_at_quantile(0.5) as f64 / 1_000.0)
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Drives a server until the load's time is over.
///
/// # Errors
/// The connection failed, or a reply was not the one hoped for: the run is void.
pub fn drive<D: Dialect>(dialect: &mut D, address: SocketAddr, load: Load) -> Result<Outcome> {
    let mut driver = Driver::connect(dialect, address, load)?;
    let begun = now();
    driver.fill()?;
    while now() - begun < load.warm_up {
        driver.turn(dialect)?;
    }
    if let Some(latency) = &mut driver.latency {
        latency.reset();
    }
    let (replies, bytes, begun) = (driver.replies, driver.bytes, now());
    let elapsed = loop {
        driver.turn(dialect)?;
        let elapsed = now() - begun;
        if elapsed >= load.span {
            break elapsed;
        }
    };
    let (replies, bytes) = (driver.replies - replies, driver.bytes - bytes);
    let latency = driver.latency.take();
    driver.stop(dialect)?;
    Ok(Outcome { replies, bytes, elapsed, latency })
}

/// One connection.
struct Connection {
    stream: TcpStream,
    /// Where in the window the next request begins.
    at: usize,
    /// Bytes of requests that are due and not written.
    owed: usize,
    /// Requests that are not answered.
    in_flight: usize,
    /// Bytes of the reply under way that need not be looked at.
    skip: usize,
    /// The beginning of a reply.
    carry: [u8; CARRY],
    carried: usize,
    /// Whether the socket's room is waited for.
    blocked: bool,
}

struct Driver {
    epoll: OwnedFd,
    events: Vec<Event>,
    connections: Vec<Connection>,
    /// The requests of one window, twice, so that any window of them is one slice.
    window: Vec<u8>,
    request_len: usize,
    buffer: Vec<u8>,
    refill: bool,
    replies: u64,
    bytes: u64,
    latency: Option<Histogram<u64>>,
    asked: Instant,
}

impl Driver {
    fn connect<D: Dialect>(dialect: &mut D, address: SocketAddr, load: Load) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(load.connections);
        for index in 0..load.connections {
            let mut stream =
                TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
            stream.set_nodelay(true)?;
            dialect.greet(&mut stream)?;
            stream.set_nonblocking(true)?;
            set_low_water(&stream, load.low_water)?;
            epoll::add(&epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)?;
            connections.push(Connection {
                stream,
                at: 0,
                owed: 0,
                in_flight: 0,
                skip: 0,
                carry: [0; CARRY],
                carried: 0,
                blocked: false,
            });
        }
        let mut window = Vec::new();
        for number in 0..2 * load.in_flight {
            dialect.request((number % load.in_flight) as u64, &mut window);
        }
        let single = load.connections * load.in_flight == 1;
        Ok(Self {
            epoll,
            events: Vec::with_capacity(load.connections),
            connections,
            request_len: window.len() / (2 * load.in_flight),
            window,
            buffer: vec![0; PIECE],
            refill: true,
            replies: 0,
            bytes: 0,
            latency: single.then(|| Histogram::new_with_max(SLOWEST, 3)).transpose()?,
            asked: now(),
        })
    }

    /// Asks for a whole window on each connection.
    fn fill(&mut self) -> Result<()> {
        let all = self.window.len() / 2;
        self.asked = now();
        for index in 0..self.connections.len() {
            self.connections[index].in_flight = all / self.request_len;
            self.connections[index].owed = all;
            self.write(index)?;
        }
        Ok(())
    }

    /// Waits for replies, counts them, and asks as much again.
    fn turn<D: Dialect>(&mut self, dialect: &mut D) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let found = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&SILENCE));
        match found {
            Ok(0) => bail!("no reply within {} s: the run is void", SILENCE.tv_sec),
            Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            let index = event.data.u64() as usize;
            self.read(index, dialect)?;
            self.write(index)?;
        }
        self.events = events;
        Ok(())
    }

    fn read<D: Dialect>(&mut self, index: usize, dialect: &mut D) -> Result<()> {
        let connection = &mut self.connections[index];
        let carried = connection.carried;
        self.buffer[..carried].copy_from_slice(&connection.carry[..carried]);
        let read = match connection.stream.read(&mut self.buffer[carried..]) {
            Ok(0) => bail!("the server closed the connection: the run is void"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let bytes = &self.buffer[..carried + read];
        let Scanned { replies, consumed } = dialect.scan(&mut connection.skip, bytes)?;
        let rest = &bytes[consumed..];
        ensure!(rest.len() <= CARRY, "a dialect left {} bytes over", rest.len());
        connection.carry[..rest.len()].copy_from_slice(rest);
        connection.carried = rest.len();
        ensure!(replies <= connection.in_flight, "more replies than requests");
        self.replies += replies as u64;
        self.bytes += read as u64;
        if let (Some(latency), 1..) = (&mut self.latency, replies) {
            let answered = now();
            latency.saturating_record((answered - self.asked).as_nanos() as u64);
            self.asked = answered;
        }
        if self.refill {
            connection.owed += replies * self.request_len;
        } else {
            connection.in_flight -= replies;
        }
        Ok(())
    }

    /// Writes what is owed, as far as the socket takes it.
    fn write(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        while connection.owed > 0 {
            match connection.stream.write(&self.window[connection.at..connection.at + connection.owed]) {
                Ok(written) => {
                    connection.owed -= written;
                    connection.at = (connection.at + written) % (self.window.len() / 2);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let blocked = connection.owed > 0;
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let flags = if blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }

    /// Takes the replies that are still due.
    fn stop<D: Dialect>(&mut self, dialect: &mut D) -> Result<()> {
        self.refill = false;
        self.latency = None;
        for connection in &self.connections {
            // I4
            set_low_water(&connection.stream, 1)?;
        }
        while self.connections.iter().any(|connection| connection.in_flight > 0) {
            self.turn(dialect)?;
        }
        Ok(())
    }
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
