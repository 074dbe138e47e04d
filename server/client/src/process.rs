//! The process that something belongs to. A forked child has a copy of all memory: what lies there ready for a caller
//! would come out of both, a lock may be held by a thread that is not there, and the connection is the parent's.

use crate::error::ClientError;

/// Remembered by what belongs to a process, and asked before it is used.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: u32,
    #[cfg(target_os = "linux")]
    witness: Option<witness::Witness>,
}

impl Process {
    /// The one that asks. Outside of a runtime it is known by its id alone.
    pub(crate) fn this() -> Self {
        Self {
            id: std::process::id(),
            #[cfg(target_os = "linux")]
            witness: witness::Witness::of_this_process(),
        }
    }

    /// Refuses another process, one of the same id in another pid namespace included: two short system calls. The first
    /// process of a container has the id 1, and so has its child in a container of its own.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let found = std::process::id();
        #[cfg(target_os = "linux")]
        let other = self.witness.as_ref().is_some_and(|witness| !witness.is_of_this_process());
        #[cfg(not(target_os = "linux"))]
        let other = false;
        if found != self.id || other {
            return Err(ClientError::Forked { owner: self.id, found });
        }
        Ok(())
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
