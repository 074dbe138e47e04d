//! Finished parts, one JSON line each: what makes a campaign resumable, and what a table is joined from.
//!
//! Written by the runner after each part, under a lock that one run holds; read by the table at any time.
//!
//! # Invariants
//! - A line is appended and synced before its part counts. A line that was cut off (its end is missing) is no part: it
//!   is dropped when a run begins. Any other line that can't be read is an error, never skipped.
//! - Lines of other revisions are kept and not counted.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

pub use super::revision::Machine;
use super::{Campaign, Size, Tally};

/// One attempt at one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The code it was run on.
    pub revision: String,
    /// The campaign.
    pub campaign: String,
    /// `quick` or `night`.
    pub size: String,
    /// The part's number.
    pub part: u64,
    /// Its first trial.
    pub from: u64,
    /// The first trial after it.
    pub to: u64,
    /// The machine.
    pub machine: Machine,
    /// When it began, in seconds of Unix time.
    pub began: u64,
    /// How long it took.
    pub seconds: f64,
    /// What it brought home; none if its trials could not be made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tally: Option<Tally>,
    /// Why they could not be made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

impl Line {
    /// Whether this is an attempt at a part of this campaign.
    pub fn is_of(&self, campaign: &dyn Campaign, size: Size) -> bool {
        self.campaign == campaign.name() && self.size == size.name()
    }
}

/// The lines of some files that belong to one revision.
#[derive(Debug, Default)]
pub struct Record {
    /// Attempts at parts of the revision asked for, in the order of the files.
    pub lines: Vec<Line>,
    /// Lines of other revisions.
    pub foreign: usize,
}

impl Record {
    /// Reads what these files say of this revision. A file that does not exist says nothing.
    pub fn read<P: AsRef<Path>>(files: &[P], revision: &str) -> Result<Self> {
        let mut record = Self::default();
        for path in files.iter().map(AsRef::as_ref) {
            let text = match fs::read_to_string(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.with_context(|| format!("reading {}", path.display()))?,
            };
            for (number, line) in whole_lines(&text).lines().enumerate() {
                let line: Line = serde_json::from_str(line)
                    .with_context(|| format!("{}:{}: no part of a campaign", path.display(), number + 1))?;
                if line.revision == revision {
                    record.lines.push(line);
                } else {
                    record.foreign += 1;
                }
            }
        }
        Ok(record)
    }

    /// The attempt that counts for each part of this campaign, in order of the parts, with the attempts that count
    /// for nothing. Of two that count the one that something went wrong in is taken.
    pub fn parts<'a>(
        &'a self,
        campaign: &dyn Campaign,
        size: Size,
    ) -> (Vec<Option<&'a Line>>, Vec<&'a Line>) {
        let plan = parts_of(campaign, size);
        let mut counted: Vec<Option<&Line>> = vec![None; plan.len()];
        let mut left_out = Vec::new();
        for line in self.lines.iter().filter(|line| line.is_of(campaign, size)) {
            let place = usize::try_from(line.part).ok().and_then(|part| counted.get_mut(part));
            let fits = plan.get(line.part as usize).is_some_and(|range| *range == (line.from..line.to));
            match (place, &line.tally) {
                (Some(place), Some(tally)) if fits => {
                    let known = place.and_then(|known| known.tally.as_ref());
                    if known.is_none_or(|known| known.is_clean() && !tally.is_clean()) {
                        *place = Some(line);
                    }
                }
                _ => left_out.push(line),
            }
        }
        (counted, left_out)
    }
}

/// The ranges of trials that a campaign of this size is cut into.
pub(super) fn parts_of(campaign: &dyn Campaign, size: Size) -> Vec<std::ops::Range<u64>> {
    let (trials, part) = (campaign.trials(size), campaign.part(size).max(1));
    (0..trials.div_ceil(part)).map(|n| n * part..trials.min((n + 1) * part)).collect()
}

/// What is left of a file whose last line was cut off.
fn whole_lines(text: &str) -> &str {
    &text[..text.rfind('\n').map_or(0, |end| end + 1)]
}

/// A record that this run writes to; nobody else does while it lives.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    path: PathBuf,
}

impl Drop for Writer {
    /// Closing would not do: a child that is just being started has the descriptor too, until it becomes its program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Writer {
    /// Opens the file, which is made if need be; its last line is dropped if its end is missing.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = || format!("the record {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(shown)?;
        }
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open.with_context(shown)?;
        let held = flock(&file, FlockOperation::NonBlockingLockExclusive);
        held.with_context(|| format!("{} is being written to by another run", shown()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(shown)?;
        let whole = whole_lines(&text).len();
        if whole < text.len() {
            file.set_len(whole as u64).with_context(shown)?;
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a line, and comes back when it will survive a power cut.
    pub(super) fn append(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        ensure!(!text.contains('\n'), "a line of a record holds a line break");
        text.push('\n');
        let shown = || format!("the record {}", self.path.display());
        self.file.write_all(text.as_bytes()).with_context(shown)?;
        self.file.sync_data().with_context(shown)
    }

    /// Forgets the lines of this campaign, of this size and revision. A cut in the middle leaves the record as it was.
    pub(super) fn forget(self, campaign: &dyn Campaign, size: Size, revision: &str) -> Result<Self> {
        let text = fs::read_to_string(&self.path)?;
        let mut kept = String::new();
        for line in text.lines() {
            let parsed: Line = serde_json::from_str(line)
                .with_context(|| format!("{}: no part of a campaign: {line}", self.path.display()))?;
            if !(parsed.is_of(campaign, size) && parsed.revision == revision) {
                kept.push_str(line);
                kept.push('\n');
            }
        }
        let fresh = self.path.with_extension("fresh");
        let mut file = File::create(&fresh)?;
        file.write_all(kept.as_bytes())?;
        file.sync_data()?;
        fs::rename(&fresh, &self.path)?;
        // The lock held so far is that of the file that was replaced.
        Self::open(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::Writer;

    #[test]
    fn a_writer_lets_go_though_a_child_that_is_being_started_has_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        let writer = Writer::open(&path).unwrap();
        let inherited = writer.file.try_clone().unwrap();
        drop(writer);
        Writer::open(&path).unwrap();
        drop(inherited);
    }
}
