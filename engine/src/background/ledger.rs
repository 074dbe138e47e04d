//! What the producer should have in its hands, by all that it took and gave: a turn that panicked had more in them.
//!
//! # Invariants
//! - I1 only the producer's thread writes it, beside the move that it counts, with nothing between the two that may
//!   panic;
//! - I2 what came less what went is what the reserve holds, after each turn.

use crate::id::run::{Block, Run};
use crate::stats::counters::Count;
use crate::tiers::ring::Ring;

/// Ids that the producer moved, where nothing else counts them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) from_ring: Count,
    pub(crate) to_ring: Count,
    pub(crate) from_returns: Count,
    /// Given back by tickets that ended without enough.
    pub(crate) from_tickets: Count,
    pub(crate) to_tickets: Count,
}

impl Ledger {
    /// Takes everything out of a partition.
    pub(crate) fn sweep(&self, ring: &Ring, partition: usize, mut sink: impl FnMut(Run)) {
        ring.sweep(partition, |block| {
            let run = block.into_run();
            self.from_ring.add(u64::from(run.len()));
            sink(run);
        });
    }

    /// A block on its way into the ring.
    pub(crate) fn to_ring(&self, block: Block) -> Block {
        self.to_ring.add(u64::from(block.len()));
        block
    }

    /// What callers gave back.
    pub(crate) fn returned(&self, runs: Vec<Run>) -> Vec<Run> {
        self.from_returns.add(runs.iter().map(|run| u64::from(run.len())).sum());
        runs
    }

    /// A run on its way to a call that waits.
    pub(crate) fn to_ticket(&self, run: Run) -> Run {
        self.to_tickets.add(u64::from(run.len()));
        run
    }
}
