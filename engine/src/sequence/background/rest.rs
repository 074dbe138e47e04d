//! What the teller knows of leftovers: its file, what was in it, and what the next batch is to be called.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sequence::leftovers::claim::Lineage;
use crate::sequence::leftovers::file::RestFile;
use crate::sequence::leftovers::format::Batch;

/// How it stands with leftovers.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    pub(super) file: Option<RestFile>,
    /// Where a file is made when there is something to save.
    folder: Option<PathBuf>,
    /// What the file held, until it is claimed.
    pub(super) found: Option<Arc<Batch>>,
    /// Boot time at which the registry could not be reached to claim it for the first time.
    pub(super) since: Option<u64>,
    /// The store that said which one it is when they were given out.
    pub(super) identity: Option<String>,
    /// Claimed, and waiting to know which store it is; and how often the clock had leapt before it was claimed.
    pub(super) claimed: Option<(Arc<Batch>, u64)>,
    pub(super) lineage: Option<Lineage>,
    /// The folder, until it was looked at what all of its processes left.
    pub(super) beside: Option<PathBuf>,
    /// A file was of another registry: the witness of this one may not have seen what was granted before.
    pub(super) is_witness_new: bool,
    /// Claims that an adaptor's panic broke off, one after the other, and boot time of the last one.
    pub(super) broken_off: u32,
    pub(super) tried_at: u64,
}

impl Reclaim {
    /// Opens the file of a folder. Why that could not be is told, and what is held at the stop is wasted. So is why one could
    /// not be read, which another takes the place of.
    pub(crate) fn open(folder: Option<&Path>) -> (Self, Option<String>) {
        let Some(folder) = folder else { return (Self::default(), None) };
        let beside = Some(folder.to_owned());
        match RestFile::open(folder) {
            Ok((file, found, trouble)) => {
                let found = found.map(Arc::new);
                (
                    Self { file: Some(file), found, beside, ..Self::default() },
                    trouble.map(|error| error.to_string()),
                )
            }
            Err(error) => {
                (Self { beside, ..Self::default() }, Some(format!("leftovers can't be saved: {error}")))
            }
        }
    }

    /// The same, but nothing is made where no process left anything.
    pub(crate) fn open_late(folder: Option<&Path>) -> (Self, Option<String>) {
        match folder {
            Some(folder) if !RestFile::are_in(folder) => {
                (Self { folder: Some(folder.to_owned()), ..Self::default() }, None)
            }
            folder => Self::open(folder),
        }
    }

    /// The file to save leftovers in; `None` where that is not wanted, or could not be.
    pub(super) fn take_file(&mut self) -> io::Result<Option<RestFile>> {
        match (self.file.take(), &self.folder) {
            (None, Some(folder)) => RestFile::open_empty(folder).map(Some),
            (file, _) => Ok(file),
        }
    }
}
