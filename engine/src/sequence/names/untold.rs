//! How many names there are of which the store has told nothing yet, or that they are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many are allowed, however few unused names are kept.
const LEAST_MOST: usize = 100_000;

/// Their number, which is bounded: else a client that tries names fills the memory, as long as the store is away.
#[derive(Debug)]
pub(crate) struct UntoldNames {
    most: usize,
    count: Arc<AtomicUsize>,
}

impl UntoldNames {
    pub(crate) fn new(limit: usize) -> Self {
        Self { most: limit.max(LEAST_MOST), count: Arc::default() }
    }

    /// One more, until this is dropped; `None` if there are too many.
    pub(crate) fn take(&self) -> Option<Untold> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let untold = Untold(self.count.clone());
        (before < self.most).then_some(untold)
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Untold(Arc<AtomicUsize>);

impl Drop for Untold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
