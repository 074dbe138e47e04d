//! Threads' runs while a turn-over or a shutdown voids them (U3, U7).

use crate::Engine;
use crate::loom::bench::{Bench, Caller, MS};
use crate::loom::{every, finds};
use crate::sys::guards::Guard;
use crate::tiers::thread_run::ThreadRun;

/// The producer's side of a turn-over meets a thread that takes a run. A run that was taken before it is used no more
/// after it, and of a run no id is both used and counted as waste.
fn a_turn_over_while_a_thread_takes() -> Option<String> {
    let bench = Bench::new();
    bench.fill_ring();
    let shared = bench.shared.clone();
    let taker = loom::thread::spawn(move || {
        let (mut thread_state, thread_run) = (shared.join(), ThreadRun::new());
        assert!(shared.restock(&thread_run, &mut thread_state, 1), "there is land");
        (thread_run, thread_state)
    });
    // Whoever has it now took it before the generation changes.
    let taken_before = bench.shared.ring.ids() == 0;
    bench.shared.void_runs();
    let (thread_run, thread_state) = taker.join().unwrap();
    let used = thread_run.hit(&bench.shared.generation).is_some();
    thread_run.close_run(&thread_state.counters);
    let (issued, wasted) = (thread_state.counters.issued(), thread_state.counters.wasted.value());
    if taken_before && used {
        return Some("a run of before the turn-over is used after it".into());
    }
    (issued != u64::from(used) || issued + wasted != 8)
        .then(|| format!("of a run of 8, {issued} were issued and {wasted} wasted"))
}

#[test]
fn loom_a_run_taken_before_a_turn_over_is_not_used_after_it() {
    every(None, a_turn_over_while_a_thread_takes);
}

#[test]
fn loom_a_generation_read_after_the_take_keeps_a_void_run() {
    finds(Guard::GenerationBeforeTake, None, a_turn_over_while_a_thread_takes);
}

/// The same for a handle, whose hits know no generation but only its limit.
fn a_turn_over_while_a_handle_takes() -> Option<String> {
    let bench = Bench::new();
    bench.fill_ring();
    let engine = Engine::new(bench.shared.clone(), Vec::new());
    let taker = loom::thread::spawn(move || {
        let mut handle = engine.handle();
        let first = handle.next_id().unwrap().raw();
        (handle, first)
    });
    let taken_before = bench.shared.ring.ids() == 0;
    bench.shared.void_runs();
    let (mut handle, first) = taker.join().unwrap();
    let next = handle.next_id().ok().map(crate::Id::raw);
    (taken_before && next == Some(first + 1)).then(|| "a run of before the turn-over is used after it".into())
}

#[test]
fn loom_a_run_that_a_handle_took_before_a_turn_over_is_not_used_after_it() {
    every(Some(3), a_turn_over_while_a_handle_takes);
}

#[test]
fn loom_a_handle_that_reads_the_generation_after_the_take_keeps_a_void_run() {
    finds(Guard::GenerationBeforeLimit, Some(3), a_turn_over_while_a_handle_takes);
}

/// A handle that sets its limit meets a producer that voids runs: the limit ends at zero.
fn a_limit_set_while_the_generation_ends() -> Option<String> {
    let shared = Bench::new().shared;
    let limit = shared.limits.join().unwrap();
    let before = shared.generation.load();
    let ends = {
        let shared = shared.clone();
        loom::thread::spawn(move || shared.void_runs())
    };
    limit.set(100, before, &shared.generation);
    ends.join().unwrap();
    let left = limit.load();
    (left != 0).then(|| format!("the limit is {left}, and the generation is over"))
}

#[test]
fn loom_a_limit_of_a_generation_that_is_over_ends_at_zero() {
    every(None, a_limit_set_while_the_generation_ends);
}

#[test]
fn loom_a_limit_that_is_not_looked_at_again_is_found_out() {
    finds(Guard::LimitLooksAgain, None, a_limit_set_while_the_generation_ends);
}

#[test]
fn loom_a_limit_without_one_order_is_found_out() {
    finds(Guard::LimitInOrder, None, a_limit_set_while_the_generation_ends);
}

#[test]
fn loom_a_limit_that_is_zeroed_before_the_generation_is_over_is_found_out() {
    finds(Guard::GenerationThenLimits, None, a_limit_set_while_the_generation_ends);
}

#[test]
fn loom_a_limit_that_nobody_voids_is_found_out() {
    finds(Guard::LimitVoided, None, a_limit_set_while_the_generation_ends);
}

/// A thread uses up its run while the generation ends: it uses each of its ids once.
fn a_run_used_up_while_the_generation_ends() -> Option<String> {
    let bench = Bench::new();
    bench.time.pass(MS);
    let shared = bench.shared.clone();
    let user = loom::thread::spawn(move || Caller::call(&shared, 3));
    bench.shared.void_runs();
    bench.shared.void_runs();
    bench.stop(|| user.join().unwrap().end())
}

#[test]
fn loom_a_run_is_used_once_whatever_becomes_of_its_generation() {
    every(Some(3), a_run_used_up_while_the_generation_ends);
}

/// A thread takes a block while the producer deals with a leap of the clock: it goes on with none of it. Nothing else is
/// left to take after that, until the registry has answered.
fn a_leap_while_a_thread_takes() -> Option<String> {
    let mut bench = Bench::new();
    bench.time.pass(2 * MS);
    bench.shared.ring.ask_again(0);
    bench.turn();
    bench.time.leap(3_600_000 * MS);
    let shared = bench.shared.clone();
    let taker = loom::thread::spawn(move || Caller::call(&shared, 1));
    bench.turn();
    let mut taker = taker.join().unwrap();
    let late = taker.hit(&bench.shared);
    let wrong = bench.stop(|| taker.end());
    late.map(|id| format!("{id} is of before the leap, and was issued after it")).or(wrong)
}

#[test]
fn loom_a_run_taken_before_a_leap_was_dealt_with_is_not_used_after_it() {
    every(Some(3), a_leap_while_a_thread_takes);
}

#[test]
fn loom_a_leap_that_voids_runs_before_its_sweeps_is_found_out() {
    finds(Guard::LeapVoidsLast, Some(3), a_leap_while_a_thread_takes);
}
