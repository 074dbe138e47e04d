//! Accepts connections, up to a limit.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::fronts::Front;
use crate::fronts::farewell::farewell;
use crate::net::io_threads::IoThreads;
use crate::net::newcomers::Newcomers;
use crate::state::server::Server;
use crate::text::exit::usage;

/// Connections that the kernel keeps for us while we are busy: a thousand clients that come at once are no attack.
const BACKLOG: u32 = 1024;

/// A connection that was told to end has done so by then, if its thread gets a turn.
const ROOM: Duration = Duration::from_millis(100);

/// Binds `address`, an address or a name with a port.
pub(crate) fn bind(key: &str, address: &str) -> Result<TcpListener> {
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| usage(format!("{key} is {address:?}, and that is no address: {error}")))?;
    let address =
        found.next().ok_or_else(|| usage(format!("{key} is {address:?}, and that has no address")))?;
    listen(address)
        .with_context(|| format!("failed to listen on {address} (--{key} takes another, port 0 any)"))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the life before to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts at all ports until the server drains. Each connection holds one permit of `permits`, at whatever port it came.
/// At most `farewells` refused ones are closed with care at a time. Those beyond are just closed: a flood of them costs no
/// more.
pub(crate) async fn run(
    ports: Vec<(TcpListener, Front)>,
    server: Arc<Server>,
    permits: Arc<Semaphore>,
    io_threads: Arc<IoThreads>,
    farewells: usize,
) {
    let mut draining = server.draining();
    let farewells = Arc::new(Semaphore::new(farewells));
    let mut newcomers = Newcomers::new(permits.available_permits());
    let mut last = 0;
    loop {
        let (accepted, front) = tokio::select! {
            accepted = accept(&ports, &mut last) => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
        };
        match accepted {
            Ok((stream, peer)) => match room(&permits, &mut newcomers).await {
                Some(permit) => {
                    debug!(%peer, "connected");
                    let newcomer = newcomers.welcome(peer.ip());
                    io_threads.serve(stream, front, Arc::clone(&server), newcomer, permit);
                }
                None => refuse(stream, front, peer, &server, &farewells),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of descriptors or memory: the connections that are open go on, and some of them will end.
                warn!(%error, "failed to accept a connection");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
    // Who was let in by the kernel before the ports close is a client, too, and what it asked is answered: to close would
    // reset it.
    for (stream, front, peer) in ports.into_iter().flat_map(left) {
        match room(&permits, &mut newcomers).await {
            Some(permit) => {
                let newcomer = newcomers.welcome(peer.ip());
                io_threads.serve(stream, front, Arc::clone(&server), newcomer, permit);
            }
            None => refuse(stream, front, peer, &server, &farewells),
        }
    }
}

/// What waits at a port to be accepted, whether the runtime has looked there or not.
fn left((port, front): (TcpListener, Front)) -> impl Iterator<Item = (TcpStream, Front, SocketAddr)> {
    let port = port.into_std().ok();
    let accept = move || {
        let (stream, peer) = port.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, front, peer))
    };
    // More than there is room for came after it.
    std::iter::from_fn(accept).take(BACKLOG as usize)
}

/// The next connection, at whatever port. The port behind the last one's is looked at first, so that none is kept waiting
/// by another.
async fn accept(
    ports: &[(TcpListener, Front)],
    last: &mut usize,
) -> (io::Result<(TcpStream, SocketAddr)>, Front) {
    poll_fn(|context| {
        for step in 1..=ports.len() {
            let at = (*last + step) % ports.len();
            let (port, front) = &ports[at];
            if let Poll::Ready(accepted) = port.poll_accept(context) {
                *last = at;
                return Poll::Ready((accepted, *front));
            }
        }
        Poll::Pending
    })
    .await
}

/// Room for one connection, if need be that of one that has not said HELLO for a second.
async fn room(permits: &Arc<Semaphore>, newcomers: &mut Newcomers) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return Some(permit);
    }
    let waits = newcomers.make_room().then(|| Arc::clone(permits).acquire_owned())?;
    timeout(ROOM, waits).await.ok()?.ok()
}

/// One connection too many: it is told so in one write, which a new socket has room for. Whatever the client has sent
/// is still read for a moment, or a reset would overtake the text. Within TLS it is closed without a word: to tell it
/// would take a handshake, and a flood would cost many.
fn refuse(stream: TcpStream, front: Front, peer: SocketAddr, server: &Server, farewells: &Arc<Semaphore>) {
    let refused = server.traffic.connection_refused();
    // The first, and then ever fewer: somebody who opens connections in a loop must not fill the disk.
    if refused.is_power_of_two() {
        warn!(%peer, refused, "too many connections (max_connections): refused");
    }
    if !server.access.has_tls() {
        // The runtime's own write would not try before the runtime has looked at the socket.
        let _ = rustix::io::write(&stream, &front.refuse_connection());
    }
    if let Ok(permit) = Arc::clone(farewells).try_acquire_owned() {
        tokio::spawn(async move {
            farewell(stream).await;
            drop(permit);
        });
    }
}
