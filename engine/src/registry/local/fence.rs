//! After a restore or a move: raising every record above what may have been granted; and after a copy: a cluster of its
//! own.
//!
//! Both write a whole new file and put it in the place of the old one, so a crash leaves the one or the other.
//!
//! # Invariants
//! - I1 no process uses the folder meanwhile: the registry's lock and every seat's are held;
//! - I2 afterwards no record's version is one that a process saw before, so no compare-and-set begun before succeeds;
//! - I3 every mark that there was is at its maximum: no extent of any spill can be granted again;
//! - I4 a closed worker stays closed, and is not opened to ticks that a fence went above;
//! - I5 what the fence makes of the records is durable among what the folder knows before it is in the registry's place,
//!   and what the folder knew before is removed after that: cut off anywhere, a fence leaves its own records, or an old
//!   registry that is refused.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::disk::{Disk, FileDisk, LOCK_WAIT, lock};
use super::error::LocalError;
use super::format::{Kind, NO_SPILL, Pair, PairFlaw, Place, Row, Table};
use super::genesis::Draft;
use super::header::{FileKind, Header};
use super::hints::{self, FolderHints, Hints};
use super::records::{all_pairs, read_header};
use super::{OPENING_TRIES, genesis, seat, sequences};
use crate::registry::limits::beyond;
use crate::registry::{Adopted, ClusterId, Fenced, Genesis, Token, Workers};

/// Added to every version: more changes than were made between the backup and the restore (at ten a second it
/// takes 13 years), and room for four thousand million fences.
const LEAP: u64 = 1 << 32;

/// Makes a registry that was put back, or whose folder was moved, one that repeats nothing: raises every worker's record
/// to 125 s past `now_ns` (Unix nanoseconds) or to the highest of them and of those that the folder's processes knew,
/// whichever is later, every mark to its maximum, and every version by 2^32 or to `now_ns`, whichever is more.
/// Unreadable records become usable again. The cluster stays, and the registry is bound to the file that it is in now.
///
/// It takes an old content of the same file and another file alike, so it is for a registry whose original is used no
/// more: [`adopt`] is for a copy beside its original. It needs a right clock: if the clock was once further ahead than
/// it is now and no record shows it, or is behind now and the folder knows nothing of the time since the backup, what
/// was granted then is not covered.
///
/// # Errors
/// Among others [`LocalError::InUse`] while any process uses the folder, and [`LocalError::OtherCluster`] for a file
/// that belongs to another folder.
pub fn fence_restored(folder: &Path, now_ns: u64) -> Result<Fenced, LocalError> {
    let held = Held::take(folder)?;
    let cluster = held.header.genesis.cluster;
    if let Some(found) = genesis::cluster_of_node(folder)
        && found != cluster
    {
        let (path, folder) = (held.path, folder.to_owned());
        return Err(LocalError::OtherCluster { path, folder, registry: cluster, node: found });
    }
    sequences::fence::check_own(folder, &held.header.genesis)?;
    // First: cut off after it, the folder has closed sequences and a registry that is fenced once more.
    let sequences = sequences::fence::close(folder, &held.header.genesis)?;
    let fenced = held.raise(folder, now_ns, cluster)?;
    held.empty_seats();
    Ok(Fenced { sequences: sequences.names, lost_sequences: sequences.lost, ..fenced })
}

