//! The clean stop, and the turn-over of a second, while callers call: every id in exactly one place, and none issued of
//! what was handed back.

use crate::loom::bench::{Bench, Caller, MS};
use crate::loom::{every, finds};
use crate::sys::guards::Guard;
use crate::tiers::ring::PARTITIONS;

/// Callers take what they get, so many times each, of ring, queue and minter: `blocks` lie in ring and queue. Meanwhile
/// the producer turns, if it is told to, and stops. The callers stay, and get nothing of their runs after that.
fn callers_and_a_stop<const N: usize>(blocks: u64, calls: [usize; N], turns_over: bool) -> Option<String> {
    let mut bench = Bench::new();
    // A tick is a block; the begun one is cut by callers, or by the seal.
    bench.time.pass(blocks * MS);
    (0..PARTITIONS).for_each(|partition| bench.shared.ring.ask_again(partition));
    bench.turn();
    if turns_over {
        bench.time.pass(1_000 * MS);
    }
    let caller = |calls: usize| {
        let shared = bench.shared.clone();
        loom::thread::spawn(move || Caller::call(&shared, calls))
    };
    let callers: Vec<_> = calls.into_iter().map(caller).collect();
    if turns_over {
        bench.turn();
    }
    let (shared, mut late) = (bench.shared.clone(), Vec::new());
    let mut stays = |mut caller: Caller| {
        late.extend(caller.hit(&shared));
        caller.end()
    };
    let wrong = bench.stop(|| callers.into_iter().flat_map(|caller| stays(caller.join().unwrap())).collect());
    wrong.or_else(|| late.first().map(|id| format!("{id} was issued after the stop")))
}

#[test]
fn loom_a_stop_leaves_every_id_in_one_place() {
    every(Some(3), || callers_and_a_stop(2, [3], false));
}

#[test]
fn loom_a_stop_under_two_callers_leaves_every_id_in_one_place() {
    every(Some(1), || callers_and_a_stop(8, [1, 1], false));
}

#[test]
fn loom_a_turn_over_leaves_every_id_in_one_place() {
    every(Some(2), || callers_and_a_stop(2, [2], true));
}

#[test]
fn loom_an_unsealed_minter_is_found_out() {
    finds(Guard::SealFirst, Some(3), || callers_and_a_stop(2, [3], false));
}

#[test]
fn loom_a_stop_that_voids_runs_before_its_sweeps_only_is_found_out() {
    finds(Guard::StopVoidsAgain, Some(3), || callers_and_a_stop(2, [3], false));
}

#[test]
fn loom_a_stop_finds_a_slot_that_is_read_and_then_cleared() {
    finds(Guard::TakeBySwap, Some(3), || callers_and_a_stop(2, [3], false));
}

#[test]
fn loom_a_turn_over_finds_a_slot_that_is_read_and_then_cleared() {
    finds(Guard::TakeBySwap, Some(2), || callers_and_a_stop(2, [2], true));
}
