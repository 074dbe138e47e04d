//! One pass over all slots of a file, for opening and for inspecting it.

use std::io;

use crate::format::RECORD_BYTES;
use crate::header::Header;
use crate::record::{Content, Seal};
use crate::storage::ReadAt;

/// Slots read at a time: 256 KiB, few calls and yet within a second-level cache.
const CHUNK: u64 = 8192;

/// Slots of a page of 4 KiB, read at a time where more cannot be read at once: what a disk loses together.
pub(crate) const PAGE: u64 = 128;

/// Of more unreadable pages the whole file is taken for unreadable: a disk may try for half a minute before it gives
/// one up, and a start waits for it.
pub(crate) const MOST_UNREADABLE: u64 = 16;

/// Calls `each` with every slot in ascending order, but for those that cannot be read: these are returned, ascending. A
/// valid record in a slot that its index does not belong to is given as damage.
pub(crate) fn scan(
    read: ReadAt<'_>,
    header: &Header,
    mut each: impl FnMut(u64, Content),
) -> io::Result<Vec<u64>> {
    let seal = Seal::of(&header.identity);
    let mut buffer = vec![0; (CHUNK.min(header.capacity) as usize) * RECORD_BYTES];
    let (mut slot, mut by_pages_until) = (0, 0);
    let mut unreadable = Vec::new();
    while slot < header.capacity {
        let most = if slot < by_pages_until { PAGE } else { CHUNK };
        let count = most.min(header.capacity - slot);
        let bytes = &mut buffer[..count as usize * RECORD_BYTES];
        match read(Header::offset(slot), bytes) {
            Ok(()) => {
                for record in bytes.chunks_exact(RECORD_BYTES) {
                    each(slot, placed(header, slot, seal.decode(record)));
                    slot += 1;
                }
            }
            // Somebody has shortened the file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
            Err(_) if count > PAGE => by_pages_until = slot + count,
            Err(error) if unreadable.len() as u64 >= MOST_UNREADABLE * PAGE => return Err(error),
            Err(_) => {
                unreadable.extend(slot..slot + count);
                slot += count;
            }
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
