//! A miss: one id for a thread whose run is spent, from ring, queue or minter, or by waiting.

use std::time::Duration;

use xuid_id::{Id, Order};

use super::EngineState;
use crate::id::error::IdError;
use crate::id::run::Run;
use crate::mint::ticket::Gathered;
use crate::settings::LONGEST_BLOCK;
use crate::stats::counters::Tier;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::tiers::thread_run::{ThreadRun, ThreadState};

/// Ids a waiting thread is glad to get beyond the one it asked for: its next run.
const EXTRA_IDS: u32 = 64;

impl EngineState {
    /// An id for a thread that may wait so long; one without a time only tries.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_cold(
        &self,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
        wait: Option<Duration>,
    ) -> Result<Id, IdError> {
        let since = match self.check_open() {
            Ok(since) => since,
            Err(error) => {
                thread_run.close_run(&thread_state.counters);
                self.count_refusal(wait, error);
                return Err(error);
            }
        };
        // Before the wait: a run that comes after a shutdown, or a turn-over, is good for this one id.
        let generation = self.generation.load();
        if self.restock(thread_run, thread_state, 1) {
            return Ok(thread_run.take_one());
        }
        let mut ticket = {
            let mut gate = lock(&self.gate);
            let now = self.instant(&mut gate);
            let Some(time) = wait.filter(|wait| !wait.is_zero()) else {
                let error = gate.refusal(&now, Order::Any, Duration::ZERO);
                drop(gate);
                self.starve();
                self.count_refusal(wait, error);
                return Err(error);
            };
            let nothing = Gathered { since, ..Gathered::default() };
            self.enqueue(&mut gate, &now, Order::Any, (1, EXTRA_IDS), (time, None), nothing)?
        };
        let mut runs = self.block_on(&mut ticket).inspect_err(|error| self.counters.refuse(*error))?;
        let last = runs.pop();
        self.give_back(runs, ticket.since());
        let Some(run) = last else { unreachable!("a ticket is done only with at least what was asked for") };
        self.counters.tickets_out.add(u64::from(run.len()));
        thread_state.counters.taken.add(u64::from(run.len()));
        let generation =
            if Guard::GenerationBeforeWait.holds() { generation } else { self.generation.load() };
        thread_run.fill(generation, &run, ticket.sources().last());
        Ok(thread_run.take_one())
    }

    /// Counts the refusal of a call that may wait.
    fn count_refusal(&self, wait: Option<Duration>, error: IdError) {
        if wait.is_some() {
            self.counters.refuse(error);
        }
    }

    /// Fills a thread run that is empty or void: from the ring, the queue, or straight from the
    /// minter, for a call of `count` ids. False if there is none to be had now.
    pub(crate) fn restock(&self, thread_run: &ThreadRun, thread_state: &mut ThreadState, count: u32) -> bool {
        thread_run.close_run(&thread_state.counters);
        // Before the run is taken: a run that is voided while it is on its way is wasted, not kept too long.
        let generation = self.generation.load();
        let tiers = self.settings.tiers;
        let found = if tiers.ring { self.ring.take(&mut thread_state.cursor) } else { self.ring.skip() };
        if found.asked {
            self.producer.wake();
        }
        let (run, tier) = if let Some(block) = found.block {
            (block.into_run(), Tier::Ring)
        } else if let Some(block) = if tiers.queue { self.queue.pop() } else { None } {
            thread_state.counters.queue.add(u64::from(block.len()));
            (block.into_run(), Tier::Queue)
        } else if let Some(run) = self.cut_direct(count) {
            (run, Tier::Minter)
        } else {
            return false;
        };
        let generation =
            if Guard::GenerationBeforeTake.holds() { generation } else { self.generation.load() };
        thread_state.counters.taken.add(u64::from(run.len()));
        thread_run.fill(generation, &run, tier);
        true
    }

    /// A run straight from the minter: a sixty-fourth of the ids there are, so that many threads share a tick.
    fn cut_direct(&self, count: u32) -> Option<Run> {
        let mut gate = lock(&self.gate);
        if gate.unordered_first(count) {
            return None;
        }
        let now = self.instant(&mut gate);
        let share = (gate.minter.available(&now) / 64)
            .clamp(u64::from(EXTRA_IDS), u64::from(LONGEST_BLOCK))
            .min(u64::from(self.settings.tiers.longest_run));
        gate.cut(Order::Any, 0, &now, (count, share as u32))
    }
}
