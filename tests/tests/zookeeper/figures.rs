//! What several tests compute: fields of ids, spreads of durations, and counts that the environment may raise.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The worker of an id of the default layout, 41/10/12.
pub(crate) fn worker_of(id: u64) -> u64 {
    (id >> 12) & 0x3ff
}

/// The tick of an id of the default layout.
pub(crate) fn tick_of(id: u64) -> u64 {
    id >> 22
}

/// A number from the environment, else this one.
pub(crate) fn wanted(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What a mutex guards. A thread that panicked fails its test by itself.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Durations, ascending.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    sorted: Vec<Duration>,
}

impl Spread {
    pub(crate) fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// The least duration that so many of a hundred do not exceed; zero of none.
    pub(crate) fn percentile(&self, of_hundred: usize) -> Duration {
        let rank = (self.sorted.len() * of_hundred).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or_default()
    }

    pub(crate) fn max(&self) -> Duration {
        self.percentile(100)
    }
}

/// In milliseconds, so that columns of them compare.
impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [50, 99, 100].map(|of_hundred| self.percentile(of_hundred).as_millis());
        write!(out, "p50 {p50} ms, p99 {p99} ms, max {max} ms, of {}", self.sorted.len())
    }
}

#[test]
fn percentiles_are_ranks() {
    let spread = Spread::of((1..=200).rev().map(Duration::from_millis));
    let ms = |of_hundred| spread.percentile(of_hundred).as_millis();
    assert_eq!((ms(1), ms(50), ms(99), spread.max().as_millis()), (2, 100, 198, 200));
    assert_eq!(Spread::of([]).max(), Duration::ZERO);
    assert_eq!(Spread::of([Duration::from_millis(7)]).percentile(50).as_millis(), 7);
}

#[test]
fn an_id_is_taken_apart_by_the_default_layout() {
    let id = (123_456 << 22) | (1_023 << 12) | 4_095;
    assert_eq!((tick_of(id), worker_of(id)), (123_456, 1_023));
}
