//! Making a registry's file, or the one of its sequences: whole, durable and under its name at once, or not at all.
//! And the cluster that its folder belongs to, in `node.json`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::disk::identity_of;
use super::error::LocalError;
use super::format::{GROWTH_SLOTS, Kind, PAGE, Place, Row, Side};
use super::header::{FileKind, Header};
use crate::registry::{ClusterId, Genesis, NODE_MOST_BYTES, NODE_VERSION};
use crate::sys::draft;

const NAME: &str = "registry";
const SEQUENCES: &str = "sequences";

const fn name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Registry => NAME,
        FileKind::Sequences => SEQUENCES,
    }
}

/// The registry's file in a data folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    path_of(folder, FileKind::Registry)
}

/// A file of a data folder.
pub(super) fn path_of(folder: &Path, kind: FileKind) -> PathBuf {
    folder.join(name(kind))
}

/// A cluster's id, drawn at random.
///
/// # Errors
/// The system has no random bytes.
pub fn draw_cluster() -> Result<ClusterId, LocalError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LocalError::Random(io::Error::other(error)))?;
    Ok(ClusterId::from_bytes(bytes))
}

/// Makes the registry of a folder where there is none.
pub(super) fn create(folder: &Path, genesis: &Genesis) -> Result<(), LocalError> {
    let genesis = &Genesis { closed: genesis.closed.or_none(), ..*genesis };
    let most = genesis.layout.workers();
    if genesis.workers == 0
        || genesis.worker_range().until > most
        || !genesis.closed.are_among(&genesis.worker_range())
    {
        return Err(LocalError::Workers { found: genesis.workers, most });
    }
    genesis.check_key()?;
    make_folder(folder)?;
    let path = path(folder);
    if path.symlink_metadata().is_ok() {
        return Err(LocalError::Exists { path });
    }
    sweep(folder);
    let new = Draft::build(folder, &Header::new(genesis, None), |place| Row::at_genesis(place, genesis))?;
    crash_point!(GenesisSynced);
    new.publish(&path)?;
    crash_point!(GenesisNamed);
    sync_folder(folder)
}

/// Removes what makers left behind that died.
pub(super) fn sweep(folder: &Path) {
    draft::sweep(folder, NAME);
    draft::sweep(folder, SEQUENCES);
}

/// A whole registry, synced, under a name that no process looks for. Locked, so that it is not swept away.
pub(super) struct Draft {
    at: PathBuf,
    _lock: File,
}

impl Draft {
    /// Writes a whole registry, or the file of its sequences, to a new file and syncs it.
    pub(super) fn build(
        folder: &Path,
        header: &Header,
        row: impl Fn(Place) -> Row,
    ) -> Result<Self, LocalError> {
        let (bytes, name) = (header.geometry().bytes(), name(header.kind()));
        let storing = || LocalError::storing("write", folder.join(name), bytes);
        let (file, at) = draft::make(folder, name).map_err(storing())?;
        let write = || {
            // A filesystem that cannot set room aside still gets every byte written, and tells then.
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
            crash_point!(GenesisAllocated);
            let mut writer = BufWriter::with_capacity(64 * 1024, &file);
            let header = Header { identity: identity_of(&file)?, ..*header };
            write_image(&mut writer, &header, &row)?;
            writer.flush()?;
            drop(writer);
            crash_point!(GenesisWritten);
            file.sync_all()
        };
        if let Err(source) = write() {
            let _ = std::fs::remove_file(&at);
            return Err(storing()(source));
        }
        Ok(Self { at, _lock: file })
    }

    /// Gives it its name, unless there is a file of that name: of several makers one wins.
    pub(super) fn publish(self, path: &Path) -> Result<(), LocalError> {
        let published = match draft::publish(&self.at, path) {
            Ok(true) => return Ok(()),
            Ok(false) => Err(LocalError::Exists { path: path.to_owned() }),
            Err(source) => Err(LocalError::io("name", path)(source)),
        };
        let _ = std::fs::remove_file(&self.at);
        published
    }

    /// Removes it.
    pub(super) fn discard(self) {
        let _ = std::fs::remove_file(&self.at);
    }

