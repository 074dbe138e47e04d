//! The wall clock, as other generators read it.

use std::time::{Duration, SystemTime};

/// Time since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "baselines read the system's clock themselves, as they would elsewhere"
)]
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since the Unix epoch.
pub(super) fn millis() -> u64 {
    wall().as_millis() as u64
}
