//! Looking at a file without opening it as a log: no lock, no write, no map.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{HeaderError, InspectError};
use crate::extent::{Extent, Sum};
use crate::header::Header;
use crate::identity::Identity;
use crate::record::Content;
use crate::regular::open_regular;
use crate::scan::{head, scan, window_start};
use crate::storage::ReadAt;

/// What a spill file holds.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What the file says about itself.
    pub identity: Identity,
    /// How many extents fit.
    pub capacity: u64,
    /// The length of the file.
    pub file_bytes: u64,
    /// The highest valid index, plus 1; more if the slots from there on cannot be read.
    pub head: u64,
    /// Whether one copy of the header is damaged. The next open repairs it.
    pub header_damaged: bool,
    /// Slots that hold neither zeros nor a valid record. While a server is writing, one that is just being written can be
    /// among them.
    pub damaged: u64,
    /// Slots that the disk did not give: what is in them, nobody knows.
    pub unreadable: u64,
    /// The valid records of the last lap, ascending.
    records: Vec<(u64, Extent)>,
}

/// What a file holds from some index on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Extents.
    pub extents: u64,
    /// Their ids.
    pub ids: u64,
    /// The lowest first id of an extent.
    pub oldest_first: Option<u64>,
    /// The highest first id of an extent's last tick.
    pub newest_first: Option<u64>,
    /// Indexes up to the head without a valid record: damaged, or lost by a crash. Exact from the mark on; below it,
    /// indexes that were never used (because the mark ran ahead of a file that had lost its end) are among them.
    pub missing: u64,
}

impl Inspection {
    /// Everything that is readable in the last lap, granted or not.
    #[must_use]
    pub fn all(&self) -> Holdings {
        self.above(0)
    }

    /// What was not granted yet, if `mark` is the mark of this file.
    #[must_use]
    pub fn above(&self, mark: u64) -> Holdings {
        let begin = mark.max(self.head.saturating_sub(self.capacity));
        let mut sum = Sum::default();
        let mut holdings = Holdings::default();
        for extent in self.records(mark).map(|(_, extent)| extent) {
            sum.add(extent.ids());
            let last = extent.last_first(self.identity.stride);
            holdings.oldest_first =
                Some(holdings.oldest_first.map_or(extent.first, |id| id.min(extent.first)));
            holdings.newest_first = Some(holdings.newest_first.map_or(last, |id| id.max(last)));
        }
        let stock = sum.stock();
        let missing = self.head.saturating_sub(begin) - stock.extents;
        Holdings { extents: stock.extents, ids: stock.ids, missing, ..holdings }
    }

    /// The valid records of the last lap from index `mark` on, ascending.
    pub fn records(&self, mark: u64) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let begin = self.records.partition_point(|(index, _)| *index < mark);
        self.records[begin..].iter().copied()
    }
}

/// Reads a spill file: takes no lock and writes nothing, so it works while a server runs.
pub fn inspect(path: &Path) -> Result<Inspection, InspectError> {
    let failed = |source: io::Error| InspectError::Io { path: path.to_owned(), source };
    let file = open_regular(path).map_err(failed)?;
    let file_bytes = file.metadata().map_err(failed)?.len();
    let read = |offset, buf: &mut [u8]| file.read_exact_at(buf, offset);
    Ok(look(&read, file_bytes).map_err(failed)??)
}

/// Looks at `file_bytes` bytes.
fn look(read: ReadAt<'_>, file_bytes: u64) -> io::Result<Result<Inspection, HeaderError>> {
    let found = match Header::find(read, file_bytes)? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let header = found.header;

    let (mut records, mut damaged) = (Vec::new(), 0);
    let unreadable = scan(read, &header, |_, content| match content {
        Content::Empty => {}
        Content::Damaged => damaged += 1,
        Content::Record { index, extent } => records.push((index, extent)),
    })?;
    records.sort_unstable_by_key(|(index, _)| *index);
    let head = head(&header, records.last().map_or(0, |(index, _)| index + 1), &unreadable);
    let start = window_start(&header, head);
    records.retain(|(index, _)| *index >= start);

    Ok(Ok(Inspection {
        identity: header.identity,
        capacity: header.capacity,
        file_bytes,
        head,
        header_damaged: found.damaged_copy.is_some(),
        damaged,
        unreadable: unreadable.len() as u64,
        records,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::SpillId;
    use crate::log::Log;
    use crate::storage::Storage;
    use crate::storage::memory::MemoryStorage;

    #[test]
    fn slots_that_the_disk_does_not_give_are_told_apart_from_damaged_ones() {
        let disk = MemoryStorage::new();
        let spill = SpillId::from_bytes([1; 16]);
        let identity = Identity { spill, cluster: [2; 16], stride: 4_096, layout: [3; 16] };
        let mut log = Log::create(Box::new(disk.clone()), identity, Header::offset(300)).unwrap();
        let extents: Vec<_> =
            (1..=300).map(|tick| Extent { first: tick * 4_096, len: 1, ticks: 1 }).collect();
        log.append(&extents).unwrap();
        disk.tamper(|bytes| bytes[Header::offset(200) as usize] ^= 1);
        disk.fail_reads(Header::offset(0)..Header::offset(1));
        let read = |offset, buf: &mut [u8]| disk.read_at(offset, buf);
        let found = look(&read, disk.len().unwrap()).unwrap().unwrap();
        assert_eq!((found.damaged, found.unreadable), (1, 128));
        assert_eq!(found.all().extents, 300 - 128 - 1);
    }
}
