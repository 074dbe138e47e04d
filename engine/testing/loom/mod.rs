//! Models of what threads do to each other, for loom: the engine's real code, every interleaving of its atomics and
//! locks.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p xuid-engine --release --lib --target-dir target/loom loom`
//!
//! Each claim has a negative control beside it: the same model with a guard out, or an order wrong, and loom must find
//! what goes wrong then. Guards are a thread's own, and loom runs all threads of a model on one.
//!
//! Loom follows C++11 without `SeqCst` accesses, which [`crate::sync`] spells out as fences. The queue's crate has no
//! hook for it: its operations are one step each here.

mod bench;
mod refills;
mod shutdown;
mod slots;
mod thread_runs;
mod tickets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sys::guards::Guard;

/// What a model's main thread stands on, in words: the default, 32 KiB, is too little for an engine's start.
const STACK: usize = 1 << 16;

/// Runs a model through every interleaving of at most so many preemptions (`None`: of all). It says what is wrong.
///
/// Three preemptions are what loom's authors found to be enough for nearly every defect; where that stays under half a
/// minute, models have more.
fn every(preemptions: Option<usize>, model: impl Fn() -> Option<String> + Clone + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 50_000;
    builder.check(move || {
        let model = model.clone();
        let thread = loom::thread::Builder::new().stack_size(STACK).spawn(model).unwrap();
        let wrong = thread.join().unwrap();
        assert_eq!(wrong, None);
    });
}

/// Without this guard the model must find something.
fn finds(
    guard: Guard,
    preemptions: Option<usize>,
    model: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
) {
    let outcome = Guard::without(&[guard], || catch_unwind(AssertUnwindSafe(|| every(preemptions, model))));
    let panic = outcome.expect_err("the model finds nothing");
    let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    println!("without {guard:?}: {said}");
    assert!(said.contains("left == right"), "it is the model that must say so, and not {said}");
}
