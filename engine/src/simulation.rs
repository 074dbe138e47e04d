//! Whole clusters under scripts of misfortune: the engine's real code, in one thread, in simulated time.
//!
//! A history is three to five nodes over one registry of four workers. Each node has clocks of its own that step, stand,
//! swing, drift and leap to 2040 and back; processes are stopped between any two actions, and in the middle of some;
//! answers and requests to the registry get lost, or land late; nodes crash, stop and start again on the disk they
//! left, or on an older copy of it. Then clocks are right and faults end, and at the end everything is judged.
//!
//! # What is checked
//! - no id comes twice, over all nodes and lives, and neither is one issued from land that its node was not granted, nor
//!   above the node's clock;
//! - ordered ids ascend in one life, fresh ids are of now, E goes back only at a switch of worker;
//! - no window ends beyond two minutes of the registry's time, where it has a clock;
//! - after a clean stop every id is accounted for;
//! - when all is right again, every node that can have a worker serves within [a bound](history).
//!
//! # How to run
//! `XUID_HISTORIES=10000 cargo test --release -p xuid-engine --lib simulation` runs so many; without it, there are fewer.
//! A failure prints its seed; `XUID_HISTORY=seed` runs that history alone, with a trace of what happened.

mod calls;
mod chance;
mod clock;
mod controls;
mod history;
mod line;
mod node;
mod oracle;
mod script;
mod stories;
mod summary;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::chance::Chance;
use self::script::Theme;
use self::summary::Summary;
use crate::sync::lock;

thread_local! {
    static DRAWS: RefCell<Option<Chance>> = const { RefCell::new(None) };
}

/// Choices that the engine leaves to chance come from the seed from now on, in this thread.
fn seed_draws(seed: u64) {
    DRAWS.set(Some(Chance::new(seed)));
}

/// What stands for randomness in a simulation; nothing outside of one.
pub(crate) fn draw() -> Option<u64> {
    DRAWS.with_borrow_mut(|draws| draws.as_mut().map(Chance::next))
}

/// Runs one history. A panic of the engine is a finding like any other.
fn history(seed: u64, theme: Option<Theme>, trace: bool) -> Result<Summary, String> {
    let result = catch_unwind(AssertUnwindSafe(|| history::run(seed, theme, trace)));
    DRAWS.set(None);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed of the `n`th history: far apart, and the same in every run.
fn seed(n: u64) -> u64 {
    Chance::new(n).next()
}

#[test]
fn no_history_repeats_an_id_or_leaves_a_node_behind() {
    if let Some(seed) = number("XUID_HISTORY") {
        match history(seed, None, true) {
            Ok(summary) => println!("{summary:#?}"),
            Err(why) => panic!("history {seed}: {why}"),
        }
        return;
    }
    let count = number("XUID_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 200 } else { 2_000 });
    let next = AtomicU64::new(0);
    let (total, failed) = (Mutex::new(Summary::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    match history(seed(n), None, false) {
                        Ok(summary) => lock(&total).add(&summary),
                        Err(why) => lock(&failed).push((seed(n), why)),
                    }
                }
            });
        }
    });
    let total = *lock(&total);
    println!("{count} histories: {total:#?}");
    let failed = lock(&failed);
    for (seed, why) in failed.iter().take(20) {
        println!("XUID_HISTORY={seed}: {why}");
    }
    if count >= 100 {
        total.check_that_enough_went_wrong();
    }
    assert!(failed.is_empty(), "{} of {count} histories failed", failed.len());
}
