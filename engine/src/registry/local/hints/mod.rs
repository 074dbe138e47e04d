//! What the processes of a folder last knew of its registry, beside the registry: so that one whose old content was put
//! back into the same file is refused, although nothing in the file itself can tell.
//!
//! Each process keeps a file `registry.known-...` of its own, locked while it lives: the records that it found changed
//! when it opened the registry, and those that it changed since, in the registry's own form. Each change gives the file
//! another name, so that a copy of the folder which is put back over it lies beside the file and does not replace it.
//! `sequences.known-...` is the same for the file of sequences. There a record takes 48 bytes, since there may be very
//! many: what tells it from an older one, without its name.
//!
//! # Invariants
//! - H1 a hint says nothing that the registry did not: a record is noted when both of its copies are durable. A fence
//!   notes its records first, and a registry that they are not in is refused until it is fenced again;
//! - H2 hints are read, noted, named and removed under the lock of the registry;
//! - H3 a hint only ever refuses: an opening, or with a fence ticks and versions. What cannot be read of it is as if it
//!   were not there, and so is what is of another cluster;
//! - H4 what a process knew that ended is removed when another one has it on disk, all of it: a file that could not be
//!   read whole stays.

mod sketch;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::error::LocalError;
use super::format::{Kind, Place, Row, SECTOR, Table};
use super::header::FileKind;
use crate::sys::deferred_log;
use crate::sys::fork_word::Maker;

const fn prefix(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Registry => "registry.known-",
        FileKind::Sequences => "sequences.known-",
    }
}

/// Where a folder keeps them: files, or what a simulation has for files.
pub(crate) trait Hints: Send {
    /// What each process of the folder knew: images of so many bytes at most, with zeros for what cannot be read.
    fn all(&mut self, most: u64) -> Vec<Vec<u8>>;

    /// Begins those of this process with an image, durably. Where that fails, noting and syncing do nothing.
    fn begin(&mut self, image: &[u8]) -> io::Result<()>;

    /// Removes those of processes that ended.
    fn sweep(&self);

    /// The same few bytes at an offset of each, of those that have them.
    fn parts(&mut self, offset: u64, len: usize) -> Vec<Vec<u8>>;

    /// Makes room for an image of so many bytes.
    fn extend(&mut self, bytes: u64) -> io::Result<()>;

    /// Writes parts of them, each at its offset, and syncs nothing.
    fn note(&mut self, parts: &[(u64, Vec<u8>)]);

    /// Makes them durable, at a clean stop.
    fn sync(&mut self);
}

/// How many bytes a record of a kind takes.
fn entry_bytes(kind: Kind) -> u64 {
    match kind {
        Kind::Worker | Kind::Mark => SECTOR as u64,
        Kind::Sequence => sketch::SKETCH as u64,
    }
}

/// How long an image is.
pub(super) fn image_bytes(table: Table) -> u64 {
    table.geometry.kinds().map(|kind| u64::from(table.geometry.slots(kind)) * entry_bytes(kind)).sum()
}

/// Where a record lies in an image: the workers' first, then the marks'; or the sequences'.
fn offset(table: Table, place: Place) -> u64 {
    let before = if place.kind == Kind::Mark { table.geometry.workers } else { 0 };
    // Of a place that is not in the file nothing is asked.
    let position = table.geometry.position(place).unwrap_or(place.slot);
    (u64::from(before) + u64::from(position)) * entry_bytes(place.kind)
}

/// A record as it is noted.
fn entry(table: Table, row: &Row) -> Vec<u8> {
    match row.place.kind {
        Kind::Worker | Kind::Mark => row.encode(table.cluster).to_vec(),
        Kind::Sequence => sketch::encode(table.cluster, row).to_vec(),
    }
}

/// The record that was noted. What was cut off, torn or never written has no sound checksum.
fn row(table: Table, place: Place, entry: &[u8]) -> Option<Row> {
    match place.kind {
        Kind::Worker | Kind::Mark => Row::decode(entry.try_into().ok()?, table.cluster, place).ok(),
        Kind::Sequence => sketch::decode(table.cluster, place, entry.try_into().ok()?),
    }
}

/// The records that an image has.
fn rows(table: Table, image: &[u8]) -> impl Iterator<Item = Row> {
    table.geometry.places().filter_map(move |place| {
        let begin = usize::try_from(offset(table, place)).ok()?;
        row(table, place, image.get(begin..begin + entry_bytes(place.kind) as usize)?)
    })
}

