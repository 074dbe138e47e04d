//! What the producer counts, and publishes at the end of each of its turns for whoever reads the figures.

use super::{Latency, Switches};

/// What the reserve has done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ReserveTally {
    pub(crate) replayed: u64,
    pub(crate) spilled: u64,
    pub(crate) expired: u64,
    pub(crate) trimmed: u64,
    pub(crate) wasted_spill: u64,
    pub(crate) wasted_grant: u64,
    pub(crate) wasted_step: u64,
    pub(crate) wasted_panic: u64,
    pub(crate) granted_extents: u64,
    pub(crate) damaged: u64,
    pub(crate) refused: u64,
    pub(crate) failures: u64,
    pub(crate) overwritten: u64,
}

/// What the window keeper has counted.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WindowTally {
    pub(crate) switches: Switches,
    /// How long each switch took that the clock made necessary.
    pub(crate) switched: Latency,
    pub(crate) rollbacks: u64,
    pub(crate) jumps: u64,
    /// How far the wall clock was behind the registry's when it was seen last.
    pub(crate) behind_registry_ns: u64,
}

/// What the producer publishes for stats.
#[derive(Debug, Default, Clone)]
pub(crate) struct Gauges {
    pub(crate) reserve: ReserveTally,
    pub(crate) held: u64,
    /// The tick of the oldest id of the reserve.
    pub(crate) oldest: Option<u64>,
    pub(crate) stock: xuid_spill::Stock,
    pub(crate) spill_active: bool,
    pub(crate) why_not: Option<String>,
    pub(crate) windows: WindowTally,
}
