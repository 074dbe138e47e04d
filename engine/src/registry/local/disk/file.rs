//! The registry's file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, StatVfsMountFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use super::birth::Birth;
use super::{Disk, FileIdentity};
use crate::sys::file_lock;
use crate::sys::fork_word::Maker;

/// A registry's file, opened for reading and writing.
///
/// The lock is a `flock` of this opening of the file: it excludes other processes and other openings in this one.
/// A fork shares the opening, so a forked child is refused everything and never releases the lock.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    path: PathBuf,
    /// Whose opening it is.
    maker: Maker,
    locked: bool,
}

impl FileDisk {
    /// Opens an existing file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Self::of(file, path)
    }

    /// Opens an existing file to look at it; nothing can be written.
    pub(in crate::registry::local) fn open_to_read(path: &Path) -> io::Result<Self> {
        let file = xuid_spill::open_regular(path)?;
        Self::of(file, path)
    }

    fn of(file: File, path: &Path) -> io::Result<Self> {
        Ok(Self { file, path: path.to_owned(), maker: Maker::this_process()?, locked: false })
    }

    /// The file, in the process that opened it.
    fn own(&self) -> io::Result<&File> {
        if self.maker.forked() {
            return Err(io::Error::other("this process is a fork of the one that opened the registry"));
        }
        Ok(&self.file)
    }
}

/// The identity of an open file on this machine.
pub(in crate::registry::local) fn identity_of(file: &File) -> io::Result<FileIdentity> {
    let metadata = file.metadata()?;
    Ok(FileIdentity {
        inode: metadata.ino(),
        born_ns: Birth::of(file).to_bits(),
        device: metadata.dev(),
        machine: machine(),
    })
}

/// A fingerprint of the machine's id, which itself is meant to stay on the machine.
fn machine() -> u64 {
    let Ok(text) = std::fs::read("/etc/machine-id") else { return 0 };
    let id = text.trim_ascii();
    if id.is_empty() {
        return 0;
    }
    let half = |salt: &[u8]| u64::from(crc32c::crc32c_append(crc32c::crc32c(salt), id));
    half(b"xuid registry, high") << 32 | half(b"xuid registry, low")
}

impl Disk for FileDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.own()?.read_exact_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.own()?.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.own()?.sync_data()
    }

    fn extend(&mut self, size: u64) -> io::Result<()> {
        let file = self.own()?;
        match fallocate(file, FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                file.set_len(size.max(file.metadata()?.len()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.own()?.metadata()?.len())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        identity_of(self.own()?)
    }

    fn in_place(&self) -> io::Result<bool> {
        let open = self.own()?.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// By a write of no bytes. The kernel first asks the file system for leave to write, as for any write: a frozen one
    /// keeps the call, and one that an error has closed for writing refuses it. Then there is nothing to write, and neither
    /// the file nor its times change: no journal commits for it. Where a file system was made read-only and says so only
    /// behind that, its flags show it. A device that fails without a word is seen by the next change only.
    fn would_write(&mut self) -> io::Result<()> {
        let file = self.own()?;
        file.write_at(&[], 0)?;
        if fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Errno::ROFS.into());
        }
        Ok(())
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        let is_taken = file_lock::try_lock(self.own()?)?;
        self.locked |= is_taken;
        Ok(is_taken)
    }

    fn unlock(&mut self) {
        if std::mem::take(&mut self.locked) && !self.maker.forked() {
            // Nothing to be done about a failure; closing the file releases the lock too.
            let _ = self.file.unlock();
        }
    }
}

/// A child that was forked while the lock was held keeps the opening alive: closing it here would not be enough.
impl Drop for FileDisk {
    fn drop(&mut self) {
        self.unlock();
    }
}
