//! A thread that does the same thing again and again beside a load, and remembers the longest time that it took.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use xuid_protocol::{HEADER_LEN, Header, Order, request_next};

use super::words::Port;
use crate::load::driver::{connect_from, greet};
use crate::measure::now;

/// From one time to the next.
const PERIOD: Duration = Duration::from_millis(20);

/// What takes so long has failed.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// How it went.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Watched {
    pub(super) times: usize,
    pub(super) longest: Duration,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Watched>>,
}

impl Watch {
    /// Does `what` from now on, with the number of the time. If it fails once, all of it has failed.
    pub(super) fn start(mut what: impl FnMut(usize) -> Result<()> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut watched = Watched::default();
            while !until.load(Relaxed) {
                let begun = now();
                what(watched.times)?;
                watched.longest = watched.longest.max(begun.elapsed());
                watched.times += 1;
                std::thread::sleep(PERIOD);
            }
            Ok(watched)
        });
        Self { over, thread }
    }

    pub(super) fn end(self) -> Result<Watched> {
        self.over.store(true, Relaxed);
        self.thread.join().map_err(|_| anyhow!("a thread that watches panicked"))?
    }
}

/// A new client of another port from this address is answered at all.
pub(super) fn first_reply(server: SocketAddr, from: Ipv4Addr, port: Port) -> Result<()> {
    let mut stream = connect_from(from, server)?;
    stream.set_read_timeout(Some(GIVEN_UP))?;
    stream.write_all(&port.request())?;
    let mut piece = [0; 512];
    let read = stream.read(&mut piece).context("a new client gets no reply")?;
    let is_id = matches!(
        &piece[..read],
        [b':', ..] | [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', b'2', ..]
    );
    ensure!(is_id, "a new client got {}", String::from_utf8_lossy(&piece[..read]));
    Ok(())
}

/// A new client from this address gets its first id.
pub(super) fn first_id(server: SocketAddr, from: Ipv4Addr) -> Result<()> {
    let mut stream = connect_from(from, server)?;
    stream.set_read_timeout(Some(GIVEN_UP))?;
    greet(&mut stream).context("a new client is not greeted")?;
    let mut request = Vec::new();
    request_next(&mut request, 1, Order::Any);
    stream.write_all(&request)?;
    let mut reply = [0; HEADER_LEN + 8];
    stream.read_exact(&mut reply).context("a new client gets no id")?;
    let status = reply.first_chunk().map_or(0, |head| Header::decode(*head).status);
    ensure!(status == 0, "a new client is refused: {status:04x}");
    Ok(())
}

/// A probe is told that the server is ready.
pub(super) fn readyz(admin: SocketAddr, from: Ipv4Addr) -> Result<()> {
    let mut stream = connect_from(from, admin)?;
    stream.set_read_timeout(Some(GIVEN_UP))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("a probe is not answered")?;
    ensure!(text.starts_with("HTTP/1.1 200"), "a probe was answered {text:?}");
    Ok(())
}
