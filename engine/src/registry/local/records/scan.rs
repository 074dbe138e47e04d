//! Reading all of a file, and what it is.

use std::ops::Range;
use std::path::Path;

use crate::registry::local::disk::{Disk, FileIdentity};
use crate::registry::local::error::LocalError;
use crate::registry::local::format::{Flaw, Kind, Pair, PairFlaw, Place, Row, SECTOR, Side, Table};
use crate::registry::local::header::{FileKind, Header, HeaderPair};
use crate::sys::guards::Guard;

/// The header of a file that is as long as it says.
pub(in crate::registry::local) fn read_header<D: Disk>(
    disk: &D,
    kind: FileKind,
    path: &Path,
) -> Result<HeaderPair, LocalError> {
    let read = HeaderPair::read(disk, kind).map_err(LocalError::io("read", path))?;
    let pair = read.map_err(|flaw| flaw.at(path))?;
    let (found, expected) =
        (disk.size().map_err(LocalError::io("measure", path))?, pair.header.geometry().bytes());
    if found < expected {
        return Err(LocalError::Shortened { path: path.to_owned(), found, expected });
    }
    Ok(pair)
}

/// Whether the file is the one that the header was written for.
pub(in crate::registry::local) fn check_identity(
    header: &Header,
    found: &FileIdentity,
    path: &Path,
) -> Result<(), LocalError> {
    if header.identity.same_file(found) || !Guard::FileIdentity.holds() {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path).to_owned();
    Err(LocalError::Copied { path: path.to_owned(), folder, recorded: header.identity, found: *found })
}

/// Both copies of all records of a kind, in order.
pub(in crate::registry::local) fn all_pairs<D: Disk>(
    disk: &D,
    header: &Header,
    kind: Kind,
) -> Vec<Result<Pair, PairFlaw>> {
    pairs(disk, header.table(), kind).map(|(_, pair)| pair).collect()
}

/// The same one after the other, read some at a time.
pub(in crate::registry::local) fn pairs<D: Disk>(
    disk: &D,
    table: Table,
    kind: Kind,
) -> impl Iterator<Item = (Place, Result<Pair, PairFlaw>)> {
    let chunks = table.geometry.chunks().filter(move |(of, _)| *of == kind);
    chunks.flat_map(move |of| chunk(disk, table, of))
}

/// Both copies of some records that lie beside each other.
pub(super) fn chunk<D: Disk>(
    disk: &D,
    table: Table,
    (kind, slots): (Kind, Range<u32>),
) -> impl Iterator<Item = (Place, Result<Pair, PairFlaw>)> {
    let place = move |slot| Place { kind, slot };
    let [a, b] = Side::BOTH.map(|copy| {
        read_chunk(disk, table.geometry.offset(place(slots.start), copy), slots.end - slots.start)
    });
    slots.zip(a).zip(b).map(move |((slot, a), b)| {
        let [a, b] = [a, b].map(|sector| Row::decode(&sector?, table.cluster, place(slot)));
        (place(slot), Pair::of(a, b))
    })
}

/// Some sectors; where they cannot be read at once, one by one, so that a bad one does not take the rest along.
fn read_chunk<D: Disk>(disk: &D, offset: u64, sectors: u32) -> Vec<Result<[u8; SECTOR], Flaw>> {
    let mut bytes = vec![[0; SECTOR]; sectors as usize];
    if disk.read_at(bytes.as_flattened_mut(), offset).is_ok() {
        return bytes.into_iter().map(Ok).collect();
    }
    (0..u64::from(sectors))
        .map(|sector| {
            let mut bytes = [0; SECTOR];
            let read = disk.read_at(&mut bytes, offset + sector * SECTOR as u64);
            read.map(|()| bytes).map_err(|error| Flaw::Unreadable(error.kind()))
        })
        .collect()
}
