//! The real binary where something is short: room on the disk, descriptors, memory, the length of a file; and where a
//! folder is shared, by several servers or by a forked child.
//!
//! A trial is several lives on one folder; its kind is its number's turn, the rest is drawn. The short life
//! may refuse to start, with a message, and may end; it may not panic. Whatever it did, the next life on the folder has
//! enough of everything, serves at once, and repeats nothing.
//!
//! # Invariants
//! - L1 no id comes twice over all lives of a folder;
//! - L2 a server that can't start says why and ends with 1; one that runs out of memory is ended by its allocator;
//! - L3 what is short costs only what needs it: connections that are open are served, and when there is enough again
//!   everything is.

mod descriptors;
mod disk;
mod file_size;
mod forked;
mod life;
mod memory;
mod shared_folder;

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use super::trials::{caught, side_by_side};
use super::{Campaign, Need, Progress, Size, Tally};
use crate::{Ledger, Rng};

/// Trials wait for servers most of the time, and each has at most four of them.
const LANES: usize = 2;

/// The campaign `limits`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits;

impl Campaign for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn what(&self) -> &'static str {
        "too little disk, memory, descriptors or file size; several servers and a forked child on one folder"
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Server, Need::Forked, Need::Installed("prlimit")]
    }

    fn missed(&self, size: Size, tally: &Tally) -> Vec<String> {
        // After a change it is enough to count them.
        if size == Size::Quick {
            return Vec::new();
        }
        let untried = tally.notes.get(disk::NOT_TRIED);
        untried.map(|trials| format!("{trials} scenes on a small disk were not tried")).into_iter().collect()
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        Ok(side_by_side("limits", (trials, LANES), progress, seed, trial))
    }
}

fn seed(trial: u64) -> u64 {
    Rng::new(0x1131_0000_0000 ^ trial).word()
}

/// One trial in a folder of its own: it draws what is short, and records every id.
type Trial = fn(&Path, &mut Rng, &mut Ledger, &mut Tally) -> Result<()>;

const KINDS: [(&str, Trial); 6] = [
    ("full disk", disk::trial),
    ("descriptors", descriptors::trial),
    ("memory", memory::trial),
    ("file size", file_size::trial),
    ("shared folder", shared_folder::trial),
    ("forked child", forked::trial),
];

fn trial(number: u64, tally: &mut Tally) -> Result<()> {
    let (name, body) = KINDS[(number % KINDS.len() as u64) as usize];
    let (home, mut ledger) = (TempDir::new()?, Ledger::default());
    // Even a panic leaves the ids that came before it to be compared.
    let played = caught(|| body(home.path(), &mut Rng::new(seed(number)), &mut ledger, tally));
    tally.note(&format!("scenes {name}"), 1);
    let report = ledger.report();
    (tally.ids, tally.duplicates) = (report.ids, report.duplicates);
    ledger.check()?;
    played.map_err(|error| error.context(name))
}
