//! Accepts connections, up to a limit.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::fronts::xuid;
use crate::net::connection::farewell;
use crate::net::io_threads::IoThreads;
use crate::state::server::Server;
use crate::text::exit::usage;

/// Connections that the kernel keeps for us while we are busy: a thousand clients that come at once are no attack.
const BACKLOG: u32 = 1024;

/// Descriptors for everything that is no client: files, the admin port, epoll, standard streams.
const OTHER_FILES: u64 = 128 + FAREWELLS as u64;

/// Refused connections that are closed with care at a time. Those beyond are just closed: a flood of them costs no
/// more.
const FAREWELLS: usize = 64;

/// Descriptors without which there is no server: standard streams, signals, their runtime and the first one, two ports,
/// the files of the data folder and those that are open while they are made; and four for the runtime of each thread.
/// Fewer would be found out in the middle of a start, and some libraries panic then.
const LEAST_FILES: u64 = 28;
const FILES_A_THREAD: u64 = 4;

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

/// Raises the limit of open files, as far as it may be raised, to what `connections` clients need.
///
/// # Errors
/// It can't be raised to what a server with so many threads needs to start.
pub(crate) fn allow_connections(connections: usize, threads: usize) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let runtimes = FILES_A_THREAD * threads as u64;
    let wanted = connections as u64 + OTHER_FILES + runtimes;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current.filter(|current| *current < wanted) else { return Ok(()) };
    let possible = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum });
    let allowed = if raised.is_ok() { possible } else { now };
    let least = LEAST_FILES + runtimes;
    ensure!(
        allowed >= least,
        "too many open files: {allowed} are allowed (ulimit -n), and a server with {threads} threads needs {least} before \
         it serves anybody"
    );
    if let Err(error) = raised {
        debug!(%error, "the limit of open files stays as it was");
    } else if possible < wanted {
        warn!(
            limit = possible,
            wanted, "fewer open files are allowed than max_connections needs (ulimit -n)"
        );
    }
    Ok(())
}

/// Accepts until the server drains. Each connection holds one permit of `permits`.
pub(crate) async fn run(
    listener: TcpListener,
    server: Arc<Server>,
    permits: Arc<Semaphore>,
    io_threads: Arc<IoThreads>,
) {
    let mut draining = server.draining();
    let farewells = Arc::new(Semaphore::new(FAREWELLS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|draining| *draining) => return,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    debug!(%peer, "connected");
                    io_threads.serve(stream, Arc::clone(&server), permit);
                }
                Err(_) => refuse(stream, peer, &server, &farewells),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Out of descriptors or memory: the connections that are open go on, and some of them will end.
                warn!(%error, "failed to accept a connection");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// One connection too many: it is told so in one write, which a new socket has room for. Whatever the client has sent
/// is still read for a moment, or a reset would overtake the text.
fn refuse(stream: TcpStream, peer: SocketAddr, server: &Server, farewells: &Arc<Semaphore>) {
    let refused = server.traffic.connection_refused();
    // The first, and then ever fewer: somebody who opens connections in a loop must not fill the disk.
    if refused.is_power_of_two() {
        warn!(%peer, refused, "too many connections (max_connections): refused");
    }
    let mut text = Vec::new();
    xuid::refuse_connection(&mut text);
    // The runtime's own write would not try before the runtime has looked at the socket.
    let _ = rustix::io::write(&stream, &text);
    if let Ok(permit) = Arc::clone(farewells).try_acquire_owned() {
        tokio::spawn(async move {
            farewell(stream).await;
            drop(permit);
        });
    }
}
