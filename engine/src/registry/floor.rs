//! From when on a namespace may be used.

use std::time::Duration;

use xuid_id::Layout;

use crate::clock::nanos;

/// From when on a namespace may be used, where this engine creates its local registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Floor {
    /// From now on: nothing has to be known of the past.
    #[default]
    Now,
    /// From so long ago: asserts that nobody issued an id of this layout and epoch since.
    Before(Duration),
    /// From the layout's epoch: asserts that nobody ever did. Benchmarks do.
    Epoch,
}

impl Floor {
    /// The first tick that may be granted, where it is `now_ns` (Unix nanoseconds) now: 0 where that is before the
    /// epoch, and at most the last one.
    #[must_use]
    pub fn tick(self, layout: &Layout, now_ns: u64) -> u64 {
        let at = match self {
            Self::Now => now_ns,
            Self::Before(ago) => now_ns.saturating_sub(nanos(ago)),
            Self::Epoch => 0,
        };
        layout.tick_at_ns(at).unwrap_or(0).min(layout.last_tick())
    }
}
