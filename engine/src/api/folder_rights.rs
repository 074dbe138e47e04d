//! Narrows what a data folder grants to other users, at a start.
//!
//! A user who can open the registry's file can lock it, and then no process reserves anything. New files are made for
//! their user alone (`xuid_spill::file_options`); this is for folders and files of earlier programs, of `mkdir`, and of
//! restores.
//!
//! # Invariants
//! - R1 only what this user owns is changed, only inside the data folder, and only what has a name that the engine gives;
//! - R2 a folder that a group shares on purpose (`xuid_spill::is_shared`) keeps the group's rights;
//! - R3 what stays open to others is told.

use std::fs::{self, DirEntry, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::sys::deferred_log;

/// How the names begin that a data folder holds. The engine makes all but `lost+found`, which is a filesystem's own.
const OURS: [&str; 7] =
    ["registry", "sequences", "spill-", "spill.new-", "node.json", "windows.log", "lost+found"];

/// Every right of users other than the owner, and those of users outside of the group.
const OTHERS: u32 = 0o077;
const OUTSIDERS: u32 = 0o007;
/// Anybody may make files, and remove their own only: a place for everybody's files, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Takes other users' rights to the folder and to the files in it away. What cannot be narrowed is told in the log, and
/// stops nothing.
pub(crate) fn narrow(folder: &Path) {
    let Ok(opened) = File::open(folder) else { return };
    let Ok(found) = opened.metadata() else { return };
    let is_shared = xuid_spill::is_shared(&found);
    let strangers = if is_shared { OUTSIDERS } else { OTHERS };
    match narrow_one(&opened, &found, strangers, || why_not(folder, &found)) {
        Ok(()) if is_shared => {
            warn(folder, &found, "it is shared with its group on purpose (chmod g-s ends that)");
        }
        Ok(()) => {}
        Err(why) => warn(folder, &found, &why),
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(is_ours) {
        let path = entry.path();
        let Ok(opened) = xuid_spill::open_regular(&path) else { continue };
        let Ok(found) = opened.metadata() else { continue };
        // Another file has the name by now.
        if found.ino() != entry.ino() {
            continue;
        }
        if let Err(why) = narrow_one(&opened, &found, strangers, || None) {
            warn(&path, &found, &why);
        }
    }
}

/// Narrows one opened file or folder, or says why it stays as it is.
fn narrow_one(
    opened: &File,
    found: &Metadata,
    strangers: u32,
    why_not: impl FnOnce() -> Option<String>,
) -> Result<(), String> {
    let mode = found.mode() & 0o7777;
    if mode & strangers == 0 {
        return Ok(());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}", found.uid()));
    }
    if let Some(why) = why_not() {
        return Err(why);
    }
    opened
        .set_permissions(Permissions::from_mode(mode & !strangers))
        .map_err(|error: io::Error| error.to_string())
}

/// What speaks against narrowing a folder of this user: that it is not the engine's alone.
fn why_not(folder: &Path, found: &Metadata) -> Option<String> {
    if found.mode() & STICKY != 0 {
        return Some("it is a folder for everybody's files".into());
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return Some(error.to_string()),
    };
    let strange = entries.flatten().map(|entry| entry.file_name()).find(|name| !is_name_of_ours(name));
    strange.map(|name| format!("it holds files of others, as {}", name.display()))
}

fn is_name_of_ours(name: &std::ffi::OsStr) -> bool {
    OURS.iter().any(|ours| name.as_encoded_bytes().starts_with(ours.as_bytes()))
}

/// A regular file of the engine's. A link may lead to anything.
fn is_ours(entry: &DirEntry) -> bool {
    is_name_of_ours(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_file())
}

fn warn(path: &Path, found: &Metadata, why: &str) {
    let (path, mode, why) =
        (path.display().to_string(), format!("{:04o}", found.mode() & 0o7777), why.to_owned());
    deferred_log::log(move || {
        tracing::warn!(
            %path, %mode, why,
            "other users have rights to this, and could lock or remove the registry: it is left as it is"
        );
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    /// A folder of that mode, with a registry that all may write.
    fn folder(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        fs::create_dir(&path).unwrap();
        write(&path.join("registry"), 0o666);
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (home, path)
    }

    fn write(path: &Path, mode: u32) {
        fs::write(path, b"").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_and_its_files_are_narrowed_and_nothing_around_them() {
        let (home, path) = folder(0o777);
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let outside = home.path().join("outside");
        write(&outside, 0o644);
        symlink(&outside, path.join("spill-9")).unwrap();
        let others = ["node.json", "sequences", "sequences.rest-0"].map(|name| path.join(name));
        for other in &others {
            write(other, 0o640);
        }
        narrow(&path);
        assert_eq!((mode(&path), mode(&path.join("registry"))), (0o700, 0o600));
        assert_eq!(others.map(|other| mode(&other)), [0o600; 3]);
        assert_eq!((mode(home.path()), mode(&outside)), (0o755, 0o644));
        narrow(&path);
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_folder_that_its_group_shares_on_purpose_keeps_the_group_s_rights() {
        let (_home, path) = folder(0o2775);
        narrow(&path);
        assert_eq!((mode(&path), mode(&path.join("registry"))), (0o2770, 0o660));
        let (_home, path) = folder(0o2755);
        narrow(&path);
        assert_eq!((mode(&path), mode(&path.join("registry"))), (0o2700, 0o600));
    }

    #[test]
    fn a_folder_that_is_not_the_engine_s_alone_is_left_and_the_engine_s_files_in_it_are_not() {
        let (_home, path) = folder(0o755);
        write(&path.join("notes.txt"), 0o644);
        narrow(&path);
        assert_eq!((mode(&path), mode(&path.join("notes.txt"))), (0o755, 0o644));
        assert_eq!(mode(&path.join("registry")), 0o600);
        let (_home, path) = folder(0o1777);
        narrow(&path);
        assert_eq!((mode(&path), mode(&path.join("registry"))), (0o1777, 0o600));
    }

    /// Where this user may give files away.
    #[test]
    fn what_another_user_owns_is_left() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_home, path) = folder(0o755);
        for theirs in [path.join("registry"), path.clone()] {
            std::os::unix::fs::chown(theirs, Some(65_534), None).unwrap();
        }
        write(&path.join("node.json"), 0o644);
        narrow(&path);
        assert_eq!(
            (mode(&path), mode(&path.join("registry")), mode(&path.join("node.json"))),
            (0o755, 0o666, 0o600)
        );
    }
}
