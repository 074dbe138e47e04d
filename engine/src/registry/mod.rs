//! The port through which the engine owns ticks: versioned records that only move by compare-and-set.
//!
//! A registry keeps, per worker, `reserved_until`: the first tick that no process was granted. Per spill it keeps
//! `granted_upto`: the first extent that no process was granted. The engine does all the reasoning; an adaptor only
//! stores. [`local`] is a folder shared by the processes of one host; `zookeeper`, a feature, an ensemble shared by
//! many.
//!
//! # Invariants an adaptor must keep
//! - I1 `swap_*` stores the new record if, and only if, the record still has the expected version; each
//!   success raises the version;
//! - I2 when `swap_*` returns `Ok`, the record is as durable as it will ever be;
//! - I3 any failure after which the record might have been stored is [`SwapError::Unknown`], never
//!   [`SwapError::Conflict`];
//! - I4 an absent or unreadable record is an error, and is never made again by a read or a swap;
//! - I5 it is called by one thread; another process may work on the same records at any moment.

pub(crate) mod closed;
pub(crate) mod connection;
mod fenced;
pub(crate) mod given;
pub(crate) mod health;
pub(crate) mod limits;
pub mod local;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
pub(crate) mod ownership;
pub mod provenance;
mod record;
pub mod sequences;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::sync::Arc;

pub use xuid_id::{ClusterId, ParseClusterIdError, printable};
use xuid_id::{Face, ID_BITS, Layout, Veil};
use xuid_spill::SpillId;

pub use self::closed::{OpenError, Opened, open};
pub use self::connection::Connection;
pub use self::fenced::{Adopted, Fenced};
pub use self::limits::floor::{Floor, FloorError};
pub use self::limits::range::{ParseWorkersError, Workers};
use crate::id::key_error::OpaqueKeyError;
pub use crate::stats::ConnectionState;

/// What is longer is no `node.json`, in which a data folder remembers its cluster: that has a line.
pub(crate) const NODE_MOST_BYTES: usize = 64 * 1024;

/// The version of `node.json` that this crate writes, and the only one that it reads.
pub const NODE_VERSION: u32 = 1;

/// What a registry was created with; it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Genesis {
    /// The cluster's identity.
    pub cluster: ClusterId,
    /// The layout of every id of the cluster.
    pub layout: Layout,
    /// The first tick that may ever be granted: the time of genesis, or earlier where whoever created it
    /// asserted that the namespace issued nothing since.
    pub floor: u64,
    /// How many workers have a record: `first_worker .. first_worker + workers`.
    pub workers: u32,
    /// The first worker that has a record. The others of the layout belong to whoever issues beside this registry.
    pub first_worker: u32,
    /// What shows that a key is the one of an opaque namespace: 0 enciphered with it. `None` with any other face.
    pub key_check: Option<u64>,
    /// The workers that were closed when it was made: another generator's. Some may have been opened since.
    pub closed: Workers,
}

/// The newest version of a registry's genesis. Programs that know only an earlier one refuse it.
const GENESIS_VERSION: u32 = 3;

/// The most bits of worker that programs know which read version 1 alone.
const FIRST_WORKER_BITS: u8 = 20;

impl Genesis {
    /// That of a namespace whose workers are `0 .. workers` and whose ids are not opaque.
    #[must_use]
    pub const fn new(cluster: ClusterId, layout: Layout, floor: u64, workers: u32) -> Self {
        Self { cluster, layout, floor, workers, first_worker: 0, key_check: None, closed: Workers::NONE }
    }

    /// The workers that have a record.
    #[must_use]
    pub const fn worker_range(&self) -> Workers {
        Workers { from: self.first_worker, until: self.first_worker.saturating_add(self.workers) }
    }

    /// The same with opaque ids, of that key for ever.
    ///
    /// # Errors
    /// [`OpaqueKeyError::Layout`] if an id has fewer than 63 bits.
    pub fn opaque(self, veil: &Veil) -> Result<Self, OpaqueKeyError> {
        Ok(Self { layout: self.layout.opaque()?, key_check: Some(veil.check()), ..self })
    }

