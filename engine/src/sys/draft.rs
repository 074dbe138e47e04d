//! Files that get their name when they are whole: made under another name and locked, then named without replacing what
//! may be there.
//!
//! # Invariants
//! - I1 only its maker opens a draft to use it, and keeps it locked from its creation until it has its name;
//! - I2 a sweep removes no draft that is locked. One that was not locked yet is gone for its maker then, which finds
//!   out when it has locked it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::sys::guards::Guard;

/// How often a draft is made again because it was swept away before it was locked. A sweep is at the start of a
/// process.
const TRIES: u32 = 16;

/// Makes a draft of a file whose name is `stem` or begins with it: new, locked, and to be read and written.
pub(crate) fn make(folder: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
    make_by(folder, stem, |path| {
        let file = xuid_spill::file_options(path).create_new(true).open(path)?;
        xuid_spill::give_to_owner_of(folder, &file);
        file.try_lock()?;
        // The name was never used before, so what has it is this file.
        if path.try_exists()? { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    })
}

/// Makes a draft by `create`, which locks it; [`WouldBlock`](io::ErrorKind::WouldBlock) and
/// [`NotFound`](io::ErrorKind::NotFound) of it say that it was swept away before.
pub(crate) fn make_by<T>(
    folder: &Path,
    stem: &str,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let mut tries = 0;
    loop {
        let random = getrandom::u64().map_err(io::Error::other)?;
        let path = folder.join(format!("{}{random:016x}", prefix(stem)));
        tries += 1;
        match create(&path) {
            Ok(made) => return Ok((made, path)),
            Err(error) if tries < TRIES && was_swept(&error) && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
}

fn was_swept(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound)
}

fn prefix(stem: &str) -> String {
    format!("{stem}.new-")
}

/// Gives a draft its name. False if there is a file of that name already, or the draft was swept away.
pub(crate) fn publish(draft: &Path, path: &Path) -> io::Result<bool> {
    if !Guard::NamedOnce.holds() {
        return std::fs::rename(draft, path).map(|()| true);
    }
    match renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(Errno::EXIST) => return Ok(false),
        // Swept away by another process, which opened the winner's.
        Err(Errno::NOENT) if path.exists() => return Ok(false),
        // A filesystem that cannot do it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    match std::fs::hard_link(draft, path) {
        Ok(()) => std::fs::remove_file(draft).map(|()| true),
        Err(_) if path.exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the drafts whose makers died: those that no process has locked.
pub(crate) fn sweep(folder: &Path, stem: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let prefix = prefix(stem);
    for entry in entries.flatten() {
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !regular || !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // Held until it is removed, so that no maker takes it for its own meanwhile. A name is used once only, so what
        // is removed is what was locked.
        let Ok(file) = File::open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
