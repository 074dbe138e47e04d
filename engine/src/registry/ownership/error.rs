//! Why a window or an extent was not granted.

use crate::registry::ReadError;

/// Why a worker could not be taken.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TakeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("no worker is free: the first becomes so at tick {earliest}")]
    NoneFree { earliest: u64 },
    #[error("none of the registry's worker records can be used")]
    NoneUsable,
    #[error(
        "every worker of the registry that can be used is closed, as another generator has it: when that has stopped, open \
         some with `xuid registry open`"
    )]
    AllClosed,
    #[error("the registry has no worker {worker}, it has {first} to {last}")]
    Outside { worker: u32, first: u32, last: u32 },
    #[error(
        "worker {worker} is closed, as another generator has it: take another one, or open it with `xuid registry open` when \
         that has stopped"
    )]
    Closed { worker: u32 },
    #[error(
        "the record of worker {worker} says less than was granted here: the registry was restored and needs a fence"
    )]
    WentBack { worker: u32 },
    #[error("{why}")]
    Copied { why: String },
    #[error("nobody knows whether the registry stored the window: {why}")]
    InDoubt { why: String },
    #[error("worker {worker} is held by {owner}, reserved up to tick {until}")]
    Held { worker: u32, until: u64, owner: String },
    #[error(
        "worker {worker} is reserved up to tick {until}, beyond the clock; {owner} was the last to hold it"
    )]
    Ahead { worker: u32, until: u64, owner: String },
}

/// Why a held worker's window could not be extended.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ExtendError {
    /// Another process moved the record, or it cannot be read: leave this worker.
    #[error("worker {worker} is left: {why}")]
    Lost {
        worker: u32,
        why: String,
        /// Its record cannot be trusted before a fence; else it may be taken again like any other.
        for_good: bool,
    },
    /// A copy of this process, memory and all, moved the record: nothing that is held is this one's alone.
    #[error("worker {worker} is left: {why}")]
    Copied { worker: u32, why: String },
    /// Nothing was gained; try again.
    #[error("the window was not extended: {why}")]
    Later { why: String },
}

/// Why extents were not granted.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum GrantError {
    /// The mark is gone, unreadable, or another process's for good: the spill must not be used again.
    #[error("the spill's mark cannot be trusted any more: {why}")]
    Refused { why: String },
    /// The mark stands elsewhere than this process thought; nothing was granted.
    #[error("the mark had been moved to {granted_upto} by somebody else")]
    Moved { granted_upto: u64 },
    /// Try again.
    #[error("nothing was granted: {why}")]
    Later { why: String },
}
