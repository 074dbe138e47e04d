//! A caller that goes away while the producer serves it: its ids are its own, or go back (U3).

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::loom::bench::{Bench, MS};
use crate::loom::{every, finds};
use crate::sys::guards::Guard;
use crate::{Engine, Order};

/// A call that waits is dropped, or read, while the producer serves it; then the engine stops.
fn a_caller_that_goes_away() -> Option<String> {
    let mut bench = Bench::new();
    let engine = Engine::new(bench.shared.clone(), Vec::new());
    let mut pending = Box::pin(engine.request(12, Order::Fresh, Duration::from_secs(1)));
    let poll = |pending: &mut Pin<Box<crate::Pending>>| {
        pending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
    assert!(poll(&mut pending).is_pending(), "there is one tick of eight ids");
    bench.time.pass(MS);
    let caller = loom::thread::spawn(move || match poll(&mut pending) {
        Poll::Ready(result) => result.unwrap_or_default(),
        Poll::Pending => Vec::new(),
    });
    bench.turn();
    let ids = caller.join().unwrap().into_iter().flatten().map(crate::Id::raw).collect();
    drop(engine);
    bench.stop(|| ids)
}

#[test]
fn loom_ids_of_a_caller_that_goes_away_go_back() {
    every(Some(3), a_caller_that_goes_away);
}

#[test]
fn loom_a_ticket_that_swallows_a_run_is_found_out() {
    finds(Guard::TicketReturns, Some(3), a_caller_that_goes_away);
}