    /// Puts it in the place of the file of that name.
    pub(super) fn replace(self, path: &Path) -> Result<(), LocalError> {
        std::fs::rename(&self.at, path).map_err(|source| {
            let _ = std::fs::remove_file(&self.at);
            LocalError::io("replace", path)(source)
        })
    }
}

/// All bytes of a registry, or of the file of its sequences.
pub(super) fn write_image(
    to: &mut impl Write,
    header: &Header,
    row: &impl Fn(Place) -> Row,
) -> io::Result<()> {
    for _ in Side::BOTH {
        write_page(to, &header.encode())?;
    }
    let (kinds, growths) = match header.kind() {
        FileKind::Registry => (&[Kind::Worker, Kind::Mark][..], u32::MAX),
        FileKind::Sequences => (&[Kind::Sequence][..], GROWTH_SLOTS),
    };
    for kind in kinds.iter().copied() {
        let numbers = header.geometry().numbers(kind);
        for first in numbers.clone().step_by(growths as usize) {
            for _ in Side::BOTH {
                let mut written = 0;
                for slot in first..numbers.end.min(first.saturating_add(growths)) {
                    let sector = row(Place { kind, slot }).encode(header.genesis.cluster);
                    to.write_all(&sector)?;
                    written += sector.len() as u64;
                }
                pad(to, written)?;
            }
        }
    }
    Ok(())
}

fn write_page(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    pad(to, bytes.len() as u64)
}

/// Zeros up to the next page.
fn pad(to: &mut impl Write, written: u64) -> io::Result<()> {
    let missing = written.next_multiple_of(PAGE) - written;
    to.write_all(&[0; PAGE as usize][..missing as usize])
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), LocalError> {
    draft::sync_folder(folder).map_err(LocalError::io("sync", folder))
}

/// Makes a folder and what leads to it, durably.
fn make_folder(folder: &Path) -> Result<(), LocalError> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    xuid_spill::make_folder(folder).map_err(LocalError::storing("create", folder, PAGE))?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_folder(parent)?;
    }
    Ok(())
}

/// The cluster that the folder's `node.json` names. One that cannot be understood names none; a start refuses it.
pub(super) fn cluster_of_node(folder: &Path) -> Option<ClusterId> {
    let bytes = xuid_spill::read_regular(&folder.join("node.json"), NODE_MOST_BYTES).ok()?;
    let node: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    node.get("cluster")?.as_str()?.parse().ok()
}

/// Refuses a `node.json` of another version before anything is changed. A damaged one is made good.
pub(super) fn check_node(folder: &Path) -> Result<(), LocalError> {
    let path = folder.join("node.json");
    let node = xuid_spill::read_regular(&path, NODE_MOST_BYTES).ok();
    let node: Option<serde_json::Value> = node.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match node.as_ref().and_then(|node| node.get("version")?.as_u64()) {
        Some(found) if found != u64::from(NODE_VERSION) => {
            Err(LocalError::NodeVersion { path, found, known: NODE_VERSION })
        }
        _ => Ok(()),
    }
}

/// Writes the cluster into the folder's `node.json`, if there is one, and keeps what else it says.
pub(super) fn tell_node(folder: &Path, cluster: ClusterId) -> Result<(), LocalError> {
    let path = folder.join("node.json");
    let old = match xuid_spill::read_regular(&path, NODE_MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(LocalError::io("read", path)(source)),
    };
    let mut node = match serde_json::from_slice(&old) {
        Ok(serde_json::Value::Object(node)) => node,
        _ => serde_json::Map::from_iter([("version".to_owned(), NODE_VERSION.into())]),
    };
    node.insert("cluster".to_owned(), cluster.to_string().into());
    let text = format!("{}\n", serde_json::Value::Object(node));
    let new = folder.join("node.json.new");
    let write = || {
        let mut file = xuid_spill::file_options(&new).create(true).truncate(true).open(&new)?;
        xuid_spill::give_to_owner_of(folder, &file);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    };
    write().map_err(LocalError::storing("write", &path, text.len() as u64))?;
    sync_folder(folder)
}
