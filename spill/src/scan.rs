//! One pass over all slots of a file, for opening and for inspecting it.

use std::io;
use std::ops::Range;

use crate::format::RECORD_BYTES;
use crate::header::Header;
use crate::record::{Content, Seal};
use crate::storage::ReadAt;

/// Slots read at a time: 256 KiB, few calls and yet within a second-level cache.
const CHUNK: u64 = 8192;

/// Slots of a page of 4 KiB, read at a time where more cannot be read at once: what a disk loses together.
const PAGE: u64 = 128;

/// Of more unreadable pages the whole file is taken for unreadable: a disk may try for half a minute before it gives
/// one up, and a start waits for it.
const MOST_UNREADABLE: u64 = 16;

/// Reads slots, many at a time; and page by page where that fails, so that a bad page does not take the rest along.
pub(crate) struct Reader<'s> {
    read: ReadAt<'s>,
    chunk: u64,
    /// Slots that could not be read at once.
    by_pages: Range<u64>,
    unreadable: u64,
    buffer: Vec<u8>,
}

impl<'s> Reader<'s> {
    /// One that reads up to `chunk` slots at a time.
    pub(crate) fn new(read: ReadAt<'s>, chunk: u64) -> Self {
        Self { read, chunk, by_pages: 0..0, unreadable: 0, buffer: Vec::new() }
    }

    /// What begins at `slot` and ends at or before `end`: how many slots, and their bytes if they can be read. An error
    /// where the file was shortened, and at one unreadable page too many.
    pub(crate) fn next(&mut self, slot: u64, end: u64) -> io::Result<(u64, Option<&[u8]>)> {
        let left_of_page = (PAGE - slot % PAGE).min(end - slot);
        loop {
            let whole = self.chunk.min(end - slot);
            let count = if self.by_pages.contains(&slot) { left_of_page } else { whole };
            self.buffer.resize(count as usize * RECORD_BYTES, 0);
            match (self.read)(Header::offset(slot), &mut self.buffer) {
                Ok(()) => return Ok((count, Some(&self.buffer))),
                // The file was shortened.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
                Err(_) if count > left_of_page => self.by_pages = slot..slot + count,
                Err(error) if self.unreadable == MOST_UNREADABLE => return Err(error),
                Err(_) => {
                    self.unreadable += 1;
                    return Ok((count, None));
                }
            }
        }
    }
}

/// Calls `each` with every slot in ascending order, but for those that cannot be read: these are returned, ascending. A
/// valid record in a slot that its index does not belong to is given as damage.
pub(crate) fn scan(
    read: ReadAt<'_>,
    header: &Header,
    mut each: impl FnMut(u64, Content),
) -> io::Result<Vec<u64>> {
    let seal = Seal::of(&header.identity);
    let mut reader = Reader::new(read, CHUNK);
    let mut slot = 0;
    let mut unreadable = Vec::new();
    while slot < header.capacity {
        let (count, bytes) = reader.next(slot, header.capacity)?;
        let slots = slot..slot + count;
        slot = slots.end;
        let Some(bytes) = bytes else {
            unreadable.extend(slots);
            continue;
        };
        for (slot, record) in slots.zip(bytes.chunks_exact(RECORD_BYTES)) {
            each(slot, placed(header, slot, seal.decode(record)));
        }
    }
    Ok(unreadable)
}

/// The index of the next append, if the highest valid index is `end - 1`. Slots from there on that cannot be read may
/// hold later records, so it is above them. Nothing is lost by that: before them, they could only hold the oldest.
pub(crate) fn head(header: &Header, end: u64, unreadable: &[u64]) -> u64 {
    let may_be_used = |index: &u64| unreadable.binary_search(&header.slot(*index)).is_ok();
    end + (end..end.saturating_add(header.capacity)).take_while(may_be_used).count() as u64
}

fn placed(header: &Header, slot: u64, content: Content) -> Content {
    match content {
        Content::Record { index, .. } if header.slot(index) != slot => Content::Damaged,
        content => content,
    }
}

/// The lowest index that a log with this head can still hold.
pub(crate) fn window_start(header: &Header, head: u64) -> u64 {
    head.saturating_sub(header.capacity)
}
