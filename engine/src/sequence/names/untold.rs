//! How many names there are of which the store has told nothing yet, or that they are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names that a stranger brought up, and of which the store has told nothing yet, or that it does not have them: at most so many. Each
/// takes memory until it was not used for some seconds, and as long as the store is away. For
/// [`sequence_within`](crate::sequence::Sequences::sequence_within).
#[derive(Debug)]
pub struct UntoldNames {
    most: usize,
    count: Arc<AtomicUsize>,
}

impl UntoldNames {
    /// For so many names.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, count: Arc::default() }
    }

    /// Whether there are so many.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= self.most
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
