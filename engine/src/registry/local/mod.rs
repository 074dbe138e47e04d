//! The embedded registry: a file in a folder, shared by the processes of one host.
//!
//! ```text
//!   LocalRegistry   the port's adaptor: one opening of the file, and a seat in the folder
//!     |       \
//!   Records   Seat        registry.seat-K: locked while its process lives; a hint of which process holds which worker
//!     |
//!   Disk                  registry: each record a sector, twice | MemoryDisk for simulations
//!   Hints                 registry.known-...: what a process knew, so that an old content put back is refused
//! ```
//!
//! The bytes, and what a change, a crash, a copy and a restore do to them, are described in `docs/registry.md`.

mod disk;
mod error;
mod fence;
mod format;
#[cfg(any(test, fuzzing))]
#[path = "../../../testing/fuzz/local.rs"]
pub(crate) mod fuzzing;
mod genesis;
mod header;
mod high_water;
pub(crate) mod hints;
mod inspect;
mod records;
mod seat;
pub mod sequences;
#[cfg(test)]
#[cfg(not(loom))]
#[path = "../../../testing/support/registry_disk.rs"]
pub(crate) mod simulated;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xuid_id::{Layout, Veil};
use xuid_spill::SpillId;

#[cfg(any(test, feature = "test-util"))]
pub use disk::MemoryDisk;
pub use disk::{Disk, FileDisk, FileIdentity};
pub use error::LocalError;
pub use fence::{adopt, fence_restored};
pub use genesis::draw_cluster;
pub use header::VERSION as FORMAT_VERSION;
pub use inspect::{Finding, Inspection, inspect};

use self::format::{Kind, NO_SPILL, Pair, Place, Row, short_owner};
use self::header::FileKind;
use self::hints::{FolderHints, Hints};
use self::records::Records;
#[cfg(feature = "zookeeper")]
pub(in crate::registry) use self::seat::{Seat, Taker};
#[cfg(not(feature = "zookeeper"))]
use self::seat::{Seat, Taker};
use crate::clock::{Clock, SystemClock};
use crate::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry, WorkerRecord,
};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// What a registry is created with, where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// The layout of every id.
    pub layout: Layout,
    /// The first tick that may ever be granted. Too early, and ids may be issued that were issued before there was
    /// this registry; too late, and nothing is issued until then.
    pub floor: u64,
    /// How many workers have a record, at most the layout's. Each takes a kilobyte.
    pub workers: u32,
}

/// The registry of a folder, opened by one engine.
///
/// ```
/// use xuid_engine::Layout;
/// use xuid_engine::registry::Registry;
/// use xuid_engine::registry::local::{CreateOptions, LocalRegistry};
/// # let folder = tempfile::tempdir()?;
/// let options = CreateOptions { layout: Layout::default(), floor: 0, workers: 16 };
/// let mut registry = LocalRegistry::open_or_create(folder.path(), &options)?;
/// assert_eq!(registry.workers()?.len(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalRegistry<D: Disk = FileDisk> {
    // Before the records, so that the seat is left while the file is still open.
    seat: Option<Seat>,
    records: Records<D>,
    folder: PathBuf,
    created: bool,
}

/// How often opening begins again because the file was replaced meanwhile. A fence replaces it once; more than
/// that is somebody's loop.
const OPENING_TRIES: u32 = 8;

impl LocalRegistry {
    /// Opens the registry of `folder`, or makes it (and the folder) where there is none. Of several processes that
    /// find none at a time, one makes it.
    ///
    /// # Errors
    /// See [`LocalError`].
    pub fn open_or_create(folder: &Path, options: &CreateOptions) -> Result<Self, LocalError> {
        Self::open_or_create_with(folder, options, None)
    }

