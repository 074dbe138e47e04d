//! What the peers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::subject::{Fixture, Kind, PerThread, SharedGenerator, Subject, Supply};

/// A peer of one id a call.
pub(super) fn peer(
    name: &'static str,
    about: &'static str,
    supply: Supply,
    set_up: fn() -> Box<dyn Fixture>,
) -> Subject {
    Subject { name, about, kind: Kind::Peer, supply, ids_per_call: 1, set_up }
}

/// Gives each thread's generator a worker number of its own.
#[derive(Default)]
pub(super) struct Workers(AtomicU64);

impl Workers {
    /// A number below `limit` that was not given before, until all were.
    pub(super) fn hire(&self, limit: u64) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) % limit
    }
}

/// A generator a thread; `make` gets the thread's own worker number, below `limit`.
pub(super) fn per_worker<C: FnMut() -> u64 + 'static>(
    limit: u64,
    make: impl Fn(u64) -> C + Send + Sync + 'static,
) -> Box<dyn Fixture> {
    let workers = Workers::default();
    PerThread::new(move || make(workers.hire(limit)))
}

/// One generator behind a std Mutex.
pub(super) fn locked<T: Send + 'static>(
    generator: T,
    call: impl Fn(&mut T) -> u64 + Send + Sync + Copy + 'static,
) -> Box<dyn Fixture> {
    SharedGenerator::new(CachePadded::new(Mutex::new(generator)), move |generator| {
        call(&mut generator.lock().unwrap_or_else(PoisonError::into_inner))
    })
}
