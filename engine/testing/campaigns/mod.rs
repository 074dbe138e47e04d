//! Campaigns: very many trials, in parts that can be stopped, resumed and joined.
//!
//! `tests/campaign` calls these tests of the release build by name, one part at a time:
//! `XUID_TRIALS=0..1000 cargo test --release -p xuid-engine --lib -- --exact --ignored --nocapture
//! testing::campaigns::histories`. They are ignored otherwise.
//!
//! # Invariants
//! - I1 a trial derives from its number alone, so that parts may be run in any order, on any machine;
//! - I2 a part prints `@progress DONE OF IDS FAILURES` as it goes and `@part {json}` at its end, and fails if a trial
//!   failed: its tallies can be summed.

mod crash_images;
mod files;
mod histories;
mod mutants;
mod sequences;
mod tally;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys::atomics::lock;
pub(crate) use crate::testing::campaigns::tally::Tally;

/// Threads that work on a part: the machine that campaigns are sized for has two cores.
const THREADS: usize = 2;

/// How often progress is told.
const TELL: Duration = Duration::from_millis(500);

/// The range of trials that this part is asked for, or else a small one.
fn trials(default: u64) -> Range<u64> {
    let Ok(text) = std::env::var("XUID_TRIALS") else { return 0..default };
    let numbers = text.split_once("..").map(|(from, to)| (from.parse(), to.parse()));
    match numbers {
        Some((Ok(from), Ok(to))) if from <= to => from..to,
        _ => panic!("XUID_TRIALS={text} is no range like 0..1000"),
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?").to_owned()
}

/// Tells how far the part is, at most twice a second.
struct Progress {
    done: AtomicU64,
    ids: AtomicU64,
    failures: AtomicU64,
    of: u64,
    told: Mutex<Instant>,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "for people who watch, not for ids")]
    fn new(of: u64) -> Self {
        let [done, ids, failures] = [const { AtomicU64::new(0) }; 3];
        Self { done, ids, failures, of, told: Mutex::new(Instant::now()) }
    }

    fn one_more(&self, ids: u64, failures: u64) {
        let ids = self.ids.fetch_add(ids, Ordering::Relaxed) + ids;
        let failures = self.failures.fetch_add(failures, Ordering::Relaxed) + failures;
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        // Whoever finds another thread at it leaves it to that one.
        let Ok(mut told) = self.told.try_lock() else { return };
        if done == self.of || told.elapsed() >= TELL {
            println!("@progress {done} {} {ids} {failures}", self.of);
            let since = told.elapsed();
            *told += since;
        }
    }
}

/// Runs the trials that this part is asked for (`default` many if nobody asks), prints what became of them and fails
/// if one did. A trial is done again from its number alone. A panic of a trial is a failure of it.
pub(crate) fn campaign(
    name: &'static str,
    default: u64,
    trial: impl Fn(u64) -> Result<Tally, String> + Sync,
) -> Tally {
    let range = trials(default);
    let progress = Progress::new(range.end - range.start);
    let next = AtomicU64::new(range.start);
    let total = Mutex::new(Tally::new(name));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut mine = Tally::new(name);
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= range.end {
                        break;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| trial(n)));
                    mine.trials += 1;
                    match result.unwrap_or_else(|panic| Err(format!("panicked: {}", said(&*panic)))) {
                        Ok(tally) => {
                            mine.add(&tally);
                            progress.one_more(tally.ids, tally.failures.len() as u64);
                        }
                        Err(why) => {
                            mine.failures.push(format!("trial {n}: {why}"));
                            progress.one_more(0, 1);
                        }
                    }
                }
                lock(&total).add(&mine);
            });
        }
    });
    let mut total = lock(&total).clone();
    total.failures.sort_unstable();
    println!("@part {}", total.to_json());
    let failed = total.failures.len();
    assert!(failed == 0, "{failed} of {} trials failed, the first: {}", total.trials, total.failures[0]);
    total
}

// Each campaign is a test of this module, so that its name is short, and has a module of the same name.

#[test]
#[ignore = "a campaign: tests/campaign simulation"]
fn histories() {
    histories::run();
}

#[test]
#[ignore = "a campaign: tests/campaign sequences"]
fn sequences() {
    sequences::run();
}

#[test]
#[ignore = "a campaign: tests/campaign mutants"]
fn mutants() {
    mutants::run();
}

#[test]
#[ignore = "a campaign: tests/campaign power"]
fn crash_images() {
    crash_images::run();
}

#[test]
#[ignore = "a campaign: tests/campaign files"]
fn files() {
    files::run();
}