/// Makes a copied registry one of its own: it gets a new cluster id and is fenced, and `node.json` of the folder
/// is told. Spills of the old cluster are refused from then on.
///
/// The copy and the original are two clusters then, and nobody watches that their ids differ: if both go on, they
/// must not be used for one namespace.
///
/// # Errors
/// As [`fence_restored`].
pub fn adopt(folder: &Path, now_ns: u64) -> Result<Adopted, LocalError> {
    let held = Held::take(folder)?;
    genesis::check_node(folder)?;
    let before = held.header.genesis.cluster;
    // Where nothing tells a file from its copy, who says that it is one is believed.
    let found = held.identity()?;
    let ours = held.header.identity.same_file(&found) && found.is_proof();
    let (cluster, fenced) = if ours {
        if sequences::fence::is_copied(folder)? {
            sequences::fence::close(folder, &held.header.genesis)?;
        }
        (before, None)
    } else {
        let cluster = genesis::draw_cluster()?;
        let sequences = sequences::fence::close(folder, &Genesis { cluster, ..held.header.genesis })?;
        let fenced = held.raise(folder, now_ns, cluster)?;
        held.empty_seats();
        (cluster, Some(Fenced { sequences: sequences.names, lost_sequences: sequences.lost, ..fenced }))
    };
    // Last: if this is cut off, the folder is refused for its two clusters, and adopting it again ends it.
    genesis::tell_node(folder, cluster)?;
    Ok(Adopted { before, cluster, fenced })
}

/// A registry that no other process can use meanwhile.
struct Held {
    disk: FileDisk,
    path: PathBuf,
    header: Header,
    seats: Vec<File>,
}

impl Held {
    fn take(folder: &Path) -> Result<Self, LocalError> {
        let path = genesis::path(folder);
        for _ in 0..OPENING_TRIES {
            let mut disk = super::open_file(&path)?;
            if !lock(&mut disk).map_err(LocalError::io("lock", &path))? {
                return Err(LocalError::Busy { path, waited: LOCK_WAIT });
            }
            if disk.in_place().map_err(LocalError::io("look at", &path))? {
                let seats = seat::lock_all(folder)?;
                let header = read_header(&disk, FileKind::Registry, &path)?.header;
                return Ok(Self { disk, path, header, seats });
            }
        }
        Err(LocalError::Unsettled { path })
    }

    fn identity(&self) -> Result<super::FileIdentity, LocalError> {
        self.disk.identity().map_err(LocalError::io("identify", &self.path))
    }

    fn raise(&self, folder: &Path, now_ns: u64, cluster: ClusterId) -> Result<Fenced, LocalError> {
        genesis::sweep(folder);
        let mut hints = FolderHints::of(folder, FileKind::Registry);
        // A start may do without what it cannot read; what a fence does not go above is granted again.
        let before = hints.readable()?;
        let known = hints::known(&mut hints, self.header.table());
        hints.check_whole()?;
        let (fenced, row) = raised(&self.disk, &self.header, &known, now_ns, cluster);
        // What takes the most room first: a full disk leaves everything as it was.
        let header = Header::new(&fenced.genesis, None);
        let new = Draft::build(folder, &header, &row)?;
        moment();
        if let Err(source) = remember(&mut hints, header.table(), &row) {
            new.discard();
            let bytes = hints::image_bytes(header.table());
            return Err(LocalError::storing("write what is known of", &self.path, bytes)(source));
        }
        moment();
        genesis::sync_folder(folder)?;
        moment();
        // A fence that was stopped for an hour and goes on must not put its records over a later one's.
        if !self.disk.in_place().map_err(LocalError::io("look at", &self.path))? {
            new.discard();
            return Err(LocalError::Unsettled { path: self.path.clone() });
        }
        new.replace(&self.path)?;
        moment();
        genesis::sync_folder(folder)?;
        moment();
        // By name: a process that opens the new file from now on has hints of its own, which this lock does not guard.
        for known in before {
            let _ = std::fs::remove_file(known);
        }
        moment();
        Ok(fenced)
    }

    /// A preference for the worker that the original had last would make the two meet for certain, should the original
    /// go on.
    fn empty_seats(&self) {
        for seat in &self.seats {
            let _ = seat.set_len(0);
        }
    }
}

/// A moment at which a fence may be cut off: in tests it is.
fn moment() {
    #[cfg(test)]
    super::tests::cut_here();
}

/// Notes what a fence makes of all records, before they are in the registry (I5).
pub(super) fn remember(
    hints: &mut dyn Hints,
    table: Table,
    row: &impl Fn(Place) -> Row,
) -> std::io::Result<()> {
    hints::write(hints, table, table.geometry.places().map(row))
}

