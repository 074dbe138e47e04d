//! A generator owned by one thread.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Shared};
use crate::error::IdError;
use crate::fork::EpochWord;
use crate::hand::{Hand, Station};
use crate::id::Id;

/// A run of its own beside the engine's shared tiers. Move-only; its rest is wasted when it is dropped.
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
    hand: Hand,
    /// Apart from `shared`: what a hit reads must not lie beside what the producer writes.
    epoch: EpochWord,
    station: Station,
    shared: Arc<Shared>,
    wait: Duration,
    /// Keeps the engine's threads running.
    _engine: Engine,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>) -> Self {
        let (station, wait) = (shared.join(), shared.settings.wait);
        Self { hand: Hand::new(), epoch: shared.epoch.clone(), station, shared, wait, _engine: engine }
    }

    /// The next id of any age; waits as [`Engine::next_id`] does.
    ///
    /// # Errors
    /// [`IdError`]; nothing was issued then.
    #[inline]
    pub fn next_id(&mut self) -> Result<Id, IdError> {
        match self.hand.hit(self.epoch.load()) {
            Some(id) => Ok(id),
            None => self.shared.next_cold(&self.hand, &mut self.station, Some(self.wait)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.hand.settle(&self.station.counters);
    }
}