/// All records that the processes of a folder knew.
pub(super) fn known(hints: &mut dyn Hints, table: Table) -> Vec<Row> {
    hints.all(image_bytes(table)).iter().flat_map(|image| rows(table, image)).collect()
}

/// What the processes of a folder knew of one place.
pub(super) fn known_of(hints: &mut dyn Hints, table: Table, place: Place) -> Vec<Row> {
    let parts = hints.parts(offset(table, place), entry_bytes(place.kind) as usize);
    parts.iter().filter_map(|part| row(table, place, part)).collect()
}

/// Begins a process's own with these records, in the place of those of processes that ended.
pub(super) fn begin(hints: &mut dyn Hints, table: Table, rows: impl Iterator<Item = Row>) -> io::Result<()> {
    write(hints, table, rows)?;
    hints.sweep();
    Ok(())
}

/// Begins a process's own with these records, beside all others; of several in a place, the last one.
pub(super) fn write(hints: &mut dyn Hints, table: Table, rows: impl Iterator<Item = Row>) -> io::Result<()> {
    let mut image = vec![0; usize::try_from(image_bytes(table)).map_err(io::Error::other)?];
    for row in rows {
        let (at, entry) = (offset(table, row.place) as usize, entry(table, &row));
        image[at..at + entry.len()].copy_from_slice(&entry);
    }
    hints.begin(&image)
}

/// Notes some records.
pub(super) fn note(hints: &mut dyn Hints, table: Table, rows: &[Row]) {
    let parts: Vec<_> = rows.iter().map(|row| (offset(table, row.place), entry(table, row))).collect();
    hints.note(&parts);
}

/// Those of a data folder.
#[derive(Debug)]
pub(super) struct FolderHints {
    folder: PathBuf,
    /// Of which file of the folder.
    kind: FileKind,
    own: Option<Own>,
    /// Files that were not read whole.
    unread: Vec<PathBuf>,
    /// Reads some bytes of a file, whole. A disk in tests.
    read_at: ReadAt,
}

type ReadAt = fn(&File, &mut [u8], u64) -> io::Result<()>;

/// In tests a thread may read as from a disk that fails.
fn read_at() -> ReadAt {
    #[cfg(test)]
    if let Some(read_at) = READ_AT.get() {
        return read_at;
    }
    FileExt::read_exact_at
}

#[cfg(test)]
thread_local! {
    pub(super) static READ_AT: std::cell::Cell<Option<ReadAt>> = const { std::cell::Cell::new(None) };
}

#[derive(Debug)]
struct Own {
    file: File,
    path: PathBuf,
    /// Whose it is: a forked child leaves it alone.
    maker: Maker,
}

impl FolderHints {
    pub(super) fn of(folder: &Path, kind: FileKind) -> Self {
        Self::read_by(folder, kind, read_at())
    }

    pub(super) fn read_by(folder: &Path, kind: FileKind, read_at: ReadAt) -> Self {
        Self { folder: folder.to_owned(), kind, own: None, unread: Vec::new(), read_at }
    }

    /// Whether there are any.
    pub(super) fn exist(&self) -> Result<bool, LocalError> {
        let paths = self.paths().map_err(LocalError::io("list", &self.folder))?;
        Ok(!paths.is_empty())
    }

    /// The files that there are, all of which this user can read.
    pub(super) fn readable(&self) -> Result<Vec<PathBuf>, LocalError> {
        let paths = self.paths().map_err(LocalError::io("list", &self.folder))?;
        for path in &paths {
            if let Err(source) = File::open(path)
                && source.kind() != io::ErrorKind::NotFound
            {
                return Err(LocalError::Io { action: "read", path: path.clone(), source });
            }
        }
        Ok(paths)
    }

    /// Whether all that was read last could be read whole.
    pub(super) fn check_whole(&self) -> Result<(), LocalError> {
        let Some(path) = self.unread.first().cloned() else { return Ok(()) };
        let source = io::Error::other(
            "a block of it cannot be read, and what it tells may be newer than all else: check the disk, and remove the file \
             only if the clock was never further ahead than now",
        );
        Err(LocalError::Io { action: "read", path, source })
    }

