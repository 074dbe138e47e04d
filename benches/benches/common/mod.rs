//! What all groups share: how long they run, and what makes their figures void.

use std::time::Duration;

use criterion::Criterion;

/// Short runs, so that all groups together take a few minutes. The command line has the last word.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .configure_from_args()
}
