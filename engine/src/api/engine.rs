//! The engine as callers see it.

use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use xuid_id::{Id, Layout, Order, Parts};

use crate::api::pending::Pending;
use crate::api::{report, status};
use crate::background::log_once;
use crate::id::error::{IdError, Outcome};
use crate::id::run::Run;
use crate::registry::Genesis;
use crate::shared::EngineState;
use crate::stats::{Stats, Status};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::fork_word::{GenerationWord, in_register};
use crate::tiers::thread_run::{THREAD_RUN, publish};

/// The next id of the thread run in use, if it is this engine's and not empty.
#[inline(always)]
#[expect(clippy::inline_always, reason = "this is the whole hit path; a call would cost more than its body")]
fn hit(generation: &GenerationWord) -> Option<Id> {
    // `try_with` is always inlined, `with` only sometimes. A const thread-local without a destructor is always there.
    THREAD_RUN.try_with(|thread_run| in_register(thread_run).hit(generation)).unwrap_or(None)
}

/// Writes consecutive ids.
#[inline]
fn write_ids(ids: &mut [Id], first: u64) {
    for (offset, id) in ids.iter_mut().enumerate() {
        *id = Id::new(first + offset as u64);
    }
}

/// Writes the plots of runs that hold just as many.
fn write_runs(mut ids: &mut [Id], runs: impl IntoIterator<Item = Run>) {
    for run in runs {
        let (these, rest) = ids.split_at_mut(run.len() as usize);
        write_ids(these, run.raw());
        ids = rest;
    }
}

/// The threads behind an engine, stopped with its last clone.
struct Inner {
    shared: Arc<EngineState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The engine's own threads. They run strangers' code, too: wakers, and subscribers of the log.
    own: Vec<ThreadId>,
}

