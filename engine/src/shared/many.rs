//! Many ids for one call: gathered through the thread's run, or cut fresh or ordered from the minter.

use std::sync::Arc;
use std::time::Duration;

use xuid_id::Order;

use super::EngineState;
use crate::clock::engine_clock::Now;
use crate::clock::nanos;
use crate::id::error::IdError;
use crate::id::run::Run;
use crate::mint::gate::Gate;
use crate::mint::ticket::{Gathered, Ticket, Voids};
use crate::mint::wait_queue::Caller;
use crate::stats::counters::{Sources, Tier};
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::tiers::thread_run::{ThreadRun, ThreadState};

impl EngineState {
    /// Takes `count` ids without waiting, or says why not; nothing is left in `out` then.
    pub(crate) fn try_take(&self, count: u32, order: Order, out: &mut Vec<Run>) -> Result<(), IdError> {
        let since = self.check_open()?;
        self.check_order(order)?;
        let before = out.len();
        if order == Order::Any {
            if self.gather_any(count, since, out).is_ok() {
                return Ok(());
            }
            self.returns.give(out.drain(before..), since);
            self.starve();
            let mut gate = lock(&self.gate);
            let now = self.instant(&mut gate);
            return Err(gate.refusal(&now, order, Duration::ZERO));
        }
        let mut gate = lock(&self.gate);
        let now = self.instant(&mut gate);
        if self.cut(&mut gate, &now, order, count, out) < count {
            let error = gate.refusal(&now, order, Duration::ZERO);
            drop(gate);
            self.count_direct(out[before..].iter(), order, true);
            self.returns.give(out.drain(before..), since);
            return Err(error);
        }
        drop(gate);
        self.count_direct(out[before..].iter(), order, false);
        Ok(())
    }

    fn count_direct<'a>(&self, runs: impl Iterator<Item = &'a Run>, order: Order, returned: bool) {
        let ids = runs.map(|run| u64::from(run.len())).sum();
        self.with_thread_state(|_, thread_state| {
            let counters = &thread_state.counters;
            counters.taken.add(ids);
            if returned { counters.returned.add(ids) } else { counters.issue_cut(order, ids) }
        });
    }

    /// Takes `count` ids now, or a ticket for them.
    pub(crate) fn take_or_wait(
        &self,
        count: u32,
        order: Order,
        wait: Duration,
        caller: Option<&Caller>,
    ) -> Result<Result<Vec<Run>, Arc<Ticket>>, IdError> {
        let since = self.check_open_to_wait()?;
        self.check_order(order)?;
        let (mut runs, mut sources) = (Vec::new(), Sources::default());
        if order == Order::Any {
            match self.gather_any(count, since, &mut runs) {
                Ok(()) => return Ok(Ok(runs)),
                Err(gathered) => sources = gathered,
            }
        }
        let mut gate = lock(&self.gate);
        let now = self.instant(&mut gate);
        if order != Order::Any {
            let got = self.cut(&mut gate, &now, order, count, &mut runs);
            sources = Sources::of(Tier::Minter, u64::from(got));
            self.count_direct(runs.iter(), order, got < count);
            if got == count {
                return Ok(Ok(runs));
            }
            // Neither reserve nor queue can serve these: they would wait in vain.
            let too_long = order == Order::Ordered && gate.minter.ordered_waits(&now) > nanos(wait);
            if too_long || !gate.has_prospects(&now) {
                let error = gate.refusal(&now, order, wait);
                drop(gate);
                self.returns.give(runs, since);
                self.counters.refuse(error);
                return Err(error);
            }
        }
        let gathered = Gathered { runs, sources, since };
        self.enqueue(&mut gate, &now, order, (count, count), (wait, caller), gathered).map(Err)
    }

    /// Gathers up to `count` ids of any age into `out`, through the thread's run.
    fn gather(
        &self,
        count: u32,
        out: &mut Vec<Run>,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
    ) -> Sources {
        let (mut sources, mut got, before) = (Sources::default(), 0, out.len());
        while got < count {
            let mut left = thread_run.left(self.generation.load());
            if left == 0 {
                if !self.restock(thread_run, thread_state, count) {
                    break;
                }
                left = thread_run.held();
            }
            let run = thread_run.pull(left.min(count - got), &mut sources);
            got += run.len();
            push_run(out, before, run, self.layout.sequences());
        }
        sources
    }

    /// Gathers `count` ids of any age, for a call that began `since` so many voids. If there are fewer, or a leap was
    /// dealt with meanwhile, what was gathered is counted as returned, and is an error.
    fn gather_any(&self, count: u32, since: Voids, out: &mut Vec<Run>) -> Result<(), Sources> {
        self.with_thread_state(|thread_run, thread_state| {
            self.gather_whole(count, since, out, thread_run, thread_state)
        })
    }

    pub(crate) fn gather_whole(
        &self,
        count: u32,
        since: Voids,
        out: &mut Vec<Run>,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
    ) -> Result<(), Sources> {
        let sources = self.gather(count, out, thread_run, thread_state);
        let is_void = self.voids() != since && Guard::LeapWastesInHand.holds();
        if sources.total() < u64::from(count) || is_void {
            thread_state.counters.returned.add(sources.total());
            return Err(sources);
        }
        thread_state.counters.issue_all(&sources);
        Ok(())
    }

    /// Cuts exactly `count` fresh or ordered ids, as far as there are any now; returns how many.
    fn cut(&self, gate: &mut Gate, now: &Now, order: Order, count: u32, out: &mut Vec<Run>) -> u32 {
        let least = gate.minter.least_fresh(now);
        let (mut got, before) = (0, out.len());
        while got < count {
            let Some(run) = gate.cut(order, least, now, (count, count - got)) else { break };
            got += run.len();
            push_run(out, before, run, self.layout.sequences());
        }
        got
    }
}

/// Appends a run, joined to the last one where it goes on in the same tick. What was in `out` before this call's
/// runs, from `before` on, stays as it is: it is another call's.
fn push_run(out: &mut Vec<Run>, before: usize, run: Run, sequences: u32) {
    match out[before..].last_mut() {
        Some(last) if last.continues_with(&run, sequences) => last.join(run),
        _ => out.push(run),
    }
}
