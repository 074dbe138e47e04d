//! Requests for refills: asked for twice is one task, and none is lost.

use std::sync::atomic::Ordering;

use crate::loom::bench::{Bench, MS};
use crate::loom::{every, finds};
use crate::sys::guards::Guard;

/// While the producer answers a request, threads take what it puts in or find nothing, and ask. Where a partition is
/// empty in the end a request stands, and each first request woke the producer once.
fn askers_and_an_answer(askers: usize) -> Option<String> {
    let mut bench = Bench::new();
    bench.time.pass(9 * MS);
    bench.shared.ring.ask_again(0);
    let woken = |bench: &Bench| bench.shared.producer.calls.load(Ordering::Relaxed);
    let before = woken(&bench);
    let asker = || {
        let shared = bench.shared.clone();
        loom::thread::spawn(move || {
            let found = shared.ring.take(&mut shared.ring.cursor(0));
            if found.asked {
                shared.producer.wake();
            }
            found.asked
        })
    };
    let askers: Vec<_> = (0..askers).map(|_| asker()).collect();
    bench.turn();
    let asked = askers.into_iter().map(|asker| asker.join().unwrap()).filter(|asked| *asked).count() as u64;
    let ring = &bench.shared.ring;
    let is_asked = ring.is_asked(0);
    let mut blocks = 0;
    ring.sweep(0, |_| blocks += 1);
    let woken = woken(&bench) - before;
    (blocks == 0 && !is_asked)
        .then(|| "the partition is empty, and nobody asks for it".to_owned())
        .or_else(|| (woken != asked).then(|| format!("{asked} asked first, and {woken} woke the producer")))
}

#[test]
fn loom_no_request_for_a_refill_is_lost() {
    every(Some(2), || askers_and_an_answer(2));
}

#[test]
fn loom_an_answer_after_the_refill_loses_a_request() {
    finds(Guard::AnswerFirst, Some(2), || askers_and_an_answer(1));
}

#[test]
fn loom_a_take_that_acquires_nothing_loses_a_request() {
    finds(Guard::AnswerSeen, Some(2), || askers_and_an_answer(1));
}
