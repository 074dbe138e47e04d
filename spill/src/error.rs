//! One error an operation: what was found, the limit, and what to do next.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use xuid_id::hex16::Hex;

use crate::extent::{Extent, LAST_ID, Stock};
use crate::format::{HEADER_BYTES, MAX_BYTES, MIN_BYTES, VERSION};
use crate::storage::Shortened;

/// Why a log could not be created. Nothing that was begun may be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The size asked for is out of range.
    #[error("a spill of {bytes} bytes is out of range: give {MIN_BYTES} to {MAX_BYTES}")]
    Size {
        /// The size asked for.
        bytes: u64,
    },
    /// The stride is 0, so no layout has it.
    #[error("a spill's tick stride is at least 1 id, and 0 was given")]
    Stride,
    /// The storage failed, for example because the disk is full.
    #[error("the spill could not be allocated and written")]
    Io(#[source] io::Error),
}

/// What is wrong with the header of a file. The same for [`Log::open`](crate::Log::open) and
/// [`inspect`](crate::inspect()).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Neither copy begins with the signature. Also found after a crash in the middle of a creation.
    #[error(
        "not a spill: neither header copy of the {found} bytes begins with the signature; set the file aside, \
         it holds nothing that could be read"
    )]
    NotASpill {
        /// The length of the file.
        found: u64,
    },
    /// Written by a version that this one does not know.
    #[error(
        "the spill has format version {found}, and this program reads version {VERSION}: use the one that wrote it"
    )]
    Version {
        /// The file's version.
        found: u32,
    },
    /// Both copies fail their checksum or hold impossible values.
    #[error(
        "both copies of the spill's header ({HEADER_BYTES} bytes each) are damaged, or hold what no spill has: set the file aside"
    )]
    Damaged,
    /// Both copies are intact and say different things, which no crash causes: the file is patched together.
    #[error("the two copies of the spill's header are intact and contradict each other: set the file aside")]
    CopiesDiffer,
    /// The file is shorter than its header says.
    #[error("the spill was shortened: {} bytes are left of {}; set the file aside", .0.found, .0.needed)]
    Shortened(Shortened),
}

/// Why a log could not be opened. The file was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The header is of no use.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// It belongs to another cluster.
    #[error(
        "the spill belongs to cluster {} and this process to {}: put the file back where it came from, or set it aside",
        Hex(found),
        Hex(expected)
    )]
    OtherCluster {
        /// The file's cluster.
        found: [u8; 16],
        /// The caller's cluster.
        expected: [u8; 16],
    },
    /// It was written for another layout.
    #[error(
        "the spill was written for layout {} with a tick stride of {found_stride}, and this process has {} with \
         {expected_stride}: start with the layout of the file, or set it aside",
        Hex(found),
        Hex(expected)
    )]
    OtherLayout {
        /// The file's layout.
        found: [u8; 16],
        /// The caller's layout.
        expected: [u8; 16],
        /// The file's stride.
        found_stride: u64,
        /// The caller's stride.
        expected_stride: u64,
    },
    /// The storage failed.
    #[error("the spill could not be read, or the damaged copy of its header not be rewritten")]
    Io(#[source] io::Error),
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// An extent names no id, an id twice, or one that is too high. Nothing was written.
    #[error(
        "extent {extent:?} must have at least 1 id a tick and at most the stride ({stride}), at least 1 tick, and \
         no id above {LAST_ID}; nothing was appended"
    )]
    Unsound {
        /// The first extent that is wrong.
        extent: Extent,
        /// The log's stride.
        stride: u64,
    },
    /// [`Log::resume_at`](crate::Log::resume_at) was not called yet.
    #[error("the spill was opened and not yet told the mark up to which it was granted: tell it first")]
    MarkUnknown,
    /// No absolute index is left, which means that the mark was raised to its maximum to retire this file.
    #[error(
        "the spill is retired: its next index is {head}, which leaves none for this append; create another"
    )]
    IndexesExhausted {
        /// The head.
        head: u64,
    },
    /// An earlier sync failed.
    #[error("a sync of the spill failed earlier, so what it holds is uncertain: create another")]
    Poisoned,
    /// The storage failed. The head is where it was.
    ///
    /// **The extents of this call must be counted as wasted:** some of their records may be in the file, and a
    /// later open may find them. Issued or appended again, they could come out twice.
    #[error("the spill could not be written; the extents of this append count as wasted")]
    Io {
        /// What had to make room for this append, and is not readable any more.
        dropped: Stock,
        /// What the storage said.
        #[source]
        source: io::Error,
    },
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The range is not inside what can be read now.
    #[error("indexes {}..{} were asked for and {}..{} can be read", asked.start, asked.end, readable.start, readable.end)]
    OutOfRange {
        /// What was asked for.
        asked: Range<u64>,
        /// Tail to head.
        readable: Range<u64>,
    },
    /// The file became shorter while it was open: give it up.
    #[error("the spill was shortened while in use: {} bytes are left of {}; give it up and create another", .0.found, .0.needed)]
    Shortened(Shortened),
    /// The storage failed.
    #[error("the spill could not be read")]
    Io(#[source] io::Error),
}

/// Why it is not certain that the appends so far are on the disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// An earlier sync failed.
    #[error("a sync of the spill failed earlier, so what it holds is uncertain: create another")]
    Poisoned,
    /// This one failed, and from here on the log refuses to be written.
    #[error("the spill could not be synced; it takes no more writes, create another")]
    Io(#[source] io::Error),
}

/// Why a file could not be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The header is of no use.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The file could not be read.
    #[error("{} could not be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Shortened::of(&error).map_or(Self::Io(error), Self::Shortened)
    }
}
