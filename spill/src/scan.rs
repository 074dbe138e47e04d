//! One pass over all slots of a file, for opening and for inspecting it.

use std::io;

use crate::format::RECORD_BYTES;
use crate::header::Header;
use crate::record::{Content, Seal};
use crate::storage::ReadAt;

/// Slots read at a time: 256 KiB, few calls and yet within a second-level cache.
const CHUNK: u64 = 8192;

/// Calls `each` with every slot in ascending order. A valid record in a slot that its index does not belong to is
/// given as damage.
pub(crate) fn scan(read: ReadAt<'_>, header: &Header, mut each: impl FnMut(u64, Content)) -> io::Result<()> {
    let seal = Seal::of(&header.identity);
    let mut buffer = vec![0; (CHUNK.min(header.capacity) as usize) * RECORD_BYTES];
    let mut slot = 0;
    while slot < header.capacity {
        let count = CHUNK.min(header.capacity - slot);
        let bytes = &mut buffer[..count as usize * RECORD_BYTES];
        read(Header::offset(slot), bytes)?;
        for record in bytes.chunks_exact(RECORD_BYTES) {
            each(slot, placed(header, slot, seal.decode(record)));
            slot += 1;
        }
    }
    Ok(())
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