/// What a fence makes of the registry on a disk, and of what its folder knew: a summary, and the record for each place.
pub(super) fn raised<D: Disk>(
    disk: &D,
    header: &Header,
    known: &[Row],
    now_ns: u64,
    cluster: ClusterId,
) -> (Fenced, impl Fn(Place) -> Row + use<D>) {
    let genesis = Genesis { cluster, ..header.genesis };
    let workers = all_pairs(disk, header, Kind::Worker);
    let marks = all_pairs(disk, header, Kind::Mark);
    // What was put back says less than what the folder knew, and a later hint must not refuse what the fence makes of
    // it.
    let readable = || workers.iter().chain(&marks).flatten().map(|pair| &pair.row).chain(known);
    let of_workers = || readable().filter(|row| row.place.kind == Kind::Worker);
    let highest = of_workers().map(|row| row.worker_record().reach()).max().unwrap_or(0);
    let stay_closed = StayClosed::of(&genesis, of_workers());
    // A clock before the epoch says nothing; the records then have to.
    let reach = beyond(&genesis.layout, now_ns).unwrap_or(0);
    let reserved_until = reach.max(highest).max(genesis.floor);
    // One version for all: above each one that was ever seen, also of a record that cannot be read; and, where what was
    // put back is from before another fence, above those that came after that one: nobody writes once a nanosecond.
    let highest_version = readable().map(|row| row.version).max().unwrap_or(0);
    let version = highest_version.saturating_add(LEAP).max(now_ns);
    let fenced = Fenced {
        genesis,
        reserved_until,
        newest_change_ms: readable().map(|row| row.updated_ms).max(),
        ensemble_ahead_ms: None,
        marks: marks.iter().flatten().filter(|pair| pair.row.spill != NO_SPILL).count() as u32,
        repaired: workers.iter().chain(&marks).filter(|pair| pair.is_err()).count() as u32,
        remade: 0,
        sequences: 0,
        lost_sequences: 0,
    };
    let geometry = header.geometry();
    let row = move |place: Place| {
        let pairs = if place.kind == Kind::Worker { &workers } else { &marks };
        let pair = geometry.position(place).and_then(|at| pairs.get(at as usize));
        raise(place, pair, stay_closed.contains(place), (version, reserved_until), now_ns / 1_000_000)
    };
    (fenced, row)
}

/// Which workers stay closed: those of which all that is known says so, and of those of which nothing is known the ones
/// that were closed when the registry was made. One that was opened since is opened once more then, by a person.
struct StayClosed {
    known: HashMap<u32, bool>,
    at_genesis: Workers,
}

impl StayClosed {
    fn of<'a>(genesis: &Genesis, rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut known = HashMap::new();
        for row in rows {
            *known.entry(row.place.slot).or_insert(true) &= row.is_closed();
        }
        Self { known, at_genesis: genesis.closed }
    }

    fn contains(&self, place: Place) -> bool {
        let at_genesis = || self.at_genesis.contains(place.slot);
        place.kind == Kind::Worker && self.known.get(&place.slot).copied().unwrap_or_else(at_genesis)
    }
}

/// The record that a fence puts in a place. An unreadable mark becomes an unused slot: whosever it was, that spill
/// has no mark any more and is refused.
fn raise(
    place: Place,
    old: Option<&Result<Pair, PairFlaw>>,
    is_closed: bool,
    (version, reserved_until): (u64, u64),
    now_ms: u64,
) -> Row {
    if is_closed {
        return Row { version, updated_ms: now_ms, ..Row::closed(place, reserved_until) };
    }
    let spill = match old {
        Some(Ok(pair)) => pair.row.spill,
        _ => NO_SPILL,
    };
    let (value, owner) = match place.kind {
        Kind::Worker => (reserved_until, "fence".to_owned()),
        Kind::Mark | Kind::Sequence => (u64::MAX, String::new()),
    };
    let (token, updated_ms) = (Token::default(), now_ms);
    Row { place, spill, version, value, token, operation: 0, updated_ms, owner, named: None }
}