    /// A name that was never used before.
    fn fresh(&self) -> io::Result<PathBuf> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        Ok(self.folder.join(format!("{}{random:016x}", prefix(self.kind))))
    }

    /// The files that there are. A folder that cannot be listed may have some.
    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?.collect::<io::Result<Vec<_>>>()?,
        };
        let ours = |entry: &std::fs::DirEntry| {
            entry.file_name().to_string_lossy().starts_with(prefix(self.kind))
                && entry.file_type().is_ok_and(|kind| kind.is_file())
        };
        Ok(entries.into_iter().filter(ours).map(|entry| entry.path()).collect())
    }

    /// Reads an image of so many bytes at most, and says why a block of it could not be read: of that one there are zeros.
    fn read(&self, path: &Path, most: u64) -> io::Result<(Vec<u8>, Option<io::Error>)> {
        let file = File::open(path)?;
        let len = file.metadata()?.len().min(most);
        let mut image = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        if (self.read_at)(&file, &mut image, 0).is_ok() {
            return Ok((image, None));
        }
        let mut unread = None;
        for (offset, block) in (0..).step_by(BLOCK).zip(image.chunks_mut(BLOCK)) {
            if let Err(error) = (self.read_at)(&file, block, offset) {
                block.fill(0);
                unread = Some(error);
            }
        }
        Ok((image, unread))
    }

    /// What can be read of a file, of which the rest is told and stays.
    fn read_or_keep(&mut self, path: PathBuf, most: u64) -> Option<Vec<u8>> {
        let (image, error) = match self.read(&path, most) {
            Ok((image, None)) => return Some(image),
            // It ended, or has another name by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Ok((image, Some(error))) => (Some(image), error),
            Err(error) => (None, error),
        };
        self.keep_unread(path, error);
        image
    }

    fn keep_unread(&mut self, path: PathBuf, error: io::Error) {
        let shown = path.clone();
        deferred_log::log(move || {
            tracing::warn!(
                path = %shown.display(), %error,
                "what a process knew of the registry cannot be read whole: should an old content have been put back, only a \
                 person can tell. Check the disk; remove this file when you know that nothing was put back"
            );
        });
        self.unread.push(path);
    }

    fn own(&mut self) -> Option<&mut Own> {
        self.own.as_mut().filter(|own| !own.maker.forked())
    }
}

/// Bytes between two holes of an image: a filesystem's block.
const BLOCK: usize = 4096;

/// Gives a file so many bytes.
fn make_room(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

/// Locks a new file, and writes an image into it, durably.
fn fill(file: &File, image: &[u8]) -> io::Result<()> {
    file.try_lock()?;
    // What is noted later must not meet a full disk: nobody would hear of it.
    make_room(file, image.len() as u64)?;
    for (offset, block) in (0..).step_by(BLOCK).zip(image.chunks(BLOCK)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, offset)?;
        }
    }
    file.sync_all()
}

impl Hints for FolderHints {
    fn all(&mut self, most: u64) -> Vec<Vec<u8>> {
        self.unread.clear();
        let paths = self.paths().unwrap_or_else(|error| {
            self.keep_unread(self.folder.clone(), error);
            Vec::new()
        });
        paths.into_iter().filter_map(|path| self.read_or_keep(path, most)).collect()
    }

    fn begin(&mut self, image: &[u8]) -> io::Result<()> {
        let (path, maker) = (self.fresh()?, Maker::this_process()?);
        let file = xuid_spill::file_options(&path).create_new(true).open(&path)?;
        xuid_spill::give_to_owner_of(&self.folder, &file);
        // One that says nothing is of no use, and would pile up where the disk is full.
        fill(&file, image).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        self.own = Some(Own { file, path, maker });
        Ok(())
    }

    fn sweep(&self) {
        let own = self.own.as_ref().map(|own| &own.path);
        for path in self.paths().unwrap_or_default() {
            if Some(&path) == own || self.unread.contains(&path) {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            if file.try_lock().is_ok() {
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    fn parts(&mut self, offset: u64, len: usize) -> Vec<Vec<u8>> {
        let read = |path: PathBuf| {
            let mut part = vec![0; len];
            (self.read_at)(&File::open(path).ok()?, &mut part, offset).ok()?;
            Some(part)
        };
        self.paths().unwrap_or_default().into_iter().filter_map(read).collect()
    }

    fn extend(&mut self, bytes: u64) -> io::Result<()> {
        self.own().map_or(Ok(()), |own| make_room(&own.file, bytes))
    }

    fn note(&mut self, parts: &[(u64, Vec<u8>)]) {
        let renamed = self.fresh();
        let Some(own) = self.own() else { return };
        // A hint, so whether it can be written or renamed does not matter.
        for (offset, part) in parts {
            let _ = own.file.write_all_at(part, *offset);
        }
        if let Ok(path) = renamed
            && std::fs::rename(&own.path, &path).is_ok()
        {
            own.path = path;
        }
    }

    fn sync(&mut self) {
        if let Some(own) = self.own() {
            let _ = own.file.sync_data();
        }
    }
}
