//! What handles and refiller share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::options::PrefetchOptions;
use super::stock::Stock;
use super::vintage::Oldest;
use crate::error::ClientError;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) oldest: Oldest,
    pub(super) options: PrefetchOptions,
    /// Whose ids they are (P4).
    pub(super) process: u32,
    stock: Mutex<Stock>,
    /// The refiller is wanted.
    pub(super) wanted: Notify,
    /// There is news for tasks that wait, and for threads that do.
    pub(super) arrived: Notify,
    pub(super) arrived_for_threads: Condvar,
}

impl Shared {
    pub(super) fn new(options: PrefetchOptions) -> Self {
        Self {
            oldest: Oldest::default(),
            process: std::process::id(),
            stock: Mutex::new(Stock::new(options.max_age)),
            options,
            wanted: Notify::new(),
            arrived: Notify::new(),
            arrived_for_threads: Condvar::new(),
        }
    }

    /// Refuses a forked child. Before anything else: the lock may have been held at the fork, and nobody is left there
    /// to release it.
    pub(super) fn check_process(&self) -> Result<(), ClientError> {
        let found = std::process::id();
        if found == self.process { Ok(()) } else { Err(ClientError::Forked { owner: self.process, found }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Stock> {
        // Nothing in the locked sections panics half way.
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.tell();
    }
}
