//! What handles and refiller share.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::age::{AgeGroup, AgeGroups, Oldest};
use super::options::PrefetchOptions;
use super::pool::Pool;
use crate::fleet::HeldAhead;
use crate::moment::Moment;
use crate::process::Process;

/// So much before its age is over an age group is called off, since a thread does not wake on the spot. A thirty-second
/// of short ages.
const EARLY: Duration = Duration::from_millis(5);

pub(super) struct PrefetchState {
    pub(super) oldest: Oldest,
    pub(super) options: PrefetchOptions,
    /// Whose ids they are (P4).
    pub(super) process: Process,
    pool: Mutex<Pool>,
    groups: Mutex<AgeGroups>,
    /// An age group ends earlier than all others did, or everything does.
    pub(super) aging: Condvar,
    /// The refiller is wanted.
    pub(super) wanted: Notify,
    /// There is news for tasks that wait, and for threads that do.
    pub(super) arrived: Notify,
    pub(super) arrived_for_threads: Condvar,
}

/// By hand: a writer is a stranger's code, and gets nothing under a lock.
impl fmt::Debug for PrefetchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefetchState").field("options", &self.options).finish_non_exhaustive()
    }
}

impl PrefetchState {
    pub(super) fn new(options: PrefetchOptions) -> Self {
        Self {
            oldest: Oldest::default(),
            process: Process::this(),
            pool: Mutex::new(Pool::new(options.max_age)),
            groups: Mutex::new(AgeGroups::new(
                options.max_age.saturating_sub(EARLY.min(options.max_age / 32)),
            )),
            aging: Condvar::new(),
            options,
            wanted: Notify::new(),
            arrived: Notify::new(),
            arrived_for_threads: Condvar::new(),
        }
    }

    /// In a forked child never taken: it may have been held at the fork, and no thread is left there to release it. So
    /// the process is asked for first ([`Process::check`]).
    pub(super) fn lock(&self) -> MutexGuard<'_, Pool> {
        // Nothing in the locked sections panics half way.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn groups(&self) -> MutexGuard<'_, AgeGroups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The age group of what was asked for at that time.
    pub(super) fn date(&self, asked: Moment) -> AgeGroup {
        let mut groups = self.groups();
        let before = groups.next_end();
        let group = groups.date(asked);
        if before.is_none() || groups.next_end() < before {
            self.aging.notify_one();
        }
        group
    }

    /// Tells all who wait that it is worth looking.
    pub(super) fn tell(&self) {
        self.arrived.notify_waiters();
        self.arrived_for_threads.notify_all();
    }

    /// Ends it: nothing is held, nothing comes, and no handle goes on with what it has.
    pub(super) fn close(&self) {
        self.lock().close();
        self.oldest.end();
        // Under its lock, so that the ager is either before its look at the word, or asleep.
        drop(self.groups());
        self.aging.notify_one();
        self.tell();
    }
}

impl HeldAhead for PrefetchState {
    fn void(&self) {
        // First what is on its way: a refill that is put in before this was dated before it, and is called off below.
        self.lock().void_until(Moment::now());
        let oldest = self.groups().call_off_all();
        self.oldest.raise(oldest);
        self.lock().call_off(oldest);
    }

    fn end(&self) {
        self.close();
    }
}