    /// The same; where it is made with a key, its ids are opaque. Whether one that is there has that key is not looked at:
    /// see [`Genesis::check_veil`].
    ///
    /// # Errors
    /// See [`LocalError`].
    pub fn open_or_create_with(
        folder: &Path,
        options: &CreateOptions,
        veil: Option<&Veil>,
    ) -> Result<Self, LocalError> {
        match Self::open(folder) {
            Err(LocalError::Absent { .. }) => {}
            found => return found,
        }
        let CreateOptions { layout, floor, workers } = *options;
        let mut genesis = Genesis::new(draw_cluster()?, layout, floor, workers);
        if let Some(veil) = veil {
            genesis = genesis.opaque(veil)?;
        }
        match Self::create(folder, &genesis) {
            Err(LocalError::Exists { .. }) => Self::open(folder),
            made => made,
        }
    }

    /// Makes the registry of `folder`, and opens it.
    ///
    /// # Errors
    /// [`LocalError::Exists`] if there is one; see [`LocalError`].
    pub fn create(folder: &Path, genesis: &Genesis) -> Result<Self, LocalError> {
        genesis::create(folder, genesis)?;
        let made = Self::open(folder)?;
        Ok(Self { created: true, ..made })
    }

    /// Opens the registry of `folder`.
    ///
    /// # Errors
    /// [`LocalError::Absent`] if there is none; see [`LocalError`].
    pub fn open(folder: &Path) -> Result<Self, LocalError> {
        // Nothing is said under the file's lock.
        deferred_log::collected(|| Self::open_now(folder))
    }

    fn open_now(folder: &Path) -> Result<Self, LocalError> {
        // The file is looked for by its name before each change, and the process may work in another directory by then.
        let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let path = genesis::path(folder);
        for _ in 0..OPENING_TRIES {
            let Some(mut records) =
                Records::open(open_file(&path)?, FileKind::Registry, &path, Arc::new(SystemClock))?
            else {
                continue;
            };
            records.keep_hints(Box::new(FolderHints::of(folder, FileKind::Registry)), &path)?;
            genesis::sweep(folder);
            let seat = Some(Seat::take(folder, Taker::Engine)?);
            // The name may not be durable yet, if the process that made the file was killed just then.
            genesis::sync_folder(folder)?;
            records.unlock();
            return Ok(Self { seat, records, folder: folder.to_owned(), created: false });
        }
        Err(LocalError::Unsettled { path })
    }
}

impl<D: Disk> LocalRegistry<D> {
    /// The registry on any storage, without a folder and hence without hints of which process is alive.
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
        let records = Records::on(disk, FileKind::Registry, hints, path, clock)?;
        Ok(Self { seat: None, records, folder: path.to_owned(), created: false })
    }

    /// Whether this opening made the registry.
    #[must_use]
    pub fn created(&self) -> bool {
        self.created
    }

    /// Reads without the lock, as nothing is changed. What looks wrong may have been read in the middle of
    /// another's change, so it is read again under the lock.
    fn read(&mut self, look: impl Fn(&mut Records<D>) -> Result<Pair, ReadError>) -> Result<Pair, ReadError> {
        self.records.recover();
        match self.records.verify().and_then(|()| look(&mut self.records)) {
            Err(ReadError::Damaged { .. } | ReadError::Foreign { .. }) => self.records.locked(look),
            other => other,
        }
    }

    fn check_worker(&self, worker: u32) -> Result<(), ReadError> {
        if self.records.geometry().position(Place::worker(worker)).is_some() {
            return Ok(());
        }
        Err(ReadError::Absent { what: Place::worker(worker).to_string() })
    }
}

#[cfg(any(test, feature = "test-util"))]
impl MemoryDisk {
    /// A disk with a new registry on it.
    #[must_use]
    pub fn with_registry(genesis: &Genesis, identity: FileIdentity) -> Self {
        let mut image = Vec::new();
        let header = header::Header { identity, ..header::Header::new(genesis, None) };
        let written = genesis::write_image(&mut image, &header, &|place| Row::at_genesis(place, genesis));
        debug_assert!(written.is_ok(), "memory takes everything");
        Self::new(image, identity)
    }
}

