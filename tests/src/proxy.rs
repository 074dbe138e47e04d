//! A TCP proxy in front of one ZooKeeper server that delays, loses, cuts and resets, and knows what it broke.
//!
//! It reads whole frames, so it knows which requests have no answer yet: that is what makes an outcome unknown. A
//! [`Fault`] is armed and waits for the next request that changes the tree; a [`Way`] holds for everything until it
//! is changed. One thread accepts, two serve each connection; all sockets are blocking.
//!
//! # Invariants
//! - I1: a frame is forwarded whole or not at all;
//! - I2: a connection on which a frame was lost forwards nothing in that direction afterwards, and is cut at the
//!   latest when the way changes: TCP loses no bytes in the middle;
//! - I3: an armed fault strikes once.

mod fault_burst;
mod link;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::zookeeper::wire;
pub use fault_burst::{FaultBurst, Toll};
use link::Link;

/// What happens to everything that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nothing.
    Pass,
    /// Each frame is held this long first, in both directions.
    Delay(Duration),
    /// Frames wait until the way changes, and go on then: a partition that heals.
    Hold,
    /// Requests arrive, replies are lost: writes land, and nobody is told.
    LoseReplies,
    /// Requests are lost.
    LoseRequests,
    /// Both are lost, and new connections are accepted and hear nothing.
    BlackHole,
    /// New connections are closed at once.
    Refuse,
}

/// Which request an armed fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Any that changes the tree.
    Write,
    /// A transaction of several changes.
    Multi,
}

/// What happens to that request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is forwarded; when the reply comes back, that is lost and the connection cut: the write has landed.
    LoseReply,
    /// It is lost and the connection cut: the write never happens.
    LoseRequest,
    /// It is forwarded and the connection cut at once: anything may happen.
    Cut,
    /// As [`Fault::Cut`], with a reset to both sides.
    Reset,
    /// It is forwarded, and its reply, and all that follows, held this long; then the connection is cut.
    Stall(Duration),
}

impl Fault {
    /// Its kind, for counting.
    pub fn name(self) -> &'static str {
        match self {
            Self::LoseReply => "lost replies",
            Self::LoseRequest => "lost requests",
            Self::Cut => "cuts",
            Self::Reset => "resets",
            Self::Stall(_) => "stalls",
        }
    }
}

/// What a proxy has done so far.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    /// Connections that it ended.
    cuts: AtomicU64,
    /// Of these, with a request that had no reply.
    cuts_in_flight: AtomicU64,
    /// Writes whose reply was read from the server, said success, and was not passed on.
    landed_unheard: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the threads of a proxy look at.
#[derive(Debug)]
struct State {
    way: Way,
    armed: Option<(Fault, Target)>,
    links: Vec<Weak<Link>>,
    closing: bool,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    /// Of `way`, `armed` and `closing`.
    changed: Condvar,
    counts: Counts,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self) -> Way {
        self.state().way
    }

    /// Takes the armed fault, if this write is what it waits for (I3).
    fn strike(&self, write: &[u8]) -> Option<Fault> {
        let mut state = self.state();
        let (fault, _) =
            state.armed.take_if(|(_, target)| *target == Target::Write || wire::is_multi(write))?;
        self.changed.notify_all();
        Some(fault)
    }

    /// Waits while the way is [`Way::Hold`]; returns what it is then.
    fn wait_released(&self) -> Way {
        let mut state = self.state();
        while state.way == Way::Hold && !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.way
    }

    fn live_links(&self) -> Vec<Arc<Link>> {
        let mut state = self.state();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A running proxy; everything that goes through it is cut on drop.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// In front of this server, on any free port, letting everything pass.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let state = State { way: Way::Pass, armed: None, links: Vec::new(), closing: false };
        let (changed, counts) = (Condvar::new(), Counts::default());
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state), changed, counts });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Ok(Self { addr, shared })
    }

    /// Where clients connect instead.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the way. Connections on which something was lost are cut (I2).
    pub fn set(&self, way: Way) {
        self.shared.state().way = way;
        self.shared.changed.notify_all();
        for link in self.shared.live_links() {
            if link.lost() || way == Way::Refuse {
                link.cut();
            }
        }
    }

    /// Cuts all connections: both sides are closed.
    pub fn cut(&self) {
        self.shared.live_links().iter().for_each(|link| link.cut());
    }

    /// Resets all connections: both sides get an RST instead of an end.
    pub fn reset(&self) {
        self.shared.live_links().iter().for_each(|link| link.reset());
    }

    /// Arms a fault for the next such request; it replaces one that has not struck.
    pub fn arm(&self, fault: Fault, target: Target) {
        self.shared.state().armed = Some((fault, target));
    }

    /// Waits until the armed fault has struck; disarms it and says no if it does not within `limit`.
    pub fn wait_struck(&self, limit: Duration) -> bool {
        let state = self.shared.state();
        let waiting = |state: &mut State| state.armed.is_some();
        let waited = self.shared.changed.wait_timeout_while(state, limit, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.armed.take().is_none()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.counts.connections.load(Ordering::Relaxed)
    }

    /// Connections that were open and that this proxy ended.
    pub fn cuts(&self) -> u64 {
        self.shared.counts.cuts.load(Ordering::Relaxed)
    }

    /// Of these, how many had a request without a reply, pings not counted.
    pub fn cuts_in_flight(&self) -> u64 {
        self.shared.counts.cuts_in_flight.load(Ordering::Relaxed)
    }

    /// Writes that the server reported as done, to this proxy alone.
    pub fn landed_unheard(&self) -> u64 {
        self.shared.counts.landed_unheard.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts; if it is gone, nothing has to be woken.
        let _ = TcpStream::connect(self.addr);
        self.cut();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let (way, closing) = {
            let state = shared.state();
            (state.way, state.closing)
        };
        if closing {
            return;
        }
        let Ok(client) = client else { continue };
        Counts::add(&shared.counts.connections);
        if way != Way::Refuse {
            // A server that is down closes its clients' connections too.
            let _ = Link::open(client, shared, way == Way::BlackHole);
        }
    }
}
