//! The records of named sequences in a folder: the file `sequences` beside `registry`, shared by the processes of one host.
//!
//! It is a file of records like the registry's, and is kept by the same code: two copies of each record, changed under a
//! lock, told from a copy and from an old content that was put back. It grows with the names. `docs/registry.md` has its
//! bytes.
//!
//! # Invariants
//! - I1 a record is open only in the era that it was written in, and a fence begins another era: a mark that may be too low
//!   is raised by a person before any number is granted from it;
//! - I2 a name is made only where it was certainly never there: not after a fence, nor while a slot's name is lost, nor
//!   where the file is gone that the folder knew; and after a fence none begins below what a person said.

pub(super) mod fence;
mod inspect;
mod port;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::fence::{SequencesFenced, fence_sequences};
pub use self::inspect::{InspectedSequence, SequencesInspection, inspect};
use super::disk::{Disk, FileDisk};
use super::error::LocalError;
use super::format::{GROWTH_SLOTS, Row};
use super::header::{FileKind, Header, SequencesHeader};
use super::hints::{FolderHints, Hints};
use super::records::{Records, check_identity, read_header};
use super::seat::{Seat, Taker};
use super::{OPENING_TRIES, genesis, open_file};
use crate::clock::{Clock, SystemClock};
use crate::registry::record::EraId;
use crate::registry::{ClusterId, Genesis, Layout, Token};
use crate::sys::deferred_log;

/// The records of names in a folder, opened by one user of them.
///
/// ```
/// use xuid_engine::Layout;
/// use xuid_engine::registry::local::sequences::LocalSequences;
/// use xuid_engine::registry::local::{CreateOptions, LocalRegistry};
/// use xuid_engine::registry::sequences::{SequenceChange, SequenceRecord, SequenceRecords};
/// # let folder = tempfile::tempdir()?;
/// let options = CreateOptions { layout: Layout::default(), floor: 0, workers: 16 };
/// let registry = LocalRegistry::open_or_create(folder.path(), &options)?;
/// let mut sequences = LocalSequences::open_or_create(folder.path(), None)?;
/// let record = SequenceRecord { value: 1, step: 1_000, increment: 1, ..SequenceRecord::default() };
/// let mut outcomes = Vec::new();
/// sequences.swap(&[SequenceChange { name: "orders", expected: None, record }], &mut outcomes);
/// assert!(outcomes[0].is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalSequences<D: Disk = FileDisk> {
    // Before the records, so that the seat is left while the file is still open.
    seat: Option<Seat>,
    records: Records<D>,
    folder: PathBuf,
    /// Tells the writes of this opening from those of others.
    token: Token,
    operation: u64,
}

impl LocalSequences {
    /// Opens the file of a folder; `None` where there never was one, and nothing is made then.
    ///
    /// # Errors
    /// As [`open_or_create`](Self::open_or_create).
    pub fn open(folder: &Path, genesis: Option<&Genesis>) -> Result<Option<Self>, LocalError> {
        deferred_log::collected(|| Self::open_now(folder, genesis, false))
    }

    /// Opens the file of a folder, or makes it where there never was one. It belongs to the folder's own registry; where
    /// that is elsewhere, to the one of `genesis`, or, if none is given, to the one that the file names.
    ///
    /// # Errors
    /// [`LocalError::Absent`] where the folder has no registry and none is given; see [`LocalError`].
    pub fn open_or_create(folder: &Path, genesis: Option<&Genesis>) -> Result<Self, LocalError> {
        // Nothing is said under the file's lock.
        let opened = deferred_log::collected(|| Self::open_now(folder, genesis, true))?;
        opened.ok_or_else(|| LocalError::Unsettled { path: genesis::path_of(folder, FileKind::Sequences) })
    }

    fn open_now(folder: &Path, genesis: Option<&Genesis>, makes: bool) -> Result<Option<Self>, LocalError> {
        // The file is looked for by its name before each change, and the process may work in another directory by then.
        let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let genesis = genesis.map_or_else(|| genesis_of(folder), |genesis| Ok(*genesis))?;
        let path = genesis::path_of(folder, FileKind::Sequences);
        for _ in 0..OPENING_TRIES {
            let disk = match open_file(&path) {
                Err(LocalError::Absent { .. }) if makes => {
                    create(folder, &genesis)?;
                    continue;
                }
                Err(LocalError::Absent { .. }) => {
                    return check_never_there(folder, &path).map(|()| None);
                }
                opened => opened?,
            };
            let clock = Arc::new(SystemClock);
            let Some(mut records) = Records::open(disk, FileKind::Sequences, &path, clock)? else { continue };
            check_cluster(records.genesis().cluster, &genesis, &path)?;
            records.keep_hints(Box::new(FolderHints::of(folder, FileKind::Sequences)), &path)?;
            genesis::sweep(folder);
            let seat = Some(Seat::take(folder, Taker::Sequences)?);
            // The name may not be durable yet, if the process that made the file was killed just then.
            genesis::sync_folder(folder)?;
            records.unlock();
            let (folder, token) = (folder.to_owned(), draw_token()?);
            return Ok(Some(Self { seat, records, folder, token, operation: 0 }));
        }
        Err(LocalError::Unsettled { path })
    }
}