    /// Whether the namespace is to be used with that key, or with none.
    ///
    /// # Errors
    /// [`OpaqueKeyError`]: it has another key, or one where none was given, or none where one was.
    pub fn check_veil(&self, veil: Option<&Veil>) -> Result<(), OpaqueKeyError> {
        // A registry that was made by other means may have a face that nothing would make.
        self.check_key()?;
        match (self.key_check, veil) {
            (None, None) => Ok(()),
            (Some(check), Some(veil)) if check == veil.check() => Ok(()),
            (Some(_), Some(_)) => Err(OpaqueKeyError::Other),
            (Some(_), None) => Err(OpaqueKeyError::Absent),
            (None, Some(_)) => Err(OpaqueKeyError::Unwanted),
        }
    }

    /// Whether it has the check of a key if, and only if, its ids are opaque.
    pub(crate) fn check_key(&self) -> Result<(), OpaqueKeyError> {
        match (self.layout.face(), self.key_check) {
            (Face::Opaque, None) => Err(OpaqueKeyError::Absent),
            (Face::Opaque, Some(_)) | (_, None) => Ok(()),
            (_, Some(_)) => Err(OpaqueKeyError::Unwanted),
        }
    }

    /// The same with what version 3 says beside, in bytes that no earlier one reads. An opaque face has a check, even if
    /// that is 0; else 0 is none.
    pub(crate) fn with_third(self, version: u32, first_worker: u32, key_check: u64, closed: Workers) -> Self {
        if version < 3 {
            return self;
        }
        let is_check = key_check != 0 || self.layout.face() == Face::Opaque;
        Self { first_worker, key_check: is_check.then_some(key_check), closed, ..self }
    }

    /// The version under which it is written: the oldest that can say it. The first knows ids of 63 bits with the plain
    /// face, and workers from 0; the second other widths and the worker lowest; the third opaque ids, any first worker, and
    /// closed ones: a fence by a program that does not know them would close all.
    pub(crate) fn version(&self) -> u32 {
        let Self { layout, first_worker, closed, .. } = self;
        let is_first = layout.face() == Face::Plain
            && layout.bits() == ID_BITS
            && layout.worker_bits() <= FIRST_WORKER_BITS;
        match () {
            () if *first_worker > 0 || layout.face() == Face::Opaque || *closed != Workers::NONE => {
                GENESIS_VERSION
            }
            () if is_first => 1,
            () => 2,
        }
    }

    /// The same if it can be what was written under that version: a layout that the version can say, workers that it has
    /// room for, and the check of a key where one seals the ids.
    pub(crate) fn checked(self, version: u32) -> Option<Self> {
        let end = self.first_worker.checked_add(self.workers)?;
        let is_sound = self.workers > 0
            && end <= self.layout.workers()
            && (self.closed == Workers::NONE || !self.closed.is_empty())
            && self.closed.are_among(&self.worker_range())
            && self.check_key().is_ok()
            && self.version() == version;
        is_sound.then_some(self)
    }
}

/// A random number drawn by each process (and each engine in it): it tells our writes from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Token(pub [u8; 16]);

/// The record of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    /// The first tick that no process was granted; the end of time where the worker [is closed](Self::is_closed).
    pub reserved_until: u64,
    /// Who wrote it.
    pub token: Token,
    /// The writer's operation number: with the token it identifies one write. Of a closed one the tick before which it is
    /// not opened.
    pub operation: u64,
    /// Who that is, for people: `host pid 1234`. At most 64 bytes of UTF-8 are kept, and read as [`printable`] text:
    /// who may write to a registry may write anything.
    pub owner: String,
}

/// The record of a spill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRecord {
    /// The first absolute index that no process was granted.
    pub granted_upto: u64,
    /// Who wrote it.
    pub token: Token,
    /// The writer's operation number.
    pub operation: u64,
}

/// A record and the version that a compare-and-set of it must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<R> {
    /// The record.
    pub record: R,
    /// Its version.
    pub version: u64,
}

/// One row of [`Registry::workers`].
#[derive(Clone, Debug)]
pub struct WorkerEntry {
    /// The worker.
    pub worker: u32,
    /// Its record, or why it cannot be had.
    pub record: Result<Versioned<WorkerRecord>, ReadError>,
    /// Who seems to be alive with it: a hint, never a right.
    pub live: Option<String>,
}

