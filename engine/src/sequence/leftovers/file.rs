//! The file of leftovers of this process: the first of `sequences.rest-0`, `sequences.rest-1`, ... that no other process
//! has.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::format::Batch;
use crate::sys::draft;

/// Processes that share a folder. More go without leftovers.
const MOST_FILES: u32 = 256;

/// The largest batch that is read: a million names with a range each, and some.
const MOST_BYTES: usize = 256 << 20;

/// How the files begin, and their drafts: `sequences.rest.new-...`.
const STEM: &str = "sequences.rest";

/// A file, locked.
#[derive(Debug)]
pub(crate) struct RestFile {
    folder: PathBuf,
    path: PathBuf,
    /// Held until the process ends, or has written another file of that name (I2).
    _lock: File,
}

impl RestFile {
    /// Locks the first free file of a folder; an empty one is made where there is none.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::open_first(folder, |_| true)
    }

    /// The same of a file that holds nothing: what another process left stays.
    pub(crate) fn open_empty(folder: &Path) -> io::Result<Self> {
        Self::open_first(folder, |bytes| bytes == 0)
    }

    /// Whether a process of this folder ever had a file.
    pub(crate) fn are_in(folder: &Path) -> bool {
        let prefix = format!("{STEM}-");
        let Ok(entries) = std::fs::read_dir(folder) else { return false };
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
    }

    fn open_first(folder: &Path, will_do: impl Fn(u64) -> bool) -> io::Result<Self> {
        draft::sweep(folder, STEM);
        for number in 0..MOST_FILES {
            let path = folder.join(format!("{STEM}-{number}"));
            if let Some(file) = lock(folder, &path)?
                && will_do(file.metadata()?.len())
            {
                return Ok(Self { folder: folder.to_owned(), path, _lock: file });
            }
        }
        Err(io::Error::other("all of sequences.rest-0 to sequences.rest-255 are in use"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; `None` if it is empty.
    pub(crate) fn read(&self) -> io::Result<Option<Batch>> {
        let bytes = xuid_spill::read_regular(&self.path, MOST_BYTES)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let unreadable = |flaw| io::Error::new(io::ErrorKind::InvalidData, flaw);
        Batch::decode(&bytes).map(Some).map_err(unreadable)
    }

    /// Replaces it by a batch: whole or not at all, and durable. It is another process's from then on.
    pub(crate) fn write(self, batch: &Batch) -> io::Result<()> {
        let (mut file, beside) = draft::make(&self.folder, STEM)?;
        let mut write = || {
            file.write_all(&batch.encode())?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            draft::sync_folder(&self.folder)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })
    }
}

/// Opens and locks a file; `None` if another process has it.
fn lock(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    let made = !path.try_exists()?;
    let file = xuid_spill::file_options(path).create(true).truncate(false).open(path)?;
    if made {
        xuid_spill::give_to_owner_of(folder, &file);
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    // A process that stopped meanwhile has put another file in its place, which may have been locked by a third one.
    let (ours, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((ours.ino() == named.ino() && ours.dev() == named.dev()).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ClusterId;

    fn batch(serial: u64) -> Batch {
        Batch { uuid: [1; 16], serial, cluster: ClusterId::from_bytes([2; 16]), names: Vec::new() }
    }

    #[test]
    fn processes_of_a_folder_have_files_of_their_own_and_a_batch_is_the_next_one_s() {
        let folder = tempfile::tempdir().unwrap();
        let first = RestFile::open(folder.path()).unwrap();
        let second = RestFile::open(folder.path()).unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!((first.read().unwrap(), second.read().unwrap()), (None, None));
        let path = first.path().to_owned();
        first.write(&batch(7)).unwrap();
        let third = RestFile::open(folder.path()).unwrap();
        assert_eq!((third.path(), third.read().unwrap()), (path.as_path(), Some(batch(7))));
        let fourth = RestFile::open_empty(folder.path()).unwrap();
        assert_eq!(fourth.read().unwrap(), None);
        drop((third, fourth));
        let other = RestFile::open_empty(folder.path()).unwrap();
        assert_ne!(other.path(), path, "what is left there is nobody's to overwrite");
        std::fs::write(&path, b"not a batch, but as long as the header of one would be at the least")
            .unwrap();
        assert!(RestFile::open(folder.path()).unwrap().read().is_err());
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        let empty = tempfile::tempdir().unwrap();
        assert!(RestFile::are_in(folder.path()) && !RestFile::are_in(empty.path()));
    }
}
