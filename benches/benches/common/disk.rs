//! The disk without anything around it: what bounds spill and registry.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file of a fixed length, written piece by piece.
pub(crate) struct RawFile {
    file: File,
    bytes: u64,
    at: u64,
}

impl RawFile {
    /// Opens a file that was prepared as its neighbour in the group is: what a write costs depends on that.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, at: 0 })
    }

    /// Writes a piece behind the one before, round and round.
    pub(crate) fn write(&mut self, piece: &[u8]) {
        let begin = if self.at + piece.len() as u64 > self.bytes { 0 } else { self.at };
        self.at = begin + piece.len() as u64;
        assert!(self.file.write_all_at(piece, begin).is_ok(), "the disk failed");
    }

    pub(crate) fn sync(&self) {
        assert!(self.file.sync_data().is_ok(), "the disk failed");
    }
}
