//! The process that something belongs to. A forked child has a copy of all memory: what lies there ready for a caller
//! would come out of both, a lock may be held by a thread that is not there, and the connection is the parent's.
//!
//! On Linux a page tells, which the kernel wipes in every forked child, whatever id, namespaces, files or clock the
//! child has. Where there is no such page (Linux before 4.14, a sandbox that refuses the advice, another system), the
//! process id tells: a child that has its parent's id is taken for the parent there. Children that share their parent's
//! memory (`vfork`) share the page as well.

#[cfg(target_os = "linux")]
mod fork_mark;
mod own;

pub(crate) use own::Own;

use crate::error::ClientError;

/// Remembered by what belongs to a process, and asked before it is used.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    #[cfg(target_os = "linux")]
    mark: Option<fork_mark::ForkMark>,
}

impl Process {
    /// The one that asks.
    pub(crate) fn this() -> Self {
        Self {
            id: std::process::id(),
            #[cfg(target_os = "linux")]
            mark: fork_mark::ForkMark::new().ok(),
        }
    }

    /// Refuses another process: one load, or a short system call where there is no page.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.is_this() { Ok(()) } else { Err(self.forked()) }
    }

    fn is_this(&self) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(mark) = &self.mark {
            return !mark.is_wiped();
        }
        self.id == std::process::id()
    }

    #[cold]
    fn forked(&self) -> ClientError {
        ClientError::Forked { owner: self.id, found: std::process::id() }
    }

    /// The one with that id, as where there is no page.
    #[cfg(test)]
    pub(crate) fn known_by_id(id: u32) -> Self {
        Self {
            id,
            #[cfg(target_os = "linux")]
            mark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_itself_is_not_refused_and_another_one_is() {
        let own = std::process::id();
        assert!(Process::this().check().is_ok());
        assert!(Process::known_by_id(own).check().is_ok());
        let refused = Process::known_by_id(own + 1).check();
        assert!(
            matches!(refused, Err(ClientError::Forked { owner, found }) if owner == own + 1 && found == own)
        );
        #[cfg(target_os = "linux")]
        assert!(Process::this().mark.is_some(), "this kernel wipes pages");
    }
}
