//! The addresses of a server's name.
//!
//! The system looks a name up in its own time, and cannot be interrupted, so it is asked on a thread of its own: of Tokio's
//! threads for what blocks, its caller panics where none can be had, and its runtime waits for all of them at its end.
//!
//! # Invariants
//! - I1 each name takes one thread at most, however often it is dialed meanwhile;
//! - I2 nothing is waited for that a parent of this process began.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;

use tokio::sync::watch;

/// What was found; an error in its words, since several may wait for it.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A name that is being looked up.
struct UnderWay {
    process: u32,
    name: Arc<str>,
    found: watch::Receiver<Option<Found>>,
}

static UNDER_WAY: Mutex<Vec<UnderWay>> = Mutex::new(Vec::new());

/// The addresses of a name, or the one that it is. It is looked up on that thread.
pub(super) async fn look_up(server: &Arc<str>, thread: thread::Builder) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = server.parse() {
        return Ok(vec![address]);
    }
    let mut found = begin(server, thread, |name| name.to_socket_addrs().map(Iterator::collect))?;
    let found = found.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
    found.unwrap_or_else(|| Ok(Vec::new())).map_err(|(kind, why)| io::Error::new(kind, why))
}

/// Begins a look-up, if none of that name is under way.
fn begin(
    server: &Arc<str>,
    thread: thread::Builder,
    resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<watch::Receiver<Option<Found>>> {
    // Not waited for: a thread of a parent may have it for good.
    let mut under_way = match UNDER_WAY.try_lock() {
        Ok(under_way) => Some(under_way),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(under_way) = &mut under_way {
        let is_mine = |one: &UnderWay| one.process == process::id() && one.found.borrow().is_none();
        under_way.retain(|one| is_mine(one) && one.found.has_changed().is_ok());
        if let Some(one) = under_way.iter().find(|one| one.name == *server) {
            return Ok(one.found.clone());
        }
    }
    let (tell, found) = watch::channel(None);
    let name = Arc::clone(server);
    let begun = thread.spawn(move || {
        let addresses = resolve(&name).map_err(|error| (error.kind(), error.to_string()));
        // Nobody may want to know any more.
        let _ = tell.send(Some(addresses));
    });
    begun.map_err(|error| {
        let why =
            format!("no thread can be had to look up its name, so raise the limit of processes: {error}");
        io::Error::new(error.kind(), why)
    })?;
    if let Some(under_way) = &mut under_way {
        under_way.push(UnderWay { process: process::id(), name: Arc::clone(server), found: found.clone() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_name_that_no_thread_can_look_up_is_an_error_and_an_address_is_not_looked_up() {
        // Its stack would be larger than all addresses that there are.
        let none = || thread::Builder::new().stack_size(1 << 47);
        let error = look_up(&Arc::from("no-thread.test:1"), none()).await.unwrap_err();
        assert!(error.to_string().contains("no thread"), "{error}");
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(look_up(&Arc::from("127.0.0.1:1"), none()).await.unwrap(), [address]);
    }

    #[tokio::test]
    async fn a_name_that_is_looked_up_for_long_takes_one_thread() {
        let (name, address) = (Arc::from("for-long.test:1"), "127.0.0.1:9".parse::<SocketAddr>().unwrap());
        let (answer, waits) = mpsc::channel();
        let mut first =
            begin(&name, thread::Builder::new(), move |_| Ok(vec![waits.recv().unwrap()])).unwrap();
        let again = || begin(&name, thread::Builder::new(), |_| Ok(Vec::new())).unwrap();
        // Another test may have the list for a moment.
        let shared = (0..10).filter(|_| again().same_channel(&first)).count();
        assert!(shared > 0, "each has a thread of its own");
        answer.send(address).unwrap();
        let found = first.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(found, Some(Ok(vec![address])));
        assert_eq!(look_up(&Arc::from("127.0.0.1:9"), thread::Builder::new()).await.unwrap(), [address]);
    }
}