/// Why a record could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It does not exist. It is never made again: absent is not zero.
    #[error("{what} has no record; it is not made again, since nobody knows what it had been granted")]
    Absent {
        /// `worker 7`, `spill 1f...`.
        what: String,
    },
    /// It exists and says nothing that can be believed.
    #[error("the record of {what} is unreadable ({why}); it is left alone, and the rest goes on")]
    Damaged {
        /// Which record.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A fence closed it: what it says may be less than what was granted.
    #[error(
        "{what} was closed by a fence, as more may have been granted than is known ({value}): \
         run `xuid sequence fence`, which says how far it may have come"
    )]
    Closed {
        /// Which record.
        what: String,
        /// What is known to have been granted.
        value: u64,
    },
    /// The registry did not answer. Try again.
    #[error("the registry cannot be reached: {why}")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The registry is not the one that this engine was started on; it must not be used further.
    #[error("the registry is no longer the one this process opened: {why}")]
    Foreign {
        /// What was found.
        why: String,
    },
}

/// Why a compare-and-set did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// Another process moved the record: nothing was stored.
    #[error("somebody else moved the record")]
    Conflict,
    /// Whether it was stored is not known. Read it again and compare token and operation.
    #[error("nobody knows whether the record was stored: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// Nothing was stored, and it may be tried again.
    #[error("the registry cannot be reached: {why}")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// Nothing was stored: there is no room for a record that is new. Others can be changed.
    #[error("the registry has no room: {why}")]
    Full {
        /// What there is, and what helps.
        why: String,
    },
    /// Nothing was stored: the record of a new name would begin below what a fence left open to new ones. Others can be made.
    #[error("since a fence, new names begin at {least} or above it")]
    TooLow {
        /// The least that it may begin at.
        least: u64,
    },
    /// Nothing was stored: the record is absent, damaged or foreign.
    #[error(transparent)]
    Read(ReadError),
}

impl From<ReadError> for SwapError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable { why } => Self::Unavailable { why },
            other => Self::Read(other),
        }
    }
}

/// The port. Its adaptors: [`local::LocalRegistry`], and `zookeeper::ZooKeeperRegistry` behind the feature of that
/// name.
pub trait Registry: Send {
    /// What it was created with.
    fn genesis(&self) -> &Genesis;

    /// For logs and people: `local /srv/xuid-data`.
    fn describe(&self) -> String;

    /// The worker this process (or its predecessor in its place) held last, as a preference.
    fn last_worker(&self) -> Option<u32> {
        None
    }

    /// The registry's own wall clock in Unix nanoseconds, where it has one that is not ours.
    fn time(&mut self) -> Option<u64> {
        None
    }

    /// A time that the registry's own clock has reached for certain; it bounds windows, and may be older than
    /// [`time`](Self::time), which corrects our clock.
    fn reached(&mut self) -> Option<u64> {
        self.time()
    }

    /// How it stands with the connection to it, where there is one.
    fn connection(&self) -> Option<Arc<Connection>> {
        None
    }

    /// Called about once a second while there is nothing else to do, if there is a [`connection`](Self::connection):
    /// makes a lost session anew, announces what is held, and looks whether the registry is still the one it was.
    fn maintain(&mut self) {}

    /// Tries whether a change could be made now, as far as that shows without one. Called a few times a second while there
    /// is nothing else to do, if there is no [`connection`](Self::connection), so that people hear of a registry that is
    /// away before a window has to be renewed. `None` where nothing can be tried: then it is not called again.
    fn probe(&mut self) -> Option<Result<(), SwapError>> {
        None
    }

    /// All workers, in order.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] or [`ReadError::Foreign`]; a single bad record is told in its row.
    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError>;

    /// The record of one worker.
    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError>;

    /// Compare-and-set of a worker's record by a process that does not hold it yet: also announces it as live.
    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError>;

    /// Compare-and-set of a worker's record by its holder.
    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError>;

    /// Takes back the announcement that `worker` is live. Best effort.
    fn leave(&mut self, worker: u32);

    /// The mark of a spill.
    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError>;

    /// Makes the mark of a spill that never had one. Only for a spill that was just created with a fresh random
    /// id; `Conflict` if there is one.
    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError>;

    /// Compare-and-set of a mark.
    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError>;

    /// Leaves cleanly: what was announced as live is gone when it returns. Best effort, bounded in time.
    fn close(&mut self);
}
