//! Sizes and places in a file.

/// The size of a record.
pub(crate) const RECORD_BYTES: usize = 32;

/// The size of a log where nothing else is said: 16 MiB, which is 524,032 extents. At one extent for each idle second
/// and worker that is six days; under a burst, records of single runs fill it sooner.
pub const DEFAULT_BYTES: u64 = 16 << 20;
/// The smallest size of a log: the header and one record.
pub const MIN_BYTES: u64 = RECORDS_AT + RECORD_BYTES as u64;
/// The largest size of a log, 256 MiB: sixteen times the default. It bounds what a header can make a reader do: a scan
/// reads every slot, half a second for this size, and the table of an open log takes a quarter of it in memory, twice
/// while it is opened.
pub const MAX_BYTES: u64 = 256 << 20;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 128;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const COPIES_AT: [u64; 2] = [0, PAGE];
pub(crate) const RECORDS_AT: u64 = COPIES_AT[1] + PAGE;
