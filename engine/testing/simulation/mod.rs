//! Whole clusters under scripts of misfortune: the engine's real code, in one thread, in simulated time.
//!
//! A history is three to five nodes over one registry of four workers: one that other hosts share too, or the real
//! local one, whose nodes are processes of one host. Clocks step, stand, swing, drift and leap to 2040 and back;
//! processes are stopped or killed between any two actions, and in the middle of any: at the nth reading of the clock,
//! operation of the registry, or write or sync of a disk; disks fail, tear and rot, and lose what was not synced;
//! answers and requests to the registry get lost, take long, or land late, a claim and the look at what became of it,
//! too; it restarts, forgets who is alive, or is put back to an older copy of itself and fenced; nodes start again on
//! the disk they left, or on an older copy of it, or of another's. Then clocks are right and faults end, and at the end
//! everything is judged.
//!
//! # What is checked
//! - no id comes twice, over all nodes and lives, and neither is one issued from land that its node was not granted,
//!   nor above the node's clock;
//! - ordered ids ascend in one life, fresh ids are of now, E goes back only at a switch of worker;
//! - no window ends beyond two minutes of the registry's time, where it has a clock;
//! - after a clean stop every id is accounted for, and as many were issued as callers got;
//! - what is still in a spill at the end was not issued, and is there once;
//! - when all is right again, every node that can have a worker serves within [a bound](history).
//!
//! # How to run
//! `XUID_HISTORIES=10000 cargo test --release -p xuid-engine --lib simulation` runs so many; without it, there are
//! fewer. A failure prints its seed; `XUID_HISTORY=seed` runs that history alone, with a trace of what happened (of a
//! failure in the [campaign](super::campaigns), whose histories are longer, with `XUID_STEPS=2000` as well).

pub(crate) mod calls;
pub(crate) mod history;
pub(crate) mod leftovers;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod process;
pub(crate) mod restores;
pub(crate) mod same;
pub(crate) mod scripted;

pub(crate) mod store;
pub(crate) mod summary;
pub(crate) mod twins;
pub(crate) mod workload;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::registry::Token;
use crate::registry::ownership::Identity;
use crate::sys::atomics::lock;
use crate::testing::campaigns::Tally;
use crate::testing::simulation::history::Plan;
use crate::testing::simulation::workload::Theme;
use crate::testing::support::rng::Rng;

thread_local! {
    pub(crate) static DRAWS: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// Choices that the engine leaves to chance come from the seed from now on, in this thread.
pub(crate) fn seed_draws(seed: u64) {
    DRAWS.set(Some(Rng::new(seed)));
}

/// A process whose choices among workers come from the seed.
pub(crate) fn seeded(token: Token, owner: String) -> Identity {
    let draw = || DRAWS.with_borrow_mut(|draws| draws.as_mut().map_or(0, Rng::next));
    Identity { token, owner, random: draw, notes: None }
}

/// Things done in an ordinary history, before times get better. A campaign's have [`LONG`].
pub(crate) const SHORT: u64 = 400;

/// Things done in a campaign's history.
pub(crate) const LONG: u64 = 2_000;

/// Runs one history. A panic of the engine is a finding like any other.
pub(crate) fn history(seed: u64, theme: Option<Theme>, trace: bool) -> Result<Tally, String> {
    planned(&Plan { seed, theme, trace, steps: SHORT, ..Plan::default() })
}

pub(crate) fn planned(plan: &Plan) -> Result<Tally, String> {
    let (tally, verdict) = whole(plan);
    verdict.map(|()| tally)
}

/// The figures of a history, and what was wrong with it.
pub(crate) fn whole(plan: &Plan) -> (Tally, Result<(), String>) {
    let result = catch_unwind(AssertUnwindSafe(|| history::run(plan)));
    DRAWS.set(None);
    result.unwrap_or_else(|panic| {
        (Tally::default(), Err(format!("panicked: {}", crate::testing::campaigns::said(&*panic))))
    })
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed of the `n`th history: far apart, and the same in every run.
pub(crate) fn seed(n: u64) -> u64 {
    Rng::new(n).next()
}

#[test]
pub(crate) fn no_history_repeats_an_id_or_leaves_a_node_behind() {
    if let Some(seed) = number("XUID_HISTORY") {
        let steps = number("XUID_STEPS").unwrap_or(SHORT);
        match planned(&Plan { seed, steps, trace: true, ..Plan::default() }) {
            Ok(tally) => println!("{tally:#?}"),
            Err(why) => panic!("history {seed}: {why}"),
        }
        return;
    }
    let count = number("XUID_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 200 } else { 2_000 });
    let next = AtomicU64::new(0);
    let (total, failed) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    match history(seed(n), None, false) {
                        Ok(tally) => lock(&total).add(&tally),
                        Err(why) => lock(&failed).push((seed(n), why)),
                    }
                }
            });
        }
    });
    let total = lock(&total).clone();
    println!("{count} histories: {total:#?}");
    let failed = lock(&failed);
    for (seed, why) in failed.iter().take(20) {
        println!("XUID_HISTORY={seed}: {why}");
    }
    if count >= 100 {
        summary::check_that_enough_went_wrong(&total, count >= 2_000);
    }
    assert!(failed.is_empty(), "{} of {count} histories failed", failed.len());
}
