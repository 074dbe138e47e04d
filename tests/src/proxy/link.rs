//! One connection through the proxy: two sockets, two threads, and the requests that have no reply yet.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::shared::{Counts, Fault, Shared, Way};
use crate::zookeeper::wire;

/// Which way a frame goes.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Requests,
    Replies,
}

impl Direction {
    fn is_lost_by(self, way: Way) -> bool {
        match self {
            Self::Requests => matches!(way, Way::LoseRequests | Way::BlackHole),
            Self::Replies => matches!(way, Way::LoseReplies | Way::BlackHole),
        }
    }
}

/// A request that was taken from the client and has no reply.
#[derive(Debug)]
struct Waiting {
    xid: i32,
    is_write: bool,
}

/// What is on its way on a connection.
#[derive(Debug, Default)]
struct Flight {
    /// Pings are left out.
    waiting: Vec<Waiting>,
    /// The reply that a fault waits for.
    doomed: Option<(i32, Fault)>,
}

/// One client and its way to the server.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    /// None in a black hole.
    server: Option<TcpStream>,
    shared: Arc<Shared>,
    flight: Mutex<Flight>,
    /// By [`Direction`]: a frame was lost, so nothing may follow it (I2 of the proxy).
    lost: [AtomicBool; 2],
    ended: AtomicBool,
}

impl Link {
    /// Connects on; nothing passes before [`Self::carry`].
    pub(super) fn open(client: TcpStream, shared: &Arc<Shared>, nowhere: bool) -> io::Result<Arc<Self>> {
        let server = if nowhere { None } else { Some(TcpStream::connect(shared.upstream)?) };
        for stream in server.iter().chain([&client]) {
            stream.set_nodelay(true)?;
        }
        let (shared, flight) = (Arc::clone(shared), Mutex::default());
        let (lost, ended) = ([nowhere, nowhere].map(AtomicBool::new), AtomicBool::new(false));
        Ok(Arc::new(Self { client, server, shared, flight, lost, ended }))
    }

    /// Starts both threads.
    pub(super) fn carry(self: Arc<Self>) {
        // The reverse direction first: it outlives a client that says nothing.
        let back = Arc::clone(&self);
        thread::spawn(move || back.finish(back.replies()));
        thread::spawn(move || self.finish(self.requests()));
    }

    /// Whether a frame was lost on it.
    pub(super) fn lost(&self) -> bool {
        // Acquire: pairs with the Release in `passes`.
        self.lost.iter().any(|lost| lost.load(Ordering::Acquire))
    }

    /// Closes both sides, and counts that.
    pub(super) fn cut(&self) {
        self.count_cut();
        self.close();
    }

    /// Closes both sides with an RST, and counts that.
    pub(super) fn reset(&self) {
        self.count_cut();
        for stream in self.server.iter().chain([&self.client]) {
            // Not lingering makes the close an RST. The close comes when both threads have let go of the socket;
            // ending only the reading side wakes them and sends nothing.
            let _ = set_socket_linger(stream, Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    fn count_cut(&self) {
        // AcqRel: of two threads that end it, one counts.
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        Counts::add(&self.shared.counts.cuts);
        if !self.flight().waiting.is_empty() {
            Counts::add(&self.shared.counts.cuts_in_flight);
        }
    }

    /// Fails only for sockets that are closed already.
    fn close(&self) {
        for stream in self.server.iter().chain([&self.client]) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// What a thread does at the end of its direction: the other direction ends with it, and that is no cut of ours.
    fn finish(&self, outcome: io::Result<()>) {
        // Whether it ended or broke, there is nothing left to carry.
        drop(outcome);
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.close();
        }
    }

    fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the client to the server, until either ends.
    fn requests(&self) -> io::Result<()> {
        let mut first = true;
        while let Some(frame) = wire::read_frame(&mut &self.client)? {
            // The first frame asks for a session and has no number.
            let numbered = wire::xid(&frame).filter(|xid| !first && *xid != wire::PING);
            let is_write = !first && wire::is_write(&frame);
            first = false;
            if let Some(xid) = numbered {
                self.flight().waiting.push(Waiting { xid, is_write });
            }
            if !self.passes(Direction::Requests) {
                continue;
            }
            // One that is doomed already ends without another fault.
            let fault =
                if is_write && self.flight().doomed.is_none() { self.shared.strike(&frame) } else { None };
            match (numbered, fault) {
                (Some(xid), Some(fault)) if self.strike(&frame, xid, fault)? => return Ok(()),
                (Some(_), Some(_)) => {}
                _ => self.to_server(&frame)?,
            }
        }
        Ok(())
    }

    /// From the server to the client, until either ends.
    fn replies(&self) -> io::Result<()> {
        let Some(mut server) = self.server.as_ref() else { return Ok(()) };
        let mut first = true;
        while let Some(frame) = wire::read_frame(&mut server)? {
            let xid = wire::xid(&frame).filter(|_| !first);
            first = false;
            let doomed = self.flight().doomed.filter(|(of, _)| xid == Some(*of));
            if let Some((_, fault)) = doomed {
                self.count_landed(&frame);
                if let Fault::Stall(time) = fault {
                    thread::sleep(time);
                }
                self.cut();
                return Ok(());
            }
            if !self.passes(Direction::Replies) {
                self.count_landed(&frame);
                continue;
            }
            self.flight().waiting.retain(|waiting| xid != Some(waiting.xid));
            (&self.client).write_all(&frame)?;
        }
        Ok(())
    }

    /// Whether a frame may go on, after the time it has to wait.
    fn passes(&self, direction: Direction) -> bool {
        let mut way = self.shared.way();
        if let Way::Delay(time) = way {
            thread::sleep(time);
        }
        if way == Way::Hold {
            way = self.shared.wait_released();
        }
        let lost = &self.lost[direction as usize];
        if direction.is_lost_by(way) {
            // Release: pairs with the Acquire of whoever changes the way and then asks which links lost something.
            lost.store(true, Ordering::Release);
            // Whoever changed it before this store did not see it.
            if self.shared.way() != way {
                self.cut();
            }
        }
        // Only this thread stores it after the link was opened.
        !lost.load(Ordering::Relaxed)
    }

    /// Does to a write what was armed; whether that ended the connection.
    fn strike(&self, frame: &[u8], xid: i32, fault: Fault) -> io::Result<bool> {
        match fault {
            Fault::LoseReply | Fault::Stall(_) => {
                // Before the request goes out: the reply may be faster than this thread.
                self.flight().doomed = Some((xid, fault));
                self.to_server(frame)?;
                return Ok(false);
            }
            Fault::LoseRequest => self.cut(),
            Fault::Cut => {
                self.to_server(frame)?;
                self.cut();
            }
            Fault::Reset => {
                self.to_server(frame)?;
                self.reset();
            }
        }
        Ok(true)
    }

    fn to_server(&self, frame: &[u8]) -> io::Result<()> {
        self.server.as_ref().map_or(Ok(()), |mut server| server.write_all(frame))
    }

    /// A reply that is not passed on: was it of a write, and a success?
    fn count_landed(&self, frame: &[u8]) {
        let of = wire::xid(frame);
        let is_write =
            self.flight().waiting.iter().any(|waiting| waiting.is_write && of == Some(waiting.xid));
        if is_write && wire::error_code(frame) == Some(0) {
            Counts::add(&self.shared.counts.landed_unheard);
        }
    }
}
