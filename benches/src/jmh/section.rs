//! What may stand beside each other: results of one supply, one mode, and as many calls timed as one.

use super::entry::Entry;
use super::plan::Mode;
use crate::subject::Supply;

/// What the results of one table or panel share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) supply: Supply,
    pub(super) mode: Mode,
    /// Calls timed as one.
    pub(super) batch: u64,
}

impl Section {
    fn of(entry: &Entry) -> Self {
        let batch = match entry.mode {
            Mode::Throughput => 1,
            Mode::Sample => entry.batch,
        };
        Self { supply: entry.subject.supply, mode: entry.mode, batch }
    }

    pub(super) fn title(&self) -> String {
        let supply = match self.supply {
            Supply::Burst => "Burst (time is not asked, or land declared unused is spent)",
            Supply::Sustained => "Sustained (as many ids as the clock allows)",
        };
        let mode = match (self.mode, self.batch) {
            (Mode::Throughput, _) => "throughput".to_owned(),
            (Mode::Sample, 1) => "time of a call".to_owned(),
            (Mode::Sample, calls) => format!("time of {calls} calls"),
        };
        format!("{supply}: {mode}")
    }
}

/// The sections that there are results of: bursts first, rates before times.
pub(super) fn sections(entries: &[Entry]) -> Vec<(Section, Vec<&Entry>)> {
    let mut found: Vec<Section> = Vec::new();
    for entry in entries {
        let section = Section::of(entry);
        if !found.contains(&section) {
            found.push(section);
        }
    }
    found.sort_by_key(|section| {
        (section.supply == Supply::Sustained, section.mode == Mode::Sample, section.batch)
    });
    let of = |section| entries.iter().filter(|entry| Section::of(entry) == section).collect();
    found.into_iter().map(|section| (section, of(section))).collect()
}
