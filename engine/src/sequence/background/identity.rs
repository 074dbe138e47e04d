//! The store's identity as this node knows it: what is watched where there is no witness.
//!
//! The node's folder remembers it, in `sequences.store`, so that a store that is another one after a restart is noticed,
//! too.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sequence::store::Identity;
use crate::sys::draft;
use crate::sys::guards::Guard;

const NAME: &str = "sequences.store";
const MOST_BYTES: usize = 64 * 1024;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Known {
    version: u32,
    identity: String,
}

/// What this node knows.
#[derive(Debug, Default)]
pub(crate) struct KnownIdentity {
    folder: Option<PathBuf>,
    identity: Option<String>,
}

/// What an answer of the store shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shows {
    /// The store that is known.
    Known,
    /// A store, and none was known before.
    First,
    /// Another store, which was fenced: the command that did it wrote the store's identity into it.
    Fenced,
    /// Another store.
    Other(String),
}

impl KnownIdentity {
    /// Reads what the folder remembers.
    pub(crate) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        draft::sweep(folder, NAME);
        let identity = match xuid_spill::read_regular(&folder.join(NAME), MOST_BYTES) {
            Ok(bytes) => {
                let Known { version, identity } = serde_json::from_slice(&bytes)?;
                if version != VERSION {
                    let text = format!("its version is {version}, and this program knows version {VERSION}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Some(identity)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { folder: Some(folder.to_owned()), identity })
    }

    /// What an answer shows.
    pub(crate) fn shows(&self, found: &Identity) -> Shows {
        let is_recorded = found.recorded.as_ref().is_none_or(|recorded| *recorded == found.current);
        if !Guard::IdentityCompared.holds() {
            return Shows::Known;
        }
        match &self.identity {
            Some(known) if *known == found.current && is_recorded => Shows::Known,
            None if is_recorded => Shows::First,
            Some(known) if found.recorded.as_ref() == Some(&found.current) && *known != found.current => {
                Shows::Fenced
            }
            _ => {
                let known = self.identity.as_ref().or(found.recorded.as_ref());
                let known = known.map_or("another one", String::as_str);
                Shows::Other(format!("the store is {}, and it was {known}", found.current))
            }
        }
    }

    /// This store is the known one from now on.
    pub(crate) fn learn(&mut self, current: &str) -> io::Result<()> {
        if self.identity.as_deref() == Some(current) {
            return Ok(());
        }
        self.identity = Some(current.to_owned());
        let Some(folder) = &self.folder else { return Ok(()) };
        let (mut file, beside) = draft::make(folder, NAME)?;
        let mut write = || {
            let known = Known { version: VERSION, identity: current.to_owned() };
            file.write_all(&serde_json::to_vec(&known)?)?;
            file.sync_all()?;
            std::fs::rename(&beside, folder.join(NAME))?;
            draft::sync_folder(folder)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })
    }

    pub(crate) fn known(&self) -> Option<&str> {
        self.identity.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(current: &str, recorded: Option<&str>) -> Identity {
        Identity { current: current.to_owned(), recorded: recorded.map(str::to_owned), fenced: None }
    }

    #[test]
    fn a_store_is_another_one_until_it_is_fenced_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = KnownIdentity::open(Some(folder.path())).unwrap();
        assert_eq!(known.shows(&identity("a", None)), Shows::First);
        assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "a copy, at first sight");
        known.learn("a").unwrap();
        let known = KnownIdentity::open(Some(folder.path())).unwrap();
        assert_eq!((known.known(), known.shows(&identity("a", Some("a")))), (Some("a"), Shows::Known));
        assert!(matches!(known.shows(&identity("b", None)), Shows::Other(_)));
        assert!(matches!(known.shows(&identity("b", Some("a"))), Shows::Other(_)), "promoted");
        assert_eq!(known.shows(&identity("b", Some("b"))), Shows::Fenced);
        assert!(matches!(known.shows(&identity("a", Some("b"))), Shows::Other(_)), "put back");
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), br#"{"version":2,"identity":"a"}"#).unwrap();
        assert!(KnownIdentity::open(Some(folder.path())).unwrap_err().to_string().contains("version is 2"));
    }
}