impl<D: Disk> LocalSequences<D> {
    /// The records on any storage.
    ///
    /// # Errors
    /// See [`LocalError`].
    pub fn on(disk: D, clock: Arc<dyn Clock>) -> Result<Self, LocalError> {
        Self::on_with(disk, None, clock)
    }

    /// The same, with hints.
    pub(crate) fn on_with(
        disk: D,
        hints: Option<Box<dyn Hints>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LocalError> {
        let path = Path::new("memory");
        let records = Records::on(disk, FileKind::Sequences, hints, path, clock)?;
        Ok(Self { seat: None, records, folder: path.to_owned(), token: draw_token()?, operation: 0 })
    }
}

#[cfg(any(test, feature = "test-util"))]
impl super::MemoryDisk {
    /// A disk with a new file of sequences on it.
    #[must_use]
    pub fn with_sequences(genesis: &Genesis, identity: super::FileIdentity) -> Self {
        let header = Header { identity, ..Header::new(genesis, Some(begun([1; 16], false))) };
        let mut image = Vec::new();
        let written = genesis::write_image(&mut image, &header, &|place| Row::genesis(place, 0));
        debug_assert!(written.is_ok(), "memory takes everything");
        Self::new(image, identity)
    }
}

/// What a folder's own registry was created with, unless that is a copy; where it is elsewhere, what the file of sequences
/// says of it.
fn genesis_of(folder: &Path) -> Result<Genesis, LocalError> {
    if are_alone(folder) {
        return genesis_of_file(folder);
    }
    let path = genesis::path(folder);
    let disk = FileDisk::open_to_read(&path).map_err(super::opening(&path))?;
    let header = read_header(&disk, FileKind::Registry, &path)?.header;
    let found = disk.identity().map_err(LocalError::io("identify", &path))?;
    check_identity(&header, &found, &path)?;
    Ok(header.genesis)
}

/// Whether a folder has records of sequences, or had, and its registry is elsewhere.
#[must_use]
pub fn are_alone(folder: &Path) -> bool {
    let is_there = |kind| genesis::path_of(folder, kind).symlink_metadata().is_ok();
    let had = || FolderHints::of(folder, FileKind::Sequences).exist().unwrap_or(false);
    !is_there(FileKind::Registry) && (is_there(FileKind::Sequences) || had())
}

/// What the file of sequences says of the registry that it belongs to. Where it is gone, the folder tells the cluster: no more
/// of it counts.
fn genesis_of_file(folder: &Path) -> Result<Genesis, LocalError> {
    let path = genesis::path_of(folder, FileKind::Sequences);
    match FileDisk::open_to_read(&path).map_err(super::opening(&path)) {
        Ok(disk) => Ok(read_header(&disk, FileKind::Sequences, &path)?.header.genesis),
        Err(absent @ LocalError::Absent { .. }) => {
            let cluster = genesis::cluster_of_node(folder).ok_or(absent)?;
            Ok(Genesis::new(cluster, Layout::default(), 0, 1))
        }
        Err(error) => Err(error),
    }
}

/// The head of a file that begins.
fn begun(era: EraId, is_closed: bool) -> SequencesHeader {
    SequencesHeader { slots: GROWTH_SLOTS, era, is_closed, least: 0 }
}

/// Makes the file where there never was one (I2).
fn create(folder: &Path, genesis: &Genesis) -> Result<(), LocalError> {
    let path = genesis::path_of(folder, FileKind::Sequences);
    xuid_spill::make_folder(folder).map_err(LocalError::storing("create", folder, 0))?;
    genesis::sweep(folder);
    let header = Header::new(genesis, Some(begun(draw_era()?, false)));
    let new = genesis::Draft::build(folder, &header, |place| Row::genesis(place, 0))?;
    if let Err(error) = check_never_there(folder, &path) {
        new.discard();
        return Err(error);
    }
    match new.publish(&path) {
        // Another process was quicker.
        Ok(()) | Err(LocalError::Exists { .. }) => genesis::sync_folder(folder),
        Err(error) => Err(error),
    }
}

/// Refuses to take a file for one that never was where the folder knew one (I2).
fn check_never_there(folder: &Path, path: &Path) -> Result<(), LocalError> {
    if FolderHints::of(folder, FileKind::Sequences).exist()? && !path.exists() {
        return Err(LocalError::SequencesLost { path: path.to_owned(), folder: folder.to_owned() });
    }
    Ok(())
}

/// Refuses a file of sequences of another registry.
fn check_cluster(found: ClusterId, genesis: &Genesis, path: &Path) -> Result<(), LocalError> {
    if found == genesis.cluster {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path).to_owned();
    Err(LocalError::SequencesOfOther { path: path.to_owned(), folder, found, registry: genesis.cluster })
}

fn random() -> Result<[u8; 16], LocalError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LocalError::Random(std::io::Error::other(error)))?;
    Ok(bytes)
}

fn draw_token() -> Result<Token, LocalError> {
    random().map(Token)
}

fn draw_era() -> Result<EraId, LocalError> {
    random()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
