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
//! - **M3** No byte is read through the map that was not within the file's length a moment before. (A file that is
//!   shortened between the check and the copy still ends the process with SIGBUS: whoever truncates files in use has to
//!   win that race first.)

#![expect(unsafe_code, reason = "reading a memory map is a copy from a raw pointer")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::storage::{Shortened, Storage};

/// A spill file, locked for this process.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    path: PathBuf,
    map: Option<MmapRaw>,
    /// Created by us and never synced: nobody can have counted on it yet.
    unfinished: bool,
}

impl MappedFile {
    /// Creates the file, which must not exist, and locks it. It is empty until a log allocates it.
    ///
    /// A file that is dropped before its first successful sync is removed again, so that a creation that failed (a
    /// full disk, say) leaves nothing behind.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let created = Self { file, path: path.to_owned(), map: None, unfinished: true };
        created.lock()?;
        Ok(created)
    }

    /// Opens and locks an existing file.
    ///
    /// [`io::ErrorKind::WouldBlock`] says that another process holds it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut opened = Self { file, path: path.to_owned(), map: None, unfinished: false };
        if !opened.file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not a regular file, and a spill has to be one", path.display()),
            ));
        }
        opened.lock()?;
        opened.remap()?;
        Ok(opened)
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
        let Some(map) = &self.map else { return Ok(()) };
        let from = map.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `offset + buf.len()` is at most the map's length and the file's (both checked above, M3), so the
        // bytes are readable memory of this map, which lives as long as `self`; `buf` is ours alone and cannot
        // overlap a map that is never handed out. Nobody writes meanwhile: this process writes only through
        // `&mut self`, others are kept out by the lock (M1), and one that ignores it gives bytes that fail their
        // checksum, as the copy is made before anything is believed.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) };
        Ok(())
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
        if self.unfinished {
            // Best effort: what is left over is refused as "not a spill" or is empty of records.
            let _ = fs::remove_file(&self.path);
        }
    }
}
