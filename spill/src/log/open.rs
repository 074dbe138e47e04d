//! Creating a log, and finding out what one holds.

use super::{Log, table};
use crate::error::{CreateError, HeaderError, OpenError};
use crate::extent::{Stock, Sum};
use crate::format::{COPIES_AT, MAX_BYTES, MIN_BYTES};
use crate::header::Header;
use crate::identity::{Expected, Identity};
use crate::record::{Content, Seal};
use crate::scan::{head, scan, window_start};
use crate::storage::Storage;

/// What was found when a log was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The highest valid index of the file, plus 1; more if the slots from there on cannot be read.
    pub head: u64,
    /// All valid records of the last lap, granted or not: the mark is not known yet.
    pub stock: Stock,
    /// Slots that hold neither zeros nor a valid record, or cannot be read.
    pub damaged: u64,
    /// How many of them cannot be read.
    pub unreadable: u64,
    /// Valid records of an earlier lap in slots whose record of the last lap was lost or never written.
    pub stale: u64,
    /// Whether one copy of the header was damaged and has been written again.
    pub header_repaired: bool,
    /// By how much the file is longer than it was made. Left alone, and never read.
    pub surplus_bytes: u64,
}

/// What the scan of all slots gave.
struct Survey {
    head: u64,
    ids: Vec<u64>,
    held: Sum,
    damaged: u64,
    unreadable: u64,
    stale: u64,
}

impl Log {
    /// Makes an empty log of `bytes` in an empty storage and syncs it.
    ///
    /// The spill's uuid has to be fresh: its mark starts at 0.
    pub fn create(mut storage: Box<dyn Storage>, identity: Identity, bytes: u64) -> Result<Log, CreateError> {
        if !(MIN_BYTES..=MAX_BYTES).contains(&bytes) {
            return Err(CreateError::Size { bytes });
        }
        if identity.stride == 0 {
            return Err(CreateError::Stride);
        }
        let header = Header { identity, capacity: Header::capacity_of(bytes) };
        let ids = table(header.capacity).map_err(CreateError::Io)?;
        storage.allocate(bytes).map_err(CreateError::Io)?;
        for offset in COPIES_AT {
            storage.write_at(offset, &header.encode()).map_err(CreateError::Io)?;
        }
        storage.sync().map_err(CreateError::Io)?;
        let empty = Survey { head: 0, ids, held: Sum::default(), damaged: 0, unreadable: 0, stale: 0 };
        let mut log = Log::with(storage, header, empty);
        log.marked = true;
        Ok(log)
    }

    /// Opens a log and verifies every record of it.
    ///
    /// Nothing can be read or appended until [`resume_at`](Self::resume_at) told it the mark. A file that is refused is
    /// not changed.
    pub fn open(mut storage: Box<dyn Storage>, expected: &Expected) -> Result<(Log, Report), OpenError> {
        let file_bytes = storage.len().map_err(OpenError::Io)?;
        let read = |offset, buf: &mut [u8]| storage.read_at(offset, buf);
        let found = Header::find(&read, file_bytes).map_err(OpenError::Io)??;
        let header = found.header;
        check(&header.identity, expected)?;
        let survey = Survey::of(storage.as_ref(), &header)?;
        if let Some(copy) = found.damaged_copy {
            // The whole page: to write a part of one that cannot be read, a system would have to read it.
            storage.write_at(COPIES_AT[copy], &header.page()).map_err(OpenError::Io)?;
            storage.sync().map_err(OpenError::Io)?;
        }
        let report = Report {
            head: survey.head,
            stock: survey.held.stock(),
            damaged: survey.damaged,
            unreadable: survey.unreadable,
            stale: survey.stale,
            header_repaired: found.damaged_copy.is_some(),
            surplus_bytes: file_bytes - header.file_bytes(),
        };
        Ok((Log::with(storage, header, survey), report))
    }

    fn with(storage: Box<dyn Storage>, header: Header, survey: Survey) -> Log {
        Log {
            storage,
            header,
            seal: Seal::of(&header.identity),
            head: survey.head,
            tail: window_start(&header, survey.head),
            marked: false,
            poisoned: false,
            ids: survey.ids,
            held: survey.held,
            buffer: Vec::new(),
        }
    }
}

impl Survey {
    fn of(storage: &dyn Storage, header: &Header) -> Result<Self, OpenError> {
        let mut ids = table(header.capacity).map_err(OpenError::Io)?;
        // For each slot the index of its record plus 1, or 0: which lap is the last is known only at the end.
        let mut ends = table(header.capacity).map_err(OpenError::Io)?;
        let (mut highest_end, mut damaged) = (0, 0);
        let read = |offset, buf: &mut [u8]| storage.read_at(offset, buf);
        let scanned = scan(&read, header, |slot, content| match content {
            Content::Empty => {}
            Content::Damaged => damaged += 1,
            Content::Record { index, extent } => {
                highest_end = highest_end.max(index + 1);
                ids[slot as usize] = extent.ids();
                ends[slot as usize] = index + 1;
            }
        });
        let unreadable = scanned.map_err(|error| match crate::Shortened::of(&error) {
            Some(shortened) => HeaderError::Shortened(shortened).into(),
            None => OpenError::Io(error),
        })?;

        let next = head(header, highest_end, &unreadable);
        let unreadable = unreadable.len() as u64;
        let start = window_start(header, next);
        let mut held = Sum::default();
        let mut stale = 0;
        for (ids, end) in ids.iter_mut().zip(&ends) {
            if *end > start {
                held.add(*ids);
            } else if *end > 0 {
                *ids = 0;
                stale += 1;
            }
        }
        Ok(Self { head: next, ids, held, damaged: damaged + unreadable, unreadable, stale })
    }
}

fn check(found: &Identity, expected: &Expected) -> Result<(), OpenError> {
    if found.cluster != expected.cluster {
        return Err(OpenError::OtherCluster { found: found.cluster, expected: expected.cluster });
    }
    if found.layout != expected.layout || found.stride != expected.stride {
        return Err(OpenError::OtherLayout {
            found: found.layout,
            expected: expected.layout,
            found_stride: found.stride,
            expected_stride: expected.stride,
        });
    }
    Ok(())
}
