//! What holds ids ahead of need, and must drop them when a server turns out to be of another cluster, or at a close.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A source of prefetched ids.
pub(crate) trait HeldAhead: Debug + Send + Sync {
    /// Drops what is held and what is on its way; it goes on with what is asked for from then on.
    fn void(&self);

    /// Drops what is held and what is on its way, and gives nothing from then on.
    fn end(&self);
}

/// Those of one client.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<Vec<Weak<dyn HeldAhead>>>);

impl Holders {
    pub(super) fn add(&self, holder: Weak<dyn HeldAhead>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended go here, so that there are no more than were alive at once, and one.
        all.retain(|one| one.strong_count() > 0);
        all.push(holder);
    }

    pub(super) fn void(&self) {
        for holder in self.alive() {
            holder.void();
        }
    }

    pub(super) fn end(&self) {
        for holder in self.alive() {
            holder.end();
        }
    }

    fn alive(&self) -> Vec<Arc<dyn HeldAhead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}
