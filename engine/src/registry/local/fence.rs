//! After a restore: raising every record above what may have been granted; and after a copy: a cluster of its own.
//!
//! Both write a whole new file and put it in the place of the old one, so a crash leaves the one or the other.
//!
//! # Invariants
//! - I1 nobody uses the folder meanwhile: the registry's lock and every seat's are held;
//! - I2 afterwards no record's version is one that anybody saw before, so no compare-and-set begun before succeeds;
//! - I3 every mark that there was is at its maximum: no extent of any spill can be granted again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::disk::{Disk, FileDisk, LOCK_WAIT, lock};
use super::error::LocalError;
use super::format::{Kind, NO_SPILL, Pair, PairFlaw, Place, Row};
use super::header::Header;
use super::hints::{self, FolderHints};
use super::records::{all_pairs, check_identity, read_header};
use super::{OPENING_TRIES, genesis, seat};
use crate::registry::limits::beyond;
use crate::registry::{Adopted, ClusterId, Fenced, Genesis, NODE_MOST_BYTES, Token};

/// Added to every version: more changes than were made between the backup and the restore (at ten a second it
/// takes 13 years), and room for four thousand million fences.
const LEAP: u64 = 1 << 32;

/// Raises every worker's record to 125 s past `now_ns` (Unix nanoseconds) or to the highest of them and of those that
/// the folder's processes knew, whichever is later, every mark to its maximum, and every version by 2^32 or to
/// `now_ns`, whichever is more. Unreadable records become usable again.
///
/// For a registry whose content was restored from a backup in place, and after damage. It needs a right clock: if
/// the clock was once further ahead than it is now and no record shows it, what was granted then is not covered.
///
/// # Errors
/// Among others [`LocalError::InUse`] while any process uses the folder, and [`LocalError::Copied`] for a file
/// that [`adopt`] is for.
pub fn fence(folder: &Path, now_ns: u64) -> Result<Fenced, LocalError> {
    let held = Held::take(folder)?;
    check_identity(&held.header, &held.identity()?, &held.path)?;
    held.raise(folder, now_ns, held.header.genesis.cluster)
}

/// Makes a copied registry one of its own: it gets a new cluster id and is fenced, and `node.json` of the folder
/// is told. Spills of the old cluster are refused from then on.
///
/// The copy and the original are two clusters then, and nobody watches that their ids differ: if both go on, they
/// must not be used for one namespace.
///
/// # Errors
/// As [`fence`], but for [`LocalError::Copied`].
pub fn adopt(folder: &Path, now_ns: u64) -> Result<Adopted, LocalError> {
    let held = Held::take(folder)?;
    let before = held.header.genesis.cluster;
    let ours = held.header.identity.same_file(&held.identity()?);
    let (cluster, fenced) = if ours {
        (before, None)
    } else {
        let cluster = genesis::draw_cluster()?;
        let fenced = held.raise(folder, now_ns, cluster)?;
        // A preference for the worker that the original goes on with would make the two meet for certain.
        for seat in &held.seats {
            let _ = seat.set_len(0);
        }
        (cluster, Some(fenced))
    };
    // Last: if this is cut off, the folder is refused for its two clusters, and adopting it again ends it.
    tell_node(folder, cluster)?;
    Ok(Adopted { before, cluster, fenced })
}

/// A registry that nobody else can use meanwhile.
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
                let header = read_header(&disk, &path)?.header;
                return Ok(Self { disk, path, header, seats });
            }
        }
        Err(LocalError::Unsettled { path })
    }

    fn identity(&self) -> Result<super::FileIdentity, LocalError> {
        self.disk.identity().map_err(LocalError::io("identify", &self.path))
    }

    fn raise(&self, folder: &Path, now_ns: u64, cluster: ClusterId) -> Result<Fenced, LocalError> {
        let known = hints::known(&mut FolderHints::of(folder), &self.header.genesis);
        let (fenced, raised) = raised(&self.disk, &self.header, &known, now_ns, cluster);
        genesis::replace(folder, &fenced.genesis, raised)?;
        Ok(fenced)
    }
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
    let of_workers = readable().filter(|row| row.place.kind == Kind::Worker);
    let highest = of_workers.map(|row| row.value).max().unwrap_or(0);
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
        marks: marks.iter().flatten().filter(|pair| pair.row.spill != NO_SPILL).count() as u32,
        repaired: workers.iter().chain(&marks).filter(|pair| pair.is_err()).count() as u32,
        remade: 0,
    };
    let row = move |place: Place| {
        let pairs = if place.kind == Kind::Worker { &workers } else { &marks };
        let pair = pairs.get(place.slot as usize);
        raise(place, pair, version, reserved_until, now_ns / 1_000_000)
    };
    (fenced, row)
}

/// The record that a fence puts in a place. An unreadable mark becomes an unused slot: whosever it was, that spill
/// has no mark any more and is refused.
fn raise(
    place: Place,
    old: Option<&Result<Pair, PairFlaw>>,
    version: u64,
    reserved_until: u64,
    now_ms: u64,
) -> Row {
    let spill = match old {
        Some(Ok(pair)) => pair.row.spill,
        _ => NO_SPILL,
    };
    let (value, owner) = match place.kind {
        Kind::Worker => (reserved_until, "fence".to_owned()),
        Kind::Mark => (u64::MAX, String::new()),
    };
    Row { place, spill, version, value, token: Token::default(), operation: 0, updated_ms: now_ms, owner }
}

/// Writes the cluster into the folder's `node.json`, if there is one, and keeps what else it says.
fn tell_node(folder: &Path, cluster: ClusterId) -> Result<(), LocalError> {
    let path = folder.join("node.json");
    let old = match xuid_spill::read_regular(&path, NODE_MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(LocalError::io("read", path)(source)),
    };
    let mut node = match serde_json::from_slice(&old) {
        Ok(serde_json::Value::Object(node)) => node,
        _ => serde_json::Map::from_iter([("version".to_owned(), 1.into())]),
    };
    node.insert("cluster".to_owned(), cluster.to_string().into());
    let text = format!("{}\n", serde_json::Value::Object(node));
    let new = folder.join("node.json.new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    };
    write().map_err(LocalError::storing("write", &path, text.len() as u64))?;
    genesis::sync_folder(folder)
}
