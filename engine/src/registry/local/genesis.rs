//! Making a registry's file: whole, durable and under its name at once, or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;

use super::disk::FileIdentity;
use super::error::LocalError;
use super::file::identity_of;
use super::format::{Geometry, Kind, MARK_SLOTS, PAGE, Place, Row, Side};
use super::header::Header;
use crate::registry::{ClusterId, Genesis};

const NAME: &str = "registry";
/// A file that is being made. It is removed by whoever opens the registry next, should its maker die.
const NEW_PREFIX: &str = "registry.new-";

/// The registry's file in a data folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// A cluster's id, drawn at random.
pub(super) fn draw_cluster() -> Result<ClusterId, LocalError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LocalError::Random(io::Error::other(error)))?;
    Ok(ClusterId::from_bytes(bytes))
}

/// Makes the registry of a folder where there is none.
pub(super) fn create(folder: &Path, genesis: &Genesis) -> Result<(), LocalError> {
    let most = genesis.layout.workers();
    if !(1..=most).contains(&genesis.workers) {
        return Err(LocalError::Workers { found: genesis.workers, most });
    }
    make_folder(folder)?;
    let path = path(folder);
    if path.symlink_metadata().is_ok() {
        return Err(LocalError::Exists { path });
    }
    let new = build(folder, genesis, |place| Row::genesis(place, genesis.floor))?;
    crash_point!(GenesisSynced);
    let published = publish(&new, &path);
    if published.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    published?;
    crash_point!(GenesisNamed);
    sync_folder(folder)
}

/// Puts another file in the place of a folder's registry.
pub(super) fn replace(
    folder: &Path,
    genesis: &Genesis,
    row: impl Fn(Place) -> Row,
) -> Result<(), LocalError> {
    let (new, path) = (build(folder, genesis, row)?, path(folder));
    if let Err(source) = std::fs::rename(&new, &path) {
        let _ = std::fs::remove_file(&new);
        return Err(LocalError::io("replace", path)(source));
    }
    sync_folder(folder)
}

/// Removes what makers left behind that died. Called under the lock of the registry, when whoever may still be
/// making one has lost the race for the name.
pub(super) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(NEW_PREFIX) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Writes a whole registry to a new file and syncs it.
fn build(folder: &Path, genesis: &Genesis, row: impl Fn(Place) -> Row) -> Result<PathBuf, LocalError> {
    let random = getrandom::u64().map_err(|error| LocalError::Random(io::Error::other(error)))?;
    let new = folder.join(format!("{NEW_PREFIX}{random:016x}"));
    let bytes = Geometry { workers: genesis.workers, marks: MARK_SLOTS }.bytes();
    let write = || {
        let file = File::options().write(true).create_new(true).open(&new)?;
        // A filesystem that cannot set room aside still gets every byte written, and tells then.
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        crash_point!(GenesisAllocated);
        let mut writer = BufWriter::with_capacity(64 * 1024, &file);
        write_image(&mut writer, genesis, identity_of(&file)?, &row)?;
        writer.flush()?;
        drop(writer);
        crash_point!(GenesisWritten);
        file.sync_all()
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&new);
        LocalError::storing("write", path(folder), bytes)(source)
    })?;
    Ok(new)
}

/// All bytes of a registry.
pub(super) fn write_image(
    to: &mut impl Write,
    genesis: &Genesis,
    identity: FileIdentity,
    row: &impl Fn(Place) -> Row,
) -> io::Result<()> {
    let header = Header { genesis: *genesis, identity, generation: 1 };
    for _ in Side::BOTH {
        write_page(to, &header.encode())?;
    }
    for kind in [Kind::Worker, Kind::Mark] {
        for _ in Side::BOTH {
            let mut written = 0;
            for slot in 0..header.geometry().slots(kind) {
                let sector = row(Place { kind, slot }).encode(genesis.cluster);
                to.write_all(&sector)?;
                written += sector.len() as u64;
            }
            pad(to, written)?;
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

/// Gives the new file its name, unless there is one of that name: of several makers one wins.
fn publish(new: &Path, path: &Path) -> Result<(), LocalError> {
    let exists = || LocalError::Exists { path: path.to_owned() };
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => return Err(exists()),
        // Swept away by somebody who opened the winner's.
        Err(Errno::NOENT) if path.exists() => return Err(exists()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(LocalError::io("name", path)(error.into())),
    }
    match std::fs::hard_link(new, path) {
        Ok(()) => std::fs::remove_file(new).map_err(LocalError::io("remove", new)),
        Err(_) if path.exists() => Err(exists()),
        Err(source) => Err(LocalError::io("name", path)(source)),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), LocalError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(LocalError::io("sync", folder))
}

/// Makes a folder and what leads to it, durably.
fn make_folder(folder: &Path) -> Result<(), LocalError> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    std::fs::create_dir_all(folder).map_err(LocalError::storing("create", folder, PAGE))?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_folder(parent)?;
    }
    Ok(())
}
