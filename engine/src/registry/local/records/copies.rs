//! Writing one copy of a record, also where its page cannot be read.
//!
//! Called under the lock of the registry.
//!
//! # Invariants
//! - I1 no other record on the page loses what was known of it: each gets what its two copies say together, and what
//!   its other copy says is durable by then;
//! - I2 hence no copy becomes older than the last confirmed change of its record, of which both copies were durable.

use std::io;

use crate::registry::local::disk::Disk;
use crate::registry::local::format::{Flaw, PAGE, Pair, Place, Row, SECTOR, Side, Table};

/// Records on a page.
const ROWS: u32 = PAGE as u32 / SECTOR as u32;

impl Table {
    /// Writes one copy of a record. A kernel writes a part of a page only after it has read the rest, so of a page that
    /// cannot be read it takes no part, and the whole page makes it good.
    pub(super) fn write<D: Disk>(self, disk: &mut D, row: &Row, copy: Side) -> io::Result<()> {
        let offset = self.geometry.offset(row.place, copy);
        let Err(error) = disk.write_at(&row.encode(self.cluster), offset) else { return Ok(()) };
        let Some(page) = self.unreadable_page(disk, row, copy) else { return Err(error) };
        // Another process may have been killed between a write and its sync (I1).
        disk.sync()?;
        disk.write_at(&page, offset - offset % PAGE)
    }

    /// The page of a copy as it should be, with this record in it; `None` if it can be read. Where neither copy of
    /// another record can be believed, what is there stays, or what cannot be read becomes zeros: that record is
    /// damaged before and after.
    fn unreadable_page<D: Disk>(self, disk: &D, row: &Row, copy: Side) -> Option<[u8; PAGE as usize]> {
        let kind = row.place.kind;
        let first = row.place.slot - self.geometry.position(row.place)? % ROWS;
        let mut page = [0; PAGE as usize];
        let mut is_unreadable = false;
        for (slot, part) in (first..self.geometry.numbers(kind).end).zip(page.chunks_exact_mut(SECTOR)) {
            let place = Place { kind, slot };
            let [own, other] = [copy, copy.other()].map(|copy| self.sector(disk, place, copy));
            is_unreadable |= own.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::UnexpectedEof);
            if place == row.place {
                part.copy_from_slice(&row.encode(self.cluster));
            } else if let Ok(pair) = Pair::of(self.row(&own, place), self.row(&other, place)) {
                part.copy_from_slice(&pair.row.encode(self.cluster));
            } else if let Ok(own) = own {
                part.copy_from_slice(&own);
            }
        }
        is_unreadable.then_some(page)
    }

    /// The bytes of one copy.
    pub(super) fn sector<D: Disk>(self, disk: &D, place: Place, copy: Side) -> io::Result<[u8; SECTOR]> {
        let mut sector = [0; SECTOR];
        disk.read_at(&mut sector, self.geometry.offset(place, copy))?;
        Ok(sector)
    }

    /// What one copy says.
    pub(super) fn row(self, sector: &io::Result<[u8; SECTOR]>, place: Place) -> Result<Row, Flaw> {
        match sector {
            Ok(sector) => Row::decode(sector, self.cluster, place),
            Err(error) => Err(Flaw::Unreadable(error.kind())),
        }
    }
}
