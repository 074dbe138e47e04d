//! The log: which absolute indexes there are, and which of them can be read.
//!
//! # Invariants
//!
//! - **L1** `mark <= tail <= head <= tail + capacity`, and none of them ever goes back while the log is open.
//! - **L2** An index below the mark is never read, whatever the file holds.
//! - **L3** What is read at index `i` is exactly what was appended at `i`, or it is counted as damage.
//! - **L4** `ids[slot(i)]` is the number of ids of the record at `i` for `tail <= i < head`, and 0 where there is none,
//!   or could not be read when the log was opened; all other entries are 0. `held` is their sum.

mod append;
mod open;
mod read;

use std::fmt;
use std::io;
use std::ops::Range;

use crate::error::SyncError;
use crate::extent::{Stock, Sum};
use crate::header::Header;
use crate::identity::SpillId;
use crate::record::Seal;
use crate::storage::Storage;

pub use append::Appended;
pub use open::Report;
pub use read::Damage;

/// Extents on disk, by absolute index, the oldest dropped when it is full.
///
/// No sync is needed for ids to stay unique: an append that is lost was never granted, and what may be granted is
/// decided by the mark, which is kept elsewhere. An extent lost is ids wasted. Sync at a clean stop, so that little is.
///
/// ```
/// use xuid_spill::{DEFAULT_BYTES, Expected, Extent, Identity, Log, MemoryStorage, SpillId};
///
/// let spill = SpillId::from_bytes([7; 16]);
/// let identity = Identity { spill, cluster: [1; 16], stride: 1 << 22, layout: [0; 16] };
/// let disk = MemoryStorage::new();
/// let mut log = Log::create(Box::new(disk.clone()), identity, DEFAULT_BYTES)?;
/// let idle_second = Extent { first: 5000 << 22, len: 4096, ticks: 1000 };
/// assert_eq!(log.append(&[idle_second, idle_second])?.indexes, 0..2);
/// drop(log);
///
/// // After a restart: one extent was granted before, so the mark, which is kept elsewhere, is 1.
/// let expected = Expected { cluster: [1; 16], stride: 1 << 22, layout: [0; 16] };
/// let (mut log, _report) = Log::open(Box::new(disk), &expected)?;
/// assert_eq!(log.stock().extents, 0, "nothing can be read before the mark is known");
/// log.resume_at(1);
/// assert_eq!(log.stock().ids, 4_096_000);
/// let mut extents = Vec::new();
/// log.read(1..2, &mut extents)?;
/// assert_eq!(extents, [(1, idle_second)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Log {
    storage: Box<dyn Storage>,
    header: Header,
    seal: Seal,
    head: u64,
    tail: u64,
    /// Whether the mark is known. Until then nothing is read and nothing appended.
    marked: bool,
    poisoned: bool,
    /// One entry a slot (L4). Also keeps the sums exact when a record that was counted is found damaged later.
    ids: Vec<u64>,
    held: Sum,
    /// Encoded records on their way to the storage.
    buffer: Vec<u8>,
}

impl Log {
    /// The uuid of the file.
    #[must_use]
    pub fn id(&self) -> SpillId {
        self.header.identity.spill
    }

    /// How many extents it holds before the oldest are dropped.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.header.capacity
    }

    /// The absolute index of the next append.
    ///
    /// Of an opened log whose mark is not known yet: the highest valid index of the file, plus 1.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The lowest absolute index that can still be read; the head where nothing can.
    #[must_use]
    pub fn tail(&self) -> u64 {
        if self.marked { self.tail } else { self.head }
    }

    /// What can be read, from the tail to the head. A few instructions.
    #[must_use]
    pub fn stock(&self) -> Stock {
        if self.marked { self.held.stock() } else { Stock::default() }
    }

    /// Indexes from the tail to the head that have no record: damaged or unreadable when the log was opened, or lost by
    /// a crash.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.head - self.tail() - self.stock().extents
    }

    /// What can be read within `indexes`, from the table in memory: nothing is read from the file.
    #[must_use]
    pub fn peek_stock(&self, indexes: Range<u64>) -> Stock {
        let mut sum = Sum::default();
        for index in indexes.start.max(self.tail())..indexes.end.min(self.head) {
            let ids = self.ids[self.header.slot(index) as usize];
            if ids != 0 {
                sum.add(ids);
            }
        }
        sum.stock()
    }

    /// Tells the log the mark: every index below it was granted, or may have been.
    ///
    /// Nothing below the mark can be read any more, and appends go on from the higher of head and mark: a file that
    /// lost its last records, or an older copy of it, must not use their indexes again. To be called once after
    /// [`open`](Self::open) (a log that was just created starts at 0), and after every move of the mark. A lower mark
    /// than one given before changes nothing.
    pub fn resume_at(&mut self, mark: u64) {
        self.marked = true;
        self.release(mark);
        if mark > self.head {
            self.head = mark;
            self.tail = mark;
        }
    }

    /// Returns when all appends so far would survive a power cut.
    ///
    /// After a sync that failed it is not known what reached the disk (the kernel reports a lost page once and then
    /// takes it for clean), so the log refuses all further writes.
    pub fn sync(&mut self) -> Result<(), SyncError> {
        if self.poisoned {
            return Err(SyncError::Poisoned);
        }
        self.storage.sync().map_err(|error| {
            self.poisoned = true;
            SyncError::Io(error)
        })
    }

    /// Moves the tail to `upto`, at most to the head, and says what that drops. Bounded by the capacity (L1).
    fn release(&mut self, upto: u64) -> Sum {
        let mut dropped = Sum::default();
        while self.tail < upto.min(self.head) {
            let slot = self.header.slot(self.tail) as usize;
            let ids = std::mem::take(&mut self.ids[slot]);
            if ids != 0 {
                dropped.add(ids);
            }
            self.tail += 1;
        }
        self.held.take(dropped);
        dropped
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("header", &self.header)
            .field("tail", &self.tail())
            .field("head", &self.head)
            .field("stock", &self.stock())
            .field("marked", &self.marked)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}

/// A table of one entry a slot.
fn table(capacity: u64) -> io::Result<Vec<u64>> {
    Ok(vec![0; usize::try_from(capacity).map_err(io::Error::other)?])
}
