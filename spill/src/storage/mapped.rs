//! The storage of a real log: a file, written by `pwrite`, read through a memory map.
//!
//! The only file of the crate with unsafe code.
//!
//! # Invariants
//!
//! - **M1** One process at a time: the file carries an exclusive `flock` from before its first byte is read until it
//!   is closed.
//! - **M2** No full disk is met through the map: all blocks are set aside when the file is created, and the map is
//!   never written.
//! - **M3** The kernel copies out of the map, and not this process: where a page is not to be had, because the file was
//!   shortened or the disk cannot read it, the copy fails. A load by this process would end it with SIGBUS, and no
//!   check beforehand is in time for that.
//! - **M4** A file that was locked still had its name then. One that was renamed or removed between its opening and its
//!   lock is let go: another process has decided over it.

#![expect(unsafe_code, reason = "the kernel is told an address of the map to copy from")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

use crate::rights::{file_options, folder_of, give_to_owner_of};
use crate::storage::{Shortened, Storage};

/// How often opening begins again because the file lost its name meanwhile. Another process renames a file that it
/// refuses once; more than that is somebody's loop.
const OPENING_TRIES: u32 = 8;

/// A spill file, locked for this process.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    path: PathBuf,
    map: Option<MmapRaw>,
    /// Created by us and never synced: no process can have counted on it yet.
    unfinished: bool,
}

impl MappedFile {
    /// Creates the file, which must not exist, and locks it. It is empty until a log allocates it.
    ///
    /// A file that is dropped before its first successful sync is removed again, so that a creation that failed (a
    /// full disk, say) leaves nothing behind. Only the file itself is: one that has its name by then stays.
    ///
    /// [`io::ErrorKind::WouldBlock`] and [`io::ErrorKind::NotFound`] say that another process took the file before it
    /// was locked. A file that others look for is therefore made under another name, and renamed when it is whole.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = file_options(path).create_new(true).open(path)?;
        give_to_owner_of(folder_of(path), &file);
        Self::created(file, path)
    }

    /// Locks a file that was just created.
    fn created(file: File, path: &Path) -> io::Result<Self> {
        let mut created = Self { file, path: path.to_owned(), map: None, unfinished: false };
        created.lock()?;
        if !created.in_place()? {
            let gone = format!("{} was renamed or removed before it was locked", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, gone));
        }
        created.unfinished = true;
        Ok(created)
    }

    /// Opens and locks an existing file.
    ///
    /// [`io::ErrorKind::WouldBlock`] says that another process holds it.
    pub fn open(path: &Path) -> io::Result<Self> {
        for _ in 0..OPENING_TRIES {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            if let Some(opened) = Self::opened(file, path)? {
                return Ok(opened);
            }
        }
        let why = format!("{} is replaced again and again", path.display());
        Err(io::Error::new(io::ErrorKind::WouldBlock, why))
    }

    /// Locks a file that was just opened. None if it has lost its name meanwhile (M4).
    fn opened(file: File, path: &Path) -> io::Result<Option<Self>> {
        let mut opened = Self { file, path: path.to_owned(), map: None, unfinished: false };
        if !opened.file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not a regular file, and a spill has to be one", path.display()),
            ));
        }
        opened.lock()?;
        if !opened.in_place()? {
            return Ok(None);
        }
        opened.remap()?;
        Ok(Some(opened))
    }

    /// Another handle of the same lock: the file stays locked until both are dropped. For a process that has to
    /// rename a file that a log refused, before another process decides over it.
    pub fn lock_holder(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether the path still leads to this file.
    fn in_place(&self) -> io::Result<bool> {
        let open = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> io::Result<()> {
        self.file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is in use by another process, which holds its lock", self.path.display()),
            ),
        })
    }

    fn remap(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.len()?).map_err(io::Error::other)?;
        // A map of no bytes is an error to the system; every read of an empty file is one to us anyway.
        self.map = if length == 0 {
            None
        } else {
            Some(MmapOptions::new().len(length).map_raw_read_only(&self.file)?)
        };
        Ok(())
    }

    /// Copies a range of the file that lies within the map. Where that fails (a page that is not to be had, or a kernel
    /// that lets no process do this), a plain read tells why, or does it.
    fn copy(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Some(map) = &self.map else { return self.file.read_exact_at(buf, offset) };
        let start = offset as usize;
        assert!(start.checked_add(buf.len()).is_some_and(|end| end <= map.len()), "M3: a range of the map");
        let from = map.as_ptr().wrapping_add(start);
        match copy_by_kernel(from, buf) {
            Ok(copied) if copied == buf.len() => return Ok(()),
            // The first page that is not to be had ends the copy.
            Ok(_) | Err(Errno::FAULT) => self.read_nothing_ahead(),
            Err(_) => {}
        }
        self.file.read_exact_at(buf, offset)
    }

    /// From now on the system brings no more of the file into memory than is read. One bad block spoils all that it
    /// brings in together, megabytes where it reads ahead, and what it keeps so is forgotten here, to be read page by
    /// page.
    fn read_nothing_ahead(&self) {
        for advice in [Advice::Random, Advice::DontNeed] {
            // Without it the read fails that follows, and tells why.
            let _ = rustix::fs::fadvise(&self.file, 0, None, advice);
        }
    }

    /// For file systems without `fallocate`: real zeros take real blocks, wherever blocks can be had for good.
    fn write_zeros(&self, bytes: u64) -> io::Result<()> {
        const CHUNK: u64 = 1 << 20;
        let zeros = vec![0; CHUNK as usize];
        let mut at = 0;
        while at < bytes {
            let length = CHUNK.min(bytes - at);
            self.file.write_all_at(&zeros[..length as usize], at)?;
            at += length;
        }
        Ok(())
    }
}

