//! What is shipped around the binary: the files of server/packaging, each held against the binary itself.

mod compose;
mod image;
mod unit;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xuid_tests::{binary, not_tried};

/// The text of a file of server/packaging.
fn packaged(path: &str) -> Result<String> {
    let path = packaging()?.join(path);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn packaging() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace around this crate")?;
    Ok(root.join("server/packaging"))
}

/// Copies the binary to where a package has it, below `root`: other users may not come to where it was built.
fn install(root: &Path) -> Result<PathBuf> {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    let program = root.join("usr/bin/xuid");
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::copy(binary()?, &program)?;
    Ok(program)
}

/// Makes a folder that belongs to a user, as a service manager or an image does.
fn state_folder(path: &Path, user: u32) -> Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    chown(path, Some(user), Some(user)).with_context(|| format!("giving {} to {user}", path.display()))
}

/// Whether this process may act as another user; told as the trial `what` that is not made, if not.
fn may_change_user(what: &str) -> Result<bool> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tried(what, "only root may become another user")?;
    }
    Ok(is_root)
}
