//! The process that something belongs to. A forked child has a copy of all memory: what lies there ready for a caller
//! would come out of both, a lock may be held by a thread that is not there, and the connection is the parent's.

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use tokio::time::Instant;

use crate::error::ClientError;

/// A close look costs 0.3 us, and two of them half as much again as a call among a hundred in flight on loopback (2.0 us and
/// 1.3; two cores of an x86-64 virtual machine). Where calls follow each other faster than this one look serves several, for
/// 2 % of a call. From a clone to the first instruction of the child it was 39 us at the least, of the smallest process there
/// is, on the same machine: hardly a child asks so early after its parent's last look.
#[cfg(target_os = "linux")]
const CLOSE_LOOK: Duration = Duration::from_micros(20);

/// Remembered by what belongs to a process, and asked before it is used.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: u32,
    #[cfg(target_os = "linux")]
    witness: Option<witness::Witness>,
    #[cfg(target_os = "linux")]
    since: Instant,
    /// When it was looked at closely and was the right one, in nanoseconds after `since`.
    #[cfg(target_os = "linux")]
    looked: AtomicU64,
}

impl Process {
    /// The one that asks. Outside of a runtime it is known by its id alone.
    pub(crate) fn this() -> Self {
        Self {
            id: std::process::id(),
            #[cfg(target_os = "linux")]
            witness: witness::Witness::of_this_process(),
            #[cfg(target_os = "linux")]
            since: Instant::now(),
            #[cfg(target_os = "linux")]
            looked: AtomicU64::new(0),
        }
    }

    /// Refuses another process, one of the same id in another pid namespace included: two short system calls. The first
    /// process of a container has the id 1, and so has its child in a container of its own.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        self.check_id()?;
        #[cfg(target_os = "linux")]
        if self.witness.as_ref().is_some_and(|witness| !witness.is_of_this_process()) {
            return Err(ClientError::Forked { owner: self.id, found: self.id });
        }
        Ok(())
    }

    /// As [`Process::check`], for each call: the namespace at most once in [`CLOSE_LOOK`].
    pub(crate) fn check_call(&self) -> Result<(), ClientError> {
        #[cfg(target_os = "linux")]
        {
            // Before the look: one that takes long is not taken for a late one.
            let now = self.since.elapsed().as_nanos() as u64;
            let looked = self.looked.load(Relaxed);
            if looked == 0 || now.saturating_sub(looked) >= CLOSE_LOOK.as_nanos() as u64 {
                self.check()?;
                self.looked.store(now, Relaxed);
                return Ok(());
            }
        }
        self.check_id()
    }

    fn check_id(&self) -> Result<(), ClientError> {
        let found = std::process::id();
        if found == self.id { Ok(()) } else { Err(ClientError::Forked { owner: self.id, found }) }
    }
}

#[cfg(target_os = "linux")]
mod witness {
    use tokio::net::UnixStream;
    use tokio::runtime::Handle;

    /// A socket that remembers which process made it. Whoever asks is told that one's id in the pid namespace of the asker: 0
    /// in a namespace that does not see it. `/proc/self/ns/pid` would tell as much, for ten times the time.
    #[derive(Debug)]
    pub(super) struct Witness {
        socket: Option<UnixStream>,
        pub(super) pid: Option<i32>,
    }

    impl Witness {
        /// `None` where no socket is to be had.
        pub(super) fn of_this_process() -> Option<Self> {
            Handle::try_current().ok()?;
            let (socket, _) = UnixStream::pair().ok()?;
            let pid = socket.peer_cred().ok()?.pid();
            Some(Self { socket: Some(socket), pid })
        }

        /// Whether the maker is seen as it saw itself: not so from another namespace.
        pub(super) fn is_of_this_process(&self) -> bool {
            let told = self.socket.as_ref().and_then(|socket| socket.peer_cred().ok());
            told.is_some_and(|told| told.pid() == self.pid)
        }
    }

    /// In a forked child its runtime is the parent's, with locks that nobody releases: there it is left alone.
    impl Drop for Witness {
        fn drop(&mut self) {
            let is_of_maker = self.is_of_this_process() && self.pid == i32::try_from(std::process::id()).ok();
            if !is_of_maker {
                std::mem::forget(self.socket.take());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_process_itself_is_not_refused_and_another_one_is() {
        let mut process = Process::this();
        assert!(process.check().is_ok());
        #[cfg(target_os = "linux")]
        {
            let told = |process: &mut Process, pid| {
                // As the first process of a namespace is told whose parent is the first of another.
                let own = std::mem::replace(&mut process.witness.as_mut().unwrap().pid, pid);
                (own, process.check())
            };
            let (own, refused) = told(&mut process, Some(0));
            assert!(matches!(refused, Err(ClientError::Forked { owner, found }) if owner == found));
            assert!(told(&mut process, own).1.is_ok());
        }
        process.id += 1;
        assert!(process.check().is_err());
    }
}