/// Copies from an address of this process, by the kernel. Returns how many bytes could be read there.
fn copy_by_kernel(from: *const u8, buf: &mut [u8]) -> Result<usize, Errno> {
    let to = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let from = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: buf.len() };
    let this_process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the kernel writes to `to` alone, which is `buf`, borrowed for this call. It checks the addresses of `from`
    // itself, and fails where nothing can be read.
    let copied = unsafe { libc::process_vm_readv(this_process, &raw const to, 1, &raw const from, 1, 0) };
    usize::try_from(copied).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::FAULT)
    })
}

impl Storage for MappedFile {
    fn len(&self) -> io::Result<u64> {
        let length = rustix::fs::fstat(&self.file)?.st_size;
        u64::try_from(length).map_err(io::Error::other)
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => {
                    self.write_zeros(bytes)?;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.remap()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mapped = self.map.as_ref().map_or(0, MmapRaw::len) as u64;
        Shortened::check(self.len()?.min(mapped), offset, buf.len())?;
        self.copy(offset, buf)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // Without this check a write would quietly make a shortened file long again, with holes in it.
        Shortened::check(self.len()?, offset, bytes.len())?;
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.unfinished = false;
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.unfinished && self.in_place().unwrap_or(false) {
            // Best effort: what is left over is refused as "not a spill" or is empty of records.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
    }

    #[test]
    fn a_file_renamed_between_its_creation_and_its_lock_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("spill-0"), folder.path().join("aside"));
        let stopped = make(&path);
        fs::rename(&path, &aside).unwrap();
        let error = MappedFile::created(stopped.try_clone().unwrap(), &path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        // Another file has the name by now.
        drop(make(&path));
        let error = MappedFile::created(stopped, &path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        assert!(path.exists() && aside.exists(), "neither is this one's to remove");
    }

    #[test]
    fn a_file_replaced_between_its_opening_and_its_lock_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spill-0");
        let stopped = make(&path);
        fs::rename(&path, folder.path().join("aside")).unwrap();
        assert!(MappedFile::opened(stopped.try_clone().unwrap(), &path).unwrap().is_none());
        drop(make(&path));
        assert!(MappedFile::opened(stopped, &path).unwrap().is_none());
        assert!(MappedFile::open(&path).is_ok());
    }

    #[test]
    fn an_unfinished_file_that_is_dropped_removes_itself_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spill-0");
        drop(MappedFile::create(&path).unwrap());
        assert!(!path.exists());
        let unfinished = MappedFile::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another process made it").unwrap();
        drop(unfinished);
        assert_eq!(fs::read(&path).unwrap(), b"another process made it");
    }

    /// Behind the end of a file that was shortened, as where the disk has lost a page. Were the bytes loaded by this
    /// process, it would end here.
    #[test]
    fn a_page_that_cannot_be_read_ends_the_copy_there_and_a_plain_read_tells_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = MappedFile::create(&folder.path().join("spill-0")).unwrap();
        made.allocate(1 << 20).unwrap();
        made.write_at(0, &[7; 64]).unwrap();
        made.file.set_len(4096).unwrap();
        let start = made.map.as_ref().unwrap().as_ptr();
        let mut bytes = [0; 8192];
        assert_eq!(copy_by_kernel(start, &mut bytes), Ok(4096));
        assert_eq!(copy_by_kernel(start.wrapping_add(4096), &mut bytes), Err(Errno::FAULT));
        assert_eq!(made.copy(0, &mut bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        made.copy(0, &mut bytes[..64]).unwrap();
        assert_eq!(bytes[..64], [7; 64]);
    }

    #[test]
    fn a_file_is_locked_until_the_last_holder_of_its_lock_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spill-0");
        drop(make(&path));
        let opened = MappedFile::open(&path).unwrap();
        let holder = opened.lock_holder().unwrap();
        drop(opened);
        assert_eq!(MappedFile::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(holder);
        assert!(MappedFile::open(&path).is_ok());
    }
}
