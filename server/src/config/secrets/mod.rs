//! Secrets, and the files that hold them.

pub(super) mod opaque_key;

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use xuid_engine::sequence::store::database::DatabaseUrl;

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

/// A setting as people and logs are shown it: of a URL of a database, or what was meant to be one, not who uses it.
pub(super) fn without_password(text: &str) -> Cow<'_, str> {
    if let Ok(url) = text.parse::<DatabaseUrl>() {
        return url.to_string().into();
    }
    match text.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
            format!("{scheme}(not shown)@{after}").into()
        }
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password_even_if_it_is_none() {
        for (text, shown) in [
            ("registry", "registry"),
            ("postgres://app@h/db", "postgres://app@h/db"),
            ("postgres://app:hunter2@h,i:7/db?sslmode=disable", "postgres://app@h,i:7/db"),
            ("postgres://app:hunter2@h", "postgres://(not shown)@h"),
            ("postgre://app:hunter2@h/db", "postgre://(not shown)@h/db"),
            ("app:hunter2@h", "(not shown)@h"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
