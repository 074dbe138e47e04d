//! Trials that do not know of each other, side by side.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

use super::{Progress, Tally};

/// Runs each trial of the range on one of `lanes` threads and adds up what they bring home. An error of a trial, or a
/// panic, is a failure of it, told with its number and `seed`.
pub(super) fn side_by_side(
    name: &str,
    (range, lanes): (Range<u64>, usize),
    progress: &Progress,
    seed: impl Fn(u64) -> u64 + Sync,
    trial: impl Fn(u64, &mut Tally) -> Result<()> + Sync,
) -> Tally {
    let (next, total) = (AtomicU64::new(range.start), Mutex::new(Tally::new(name)));
    let lane = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= range.end {
            return;
        }
        let mut mine = Tally::new(name);
        if let Err(error) = caught(|| trial(number, &mut mine)) {
            mine.fail(format!("trial {number}, seed {}: {error:#}", seed(number)));
        }
        mine.trials += 1;
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        *total += &mine;
        progress.tell(&total);
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A panic as an error like others: whoever calls this goes on to count what came before it.
pub(super) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    outcome.unwrap_or_else(|panic| Err(anyhow!("panicked: {}", said(panic.as_ref()))))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn every_trial_runs_once_and_what_fails_is_told_with_its_seed() {
        let progress = Progress::default();
        let tally = side_by_side(
            "t",
            (10..30, 3),
            &progress,
            |number| number * 100,
            |number, tally| {
                tally.ids += number;
                match number {
                    12 => bail!("twelve"),
                    13 => panic!("thirteen"),
                    _ => Ok(()),
                }
            },
        );
        assert_eq!((tally.trials, tally.ids), (20, (10..30).sum()));
        let mut failures = tally.failures;
        failures.sort_unstable();
        assert_eq!(failures, ["trial 12, seed 1200: twelve", "trial 13, seed 1300: panicked: thirteen"]);
        assert_eq!(progress.so_far(), (20, (10..30).sum(), 2));
    }
}
