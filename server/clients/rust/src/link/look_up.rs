//! The addresses of a server's name.
//!
//! The system looks a name up in its own time, and cannot be interrupted, so it is asked on a thread of its own: of Tokio's
//! threads for what blocks, its caller panics where none can be had, and its runtime waits for all of them at its end.
//!
//! # Invariants
//! - I1 each name takes one thread in [`AGAIN`] at most, however often it is dialed meanwhile;
//! - I2 nothing is waited for that a parent of this process began;
//! - I3 a look-up that never ends keeps its name from being looked up for no longer than that.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::process::Process;

/// How often, and how long after the last time, the list is tried: for longer than a thread takes to begin.
const TRIES: usize = 500;
const PAUSE: Duration = Duration::from_micros(50);

/// A look-up that takes longer is not joined, since it may never end: glibc waits without an end for a DNS server that it asks
/// over TCP, and that is gone behind the handshake. All others end within some 30 s.
const AGAIN: Duration = Duration::from_mins(1);

/// What was found; an error in its words, since several may wait for it.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A name that is being looked up.
struct UnderWay {
    process: Process,
    name: Arc<str>,
    begun: Instant,
    found: watch::Receiver<Option<Found>>,
}

type Names = Mutex<Vec<UnderWay>>;

static UNDER_WAY: Names = Mutex::new(Vec::new());

/// The addresses of a name, or the one that it is. It is looked up on that thread.
pub(super) async fn look_up(server: &Arc<str>, thread: thread::Builder) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = server.parse() {
        return Ok(vec![address]);
    }
    let mut found = begin(&UNDER_WAY, server, thread, |name| name.to_socket_addrs().map(Iterator::collect))?;
    let found = found.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
    found.unwrap_or_else(|| Ok(Vec::new())).map_err(|(kind, why)| io::Error::new(kind, why))
}

/// The list; `None` where a thread of a parent has it, for good. Another dial has it for as long as a thread takes to begin.
fn list(names: &Names) -> Option<MutexGuard<'_, Vec<UnderWay>>> {
    for _ in 0..TRIES {
        match names.try_lock() {
            Ok(under_way) => return Some(under_way),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    None
}

/// Begins a look-up, if none of that name is under way.
fn begin(
    names: &Names,
    server: &Arc<str>,
    thread: thread::Builder,
    resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<watch::Receiver<Option<Found>>> {
    let mut under_way = list(names);
    if let Some(under_way) = &mut under_way {
        let is_mine = |one: &UnderWay| one.process.check().is_ok() && one.found.borrow().is_none();
        let is_young = |one: &UnderWay| one.begun.elapsed() < AGAIN;
        under_way.retain(|one| is_mine(one) && is_young(one) && one.found.has_changed().is_ok());
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
        let (process, name, begun) = (Process::this(), Arc::clone(server), Instant::now());
        under_way.push(UnderWay { process, name, begun, found: found.clone() });
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

    /// Nobody else's.
    fn no_names() -> Names {
        Mutex::new(Vec::new())
    }

    #[tokio::test]
    async fn a_name_that_is_looked_up_for_long_takes_one_thread() {
        let (name, address) = (Arc::from("for-long.test:1"), "127.0.0.1:9".parse::<SocketAddr>().unwrap());
        let (names, (answer, waits)) = (no_names(), mpsc::channel());
        let mut first =
            begin(&names, &name, thread::Builder::new(), move |_| Ok(vec![waits.recv().unwrap()])).unwrap();
        let again = || begin(&names, &name, thread::Builder::new(), |_| Ok(Vec::new())).unwrap();
        assert!((0..10).all(|_| again().same_channel(&first)), "each has a thread of its own");
        answer.send(address).unwrap();
        let found = first.wait_for(Option::is_some).await.unwrap().clone();
        assert_eq!(found, Some(Ok(vec![address])));
        assert!(!again().same_channel(&first), "it is looked up once in a life");
        assert_eq!(look_up(&Arc::from("127.0.0.1:9"), thread::Builder::new()).await.unwrap(), [address]);
    }

    #[test]
    fn a_look_up_that_never_ends_is_not_waited_for_without_an_end() {
        let (name, names): (Arc<str>, _) = (Arc::from("for-ever.test:1"), no_names());
        let (never, waits) = mpsc::channel::<()>();
        let resolve = move |_: &str| {
            let _ = waits.recv();
            Ok(Vec::new())
        };
        let first = begin(&names, &name, thread::Builder::new(), resolve).unwrap();
        let since = Instant::now().checked_sub(AGAIN).unwrap();
        list(&names).unwrap()[0].begun = since;
        let again = begin(&names, &name, thread::Builder::new(), |_: &str| Ok(Vec::new())).unwrap();
        assert!(!again.same_channel(&first), "all dials of its name wait for it in vain, for good");
        drop(never);
    }

    #[test]
    fn a_list_that_a_thread_of_a_parent_has_is_not_waited_for_without_an_end() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let names = no_names();
            // As in a child: nobody is there who would give it back.
            let kept = names.lock();
            let name = Arc::from("of-a-parent.test:1");
            let begun = begin(&names, &name, thread::Builder::new(), |_: &str| Ok(Vec::new()));
            drop(kept);
            let _ = tell.send(begun.is_ok());
        });
        let begun = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(begun, Ok(true), "each dial of the child hangs, and the thread of its runtime with it");
    }

    #[test]
    fn a_name_takes_one_thread_though_another_dial_has_the_list_for_a_moment() {
        let (name, names): (Arc<str>, _) = (Arc::from("for-a-moment.test:1"), no_names());
        let (has, had) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = names.lock();
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
            let first = begin(&names, &name, thread::Builder::new(), resolve).unwrap();
            let again = begin(&names, &name, thread::Builder::new(), |_: &str| Ok(Vec::new())).unwrap();
            assert!(again.same_channel(&first), "each has a thread of its own");
            drop(answer);
        });
    }

    #[test]
    fn a_look_up_that_a_parent_began_is_not_waited_for() {
        let (name, names): (Arc<str>, _) = (Arc::from("of-a-parent.test:1"), no_names());
        // Its thread is not there.
        let (_tell, parents) = watch::channel(None);
        let process = Process::known_by_id(std::process::id() + 1);
        let (begun, found) = (Instant::now(), parents.clone());
        list(&names).unwrap().push(UnderWay { process, name: Arc::clone(&name), begun, found });
        let own = begin(&names, &name, thread::Builder::new(), |_: &str| Ok(Vec::new())).unwrap();
        assert!(!own.same_channel(&parents));
    }
}
