//! Secrets, and the files that hold them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Secret(Box<[u8]>);

impl Secret {
    /// A secret of 1 to 255 bytes: HELLO carries its length in one.
    pub(super) fn new(text: &str) -> Option<Self> {
        (1..=255).contains(&text.len()).then(|| Self(text.as_bytes().into()))
    }

    /// The secret itself.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A sentence about a file that everybody on this machine may read or write, although it `holds` a secret.
pub(super) fn open_to_all(path: &Path, holds: &str) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let shown = path.display();
    (mode & 0o007 != 0).then(|| {
        format!("{shown} {holds} and has mode {mode:03o}, so everybody here may read it: `chmod 600 {shown}`")
    })
}
