//! A TCP relay in front of one server that knows no protocol: once it is armed, it passes so many bytes of the answers
//! and no more.
//!
//! One thread accepts, two serve each connection; all sockets are blocking.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// What happens after the last byte that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Both sides are closed.
    Cut,
    /// The connection stays, and the client hears nothing any more.
    Swallow,
}

#[derive(Debug, Default)]
struct State {
    /// How many bytes may pass, and what then.
    armed: Option<(usize, Ending)>,
    struck: bool,
    /// Bytes of answers that passed since it was armed.
    passed: usize,
    closing: bool,
    open: Vec<TcpStream>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of these bytes pass now, and what happens then.
    fn pass(&self, len: usize) -> (usize, Option<Ending>) {
        let mut state = self.state();
        let Some((left, ending)) = state.armed else { return (len, None) };
        if len <= left {
            state.armed = Some((left - len, ending));
            state.passed += len;
            return (len, None);
        }
        state.armed = None;
        state.struck = true;
        self.changed.notify_all();
        (left, Some(ending))
    }
}

/// A running relay; everything that goes through it is cut on drop.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Relay {
    /// In front of this server, on any free port, passing everything.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self { addr: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&relay.shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.state().closing {
                    return;
                }
                // A client that is gone, or a server that is down, has no connection.
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                let _ = carry(&shared, &client, &server);
            }
        });
        Ok(relay)
    }

    /// Where clients connect instead.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Lets so many bytes of answers pass from now on; the next one is lost, and those after it on its connection.
    pub fn arm(&self, bytes: usize, ending: Ending) {
        let mut state = self.shared.state();
        state.struck = false;
        state.passed = 0;
        state.armed = Some((bytes, ending));
    }

    /// How many bytes of answers passed since it was armed, as long as it did not strike.
    pub fn passed(&self) -> usize {
        self.shared.state().passed
    }

    /// Disarms it; whether it struck.
    pub fn disarm(&self) -> bool {
        let mut state = self.shared.state();
        state.armed = None;
        state.struck
    }

    /// Waits until it struck; says no if it does not within `limit`.
    pub fn wait_struck(&self, limit: Duration) -> bool {
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, limit, |state| !state.struck);
        waited.unwrap_or_else(PoisonError::into_inner).0.struck
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for stream in self.shared.state().open.drain(..) {
            // One that has ended already is what is wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        // Wakes the thread that accepts; if it is gone, nothing has to be woken.
        let _ = TcpStream::connect(self.addr);
        self.cut();
    }
}

fn carry(shared: &Arc<Shared>, client: &TcpStream, server: &TcpStream) -> std::io::Result<()> {
    for stream in [client, server] {
        stream.set_nodelay(true)?;
        shared.state().open.push(stream.try_clone()?);
    }
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        // The other direction ends with it.
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to, shared) = (server.try_clone()?, client.try_clone()?, Arc::clone(shared));
    thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let (passing, ending) = shared.pass(len);
            if to.write_all(&bytes[..passing]).is_err() {
                break;
            }
            match ending {
                None => {}
                Some(Ending::Cut) => break,
                // Read to the end all the same: a server that cannot write would be held up.
                Some(Ending::Swallow) => while let Ok(1..) = from.read(&mut bytes) {},
            }
        }
        for stream in [&from, &to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}
