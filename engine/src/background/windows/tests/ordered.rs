//! Ordered ids where a tick is long: what a caller hears while they wait for the clock.

use super::*;
use crate::sys::atomics::lock;
use crate::{IdError, IdErrorKind, Order};
use std::future::Future;

const TICK: u64 = 10 * SECOND;

/// The beginning of a tick.
const BEGIN: u64 = START / TICK * TICK;

/// An engine that starts so long after the beginning of a tick and can have one worker only.
fn only(worker: u32, into: u64, settings: Settings) -> Hand {
    let layout = Layout::new(41, 10, 12, (TICK / 1_000) as u32, 0).unwrap();
    let ahead = layout.tick_at_ns(BEGIN + 360 * TICK).unwrap();
    Hand::over(BEGIN + into, layout, settings, |registry| {
        for other in (0..16).filter(|other| *other != worker) {
            tamper(registry, other, |found| found.record.reserved_until = ahead);
        }
    })
}

/// From now on this worker can be had, too.
fn free(hand: &Hand, worker: u32) {
    let floor = hand.engine.genesis().floor;
    hand.tamper(worker, |found| found.record.reserved_until = floor);
}

fn ordered(hand: &Hand) -> Result<u64, IdError> {
    let mut runs = Vec::new();
    hand.engine.try_runs(1, Order::Ordered, &mut runs).map(|()| runs[0].raw())
}

/// An engine whose last ordered id is of worker `from`, and which went to `to` after a step back of 2 s that many
/// nanoseconds after the beginning of a tick. Also that id.
fn switched(from: u32, to: u32, into: u64) -> (Hand, u64) {
    let mut hand = only(from, into, Settings::default());
    assert_eq!(hand.worker(), from);
    let last = ordered(&hand).unwrap();
    free(&hand, to);
    hand.step(-2 * SECOND as i64);
    hand.turn();
    hand.turn();
    assert_eq!((hand.worker(), hand.stats().windows.switches.clock), (to, 1));
    (hand, last)
}

#[test]
fn after_a_switch_within_a_tick_a_higher_worker_goes_on_at_once() {
    let (hand, last) = switched(3, 9, 5 * SECOND);
    assert!(ordered(&hand).unwrap() > last);
}

#[test]
fn after_a_switch_to_the_tick_before_a_higher_worker_goes_on_in_the_tick_of_the_last_one() {
    let (mut hand, last) = switched(3, 9, SECOND);
    let refused = ordered(&hand).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::ClockBehind, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)), "the tick begins again in a second");
    hand.run(SECOND);
    assert!(ordered(&hand).unwrap() > last);
}

#[test]
fn after_a_switch_within_a_tick_a_lower_worker_says_how_long_it_waits() {
    let (mut hand, last) = switched(9, 3, 5 * SECOND);
    let refused = ordered(&hand).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::ClockBehind, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(7)), "the clock is 3 s into the tick");
    // Meanwhile nobody else is kept waiting.
    let mut line = hand.engine.request(1, Order::Ordered, Duration::from_secs(30));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut line).poll(&mut context).is_pending());
    hand.engine.try_runs(1, Order::Fresh, &mut Vec::new()).unwrap();
    hand.run(7 * SECOND);
    assert!(ordered(&hand).unwrap() > last);
}

#[test]
fn without_a_step_of_the_clock_no_ordered_call_hears_of_the_clock() {
    let mut hand = only(9, 5 * SECOND, Settings { workers: 2, ..Settings::default() });
    let last = ordered(&hand).unwrap();
    free(&hand, 3);
    hand.run(2 * SECOND);
    assert_eq!(hand.engine.workers(), [9, 3]);
    // The lane that served it ends within the tick.
    drop(lock(&hand.assembly.shared.gate).minter.lanes.remove(0));
    let refused = ordered(&hand).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::Overloaded, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3)), "the tick ends");
    hand.run(3 * SECOND);
    assert!(ordered(&hand).unwrap() > last);
}
