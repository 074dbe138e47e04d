//! Writing: an append makes room, then writes, then moves the head; what is erased leaves the readable range, and then
//! the storage.

use std::io;
use std::ops::Range;

use super::Log;
use crate::error::{AppendError, SyncError};
use crate::extent::{Extent, Stock};
use crate::format::{PAGE, RECORD_BYTES};
use crate::header::Header;
use crate::storage::Storage;

/// Records that are erased by one write: 64 KiB.
const ERASED_AT_ONCE: u64 = 2_048;

/// What an append did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The absolute indexes of the extents, in their order.
    pub indexes: Range<u64>,
    /// The oldest extents, overwritten because the log is full: wasted.
    pub dropped: Stock,
}

impl Log {
    /// Appends the extents in their order, at consecutive indexes from the head.
    ///
    /// When the log is full the oldest make room (of more extents than it holds, the first of these too). After any
    /// error the head is where it was. After [`AppendError::Io`] some records may be in the file nevertheless: the next
    /// append writes over them, and the extents of the failed one must be counted as wasted.
    pub fn append(&mut self, extents: &[Extent]) -> Result<Appended, AppendError> {
        let stride = self.header.identity.stride;
        if !self.marked {
            return Err(AppendError::MarkUnknown);
        }
        if self.poisoned {
            return Err(AppendError::Poisoned);
        }
        if let Some(extent) = extents.iter().find(|extent| !extent.is_sound(stride)) {
            return Err(AppendError::Unsound { extent: *extent, stride });
        }
        let start = self.head;
        let Some(end) = start.checked_add(extents.len() as u64) else {
            return Err(AppendError::IndexesExhausted { head: start });
        };

        // The slots leave the readable range before they are written: a write that fails half-way has spoilt them.
        let lowest = end.saturating_sub(self.header.capacity);
        let dropped = self.release(lowest);
        let (unkept, kept) = extents.split_at(lowest.saturating_sub(start) as usize);
        let first_kept = end - kept.len() as u64;
        if let Err(source) = self.write(first_kept..end, kept) {
            return Err(AppendError::Io { dropped: dropped.stock(), source });
        }

        self.head = end;
        self.tail = self.tail.max(lowest);
        for (index, extent) in (first_kept..end).zip(kept) {
            self.ids[self.header.slot(index) as usize] = extent.ids();
            self.held.add(extent.ids());
        }
        debug_assert!(
            self.tail <= start.max(lowest) && end - self.tail <= self.header.capacity,
            "L1: {self:?}"
        );
        let mut all_dropped = dropped;
        for extent in unkept {
            all_dropped.add(extent.ids());
        }
        Ok(Appended { indexes: start..end, dropped: all_dropped.stock() })
    }

    /// Writes zeros over all that can be read below `upto`, and returns when they would survive a power cut: no later
    /// opening finds it, whatever the mark is then. Says what that drops.
    ///
    /// After an error it is not known what is left in the file, and the log refuses all further writes.
    pub fn erase(&mut self, upto: u64) -> Result<Stock, SyncError> {
        if self.poisoned {
            return Err(SyncError::Poisoned);
        }
        let upto = upto.min(self.head);
        let mut index = self.tail();
        let dropped = self.release(upto);
        while index < upto {
            let count = (upto - index).min(ERASED_AT_ONCE);
            self.buffer.clear();
            self.buffer.resize(count as usize * RECORD_BYTES, 0);
            self.write_buffer(index).map_err(|error| {
                self.poisoned = true;
                SyncError::Io(error)
            })?;
            index += count;
        }
        self.sync()?;
        Ok(dropped.stock())
    }

    /// Writes at most a lap of records.
    fn write(&mut self, indexes: Range<u64>, extents: &[Extent]) -> io::Result<()> {
        self.buffer.clear();
        let first = indexes.start;
        for (index, extent) in indexes.zip(extents) {
            self.seal.encode(index, *extent, &mut self.buffer);
        }
        self.write_buffer(first)
    }

    /// Writes what is in the buffer from the slot of `index` on: in one piece or, over the end of the file, in two.
    fn write_buffer(&mut self, index: u64) -> io::Result<()> {
        let slot = self.header.slot(index);
        let until_end = (self.header.capacity - slot) as usize * RECORD_BYTES;
        let (before, after) = self.buffer.split_at(until_end.min(self.buffer.len()));
        let storage = self.storage.as_mut();
        if !before.is_empty() {
            put(storage, Header::offset(slot), before)?;
        }
        if !after.is_empty() {
            put(storage, Header::offset(0), after)?;
        }
        Ok(())
    }
}

/// Writes records. A system writes a part of a page only after it has read the rest, so a page that cannot be read is
/// written whole: the other records on it are lost already, and become zeros.
fn put(storage: &mut dyn Storage, offset: u64, records: &[u8]) -> io::Result<()> {
    let Err(error) = storage.write_at(offset, records) else { return Ok(()) };
    let begin = offset - offset % PAGE;
    let end = (offset + records.len() as u64).next_multiple_of(PAGE).min(storage.len()?);
    let mut pages = vec![0; end.saturating_sub(begin) as usize];
    let mut is_unreadable = false;
    for (page, at) in pages.chunks_mut(PAGE as usize).zip((begin..).step_by(PAGE as usize)) {
        match storage.read_at(at, page) {
            Ok(()) => {}
            Err(gone) if gone.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
            Err(_) => {
                is_unreadable = true;
                page.fill(0);
            }
        }
    }
    let from = (offset - begin) as usize;
    match pages.get_mut(from..from + records.len()) {
        Some(place) if is_unreadable => place.copy_from_slice(records),
        // Something else failed.
        _ => return Err(error),
    }
    storage.write_at(begin, &pages)
}
