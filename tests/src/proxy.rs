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
mod shared;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Result;

pub use fault_burst::{FaultBurst, Toll};
use link::Link;
use shared::{Counts, Shared, State};
pub use shared::{Fault, Target, Way};

/// A running proxy; everything that goes through it is cut on drop.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    links: Arc<Links>,
}

/// The connections that may be open.
#[derive(Debug, Default)]
struct Links(Mutex<Vec<Weak<Link>>>);

impl Links {
    fn add(&self, link: &Arc<Link>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(link));
    }

    fn live(&self) -> Vec<Arc<Link>> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Proxy {
    /// In front of this server, on any free port, letting everything pass.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let state = State { way: Way::Pass, armed: None, closing: false };
        let (changed, counts) = (Condvar::new(), Counts::default());
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state), changed, counts });
        let links = Arc::default();
        let accepting = (Arc::clone(&shared), Arc::clone(&links));
        thread::spawn(move || accept(&listener, &accepting.0, &accepting.1));
        Ok(Self { addr, shared, links })
    }

    /// Where clients connect instead.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the way. Connections on which something was lost are cut (I2).
    pub fn set(&self, way: Way) {
        self.shared.state().way = way;
        self.shared.changed.notify_all();
        for link in self.links.live() {
            if link.lost() || way == Way::Refuse {
                link.cut();
            }
        }
    }

    /// Cuts all connections: both sides are closed.
    pub fn cut(&self) {
        self.links.live().iter().for_each(|link| link.cut());
    }

    /// Resets all connections: both sides get an RST instead of an end.
    pub fn reset(&self) {
        self.links.live().iter().for_each(|link| link.reset());
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

fn accept(listener: &TcpListener, shared: &Arc<Shared>, links: &Links) {
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
            let Ok(link) = Link::open(client, shared, way == Way::BlackHole) else { continue };
            links.add(&link);
            link.carry();
        }
    }
}
