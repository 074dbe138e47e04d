//! Extents of unspent ids on disk: a preallocated, checksummed, circular log.
//!
//! ```text
//!   Extent      `len` consecutive ids, repeated over `ticks` ticks: 32 bytes stand for up to a second of ids
//!     |
//!   Log         absolute indexes ->  ... tail [ readable records ] head ...   (the oldest fall off when full)
//!     |                                   ^ never below the mark, which is kept outside of the file
//!   Storage     MappedFile (pwrite, reads through a map) | MemoryStorage (tests, simulators)
//! ```
//!
//! - [`Log`] gives every extent an absolute index that is never used for another one while it can be read. A
//!   record's checksum covers the uuid of its file and that index, so a record of the lap before, or of another
//!   file, never passes for the one that was asked for.
//! - The file does not say which records were granted already. That is the *mark*, kept where a copy of the file
//!   cannot take it along, and told to the log by [`Log::resume_at`]; until then an opened log reads nothing.
//! - Damage is skipped and counted, never guessed at.
//! - [`inspect()`] looks at a file without taking its lock, also while a process uses it.
//!
//! The crate knows no clock, no worker and no thread. The bytes are described in `docs/spill-format.md`. It is for 64-bit
//! Linux, and empty elsewhere, so that the engine's build ends there with the engine's own words.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod error;
mod extent;
mod format;
mod header;
mod identity;
mod inspect;
mod le;
mod log;
mod record;
mod regular;
mod rights;
mod scan;
mod storage;

/// The crate's README compiles, and what it claims holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::{AppendError, CreateError, HeaderError, InspectError, OpenError, ReadError, SyncError};
pub use extent::{Extent, LAST_ID, Stock};
pub use format::{DEFAULT_BYTES, MAX_BYTES, MIN_BYTES, VERSION as FORMAT_VERSION};
pub use identity::{Expected, Identity, ParseSpillIdError, SpillId};
pub use inspect::{Holdings, Inspection, inspect};
pub use log::{Appended, Damage, Log, Report};
pub use regular::{open_regular, read_regular};
pub use rights::{file_options, give_to_owner_of, is_shared, make_folder};
pub use storage::mapped::MappedFile;
#[cfg(any(test, feature = "test-util"))]
pub use storage::memory::MemoryStorage;
pub use storage::{Shortened, Storage};
