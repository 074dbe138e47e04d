//! A generator owned by one thread.
//!
//! A shared engine's hit asks two things: whose run the thread has, and whether any of it is left. A handle's run can
//! be no other engine's, so one comparison with a word of its own does for both: the *limit*, which is the run's end
//! while the run is good, and zero once it is void.

use xuid_id::Id;

use crate::api::engine::Engine;
use crate::id::error::{IdError, Outcome};
use crate::sys::fork_word::WithWord;
use crate::sys::guards::Guard;
use crate::tiers::limits::{Limit, Limits};
use crate::tiers::thread_run::{NOWHERE, ThreadRun, ThreadState};

/// A run of its own beside the engine's shared tiers. Move-only; its rest is wasted when it is dropped.
///
/// Like the engine's, its calls are not for [signal handlers](crate#signal-handlers).
///
/// ```
/// # use xuid_engine::Engine;
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::builder().data_dir(folder.path()).build()?;
/// let mut handle = engine.handle();
/// assert_ne!(handle.next_id()?, handle.next_id()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle {
    /// The next id of the run, where the limit is above it; else what the thread run says. Here, and not in the thread
    /// run behind a pointer: in a handle that is a local variable of the thread's loop, it is a register.
    next: u64,
    rest: WithWord<Rest>,
}

/// What a hit has no use for.
struct Rest {
    /// Behind `next` by what was hit since the last miss.
    thread_run: ThreadRun,
    limit: Limit,
    thread_state: ThreadState,
    /// Keeps the engine's threads running, too.
    engine: Engine,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Engine {
    /// A generator owned by one thread: faster than a shared engine, since it has no thread-local to look up, and
    /// fastest as a local variable of the thread's loop. It maps a page of its own, so it is something to keep, not to
    /// make for each id.
    ///
    /// # Panics
    /// If the process may not map another page.
    #[must_use]
    #[inline]
    pub fn handle(&self) -> Handle {
        Handle::new(self)
    }
}

impl Handle {
    /// # Panics
    /// If the process may not map another page.
    #[inline]
    pub(crate) fn new(engine: &Engine) -> Self {
        Self { next: NOWHERE, rest: Rest::new(engine.clone()) }
    }

    /// The next id of any age; waits as [`Engine::next_id`] does.
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    #[inline]
    pub fn next_id(&mut self) -> Result<Id, IdError> {
        let next = self.next;
        if self.rest.is_above(next) {
            self.next = next + 1;
            Ok(Id::new(next))
        } else {
            // Whatever becomes of the call, it stands below no limit that it does not know.
            self.next = NOWHERE;
            let (outcome, next) = self.rest.value().next_cold(next);
            self.next = next;
            outcome.result()
        }
    }
}

impl Handle {
    /// Counts what it issued so far, as [`Engine::publish`] does for a thread. It does so by itself when its run is
    /// used up, at its first call after a second, and when it is dropped.
    #[inline]
    pub fn publish(&mut self) {
        let next = self.next;
        self.rest.value().publish(next);
    }
}

impl Rest {
    #[inline(never)]
    fn new(engine: Engine) -> WithWord<Self> {
        let shared = engine.shared();
        // A thread that a child does not have may have held what the other ways lock.
        let forked = shared.generation.forked();
        let limit = match if forked { Limits::alone() } else { shared.limits.join() } {
            Ok(limit) => limit,
            Err(error) => panic!("failed to map a handle's page: {error}"),
        };
        let thread_state = if forked { shared.pass_by() } else { shared.join() };
        WithWord::new(limit.0.clone(), Self { thread_run: ThreadRun::new(), limit, thread_state, engine })
    }

    /// An id for a handle that stands at `next`, and where it stands then.
    #[cold]
    #[inline(never)]
    fn next_cold(&mut self, next: u64) -> (Outcome, u64) {
        self.thread_run.catch_up(next);
        // Before the run is taken: one that is voided while it is on its way is not used beyond its first id.
        let shared = self.engine.shared();
        if !shared.is_plain() {
            return (self.next_shown().into(), NOWHERE);
        }
        let generation = shared.generation.load();
        self.limit.clear();
        let result = shared.next_cold(&self.thread_run, &mut self.thread_state, Some(shared.settings.wait));
        let next = self.thread_run.next();
        let generation =
            if Guard::GenerationBeforeLimit.holds() { generation } else { shared.generation.load() };
        if result.is_ok() {
            self.limit.set(self.thread_run.end(), generation, &shared.generation);
        }
        (result.into(), next)
    }

    /// An id of a layout whose ids are no plots: the run stays here, the limit at nothing, and each call misses.
    fn next_shown(&mut self) -> Result<Id, IdError> {
        let shared = self.engine.shared();
        let id = match self.thread_run.hit(&shared.generation) {
            Some(id) => id,
            None => shared.next_cold(&self.thread_run, &mut self.thread_state, Some(shared.settings.wait))?,
        };
        Ok(shared.show(id))
    }

    /// The figures catch up; the thread run, and the handle's place in it, stay as they are.
    #[inline(never)]
    fn publish(&mut self, next: u64) {
        self.thread_run.catch_up(next);
        self.thread_run.publish(&self.thread_state.counters);
    }

    #[inline(never)]
    fn close_run(&mut self, next: u64) {
        self.thread_run.catch_up(next);
        self.thread_run.close_run(&self.thread_state.counters);
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        let next = self.next;
        self.rest.value().close_run(next);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Order;

    #[test]
    fn a_handle_issues_nothing_after_a_refusal_and_goes_on_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::builder().data_dir(folder.path()).wait(Duration::ZERO).build().unwrap();
        let mut handle = engine.handle();
        let (mut seen, mut refused, mut after) = (std::collections::HashSet::new(), 0, 0);
        while refused < 100 || after < 10_000 {
            match handle.next_id() {
                Ok(id) => {
                    assert!(seen.insert(id), "{id} came twice");
                    after += u32::from(refused > 0);
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    refused += 1;
                }
            }
            // Others spend, too, or a refusal would be long in coming.
            let _ = engine.try_runs(8_192, Order::Any, &mut Vec::new());
        }
        engine.shutdown();
        assert!((0..10).all(|_| handle.next_id().is_err()), "the shutdown voids what it holds");
    }
}
