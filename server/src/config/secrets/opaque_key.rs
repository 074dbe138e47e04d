//! The key of opaque ids, which lies in a file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tracing::warn;
use xuid_engine::Veil;

use super::open_to_all;
use crate::config::sources::{Merged, Reading};
use crate::text::exit::{Usage, usage};

/// The name of the setting.
const FILE: &str = "opaque_key_file";

/// A key, and where it was read.
#[derive(Debug, Clone)]
pub(crate) struct OpaqueKey {
    pub(crate) veil: Veil,
    file: PathBuf,
}

impl OpaqueKey {
    pub(in crate::config) fn from_merged(from: &Merged) -> Result<Option<Self>> {
        let file = from.optional(FILE, |text| (!text.is_empty()).then(|| PathBuf::from(text)))?;
        Ok(file.map(|file| Self::read(FILE, file, from.reading)).transpose()?)
    }

    /// The one that a flag of a command names. Warns of a file that others may read.
    pub(crate) fn load(flag: &str, file: Option<&Path>) -> Result<Option<Self>> {
        let Some(file) = file else { return Ok(None) };
        let key = Self::read(flag, file.to_owned(), Reading::Once)?;
        if let Some(warning) = key.warning() {
            warn!("{warning}");
        }
        Ok(Some(key))
    }

    fn read(name: &str, file: PathBuf, reading: Reading) -> Result<Self, Usage> {
        let text = reading.text(&file).map_err(|error| {
            usage(format!("failed to read the file {} of {name}: {error}", file.display()))
        })?;
        // The file of a secret: what is in it is not shown.
        let line = text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r');
        match line.parse() {
            Ok(veil) => Ok(Self { veil, file }),
            Err(error) => {
                let file = file.display();
                Err(usage(format!(
                    "the file {file} of {name} holds something else: {error}; allowed is one line with them"
                )))
            }
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What is wrong with its file, if anything is.
    pub(in crate::config) fn warning(&self) -> Option<String> {
        open_to_all(&self.file, "holds the key of opaque ids")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "1b1a1918131211100b0a090803020100";

    #[test]
    fn a_key_is_one_line_of_a_file_and_what_is_none_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let load = || OpaqueKey::load("--opaque-key", Some(&path));
        for text in [KEY.to_owned(), format!("{KEY}\n"), format!("{KEY}\r\n")] {
            fs::write(&path, &text).unwrap();
            let veil = load().unwrap().unwrap().veil;
            assert_eq!(veil.check(), KEY.parse::<Veil>().unwrap().check(), "{text:?}");
        }
        for text in ["", "1b1a1918", &format!("{KEY}\n{KEY}\n"), &format!(" {KEY}"), &format!("{KEY}00")] {
            fs::write(&path, text).unwrap();
            let error = load().unwrap_err();
            let said = error.to_string();
            assert!(error.is::<Usage>() && said.contains("openssl rand -hex 16"), "{said}");
            assert!(!said.contains("1b1a1918"), "{said}");
        }
        fs::remove_file(&path).unwrap();
        assert!(load().unwrap_err().to_string().contains("--opaque-key"));
        assert!(OpaqueKey::load("--opaque-key", None).unwrap().is_none());
    }

    #[test]
    fn a_key_that_everybody_may_read_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, KEY).unwrap();
        let warning = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            OpaqueKey::read(FILE, path.clone(), Reading::Once).unwrap().warning()
        };
        assert!(warning(0o644).is_some_and(|text| text.contains("chmod 600")));
        assert_eq!(warning(0o600), None);
    }
}
