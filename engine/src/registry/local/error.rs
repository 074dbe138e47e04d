//! Why a local registry cannot be opened, created, fenced or adopted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::FileIdentity;
use crate::id::key_error::OpaqueKeyError;
use crate::registry::ClusterId;

/// Why a local registry cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// There is none.
    #[error("there is no registry at {}: start a server on that folder, or run `xuid registry init`", path.display())]
    Absent {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is one already.
    #[error("there is a registry at {} already: use it, or another folder", path.display())]
    Exists {
        /// Where it is.
        path: PathBuf,
    },
    /// The folder or a file in it may not be written.
    #[error("{} cannot be written by this user: change its owner or its rights, or use another folder", path.display())]
    ReadOnly {
        /// What cannot be written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no room.
    #[error("there is no room for {}: the registry takes {bytes} bytes once and never grows; free as much, or use another folder", path.display())]
    Full {
        /// What should have been written.
        path: PathBuf,
        /// What it takes.
        bytes: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("failed to {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// What is damaged in the file could not be written again.
    #[error(
        "failed to make damaged records of {} good: check the disk, or run `xuid registry fence --restored {}`, \
         which writes all records to a new file", path.display(), folder.display()
    )]
    Unrepaired {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The system gave no random bytes.
    #[error("failed to draw a random cluster id")]
    Random(#[source] io::Error),
    /// The file is something else.
    #[error("{} is not a registry: move it away, or use another folder", path.display())]
    NotARegistry {
        /// The file.
        path: PathBuf,
    },
    /// The file is of another version of the format.
    #[error("{} is a registry of format version {found}, and this program knows version {known}: use the program that wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The one that can be read.
        known: u32,
    },
    /// The folder's `node.json` is of another version of the format.
    #[error("{} is of version {found}, and this program knows version {known}: use the program that wrote it", path.display())]
    NodeVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The one that can be read.
        known: u32,
    },
    /// The file lost its end.
    #[error(
        "{} has {found} bytes and should have {expected}: put it back from a backup and run `xuid registry fence --restored` \
         on its folder, or begin a new registry in another folder", path.display()
    )]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The length it was created with.
        expected: u64,
    },
    /// Neither copy of the header can be believed.
    #[error(
        "both copies of the header of {} are damaged: put it back from a backup and run `xuid registry fence --restored` on \
         its folder, or begin a new registry in another folder", path.display()
    )]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is a copy of the one that was created: the original may still be in use.
    #[error(
        "{} was put back, moved or copied: it was created as {recorded} and is {found} now{}; ids that were issued since would \
         come again. If its original is used no more, run `xuid registry fence --restored {}`; for a copy that lives beside \
         its original, `xuid registry adopt {}`", path.display(), recorded.doubt(found), folder.display(), folder.display()
    )]
    Copied {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// What its header says it is.
        recorded: FileIdentity,
        /// What it is.
        found: FileIdentity,
    },
    /// The file says less than the processes of its folder knew: an old content was put back into it.
    #[error(
        "{} was restored from a backup, or edited: {what} {how}, as this folder knows; ids that were issued since would come \
         again, so run `xuid registry fence --restored {}`", path.display(), folder.display()
    )]
    Restored {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// Which record: `worker 7`, `mark slot 3`.
        what: String,
        /// What was known of it, and what it says.
        how: String,
    },
    /// The file belongs to another folder: a fence of it would be believed here.
    #[error(
        "{} is the registry of cluster {registry}, and its folder {} belongs to cluster {node}: put the folder's own registry \
         back", path.display(), folder.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// The file's cluster.
        registry: ClusterId,
        /// The cluster that the folder's `node.json` names.
        node: ClusterId,
    },
    /// The file of sequences belongs to another registry.
    #[error(
        "{} has the sequences of cluster {found}, and the registry is cluster {registry}: if `xuid registry adopt` was \
         interrupted, run it again; else put the folder's own file back and run `xuid registry fence --restored {}`",
        path.display(), folder.display()
    )]
    SequencesOfOther {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
        /// The cluster that it belongs to.
        found: ClusterId,
        /// The registry's.
        registry: ClusterId,
    },
    /// The file of sequences is gone, and was there.
    #[error(
        "{} is gone, which its folder knew: numbers that were issued would come again. Put it back from a backup, or do \
         without it, and run `xuid registry fence --restored {}`", path.display(), folder.display()
    )]
    SequencesLost {
        /// The file.
        path: PathBuf,
        /// The folder it is in.
        folder: PathBuf,
    },
    /// A process uses the registry.
    #[error("process {pid} on {host} uses the registry ({} is locked): stop it first", seat.display())]
    InUse {
        /// The seat that is locked.
        seat: PathBuf,
        /// The process that wrote it last; 0 if it does not say.
        pid: u32,
        /// Its host.
        host: String,
    },
    /// The lock was not to be had.
    #[error("another process kept {} locked for {waited:?}: a stopped or hanging process holds it", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The file at the path kept changing.
    #[error("{} is replaced again and again: stop whoever does it", path.display())]
    Unsettled {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be made with that key of opaque ids, or without one.
    #[error(transparent)]
    Key(#[from] OpaqueKeyError),
    /// That many workers cannot be had.
    #[error("{found} workers were asked for, and the layout allows 1 to {most}")]
    Workers {
        /// What was asked for.
        found: u32,
        /// What the layout has room for.
        most: u32,
    },
}

impl LocalError {
    /// Turns a failure of `action` on `path` into the error that says what to do.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }

    /// The same for what makes a registry good that is there.
    pub(super) fn repairing(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| match Self::io("repair", path)(source) {
            Self::Io { path, source, .. } => {
                let folder = path.parent().unwrap_or(&path).to_owned();
                Self::Unrepaired { path, folder, source }
            }
            refused => refused,
        }
    }

    /// The same for what needs room.
    pub(super) fn storing(
        action: &'static str,
        path: impl Into<PathBuf>,
        bytes: u64,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, bytes, source },
            _ => Self::io(action, path)(source),
        }
    }
}
