//! The extents of a spill file, to be looked for by an id.

use std::collections::HashMap;

use xuid_id::Layout;
use xuid_spill::{Extent, Inspection, SpillId};

/// What a spill says of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is in an extent that no process was granted.
    Aside,
    /// It was in the extent of that index, which a process was granted.
    Granted(u64),
}

/// One extent.
#[derive(Debug)]
struct Entry {
    first_tick: u64,
    /// The highest tick of this one and of all before it.
    reaches: u64,
    extent: Extent,
    index: u64,
}

/// The extents that a spill file still has, by their worker and first tick.
#[derive(Debug)]
pub(super) struct Extents {
    pub(super) spill: SpillId,
    /// What the registry says of it.
    mark: u64,
    stride: u64,
    by_worker: HashMap<u32, Vec<Entry>>,
}

impl Extents {
    pub(super) fn of(inspection: &Inspection, mark: u64, layout: &Layout) -> Self {
        let mut by_worker: HashMap<u32, Vec<Entry>> = HashMap::new();
        for (index, extent) in inspection.records(0) {
            let first_tick = layout.tick_of(extent.first);
            let reaches = first_tick + u64::from(extent.ticks) - 1;
            let worker = (extent.first >> layout.sequence_bits()) as u32 & (layout.workers() - 1);
            by_worker.entry(worker).or_default().push(Entry { first_tick, reaches, extent, index });
        }
        for entries in by_worker.values_mut() {
            entries.sort_by_key(|entry| entry.first_tick);
            let mut reaches = 0;
            for entry in entries {
                reaches = entry.reaches.max(reaches);
                entry.reaches = reaches;
            }
        }
        Self { spill: inspection.identity.spill, mark, stride: layout.stride(), by_worker }
    }

    /// What it says of a plot.
    pub(super) fn find(&self, worker: u32, tick: u64, plot: u64) -> Option<Found> {
        let entries = self.by_worker.get(&worker)?;
        let end = entries.partition_point(|entry| entry.first_tick <= tick);
        let near = entries[..end].iter().rev().take_while(|entry| entry.reaches >= tick);
        let mut found = None;
        for entry in near.filter(|entry| self.has(entry, plot)) {
            // What of a granted one was not issued is put aside again, in a later one.
            if entry.index >= self.mark {
                return Some(Found::Aside);
            }
            let index = match found {
                Some(Found::Granted(index)) => entry.index.max(index),
                _ => entry.index,
            };
            found = Some(Found::Granted(index));
        }
        found
    }

    fn has(&self, entry: &Entry, plot: u64) -> bool {
        let Extent { first, len, ticks } = entry.extent;
        let from = plot.wrapping_sub(first);
        plot >= first && from / self.stride < u64::from(ticks) && from % self.stride < u64::from(len)
    }
}
