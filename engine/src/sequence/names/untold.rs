//! How many names there are of which the store has told nothing yet, or that they are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Names that a stranger brought up, and of which the store has told nothing yet, or that it does not have them: at most so many. Each
/// takes memory until it was not used for some seconds, and as long as the store is away. For
/// [`sequence_within`](crate::sequence::Sequences::sequence_within).
#[derive(Debug)]
pub struct UntoldNames {
    most: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: AtomicUsize,
    /// The second of boot time, and one more, in which the store said last that it does not have one of them; 0: it never did.
    absent_in: AtomicU64,
}

impl UntoldNames {
    /// For so many names.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, shared: Arc::default() }
    }

    /// Whether there are so many.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.count.load(Ordering::Relaxed) >= self.most
    }

    /// One more, until this is dropped; `None` if there are too many.
    pub(crate) fn take(&self) -> Option<Untold> {
        let before = self.shared.count.fetch_add(1, Ordering::Relaxed);
        let untold = Untold(self.shared.clone());
        (before < self.most).then_some(untold)
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Untold(Arc<Shared>);

impl Untold {
    /// The store does not have it.
    pub(crate) fn is_absent(&self, second: u64) {
        self.0.absent_in.store(second + 1, Ordering::Relaxed);
    }

    /// Whether the store did not have one of them in that second.
    pub(crate) fn was_absent_in(&self, second: u64) -> bool {
        self.0.absent_in.load(Ordering::Relaxed) == second + 1
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
