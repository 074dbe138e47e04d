//! A generator owned by one thread, as an engine's [`Handle`](crate::Handle) is: one comparison with a word of its own
//! tells whether its run is good.

use std::sync::Arc;

use crate::sequence::error::{OutcomeWord, SequenceError};
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::Named;
use crate::sequence::names::threads::Runs;
use crate::sequence::numbers::{Demand, Numbers};
use crate::sys::fork_word::WithWord;
use crate::tiers::limits::{Limit, Limits};
use crate::tiers::thread_run::{NOWHERE, ThreadRun};

/// A run of its own beside the sequence's segments. Move-only; its rest goes back when it is dropped.
pub struct SequenceHandle {
    /// The next id of the run, where the limit is above it; else what the run says. In a handle that is a local variable
    /// of the thread's loop, it is a register.
    next: u64,
    rest: WithWord<Rest>,
}

/// What a hit has no use for.
struct Rest {
    /// Behind `next` by what was hit since the last miss.
    run: ThreadRun,
    limit: Limit,
    /// None in a forked child, in which a thread that is not there may have held what joining locks.
    runs: Option<Runs>,
    named: Arc<Named>,
    hub: Arc<Hub>,
}

impl std::fmt::Debug for SequenceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceHandle").finish_non_exhaustive()
    }
}

impl SequenceHandle {
    #[inline(never)]
    pub(crate) fn new(hub: Arc<Hub>, named: Arc<Named>) -> Self {
        let forked = hub.forked();
        let limit = match if forked { Limits::alone() } else { hub.limits.join() } {
            Ok(limit) => limit,
            Err(error) => panic!("failed to map a handle's page: {error}"),
        };
        let runs = (!forked).then(|| Runs::join(&named));
        let rest = WithWord::new(limit.0.clone(), Rest { run: ThreadRun::new(), limit, runs, named, hub });
        Self { next: NOWHERE, rest }
    }

    /// The next id in no promised order; waits as [`Sequence::next_id`](super::sequence::Sequence::next_id) does.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    #[inline]
    pub fn next_id(&mut self) -> Result<u64, SequenceError> {
        let next = self.next;
        if self.rest.is_above(next) {
            self.next = next + 1;
            Ok(next)
        } else {
            // Whatever becomes of the call, it stands below no limit that it does not know.
            self.next = NOWHERE;
            let (outcome, next) = self.rest.value().next_cold(next);
            self.next = next;
            outcome.result()
        }
    }

    /// Counts what it issued so far. It does so by itself when its run is used up, and when it is dropped.
    pub fn publish(&mut self) {
        let next = self.next;
        self.rest.value().publish(next);
    }
}

impl Rest {
    /// An id for a handle that stands at `next`, and where it stands then.
    #[cold]
    #[inline(never)]
    fn next_cold(&mut self, next: u64) -> (OutcomeWord, u64) {
        self.run.catch_up(next);
        if let Err(error) = self.hub.check_open() {
            self.close_run();
            return (self.hub.count_refusal(Err(error)).into(), self.run.next());
        }
        // Before the run is taken: one that is voided while it is on its way is not used beyond its first id.
        let generation = self.named.word.load();
        self.limit.clear();
        let Self { run, runs, named, hub, .. } = self;
        let Some(runs) = runs else { return (Err(SequenceError::FORKED).into(), NOWHERE) };
        if let Some(id) = runs.restock(run, hub, named) {
            self.limit.set(self.run.end(), generation, &self.named.word);
            return (Ok(id).into(), self.run.next());
        }
        let taken = hub.take_blocking(named, Demand::any(1), hub.config.wait);
        let taken = hub.count_refusal(taken);
        (taken.map(|(numbers, _)| numbers.first().map_or(0, Numbers::first)).into(), self.run.next())
    }

    fn publish(&mut self, next: u64) {
        self.run.catch_up(next);
        if let Some(runs) = self.runs.as_ref().filter(|_| !self.hub.forked()) {
            self.run.publish(runs.counters());
        }
    }

    fn close_run(&self) {
        if let Some(runs) = self.runs.as_ref().filter(|_| !self.hub.forked()) {
            self.run.close_run(runs.counters());
        }
    }

    fn leave(&mut self, next: u64) {
        self.run.catch_up(next);
        if let Some(runs) = &self.runs {
            runs.leave(&self.run, &self.hub, &self.named);
        }
    }
}

impl Drop for SequenceHandle {
    #[inline]
    fn drop(&mut self) {
        let next = self.next;
        self.rest.value().leave(next);
    }
}