impl Inner {
    fn shutdown(&self) {
        // In a forked child there are no threads to stop, and the file descriptors are the parent's.
        if self.shared.generation.forked() {
            return;
        }
        self.shared.close();
        // On one of the engine's own threads there is nothing to wait for: it ends when this call is over. On one of
        // the registry's adaptor the stop would wait for this call.
        if self.own.contains(&std::thread::current().id())
            || lock(&self.shared.tally).health.is_on_adaptors_thread()
        {
            return;
        }
        // The thread that comes second waits for the stop, too.
        let mut threads = lock(&self.threads);
        let panicked = threads.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        drop(threads);
        for _ in 0..panicked {
            deferred_log::log(|| tracing::error!("a thread of the engine had panicked"));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Ids that are never issued twice. Cheap to clone; shared by any number of threads.
///
/// ```
/// use xuid_engine::{Engine, Order};
///
/// let folder = tempfile::tempdir().unwrap();
/// let engine = Engine::builder().data_dir(folder.path()).build()?;
/// let first = engine.next_id()?;
/// let second = engine.next_id()?;
/// assert_ne!(first, second);
///
/// let runs = engine.runs(10_000, Order::Any)?;
/// assert_eq!(runs.iter().map(|run| run.len()).sum::<u32>(), 10_000);
/// engine.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    /// Here too, and not only in `shared`: what a hit reads must not lie beside what the producer writes.
    generation: GenerationWord,
    shared: Arc<EngineState>,
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("registry", &self.shared.registry).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(shared: Arc<EngineState>, threads: Vec<JoinHandle<()>>) -> Self {
        let own = threads.iter().map(|thread| thread.thread().id()).collect();
        let inner = Arc::new(Inner { shared: shared.clone(), threads: Mutex::new(threads), own });
        Self { generation: shared.generation.clone(), shared, inner }
    }

    /// The next id of [any age](Order::Any). Waits up to the builder's `wait` where everything is spent.
    ///
    /// Never call it, or anything else of an engine, in a signal handler: [ids can repeat](crate#signal-handlers).
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    #[inline]
    pub fn next_id(&self) -> Result<Id, IdError> {
        match hit(&self.generation) {
            Some(id) => Ok(id),
            None => self.next_or_wait().result(),
        }
    }

    /// As [`next_id`](Self::next_id), without ever waiting.
    ///
    /// # Errors
    /// [`IdError`], with the time to come back.
    #[inline]
    pub fn try_next_id(&self) -> Result<Id, IdError> {
        match hit(&self.generation) {
            Some(id) => Ok(id),
            None => self.next_or_refuse().result(),
        }
    }

    /// As [`next_id`](Self::next_id) for asynchronous code: where everything is spent the future waits, up to the
    /// builder's `wait`, and its thread does not. It needs no runtime. Dropping it wastes nothing that another call
    /// could have had.
    ///
    /// ```
    /// # use xuid_engine::{Engine, IdError};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    /// async fn order_number(engine: &Engine) -> Result<String, IdError> {
    ///     Ok(format!("order {}", engine.next_id_async().await?))
    /// }
    /// # let mut future = std::pin::pin!(order_number(&engine));
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # while future.as_mut().poll(&mut context).is_pending() {}
    /// ```
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    #[inline]
    pub async fn next_id_async(&self) -> Result<Id, IdError> {
        match hit(&self.generation) {
            Some(id) => Ok(id),
            None => self.next_or_pending().await,
        }
    }

    async fn next_or_pending(&self) -> Result<Id, IdError> {
        if let Ok(id) = self.next_or_refuse().result() {
            return Ok(id);
        }
        // It says why, too, where waiting does not help.
        let runs = self.request(1, Order::Any, self.shared.settings.wait).await?;
        let Some(run) = runs.first() else {
            unreachable!("a request is done only with all that was asked for")
        };
        Ok(run.first())
    }

    #[cold]
    #[inline(never)]
    fn next_or_wait(&self) -> Outcome {
        self.next_after_miss(Some(self.shared.settings.wait)).into()
    }

    #[cold]
    #[inline(never)]
    fn next_or_refuse(&self) -> Outcome {
        self.next_after_miss(None).into()
    }

    fn next_after_miss(&self, wait: Option<Duration>) -> Result<Id, IdError> {
        if self.shared.generation.forked() {
            return Err(IdError::FORKED);
        }
        self.shared.with_thread_state(|thread_run, thread_state| {
            // The thread run may have been another engine's until now, and this one's put by.
            match thread_run.hit(&self.shared.generation) {
                Some(id) => Ok(id),
                None => self.shared.next_cold(thread_run, thread_state, wait),
            }
            .map(|id| self.shared.show(id))
        })
    }

    pub(crate) fn shared(&self) -> &Arc<EngineState> {
        &self.shared
    }

    /// Appends runs of exactly `count` ids to `out`, or nothing. Never waits; a try that got nothing is not counted
    /// as refused, since the caller will come back.
    ///
    /// # Errors
    /// [`IdError`], with the time to come back.
    pub fn try_runs(&self, count: u32, order: Order, out: &mut Vec<Run>) -> Result<(), IdError> {
        let before = out.len();
        self.shared.try_take(count, order, out)?;
        self.shared.show_runs(out, before);
        Ok(())
    }

    /// Exactly `count` ids within `wait`, or none, as a future that needs no runtime.
    pub fn request(&self, count: u32, order: Order, wait: Duration) -> Pending {
        Pending::new(self.shared.clone(), count, order, wait)
    }

    /// Exactly `count` ids as runs; waits up to the builder's `wait`.
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    pub fn runs(&self, count: u32, order: Order) -> Result<Vec<Run>, IdError> {
        let mut runs = self.runs_of_plots(count, order)?;
        self.shared.show_runs(&mut runs, 0);
        Ok(runs)
    }

    fn runs_of_plots(&self, count: u32, order: Order) -> Result<Vec<Run>, IdError> {
        let shared = &self.shared;
        match shared.take_or_wait(count, order, shared.settings.wait, None)? {
            Ok(runs) => Ok(runs),
            Err(mut ticket) => {
                let outcome = shared.block_on(&mut ticket);
                shared.count_outcome(&ticket, &outcome);
                outcome
            }
        }
    }

    /// Fills `ids`, or leaves it as it was; waits up to the builder's `wait`.
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    ///
    /// # Panics
    /// If `ids` is longer than `u32::MAX`.
    pub fn fill(&self, ids: &mut [Id], order: Order) -> Result<(), IdError> {
        assert!(u32::try_from(ids.len()).is_ok(), "{} ids at once", ids.len());
        let count = ids.len() as u32;
        if order == Order::Any {
            let hit = THREAD_RUN
                .try_with(|thread_run| thread_run.hit_many(count, self.generation.load()))
                .unwrap_or(None);
            if let Some(first) = hit {
                write_ids(ids, first);
                return Ok(());
            }
        }
        if order != Order::Any || !self.fill_from_tiers(ids)? {
            write_runs(ids, self.runs_of_plots(count, order)?);
        }
        self.shared.show_all(ids);
        Ok(())
    }

    /// Fills `ids` with plots without waiting, and without allocating once the thread has done so before; false if there were too
    /// few.
    #[inline(never)]
    fn fill_from_tiers(&self, ids: &mut [Id]) -> Result<bool, IdError> {
        let shared = &self.shared;
        let since = shared.check_open_to_wait()?;
        Ok(shared.with_thread_state(|thread_run, thread_state| {
            let mut scratch = std::mem::take(&mut thread_state.scratch);
            let count = ids.len() as u32;
            let whole = shared.gather_whole(count, since, &mut scratch, thread_run, thread_state).is_ok();
            if whole {
                write_runs(ids, scratch.drain(..));
            } else {
                shared.returns.give(scratch.drain(..), since);
            }
            thread_state.scratch = scratch;
            whole
        }))
    }

    /// What the registry was created with.
    #[must_use]
    pub fn genesis(&self) -> Genesis {
        self.shared.genesis
    }

    /// The layout of all its ids.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.shared.genesis.layout
    }

    /// What an id of this engine's namespace says, whatever its face. It is arithmetic: whether the id was issued it does not
    /// say.
    #[must_use]
    pub fn decode(&self, id: Id) -> Parts {
        self.shared.parts_of(id)
    }

    /// The registry, for people: `local /srv/xuid-data`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.shared.registry
    }

