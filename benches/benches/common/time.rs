//! The clock of a benchmark, which measures real time.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
