//! Ordered ids where a tick is long: what a caller hears while they wait for the clock.

use super::*;
use crate::sys::atomics::lock;
use crate::{IdError, IdErrorKind, Order};
use std::future::Future;

const TICK: u64 = 10 * SECOND;

/// The beginning of a tick.
const BEGIN: u64 = START / TICK * TICK;

/// An engine that starts so long after the beginning of a tick and can have one worker only.
fn only(worker: u32, into: u64, settings: Settings) -> Driven {
    let layout = Layout::new(41, 10, 12, (TICK / 1_000) as u32, 0).unwrap();
    let ahead = layout.tick_at_ns(BEGIN + 360 * TICK).unwrap();
    Driven::over(BEGIN + into, layout, settings, |registry| {
        for other in (0..16).filter(|other| *other != worker) {
            tamper(registry, other, |found| found.record.reserved_until = ahead);
        }
    })
}

/// From now on this worker can be had, too.
fn free(driven: &Driven, worker: u32) {
    let floor = driven.engine.genesis().floor;
    driven.tamper(worker, |found| found.record.reserved_until = floor);
}

fn ordered(driven: &Driven) -> Result<u64, IdError> {
    let mut runs = Vec::new();
    driven.engine.try_runs(1, Order::Ordered, &mut runs).map(|()| runs[0].raw())
}

/// An engine whose last ordered id is of worker `from`, and which went to `to` after a step back of 2 s that many
/// nanoseconds after the beginning of a tick. Also that id.
fn switched(from: u32, to: u32, into: u64) -> (Driven, u64) {
    let mut driven = only(from, into, Settings::default());
    assert_eq!(driven.worker(), from);
    let last = ordered(&driven).unwrap();
    free(&driven, to);
    driven.step(-2 * SECOND as i64);
    driven.turn();
    driven.turn();
    assert_eq!((driven.worker(), driven.stats().windows.switches.clock), (to, 1));
    (driven, last)
}

#[test]
fn after_a_switch_within_a_tick_a_higher_worker_goes_on_at_once() {
    let (driven, last) = switched(3, 9, 5 * SECOND);
    assert!(ordered(&driven).unwrap() > last);
}

#[test]
fn after_a_switch_to_the_tick_before_a_higher_worker_goes_on_in_the_tick_of_the_last_one() {
    let (mut driven, last) = switched(3, 9, SECOND);
    let refused = ordered(&driven).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::ClockBehind, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)), "the tick begins again in a second");
    driven.run(SECOND);
    assert!(ordered(&driven).unwrap() > last);
}

#[test]
fn after_a_switch_within_a_tick_a_lower_worker_says_how_long_it_waits() {
    let (mut driven, last) = switched(9, 3, 5 * SECOND);
    let refused = ordered(&driven).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::ClockBehind, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(7)), "the clock is 3 s into the tick");
    // Meanwhile nobody else is kept waiting.
    let mut line = driven.engine.request(1, Order::Ordered, Duration::from_secs(30));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut line).poll(&mut context).is_pending());
    driven.engine.try_runs(1, Order::Fresh, &mut Vec::new()).unwrap();
    driven.run(7 * SECOND);
    assert!(ordered(&driven).unwrap() > last);
}

#[test]
fn without_a_step_of_the_clock_no_ordered_call_hears_of_the_clock() {
    let mut driven = only(9, 5 * SECOND, Settings { workers: 2, ..Settings::default() });
    let last = ordered(&driven).unwrap();
    free(&driven, 3);
    driven.run(2 * SECOND);
    assert_eq!(driven.engine.workers(), [9, 3]);
    // The held worker that served it ends within the tick.
    drop(lock(&driven.assembly.shared.gate).minter.workers.remove(0));
    let refused = ordered(&driven).unwrap_err();
    assert_eq!(refused.kind(), IdErrorKind::Overloaded, "{refused}");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3)), "the tick ends");
    driven.run(3 * SECOND);
    assert!(ordered(&driven).unwrap() > last);
}
