//! What a panic costs the producer.

use super::Producer;
use crate::sys::atomics::lock;

impl Producer {
    /// Ids that came into this thread's hands, did not go out of them, and are not there: 0, except after a panic.
    fn missing(&self) -> u64 {
        let Self { shared, ledger, reserve, .. } = self;
        let (tally, counters) = (&reserve.tally, &shared.counters);
        let passed = lock(&shared.gate).minter.passed;
        let came = passed
            + tally.replayed
            + counters.queue_out.value()
            + ledger.from_ring.value()
            + ledger.from_returns.value()
            + ledger.from_tickets.value();
        let wasted =
            tally.expired + tally.trimmed + tally.wasted_spill + tally.wasted_grant + tally.wasted_step;
        let went = tally.spilled
            + wasted
            + tally.wasted_panic
            + counters.queue_in.value()
            + ledger.to_ring.value()
            + ledger.to_tickets.value();
        let there = went + reserve.held();
        debug_assert!(came >= there, "{came} came, {went} went, {} are there", reserve.held());
        came.saturating_sub(there)
    }

    /// Counts as waste what a turn had in its hands when it panicked.
    pub(super) fn count_lost(&mut self) {
        self.reserve.tally.wasted_panic += self.missing();
    }

    /// I2 of the ledger.
    pub(super) fn check_ledger(&self) {
        debug_assert_eq!(self.missing(), 0, "ids vanished in a turn");
    }
}
