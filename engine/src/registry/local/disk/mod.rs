//! What a registry is stored on, so that a simulation can stand in for the file.

mod birth;
mod file;
#[cfg(any(test, feature = "test-util"))]
mod memory;

use std::fmt;
use std::io;
use std::time::Duration;

use self::birth::Birth;
pub use self::file::FileDisk;
pub(in crate::registry::local) use self::file::identity_of;
#[cfg(any(test, feature = "test-util"))]
pub use self::memory::MemoryDisk;
use crate::sys::file_lock;

/// Which file it is: what tells a file from a copy of it, and a volume that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileIdentity {
    /// The inode's number.
    pub inode: u64,
    /// When the inode was made, in Unix nanoseconds. Where the filesystem does not say, what it drew for this use of the
    /// inode's number, with the highest bit set; 0 where it says neither.
    pub born_ns: u64,
    /// The device.
    pub device: u64,
    /// A fingerprint of the machine's id; 0 where it has none.
    pub machine: u64,
}

impl FileIdentity {
    /// Whether both are one file, on whatever machine and device it is mounted now.
    #[must_use]
    pub fn same_file(&self, other: &Self) -> bool {
        self.inode == other.inode && self.born_ns == other.born_ns
    }

    /// Whether a copy of the file can be told from it.
    pub(in crate::registry::local) fn is_proof(&self) -> bool {
        self.birth() != Birth::Unknown
    }

    fn birth(&self) -> Birth {
        Birth::of_bits(self.born_ns)
    }

    /// What is to be said of a file that was recorded as this one and counts as another, where that is only because the two
    /// births cannot be compared.
    pub(in crate::registry::local) fn doubt(&self, found: &Self) -> &'static str {
        match (self.birth(), found.birth()) {
            _ if self.inode != found.inode || self.born_ns == found.born_ns => "",
            (Birth::At(_), Birth::At(_)) | (Birth::Generation(_), Birth::Generation(_)) => "",
            (Birth::At(_), _) => " (its birth is unknown now, so it may be the same file all the same)",
            _ => " (the recorded birth is unknown, so it may be the same file all the same)",
        }
    }
}

/// `inode 42 born at 1763683200.123456789`, or `inode 42 of generation 7`.
impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.birth() {
            Birth::Unknown => write!(f, "inode {} of unknown birth", self.inode),
            Birth::Generation(drawn) => write!(f, "inode {} of generation {drawn}", self.inode),
            Birth::At(ns) => {
                write!(f, "inode {} born at {}.{:09}", self.inode, ns / 1_000_000_000, ns % 1_000_000_000)
            }
        }
    }
}

/// A registry's storage. [`FileDisk`] is the real one, `MemoryDisk` (with the feature `test-util`) one
/// whose power can be cut.
pub trait Disk: Send {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// Also when the storage ends before it is full.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, within the size. Durable only after [`sync`](Self::sync).
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when everything written before is durable. After an error nothing is known of what was written.
    fn sync(&mut self) -> io::Result<()>;

    /// Makes it so many bytes long, with room for them; durable after [`sync`](Self::sync). It never shrinks.
    ///
    /// # Errors
    /// Where there is no room, and for storage that cannot grow.
    fn extend(&mut self, size: u64) -> io::Result<()> {
        Err(io::Error::other(format!("this storage cannot grow to {size} bytes")))
    }

    /// Its size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Which file is open.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Whether the path that was opened still leads to the open file.
    fn in_place(&self) -> io::Result<bool>;

    /// Whether the storage takes writes now, without one: an error where it does not. Where it stands still, so does this
    /// call.
    ///
    /// # Errors
    /// Where a write would fail for all that is known.
    fn would_write(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the lock that all users of the storage share; `false` if another one has it.
    fn try_lock(&mut self) -> io::Result<bool>;

    /// Lets the lock go.
    fn unlock(&mut self);
}

/// How long a change waits for the lock. A holder needs it for three syncs, some milliseconds on a bad day, so a
/// lock that is held this long is held by a stopped process.
pub(in crate::registry::local) const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Takes the lock within [`LOCK_WAIT`]; `false` if another one kept it.
pub(in crate::registry::local) fn lock<D: Disk>(disk: &mut D) -> io::Result<bool> {
    lock_within(disk, LOCK_WAIT)
}

/// The same within another time.
pub(in crate::registry::local) fn lock_within<D: Disk>(disk: &mut D, limit: Duration) -> io::Result<bool> {
    file_lock::lock_within(limit, || disk.try_lock())
}