    /// No id is older than this when it leaves window, queue or spill.
    #[must_use]
    pub fn max_age(&self) -> Duration {
        self.shared.settings.max_age
    }

    /// How far ahead windows are reserved at most.
    #[must_use]
    pub fn window_max(&self) -> Duration {
        self.shared.settings.window_max
    }

    /// Workers held now; none in a forked child.
    #[must_use]
    pub fn workers(&self) -> Vec<u32> {
        if self.shared.generation.forked() {
            return Vec::new();
        }
        lock(&self.shared.gate).minter.workers.iter().map(|held| held.worker).collect()
    }

    /// Counters and gauges; all zero in a forked child, whose parent has them.
    #[must_use]
    pub fn stats(&self) -> Stats {
        report::stats(&self.shared)
    }

    /// Counts what this thread was issued so far. A call that finds its ids in the thread's run counts nothing: what it
    /// returned is counted when the thread has used up its run, at its first call after a second, at its end, and here.
    /// A thread that stops calling and lives on calls this where figures shall be exact without waiting for its end. It
    /// costs some nanoseconds, and the rest of the run stays, if it is not void.
    ///
    /// A [`Handle`](crate::Handle) counts by itself: see [`Handle::publish`](crate::Handle::publish).
    pub fn publish(&self) {
        let generation = self.generation.load();
        // In a forked child the figures are the parent's.
        if generation != 0 {
            publish(self.shared.number, generation);
        }
    }

    /// Whether it can serve, and what is wrong.
    #[must_use]
    pub fn status(&self) -> Status {
        status::status(&self.shared)
    }

    /// Says in the log that the registry went away or came back, if it was not said yet. The engine's producer says it at
    /// each of its turns; a program calls this a few times a second so that it is said also while the producer stands
    /// still, as it does on a disk that hangs. It takes some nanoseconds while there is nothing to say.
    pub fn tell_registry(&self) {
        let shared = &self.shared;
        if shared.generation.forked() {
            return;
        }
        log_once::tell_registry(&shared.tally, shared.clock.read().boot);
    }

    /// How long ago the background producer began its last turn. It turns once a second at least: several seconds mean
    /// that it stands still, in the disk or in a subscriber of the log, or that it gets no processor. Then calls
    /// live on what is in memory, and after that wait in vain. Takes no lock. Zero after the clean stop, and in a
    /// forked child.
    #[must_use]
    pub fn producer_silent(&self) -> Duration {
        let shared = &self.shared;
        if shared.generation.forked() {
            return Duration::ZERO;
        }
        // Before the clock is read: a turn in between is no time before the one that is known.
        let turned = shared.turned.value();
        Duration::from_nanos(shared.clock.read().boot.saturating_sub(turned))
    }

    /// The clean stop: refuses every caller, puts what is unspent into the spill, syncs it, and hands the rest of
    /// the window back. Blocks until that is done; further calls do nothing. Dropping the last clone does the same.
    #[expect(
        clippy::must_use_candidate,
        reason = "it is called for its effect; the figures are a by-product"
    )]
    pub fn shutdown(&self) -> Stats {
        self.inner.shutdown();
        self.publish();
        self.stats()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::registry::memory::MemoryRegistry;
    use crate::registry::{ClusterId, Connection};

    /// A subscriber of the log runs on the threads of a registry's client, too, and a stop waits for the registry.
    #[test]
    fn a_stop_that_is_asked_for_on_a_thread_of_the_registry_s_adaptor_is_not_waited_for_there() {
        let genesis = Genesis::new(ClusterId::from_bytes([1; 16]), Layout::default(), 1_000, 1);
        let registry = Box::new(MemoryRegistry::new(genesis));
        let engine = Engine::builder().registry(registry).build().unwrap();
        let connection = Arc::new(Connection::default());
        lock(&engine.shared.tally).health.connect(connection.clone());
        // No stop ends without it.
        let gate = lock(&engine.shared.gate);
        let (inner, (told, tells)) = (engine.inner.clone(), channel());
        let adaptors = std::thread::spawn(move || {
            connection.thread_begins(std::thread::current().id());
            inner.shutdown();
            let _ = told.send(());
        });
        let returned = tells.recv_timeout(Duration::from_secs(10));
        drop(gate);
        adaptors.join().unwrap();
        assert!(returned.is_ok(), "it waits for a stop that waits for it");
        engine.shutdown();
        assert!(lock(&engine.inner.threads).is_empty(), "another thread waits for the stop");
    }
}
