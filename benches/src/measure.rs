//! Throughput of a closure on some threads: all begin together, all end at the same deadline, and the rate is
//! the sum of what each did over its own time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Calls between two looks at the stop flag.
const BATCH: u64 = 1_000;

/// The time, for measuring.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Calls a second of `call` on `threads` threads for `span`, each with a state of its own from `make`.
pub fn rate<S>(
    threads: usize,
    span: Duration,
    make: impl Fn() -> S + Sync,
    call: impl Fn(&mut S) + Sync,
) -> f64 {
    let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = || {
            let mut state = make();
            barrier.wait();
            let begin = now();
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    call(&mut state);
                }
                calls += BATCH;
            }
            calls as f64 / begin.elapsed().as_secs_f64()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        barrier.wait();
        std::thread::sleep(span);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(0.0)).sum()
    })
}

/// What `work` returned on each of so many threads. All begin together; `work` is given what says that `span` is over.
pub fn threads<T: Send>(
    count: usize,
    span: Duration,
    work: impl Fn(&dyn Fn() -> bool) -> T + Sync,
) -> Vec<T> {
    let (barrier, over) = (Barrier::new(count + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let begin = || {
            barrier.wait();
            work(&|| over.load(Ordering::Relaxed))
        };
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(begin)).collect();
        barrier.wait();
        std::thread::sleep(span);
        over.store(true, Ordering::Relaxed);
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    })
}

/// One row of a table of targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was measured.
    pub path: String,
    /// For people: median, least and most of ours and of the baseline, and the unit.
    pub figures: String,
    /// What the target speaks of.
    pub ratio: f64,
    /// For people: what the ratio must be.
    pub target: String,
    /// Whether it is.
    pub met: bool,
}

/// The smallest, the middle and the largest of some figures.
#[must_use]
pub fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(0), at(last / 2), at(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
    }
}
