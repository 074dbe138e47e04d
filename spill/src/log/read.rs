//! Reading: only what was asked for, and only what proves to be it.

use std::io;
use std::ops::{ControlFlow, Range};

use super::Log;
use crate::error::ReadError;
use crate::extent::Extent;
use crate::format::RECORD_BYTES;
use crate::record::Content;
use crate::scan::Reader;

/// Records read at a time, 16 KiB: more than a grant, and few calls for a long search.
const CHUNK: u64 = 512;

/// What was skipped by a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Indexes with no valid record: damaged, lost by a crash, or on a page that the disk cannot read.
    pub records: u64,
    /// The ids of those that were valid when the log was opened or appended to. What a record held that was damaged
    /// before that, nobody knows.
    pub ids: u64,
}

impl Log {
    /// Appends what is at `indexes` to `out`, ascending, each with its index. Damaged records are skipped and counted.
    ///
    /// Reading marks nothing. Before an id of what was read is issued, the mark has to be moved past it where it is
    /// kept, and [`resume_at`](Self::resume_at) be called with it. What cannot be read is damage, page by page; of more
    /// than 16 pages it is an error. On an error `out` is as it was.
    pub fn read(&self, indexes: Range<u64>, out: &mut Vec<(u64, Extent)>) -> Result<Damage, ReadError> {
        let readable = self.tail()..self.head;
        if indexes.start > indexes.end || indexes.start < readable.start || indexes.end > readable.end {
            return Err(ReadError::OutOfRange { asked: indexes, readable });
        }
        let mut damage = Damage::default();
        let before = out.len();
        let visited = self.visit(indexes, |index, extent| {
            if let Some(extent) = extent {
                out.push((index, extent));
            } else {
                damage.records += 1;
                damage.ids = damage.ids.saturating_add(self.ids[self.header.slot(index) as usize]);
            }
            ControlFlow::Continue(())
        });
        match visited {
            Ok(()) => Ok(damage),
            Err((_, error)) => {
                out.truncate(before);
                Err(error.into())
            }
        }
    }

    /// The first index from `from` on and below `stop` whose extent's last tick begins at `oldest_first` or later.
    ///
    /// All before it is too old to be granted, or damaged. Where the storage fails as a whole, the index it failed at
    /// is given, so that nothing unread is taken for old; the read that follows meets the error.
    #[must_use]
    pub fn first_alive(&self, from: u64, oldest_first: u64, stop: u64) -> Option<u64> {
        let stride = self.header.identity.stride;
        let mut found = None;
        let visited = self.visit(from.max(self.tail())..stop.min(self.head), |index, extent| match extent {
            Some(extent) if extent.last_first(stride) >= oldest_first => {
                found = Some(index);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        match visited {
            Ok(()) => found,
            Err((index, _)) => Some(index),
        }
    }

    /// Calls `each` with every index of a readable range and the extent there, if there is one (L3). An error comes with
    /// the first index that could not be read.
    fn visit(
        &self,
        indexes: Range<u64>,
        mut each: impl FnMut(u64, Option<Extent>) -> ControlFlow<()>,
    ) -> Result<(), (u64, io::Error)> {
        let read = |offset: u64, buffer: &mut [u8]| self.storage.read_at(offset, buffer);
        let mut reader = Reader::new(&read, CHUNK);
        let (mut index, mut first_unread) = (indexes.start, None);
        while index < indexes.end {
            let slot = self.header.slot(index);
            let end = self.header.capacity.min(slot + (indexes.end - index));
            let (count, bytes) =
                reader.next(slot, end).map_err(|error| (first_unread.unwrap_or(index), error))?;
            if bytes.is_none() {
                first_unread.get_or_insert(index);
            }
            let mut records = bytes.map(|bytes| bytes.chunks_exact(RECORD_BYTES));
            for index in index..index + count {
                let content =
                    records.as_mut().and_then(Iterator::next).map(|record| self.seal.decode(record));
                let extent = match content {
                    Some(Content::Record { index: found, extent }) if found == index => Some(extent),
                    _ => None,
                };
                if each(index, extent).is_break() {
                    return Ok(());
                }
            }
            index += count;
        }
        Ok(())
    }
}
