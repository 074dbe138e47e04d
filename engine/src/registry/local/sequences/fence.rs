//! After a restore, a move or a copy of a folder: all records of names are closed, and no name can be made, until a person
//! says of each how far it may have come.
//!
//! Nothing in a folder tells how much was granted since it was copied: no clock bounds it, as it bounds windows, and no
//! margin is enough. So a fence raises each record to what the folder's processes knew and begins another era, which
//! closes it.
//!
//! # Invariants
//! - I1 no process uses the file meanwhile: its lock and every seat's are held;
//! - I2 what the fence makes of the records is durable among what the folder knows before it is in the file's place, and
//!   what the folder knew before is removed after that;
//! - I3 a slot that cannot be read, or that the folder knew used and is not, stays a slot whose name is lost.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{begun, check_cluster, draw_era, genesis_of_file};
use crate::registry::local::disk::{Disk, FileDisk, LOCK_WAIT, lock};
use crate::registry::local::error::LocalError;
use crate::registry::local::format::{GROWTH_SLOTS, Kind, Pair, PairFlaw, Place, Row};
use crate::registry::local::genesis::{self, Draft};
use crate::registry::local::header::{FileKind, Header, SequencesHeader};
use crate::registry::local::hints::{self, FolderHints};
use crate::registry::local::records::{pairs, read_header};
use crate::registry::local::{OPENING_TRIES, open_file, seat};
use crate::registry::record::{EraId, Named};
use crate::registry::{ClusterId, Genesis, Token};

/// Added to every version: more changes than were made between a backup and its restore.
const LEAP: u64 = 1 << 32;

/// What a fence made of the records of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequencesFenced {
    /// Names that are closed now.
    pub names: u32,
    /// Slots of which nothing tells whose they were.
    pub lost: u32,
}

/// Closes the records of names of a folder whose registry is elsewhere. The folder's own registry is fenced together with
/// them, by [`fence_restored`](crate::registry::local::fence_restored).
///
/// # Errors
/// Among others [`LocalError::InUse`] while any process uses the folder, and [`LocalError::Absent`] where it has no such
/// file, and does not tell its cluster either.
pub fn fence_sequences(folder: &Path) -> Result<SequencesFenced, LocalError> {
    let genesis = genesis_of_file(folder)?;
    let _seats = seat::lock_all(folder)?;
    close(folder, &genesis)
}

/// Whether the file of a folder is one of another folder: a copy.
pub(in crate::registry::local) fn is_copied(folder: &Path) -> Result<bool, LocalError> {
    let Some((path, disk, header)) = file_of(folder)? else { return Ok(false) };
    let found = disk.identity().map_err(LocalError::io("identify", &path))?;
    Ok(!header.identity.same_file(&found))
}

/// Refuses a file of another cluster: what its folder knew is of its own, and would be forgotten.
pub(in crate::registry::local) fn check_own(folder: &Path, genesis: &Genesis) -> Result<(), LocalError> {
    let Some((path, _, header)) = file_of(folder)? else { return Ok(()) };
    check_cluster(header.genesis.cluster, genesis, &path)
}

