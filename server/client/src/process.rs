//! The process that something belongs to. A forked child has a copy of all memory: what lies there ready for a caller
//! would come out of both, a lock may be held by a thread that is not there, and the connection is the parent's.

use crate::error::ClientError;

/// Remembered by what belongs to a process, and asked before it is used.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: u32,
    #[cfg(target_os = "linux")]
    namespace: Option<namespace::Namespace>,
}

impl Process {
    /// The one that asks.
    pub(crate) fn this() -> Self {
        Self {
            id: std::process::id(),
            #[cfg(target_os = "linux")]
            namespace: namespace::Namespace::of_this_process(),
        }
    }

    /// Refuses another process, by its id: one short system call.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let found = std::process::id();
        if found == self.id { Ok(()) } else { Err(ClientError::Forked { owner: self.id, found }) }
    }

    /// As [`Process::check`], and refuses a process of the same id in another namespace: a microsecond or two. The first
    /// process of a container has the id 1, and so has its child in a container of its own.
    pub(crate) fn check_closely(&self) -> Result<(), ClientError> {
        self.check()?;
        #[cfg(target_os = "linux")]
        if self.namespace.as_ref().is_some_and(|namespace| !namespace.is_this_process_s()) {
            return Err(ClientError::Forked { owner: self.id, found: self.id });
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod namespace {
    use std::os::fd::OwnedFd;

    use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};

    /// The namespace that the ids of processes are in. `/proc` is kept open, so that it is found after a `chroot` as well.
    #[derive(Debug)]
    pub(super) struct Namespace {
        proc: OwnedFd,
        pub(super) inode: u64,
    }

    impl Namespace {
        /// `None` where there is no `/proc`.
        pub(super) fn of_this_process() -> Option<Self> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let proc = fs::openat(CWD, "/proc", flags, Mode::empty()).ok()?;
            let inode = inode(&proc)?;
            Some(Self { proc, inode })
        }

        /// If that cannot be found out any more, it is taken for another.
        pub(super) fn is_this_process_s(&self) -> bool {
            inode(&self.proc) == Some(self.inode)
        }
    }

    fn inode(proc: &OwnedFd) -> Option<u64> {
        fs::statat(proc, "self/ns/pid", AtFlags::empty()).ok().map(|stat| stat.st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_itself_is_not_refused_and_another_one_is() {
        let mut process = Process::this();
        assert!(process.check().is_ok() && process.check_closely().is_ok());
        #[cfg(target_os = "linux")]
        {
            // As the first process of a namespace finds it whose parent is the first of another.
            process.namespace.as_mut().unwrap().inode += 1;
            assert!(process.check().is_ok());
            assert!(
                matches!(process.check_closely(), Err(ClientError::Forked { owner, found }) if owner == found)
            );
        }
        process.id += 1;
        assert!(process.check().is_err() && process.check_closely().is_err());
    }
}
