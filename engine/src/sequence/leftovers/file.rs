//! The file of leftovers of this process: the first of `sequences.rest-0`, `sequences.rest-1`, ... that no other process
//! has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::format::{Batch, NameRest};
use crate::sequence::name::SequenceName;
use crate::sequence::names::named_table::mark_of;
use crate::sys::draft;
use crate::sys::file_lock::try_lock;

/// Processes that share a folder. More go without leftovers.
const MOST_FILES: u32 = 256;

/// The largest batch that is read, or written: a million names with a range each, and some.
const MOST_BYTES: usize = 256 << 20;

/// How the files begin, and their drafts: `sequences.rest.new-...`.
const STEM: &str = "sequences.rest";

/// How far the stores of a folder's processes had come with each name, as far as what they left there tells: for a fence that
/// goes above all of it.
///
/// # Errors
/// A file that cannot be read, or is none of this version.
pub fn marks_left_in(folder: &Path) -> io::Result<BTreeMap<SequenceName, u64>> {
    let mut marks = BTreeMap::new();
    for batch in left_in(folder) {
        for NameRest { name, spans, .. } in batch?.names {
            let mark = marks.entry(name).or_default();
            *mark = mark_of(&spans).max(*mark);
        }
    }
    Ok(marks)
}

/// What the processes of a folder left, each that one can be read.
pub(crate) fn left_in(folder: &Path) -> impl Iterator<Item = io::Result<Batch>> {
    let prefix = format!("{STEM}-");
    let is_left = move |path: &Path| -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(&prefix).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let (entries, error) = match std::fs::read_dir(folder) {
        Ok(entries) => (Some(entries), None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
        Err(error) => (None, Some(Err(error))),
    };
    let paths = entries.into_iter().flatten().map(|entry| entry.map(|entry| entry.path()));
    let batches = paths.filter_map(move |path| match path {
        Ok(path) if is_left(&path) => read(&path).map_err(|error| of_file(&path, &error)).transpose(),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    error.into_iter().chain(batches)
}

/// The error, with the file that it is of.
fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A file, locked.
#[derive(Debug)]
pub(crate) struct RestFile {
    folder: PathBuf,
    path: PathBuf,
    /// Held until the process ends, or has written another file of that name (I2).
    lock: File,
}

impl RestFile {
    /// Locks the first free file of a folder, made where there is none, and reads it. One that cannot be read stays for a
    /// life that can; why that was comes last.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, Option<Batch>, Option<io::Error>)> {
        Self::open_first(folder, |file| file.read().map(Some))
    }

    /// The same of a file that holds nothing: what another process left stays.
    pub(crate) fn open_empty(folder: &Path) -> io::Result<Self> {
        let is_empty = |file: &Self| Ok((file.lock.metadata()?.len() == 0).then_some(()));
        Self::open_first(folder, is_empty).map(|(file, ..)| file)
    }

    /// Whether a process of this folder ever had a file.
    pub(crate) fn are_in(folder: &Path) -> bool {
        let prefix = format!("{STEM}-");
        let Ok(entries) = std::fs::read_dir(folder) else { return false };
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
    }

    /// The first free file that will do, what is found in it, and why one before it did not.
    fn open_first<T>(
        folder: &Path,
        find: impl Fn(&Self) -> io::Result<Option<T>>,
    ) -> io::Result<(Self, T, Option<io::Error>)> {
        draft::sweep(folder, STEM);
        let mut trouble = None;
        for number in 0..MOST_FILES {
            let path = folder.join(format!("{STEM}-{number}"));
            let opened = lock(folder, &path).and_then(|lock| {
                let Some(lock) = lock else { return Ok(None) };
                let file = Self { folder: folder.to_owned(), path: path.clone(), lock };
                Ok(find(&file)?.map(|found| (file, found)))
            });
            match opened {
                Ok(Some((file, found))) => return Ok((file, found, trouble)),
                Ok(None) => {}
                // What cannot be used under one name is in nobody's way under the others.
                Err(error) => _ = trouble.get_or_insert_with(|| of_file(&path, &error)),
            }
        }
        let in_use = || io::Error::other("all of sequences.rest-0 to sequences.rest-255 are in use");
        Err(trouble.unwrap_or_else(in_use))
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; `None` if it is empty.
    pub(crate) fn read(&self) -> io::Result<Option<Batch>> {
        read(&self.path)
    }

    /// Replaces it by a batch: whole or not at all, and durable. It is another process's from then on.
    pub(crate) fn write(self, batch: &Batch) -> io::Result<()> {
        self.write_at_most(MOST_BYTES, batch)
    }

    fn write_at_most(self, most: usize, batch: &Batch) -> io::Result<()> {
        let bytes = batch.encode();
        if bytes.len() > most {
            let text = format!("{} bytes are more than the {most} that are read", bytes.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let (mut file, beside) = draft::make(&self.folder, STEM)?;
        let mut write = || {
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            draft::sync_folder(&self.folder)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })
    }
}

/// What a file holds; `None` if it is empty.
fn read(path: &Path) -> io::Result<Option<Batch>> {
    let bytes = xuid_spill::read_regular(path, MOST_BYTES)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let unreadable = |flaw| io::Error::new(io::ErrorKind::InvalidData, flaw);
    Batch::decode(&bytes).map(Some).map_err(unreadable)
}

/// Opens and locks a file; `None` if another process has it.
fn lock(folder: &Path, path: &Path) -> io::Result<Option<File>> {
    let made = !path.try_exists()?;
    let file = xuid_spill::file_options(path).create(true).truncate(false).open(path)?;
    if made {
        xuid_spill::give_to_owner_of(folder, &file);
    }
    lock_opened(file, path)
}

/// Locks what was opened by that name; `None` if another process has it, or has put another file in its place since.
fn lock_opened(file: File, path: &Path) -> io::Result<Option<File>> {
    if !try_lock(&file)? {
        return Ok(None);
    }
    // A process that stopped meanwhile has put another file in its place, which may have been locked by a third one.
    let (ours, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((ours.ino() == named.ino() && ours.dev() == named.dev()).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ClusterId;
    use crate::sequence::chain::span::Span;

    fn open(folder: &tempfile::TempDir) -> RestFile {
        RestFile::open(folder.path()).unwrap().0
    }

    fn batch(serial: u64) -> Batch {
        Batch { uuid: [1; 16], serial, cluster: ClusterId::from_bytes([2; 16]), names: Vec::new() }
    }

    /// Else two processes would have one file, and the one would write over what the other one saved.
    #[test]
    fn a_file_that_was_replaced_after_it_was_opened_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(&folder);
        let path = first.path().to_owned();
        let opened = File::open(&path).unwrap();
        first.write(&batch(7)).unwrap();
        assert!(lock_opened(opened, &path).unwrap().is_none());
        assert!(lock_opened(File::open(&path).unwrap(), &path).unwrap().is_some());
    }

    #[test]
    fn what_the_processes_of_a_folder_left_tells_how_far_their_stores_had_come() {
        let folder = tempfile::tempdir().unwrap();
        let name = |text: &str| SequenceName::new(text).unwrap();
        let rest = |text: &str, first, count| NameRest {
            name: name(text),
            identity: "a store".into(),
            spans: vec![Span { first, count, increment: 2 }],
        };
        let lefts = [vec![rest("a", 1, 50), rest("b", 7, 1)], Vec::new(), vec![rest("a", 31, 5)]];
        let files = lefts.map(|names| (open(&folder), names));
        for (file, names) in files {
            file.write(&Batch { names, ..batch(1) }).unwrap();
        }
        let _in_use = RestFile::open_empty(folder.path()).unwrap();
        std::fs::write(folder.path().join("sequences.store"), b"{}").unwrap();
        assert_eq!(marks_left_in(folder.path()).unwrap(), BTreeMap::from([(name("a"), 100), (name("b"), 8)]));
        std::fs::write(folder.path().join("sequences.rest-7"), b"no batch").unwrap();
        let error = marks_left_in(folder.path()).unwrap_err().to_string();
        assert!(error.contains("sequences.rest-7"), "{error}");
        assert!(marks_left_in(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_opened_under_one_name_keeps_no_process_from_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sequences.rest-0")).unwrap();
        open(&folder).write(&batch(7)).unwrap();
        let second = open(&folder);
        assert_eq!(
            (second.path(), second.read().unwrap()),
            (&*folder.path().join("sequences.rest-1"), Some(batch(7)))
        );
    }

    /// Of a later version, say, or on a sector that is bad for once.
    #[test]
    fn what_cannot_be_read_stays_for_a_life_that_can() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(&folder);
        let path = first.path().to_owned();
        first.write(&batch(7)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[7] += 1;
        std::fs::write(&path, &bytes).unwrap();
        let (other, found, trouble) = RestFile::open(folder.path()).unwrap();
        assert_ne!(other.path(), path);
        assert_eq!(found, None);
        assert!(trouble.unwrap().to_string().contains("sequences.rest-0"));
        other.write(&batch(8)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn what_would_not_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let open = || open(&folder);
        let bytes = batch(7).encode().len();
        let error = open().write_at_most(bytes - 1, &batch(7)).unwrap_err();
        assert_eq!((error.kind(), open().read().unwrap()), (io::ErrorKind::FileTooLarge, None));
        open().write_at_most(bytes, &batch(7)).unwrap();
        assert_eq!(open().read().unwrap(), Some(batch(7)));
    }

    #[test]
    fn processes_of_a_folder_have_files_of_their_own_and_a_batch_is_the_next_one_s() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(&folder);
        let second = open(&folder);
        assert_ne!(first.path(), second.path());
        assert_eq!((first.read().unwrap(), second.read().unwrap()), (None, None));
        let path = first.path().to_owned();
        first.write(&batch(7)).unwrap();
        let third = open(&folder);
        assert_eq!((third.path(), third.read().unwrap()), (path.as_path(), Some(batch(7))));
        let fourth = RestFile::open_empty(folder.path()).unwrap();
        assert_eq!(fourth.read().unwrap(), None);
        drop((third, fourth));
        let other = RestFile::open_empty(folder.path()).unwrap();
        assert_ne!(other.path(), path, "what is left there is nobody's to overwrite");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        let empty = tempfile::tempdir().unwrap();
        assert!(RestFile::are_in(folder.path()) && !RestFile::are_in(empty.path()));
    }
}
