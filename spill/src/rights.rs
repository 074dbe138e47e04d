//! Who may read and write what lies in a data folder: its user alone, unless the folder is shared on purpose.
//!
//! Whoever can open a file can lock it, and a process that cannot lock the registry stands still. So files are made with
//! mode 0600 and folders with 0700. A folder of which the group may write and whose new files get its group (the setgid
//! bit, `chmod g+ws`) is shared by the users of that group on purpose: files are made with 0660 there. The umask takes
//! away from that, as always, and adds nothing.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Its new files get the folder's group, and the group may make some.
const SHARED: u32 = 0o2020;

/// Whether a folder is shared by the users of its group on purpose.
#[must_use]
pub fn is_shared(folder: &Metadata) -> bool {
    folder.mode() & SHARED == SHARED
}

/// The folder that a path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How a file is opened, to be read and written, that is made if it is new.
#[must_use]
pub fn file_options(path: &Path) -> OpenOptions {
    let shared = fs::metadata(folder_of(path)).is_ok_and(|found| is_shared(&found));
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(if shared { 0o660 } else { 0o600 });
    options
}

/// Gives a file that root made in another user's folder to that user, whose processes have to open it: a fence after a
/// restore is often root's.
pub fn give_to_owner_of(folder: &Path, file: &File) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if let Ok(found) = fs::metadata(folder)
        && found.uid() != 0
    {
        // Where that fails, their start says that it may not open the file.
        let _ = fchown(file, Some(found.uid()), Some(found.gid()));
    }
}

/// Makes a folder for this user alone, where there is none, and what leads to it with the usual rights.
///
/// # Errors
/// As [`fs::create_dir_all`].
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(_) if folder.is_dir() => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn made_in(folder: &Path) -> PathBuf {
        let path = folder.join("file");
        drop(file_options(&path).create_new(true).open(&path).unwrap());
        path
    }

    #[test]
    fn folders_and_files_are_made_for_their_user_alone_whatever_the_umask() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&home.path().join("a")) & 0o700, 0o700);
        assert_eq!(mode(&made_in(&folder)), 0o600);
        fs::write(home.path().join("taken"), b"").unwrap();
        assert!(make_folder(&home.path().join("taken")).is_err());
    }

    #[test]
    fn files_of_a_folder_that_a_group_shares_on_purpose_are_the_group_s() {
        let home = tempfile::tempdir().unwrap();
        for (rights, file) in [(0o2770, 0o660), (0o2775, 0o660), (0o2750, 0o600), (0o770, 0o600)] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(rights)).unwrap();
            let path = made_in(home.path());
            // A umask may take the group's away.
            assert_eq!(mode(&path) & !0o060, 0o600, "{rights:o}");
            assert_eq!(mode(&path) | 0o060 & file, file, "{rights:o}");
            fs::remove_file(path).unwrap();
        }
    }
}
