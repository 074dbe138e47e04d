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
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::process::Process;

/// How often, and how long after the last time, the list is tried: for longer than a thread takes to begin.
const TRIES: usize = 500;
const PAUSE: Duration = Duration::from_micros(50);

/// What was found; an error in its words, since several may wait for it.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A name that is being looked up.
struct UnderWay {
    process: Process,
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

/// The list; `None` where a thread of a parent has it, for good. Another dial has it for as long as a thread takes to begin.
fn list() -> Option<MutexGuard<'static, Vec<UnderWay>>> {
    for _ in 0..TRIES {
        match UNDER_WAY.try_lock() {
            Ok(under_way) => return Some(under_way),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    None
}

/// Begins a look-up, if none of that name is under way.
fn begin(
    server: &Arc<str>,
    thread: thread::Builder,
    resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<watch::Receiver<Option<Found>>> {
    let mut under_way = list();
    if let Some(under_way) = &mut under_way {
        let is_mine = |one: &UnderWay| one.process.check().is_ok() && one.found.borrow().is_none();
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
        under_way.push(UnderWay { process: Process::this(), name: Arc::clone(server), found: found.clone() });
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

    #[tokio::test]
    async fn a_name_takes_one_thread_though_another_dial_has_the_list_for_a_moment() {
        let name: Arc<str> = Arc::from("for-a-moment.test:1");
        let (has, had) = mpsc::channel();
        let holding = thread::spawn(move || {
            let held = UNDER_WAY.lock();
            has.send(()).unwrap();
            thread::sleep(Duration::from_millis(2));
            drop(held);
        });
        had.recv().unwrap();
        let (answer, waits) = mpsc::channel::<()>();
        let resolve = move |_: &str| {
            let _ = waits.recv();
            Ok(Vec::new())
        };
        let first = begin(&name, thread::Builder::new(), resolve).unwrap();
        holding.join().unwrap();
        let again = begin(&name, thread::Builder::new(), |_: &str| Ok(Vec::new())).unwrap();
        assert!(again.same_channel(&first), "each has a thread of its own");
        drop(answer);
    }

    #[tokio::test]
    async fn a_look_up_that_a_parent_began_is_not_waited_for() {
        let name: Arc<str> = Arc::from("of-a-parent.test:1");
        // Its thread is not there.
        let (_tell, parents) = watch::channel(None);
        let process = Process::known_by_id(std::process::id() + 1);
        let under_way = UnderWay { process, name: Arc::clone(&name), found: parents.clone() };
        list().unwrap().push(under_way);
        let own = begin(&name, thread::Builder::new(), |_: &str| Ok(Vec::new())).unwrap();
        assert!(!own.same_channel(&parents));
    }
}
