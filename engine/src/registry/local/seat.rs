//! Seats: one file for each process that uses the folder at a time, locked by it for as long as it lives.
//!
//! The lock is what counts: a fence is refused while a seat is locked. What is written in the seat is a hint, for
//! people and for the choice of a worker: it is never synced, and what cannot be read is as if it were not there.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::LocalError;
use super::format::PAGE;
use crate::registry::printable;
use crate::sys::fork_word::Maker;

/// What takes a seat: each an engine or the sequences of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry) enum Taker {
    Engine,
    Sequences,
}

#[cfg(feature = "zookeeper")]
impl Taker {
    /// What tells its seat from all others in a folder.
    pub(in crate::registry) fn label(self, seat: &Seat) -> String {
        match self {
            Self::Engine => seat.number().to_string(),
            Self::Sequences => format!("q{}", seat.number()),
        }
    }
}

const fn prefix(taker: Taker) -> &'static str {
    match taker {
        Taker::Engine => "registry.seat-",
        Taker::Sequences => "sequences.seat-",
    }
}

/// The first line of a seat. What follows it is left over from a longer one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Line {
    pid: u32,
    host: String,
    workers: Vec<u32>,
    last: Option<u32>,
}

/// The seat of this process, or of one engine in it.
#[derive(Debug)]
pub(in crate::registry) struct Seat {
    file: File,
    number: u32,
    line: Line,
    /// The process that sits in it.
    maker: Maker,
}

impl Seat {
    /// Takes the lowest seat that no process sits in, or makes the next one. Called under the folder's lock.
    pub(in crate::registry) fn take(folder: &Path, taker: Taker) -> Result<Self, LocalError> {
        let maker = Maker::this_process().map_err(LocalError::io("map a page for", folder))?;
        let numbers = numbers(folder, taker)?;
        let next = (0..)
            .zip(&numbers)
            .find_map(|(n, found)| (n != *found).then_some(n))
            .unwrap_or(numbers.len() as u32);
        for number in numbers {
            // A seat that cannot be opened was left by another user; there are others.
            let Ok(file) = File::options().read(true).write(true).open(path(folder, taker, number)) else {
                continue;
            };
            if file.try_lock().is_ok() {
                return Ok(Self::sit(file, number, maker));
            }
        }
        let path = path(folder, taker, next);
        let new = xuid_spill::file_options(&path).create(true).truncate(false).open(&path);
        let file = new.map_err(LocalError::storing("create", &path, PAGE))?;
        xuid_spill::give_to_owner_of(folder, &file);
        match file.try_lock() {
            Ok(()) => Ok(Self::sit(file, next, maker)),
            Err(TryLockError::WouldBlock) => Err(LocalError::Unsettled { path }),
            Err(TryLockError::Error(source)) => Err(LocalError::io("lock", path)(source)),
        }
    }

    fn sit(file: File, number: u32, maker: Maker) -> Self {
        let last = read(&file).and_then(|line| line.last);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let line = Line { pid: std::process::id(), host, workers: Vec::new(), last };
        let seat = Self { file, number, line, maker };
        seat.write();
        crash_point!(SeatTaken);
        seat
    }

    /// Its number.
    pub(in crate::registry) fn number(&self) -> u32 {
        self.number
    }

    /// The worker that was last held from this seat, now or before.
    pub(in crate::registry) fn last(&self) -> Option<u32> {
        self.line.last
    }

    pub(in crate::registry) fn hold(&mut self, worker: u32) {
        if !self.line.workers.contains(&worker) {
            self.line.workers.push(worker);
        }
        self.line.last = Some(worker);
        self.write();
    }

    pub(in crate::registry) fn leave(&mut self, worker: u32) {
        self.line.workers.retain(|held| *held != worker);
        self.write();
    }

    /// Which process holds which worker, this seat included.
    pub(super) fn live(&self, folder: &Path) -> HashMap<u32, String> {
        let mut live = live(folder, Some(self.number));
        live.extend(self.line.workers.iter().map(|worker| (*worker, self.line.holder())));
        live
    }

    /// A hint, so whether it can be written does not matter. A forked child has no seat to write in.
    fn write(&self) {
        if self.maker.forked() {
            return;
        }
        let Ok(text) = serde_json::to_string(&self.line) else { return };
        let text = text + "\n";
        if self.file.write_all_at(text.as_bytes(), 0).is_ok() {
            let _ = self.file.set_len(text.len() as u64);
        }
    }
}

/// Stands up. A forked child shares the lock and must leave it alone.
impl Drop for Seat {
    fn drop(&mut self) {
        if !self.maker.forked() {
            self.line.workers.clear();
            self.write();
            let _ = self.file.unlock();
        }
    }
}

impl Line {
    fn holder(&self) -> String {
        format!("{} pid {}", self.host, self.pid)
    }
}

fn path(folder: &Path, taker: Taker, number: u32) -> PathBuf {
    folder.join(format!("{}{number}", prefix(taker)))
}

/// The seats that exist, ascending.
fn numbers(folder: &Path, taker: Taker) -> Result<Vec<u32>, LocalError> {
    let entries = std::fs::read_dir(folder).map_err(LocalError::io("list", folder))?;
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut numbers: Vec<u32> =
        entries.filter_map(name).filter_map(|name| name.strip_prefix(prefix(taker))?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A line never comes near this; what does is no seat.
const LINE_BYTES: usize = 16 * 1024;

fn read(file: &File) -> Option<Line> {
    let mut bytes = vec![0; LINE_BYTES];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..length].split(|byte| *byte == b'\n').next()?;
    let line: Line = serde_json::from_slice(line).ok()?;
    Some(Line { host: printable(&line.host), ..line })
}

/// The workers that locked seats name, but for one seat.
pub(super) fn live(folder: &Path, except: Option<u32>) -> HashMap<u32, String> {
    let mut live = HashMap::new();
    for number in numbers(folder, Taker::Engine).unwrap_or_default() {
        let Ok(file) = xuid_spill::open_regular(&path(folder, Taker::Engine, number)) else { continue };
        if Some(number) == except || !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let Some(seat) = read(&file) else { continue };
        live.extend(seat.workers.iter().map(|worker| (*worker, seat.holder())));
    }
    live
}

/// Locks every seat, so that no process is at work and none begins. Called under the folder's lock.
pub(super) fn lock_all(folder: &Path) -> Result<Vec<File>, LocalError> {
    let mut files = Vec::new();
    let seats = [Taker::Engine, Taker::Sequences].map(|taker| {
        let numbers = numbers(folder, taker)?;
        Ok(numbers.into_iter().map(move |number| path(folder, taker, number)))
    });
    for seat in seats.into_iter().collect::<Result<Vec<_>, LocalError>>()?.into_iter().flatten() {
        let file =
            File::options().read(true).write(true).open(&seat).map_err(LocalError::io("open", &seat))?;
        match file.try_lock() {
            Ok(()) => files.push(file),
            Err(TryLockError::WouldBlock) => {
                let Line { pid, host, .. } = read(&file).unwrap_or_default();
                let host = if host.is_empty() { "this host".into() } else { host };
                return Err(LocalError::InUse { seat, pid, host });
            }
            Err(TryLockError::Error(source)) => return Err(LocalError::io("lock", seat)(source)),
        }
    }
    Ok(files)
}