/// The file of a folder, opened, and its header; `None` where there is none.
fn file_of(folder: &Path) -> Result<Option<(PathBuf, FileDisk, Header)>, LocalError> {
    let path = genesis::path_of(folder, FileKind::Sequences);
    let disk = match open_file(&path) {
        Ok(disk) => disk,
        Err(LocalError::Absent { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let header = read_header(&disk, FileKind::Sequences, &path)?.header;
    Ok(Some((path, disk, header)))
}

/// Closes all records, in a new file. Called with every seat locked (I1).
pub(in crate::registry::local) fn close(
    folder: &Path,
    genesis: &Genesis,
) -> Result<SequencesFenced, LocalError> {
    let path = genesis::path_of(folder, FileKind::Sequences);
    for _ in 0..OPENING_TRIES {
        let mut disk = match open_file(&path) {
            Ok(disk) => disk,
            // What was there may be gone: no name is made before a person said so, and said it of each that the folder knew.
            Err(LocalError::Absent { .. }) => {
                let old = Header::new(genesis, Some(begun(draw_era()?, true)));
                let none = (0..old.geometry().sequences).map(unused);
                return close_records(folder, &path, None, &old, none, genesis.cluster);
            }
            Err(error) => return Err(error),
        };
        if !lock(&mut disk).map_err(LocalError::io("lock", &path))? {
            return Err(LocalError::Busy { path, waited: LOCK_WAIT });
        }
        if disk.in_place().map_err(LocalError::io("look at", &path))? {
            return close_file(folder, &path, &disk, genesis);
        }
    }
    Err(LocalError::Unsettled { path })
}

fn close_file(
    folder: &Path,
    path: &Path,
    disk: &FileDisk,
    genesis: &Genesis,
) -> Result<SequencesFenced, LocalError> {
    let old = read_header(disk, FileKind::Sequences, path)?.header;
    let found = pairs(disk, old.table(), Kind::Sequence);
    close_records(folder, path, Some(disk), &old, found, genesis.cluster)
}

/// Puts a file of closed records in the place of one in which these were found.
fn close_records(
    folder: &Path,
    path: &Path,
    file: Option<&FileDisk>,
    old: &Header,
    found: impl Iterator<Item = (Place, Result<Pair, PairFlaw>)>,
    cluster: ClusterId,
) -> Result<SequencesFenced, LocalError> {
    let mut hints = FolderHints::of(folder, FileKind::Sequences);
    hints.readable()?;
    let known = hints::known(&mut hints, old.table().widest());
    hints.check_whole()?;
    let (closed, header, rows) = closed(found, old, &known, cluster, draw_era()?);
    let row = |place: Place| rows.get(place.slot as usize).cloned().unwrap_or_else(|| Row::genesis(place, 0));
    replace(folder, path, &header, file, row)?;
    Ok(closed)
}

/// A slot that no name ever had.
fn unused(slot: u32) -> (Place, Result<Pair, PairFlaw>) {
    let row = Row::genesis(Place::sequence(slot), 0);
    (row.place, Ok(Pair { row, sound: [true, true] }))
}

/// What a fence makes of the records of a file, and of what its folder knew.
fn closed(
    found: impl Iterator<Item = (Place, Result<Pair, PairFlaw>)>,
    old: &Header,
    known: &[Row],
    cluster: ClusterId,
    era: EraId,
) -> (SequencesFenced, Header, Vec<Row>) {
    // What was put back may be of before the file grew.
    let highest_slot = known.iter().map(|row| row.place.slot).max();
    let needed = highest_slot.map_or(0, |slot| (slot + 1).next_multiple_of(GROWTH_SLOTS));
    let slots = old.geometry().sequences.max(needed);
    let least = old.sequences.map_or(0, |sequences| sequences.least);
    let sequences = SequencesHeader { slots, era, is_closed: true, least };
    let genesis = Genesis { cluster, ..old.genesis };
    // The highest of what each process knew of a slot: its version, and its value.
    let mut highest: HashMap<u32, (u64, u64)> = HashMap::new();
    for row in known {
        let (version, value) = highest.entry(row.place.slot).or_default();
        (*version, *value) = (row.version.max(*version), row.value.max(*value));
    }
    let rows = found.chain((old.geometry().sequences..slots).map(unused));
    let rows: Vec<Row> =
        rows.map(|(place, pair)| closed_row(place, pair, highest.get(&place.slot).copied())).collect();
    let named = |is_lost: bool| {
        let count =
            rows.iter().filter(|row| row.named.as_ref().is_some_and(|named| named.is_lost == is_lost));
        count.count() as u32
    };
    let fenced = SequencesFenced { names: named(false), lost: named(true) };
    (fenced, Header::new(&genesis, Some(sequences)), rows)
}

/// The record that a fence puts in a slot: as it was and of its era, which is over; and above what was known of it.
fn closed_row(place: Place, pair: Result<Pair, PairFlaw>, known: Option<(u64, u64)>) -> Row {
    let (version, value) = known.unwrap_or_default();
    let lost = || Row { value, named: Some(Box::new(Named::lost([0; 16]))), ..Row::genesis(place, 0) };
    let row = match pair {
        Ok(Pair { row, .. }) if row.named.is_none() => {
            if known.is_none() {
                return row;
            }
            lost()
        }
        Ok(Pair { row, .. }) => Row { value: row.value.max(value), ..row },
        Err(_) => lost(),
    };
    let version = row.version.max(version).saturating_add(LEAP);
    Row { version, token: Token::default(), operation: 0, ..row }
}

/// Puts a new file in the place of the old one (I2).
fn replace(
    folder: &Path,
    path: &Path,
    header: &Header,
    old: Option<&FileDisk>,
    row: impl Fn(Place) -> Row,
) -> Result<(), LocalError> {
    genesis::sweep(folder);
    let mut hints = FolderHints::of(folder, FileKind::Sequences);
    let before = hints.readable()?;
    // What takes the most room first: a full disk leaves everything as it was.
    let new = Draft::build(folder, header, &row)?;
    moment();
    let places = header.geometry().places();
    let rows = places.map(&row).filter(|row| row.version > 1);
    if let Err(source) = hints::write(&mut hints, header.table(), rows) {
        new.discard();
        let bytes = hints::image_bytes(header.table());
        return Err(LocalError::storing("write what is known of", path, bytes)(source));
    }
    moment();
    genesis::sync_folder(folder)?;
    moment();
    // A fence that was stopped for an hour and goes on must not put its records over a later one's.
    let is_ours = match old {
        Some(disk) => disk.in_place().map_err(LocalError::io("look at", path))?,
        None => !path.exists(),
    };
    if !is_ours {
        new.discard();
        return Err(LocalError::Unsettled { path: path.to_owned() });
    }
    new.replace(path)?;
    moment();
    genesis::sync_folder(folder)?;
    moment();
    // By name: a process that opens the new file from now on has hints of its own, which this lock does not guard.
    for known in before {
        let _ = std::fs::remove_file(known);
    }
    moment();
    Ok(())
}

/// A moment at which a fence may be cut off: in tests it is.
fn moment() {
    #[cfg(test)]
    #[cfg(not(loom))]
    super::tests::cut_here();
}
