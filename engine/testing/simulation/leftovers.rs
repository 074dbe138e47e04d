//! What is left in the spills at the end of a history, and would be issued by whoever opens them next.
//!
//! Lives end long before a spill is drained, so an id that was issued and is in a file, too, would not come out twice
//! before the history is over. Therefore the files are read: from the mark in the registry on, no plot of theirs was
//! issued, and none is in two places.
//!
//! Copies of one file are in several nodes' hands where disks were restored. Of those only one grant can ever bring a
//! record to somebody, so they are held against what was issued, and not against each other.

use std::ops::Range;

use xuid_spill::{Expected, Extent, Log, SpillId};

use crate::Layout;
use crate::sys::atomics::lock;
use crate::testing::simulation::history::History;

/// A run repeated over ticks: its ticks, and its place in each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plot {
    ticks: Range<u64>,
    places: Range<u64>,
}

impl Plot {
    fn of(extent: &Extent, layout: &Layout) -> Self {
        let (tick, place) = (extent.first / layout.stride(), extent.first % layout.stride());
        Self { ticks: tick..tick + u64::from(extent.ticks), places: place..place + u64::from(extent.len) }
    }

    fn meets(&self, other: &Self) -> bool {
        let meet = |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
        meet(&self.ticks, &other.ticks) && meet(&self.places, &other.places)
    }

    /// Whether one of these runs, which ascend, is of this land; if so, its first id.
    fn issued(&self, runs: &[Range<u64>], layout: &Layout) -> Option<u64> {
        let stride = layout.stride();
        let from = runs.partition_point(|run| run.end <= self.ticks.start * stride + self.places.start);
        let near = runs[from..].iter().take_while(|run| run.start < self.ticks.end * stride);
        near.flat_map(|run| {
            // A run may have been joined with one of the next tick.
            (run.start / stride..=(run.end - 1) / stride)
                .map(|tick| tick * stride)
                .map(move |begin| run.start.max(begin)..run.end.min(begin + stride))
        })
        .find(|run| {
            let (tick, place) = (run.start / stride, run.start % stride);
            self.meets(&Self { ticks: tick..tick + 1, places: place..place + run.end - run.start })
        })
        .map(|run| run.start.max(run.start / stride * stride + self.places.start))
    }
}

impl History {
    /// No plot that a spill still has was issued, or is there twice.
    pub(crate) fn leftovers(&mut self) -> Result<(), String> {
        if self.unfenced {
            return Ok(());
        }
        let left = self.left();
        self.tally.trouble("extents left in a spill", left.len() as u64);
        let runs = lock(&self.exchange.oracle).spans();
        for (at, (node, spill, plot)) in left.iter().enumerate() {
            if let Some(id) = plot.issued(&runs, &self.layout) {
                let parts = self.layout.decode(crate::Id::new(id));
                return Err(format!(
                    "a plot in two places: {parts:?} was issued, node {node}'s spill has it"
                ));
            }
            for (other, theirs, same) in &left[..at] {
                if (node == other || spill != theirs) && plot.meets(same) {
                    return Err(format!(
                        "a plot in two places: {plot:?} of node {node}'s spill, {same:?} of node {other}'s"
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a next life would be granted from the disks as they are.
    fn left(&self) -> Vec<(usize, SpillId, Plot)> {
        let genesis = self.exchange.store.genesis();
        let (cluster, layout) = (genesis.cluster.bytes(), genesis.layout.to_bytes());
        let Some(mut registry) = self.exchange.store.outsider() else { return Vec::new() };
        let mut left = Vec::new();
        for node in &self.nodes {
            let Some(disk) = &node.disk else { continue };
            // One whose header rotted is refused.
            let expected = Expected { cluster, stride: self.layout.stride(), layout };
            let Ok((mut log, _)) = Log::open(Box::new(disk.clone()), &expected) else { continue };
            // One without a mark is refused, and a fence raises marks to the end.
            let Ok(mark) = registry.mark(log.id()).map(|found| found.record.granted_upto) else { continue };
            if mark == u64::MAX {
                continue;
            }
            log.resume_at(mark);
            let mut extents = Vec::new();
            let _ = log.read(log.tail()..log.head(), &mut extents);
            let plots = extents.iter().map(|(_, extent)| Plot::of(extent, &self.layout));
            left.extend(plots.map(|plot| (node.number, log.id(), plot)));
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::guards::Guard;
    use crate::testing::simulation::history::Plan;
    use crate::testing::simulation::workload::Theme;
    use crate::testing::simulation::{SHORT, planned, seed};
    use xuid_id::DEFAULT_EPOCH_MS;

    #[test]
    fn land_that_was_issued_is_found_to_the_id() {
        let layout = Layout::new(58, 2, 3, 1_000, DEFAULT_EPOCH_MS).unwrap();
        let plot = |first, len, ticks| Plot::of(&Extent { first, len, ticks }, &layout);
        let (tick, nothing) = (layout.stride(), None);
        // Places 8 to 12 of the ticks 10, 11 and 12.
        let it = plot(10 * tick + 8, 4, 3);
        assert_eq!(it.issued(&[], &layout), nothing);
        assert_eq!(
            it.issued(&[5..6, 11 * tick + 4..11 * tick + 8, 13 * tick + 8..13 * tick + 9], &layout),
            nothing
        );
        let last = 12 * tick + 11;
        assert_eq!(it.issued(&[11 * tick + 12..11 * tick + 14, last..last + 1], &layout), Some(last));
        let joined = 9 * tick + 31..10 * tick + 9;
        assert_eq!(it.issued(std::slice::from_ref(&joined), &layout), Some(10 * tick + 8));
        assert!(it.meets(&plot(12 * tick + 11, 1, 1)) && it.meets(&plot(8 * tick + 10, 1, 3)));
        assert!(!it.meets(&plot(12 * tick + 12, 1, 1)) && !it.meets(&plot(8 * tick + 10, 1, 2)));
    }

    #[test]
    fn without_the_mark_before_the_issue_a_spill_still_has_what_was_issued() {
        let plan = |n| Plan { seed: seed(n), theme: Some(Theme::Crashes), steps: SHORT, ..Plan::default() };
        let failure = |n| planned(&plan(n)).err().filter(|why| why.contains("spill has it"));
        let found =
            Guard::without(&[Guard::MarkFirst], || (0..2_000).find_map(|n| failure(n).map(|why| (n, why))));
        let (n, why) = found.expect("a history of 2,000");
        println!("history {n}: {why}");
        assert_eq!(planned(&plan(n)).err(), None, "with every guard in place");
    }
}
