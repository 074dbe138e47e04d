//! What the peers share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::subject::{Fixture, Kind, Subject, Supply};

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