/// Compare-and-set of a worker's record, under the lock.
fn store_worker<D: Disk>(
    records: &mut Records<D>,
    worker: u32,
    expected: u64,
    record: &WorkerRecord,
) -> Result<(), SwapError> {
    let base = records.pair(Place::worker(worker))?;
    if base.row.version != expected && Guard::VersionCompared.holds() {
        return Err(SwapError::Conflict);
    }
    let row = Row {
        place: base.row.place,
        spill: NO_SPILL,
        version: base.row.version + 1,
        value: record.reserved_until,
        token: record.token,
        operation: record.operation,
        updated_ms: records.now_ms(),
        owner: short_owner(&record.owner).to_owned(),
        named: None,
    };
    records.store(&base, &row)
}

impl<D: Disk> Registry for LocalRegistry<D> {
    fn genesis(&self) -> &Genesis {
        self.records.genesis()
    }

    fn describe(&self) -> String {
        format!("local {}", self.folder.display())
    }

    fn last_worker(&self) -> Option<u32> {
        self.seat.as_ref()?.last()
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let (folder, seat) = (&self.folder, &self.seat);
        self.records.recover();
        self.records.locked(|records| {
            records.compare_with_folder()?;
            let mut live = seat.as_ref().map(|seat| seat.live(folder)).unwrap_or_default();
            let pairs = records.believed(Kind::Worker);
            let entry = |(worker, pair): (u32, Result<Pair, ReadError>)| WorkerEntry {
                worker,
                record: pair.map(|pair| versioned(&pair, Row::worker_record)),
                live: live.remove(&worker),
            };
            Ok(records.geometry().numbers(Kind::Worker).zip(pairs).map(entry).collect())
        })
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.check_worker(worker)?;
        let pair = self.read(|records| records.pair(Place::worker(worker)))?;
        Ok(versioned(&pair, Row::worker_record))
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.check_worker(worker)?;
        self.records.change(|records| {
            // Once more, under the lock: an old content may have been put back since the workers were looked through.
            records.compare_with_folder()?;
            store_worker(records, worker, expected, record)
        })?;
        if let Some(seat) = &mut self.seat {
            seat.hold(worker);
        }
        Ok(())
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.check_worker(worker)?;
        self.records.change(|records| store_worker(records, worker, expected, record))
    }

    fn leave(&mut self, worker: u32) {
        if let Some(seat) = &mut self.seat {
            seat.leave(worker);
        }
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        let pair = self.read(|records| records.mark(spill))?;
        Ok(versioned(&pair, Row::mark_record))
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.records.change(|records| records.create_mark(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        self.records.change(|records| records.swap_mark(spill, expected, record))
    }

    fn probe(&mut self) -> Option<Result<(), SwapError>> {
        let mut tried = self.records.probe();
        for place in self.records.changed() {
            // A single damaged record is told by the call that needs it.
            if tried.is_ok()
                && let Err(error @ (ReadError::Foreign { .. } | ReadError::Unavailable { .. })) =
                    self.read(|records| records.pair(place))
            {
                tried = Err(error.into());
            }
        }
        Some(tried)
    }

    fn close(&mut self) {
        self.records.sync_hints();
        self.seat = None;
    }
}

fn versioned<R>(pair: &Pair, record: impl Fn(&Row) -> R) -> Versioned<R> {
    Versioned { record: record(&pair.row), version: pair.row.version }
}

/// What opening the file failed of.
fn opening(path: &Path) -> impl FnOnce(io::Error) -> LocalError {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => LocalError::Absent { path: path.to_owned() },
        io::ErrorKind::IsADirectory => LocalError::NotARegistry { path: path.to_owned() },
        _ => LocalError::io("open", path)(error),
    }
}

fn open_file(path: &Path) -> Result<FileDisk, LocalError> {
    FileDisk::open(path).map_err(opening(path))
}

#[cfg(test)]
mod tests;
