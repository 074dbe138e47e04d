//! The wall clock of one process, stepped at will: libfaketime, loaded before the binary.
//!
//! Only `CLOCK_REALTIME` and what is made of it are shifted. Boot time and the monotonic clock stay true, as they do
//! when an administrator sets the clock of a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{Serve, clock};

/// Distributions disagree about its folder.
const FOLDERS: [&str; 2] = ["/usr/lib", "/usr/lib64"];
/// The build for programs with threads first: it reads the shift under a lock.
const NAMES: [&str; 2] = ["libfaketimeMT.so.1", "libfaketime.so.1"];

/// A clock that starts as the machine's own.
#[derive(Debug)]
pub struct FakeClock {
    library: PathBuf,
    home: TempDir,
}

impl FakeClock {
    /// A clock of its own for every process that is started with it.
    pub fn new() -> Result<Self> {
        let library = library().context("no libfaketime: tests/run installs it")?;
        let fake = Self { library, home: TempDir::new()? };
        fake.shift(0)?;
        Ok(fake)
    }

    /// Starts a server under this clock.
    pub fn over(&self, serve: Serve) -> Serve {
        self.variables().into_iter().fold(serve, |serve, (name, value)| serve.env(name, &value))
    }

    /// What a process needs in its environment to have this clock.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", shown(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", shown(&self.file())),
            // A step is seen by the next reading.
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // Times of files are the kernel's.
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
    }

    /// From now on the wall is the machine's plus `by_ms`. Returns when that was.
    pub fn shift(&self, by_ms: i64) -> Result<Instant> {
        let (sign, by) = (if by_ms < 0 { '-' } else { '+' }, by_ms.unsigned_abs());
        let new = self.home.path().join("new");
        fs::write(&new, format!("{sign}{}.{:03}\n", by / 1_000, by % 1_000))?;
        // Renamed, so that no reading meets half a line.
        fs::rename(new, self.file())?;
        Ok(clock::now())
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("shift")
    }
}

/// Looks for the library in the folders of libraries, and one folder below: `/usr/lib/x86_64-linux-gnu/faketime`.
fn library() -> Option<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    folders.extend(FOLDERS.iter().flat_map(|folder| below(Path::new(folder))));
    let path = |name: &str| {
        folders.iter().map(|folder| folder.join("faketime").join(name)).find(|path| path.exists())
    };
    NAMES.iter().find_map(|name| path(name))
}
