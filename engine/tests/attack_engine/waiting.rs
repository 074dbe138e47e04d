//! Calls that wait, and those beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use xuid_engine::clock::SystemClock;
use xuid_engine::{Engine, Layout, Order};

use crate::held_up::{CLAIM, Shifted, boot, eventually, on, poll, registry, slow, tick_of};

/// A fresh ticket from before a switch.
#[test]
fn a_fresh_call_from_before_a_switch_does_not_block_those_after_it() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 100_000_000, 8);
    let (registry, hold, reached) = slow(&inner);
    let engine = Engine::builder().registry(registry).clock(clock.clone()).build().unwrap();
    let first = engine.workers();
    engine.next_id().unwrap();
    hold.store(CLAIM, Ordering::SeqCst);
    clock.step(-3_600_000);
    let mut out = Vec::new();
    // E stands: the tick comes to its end.
    eventually("the standing tick is spent", 5, || {
        while engine.try_runs(64, Order::Fresh, &mut out).is_ok() {}
        reached.load(Ordering::SeqCst) & CLAIM != 0
    });
    while engine.try_runs(1, Order::Fresh, &mut out).is_ok() {}
    let mut old = engine.request(200, Order::Fresh, Duration::from_secs(20));
    assert!(poll(&mut old).is_pending());
    hold.store(0, Ordering::SeqCst);
    eventually("another worker is taken", 5, || engine.workers() != first && !engine.workers().is_empty());
    let begun = boot();
    let mut served = 0;
    while boot() < begun + 3_000_000_000 {
        served += u32::from(engine.runs(10, Order::Fresh).is_ok());
    }
    assert!(
        served > 0,
        "no fresh call was served for 3 s after the switch; the old one is pending: {}",
        poll(&mut old).is_pending()
    );
}

/// `any` behind a fresh call that cannot be served.
#[test]
fn the_reserve_serves_while_a_fresh_call_waits_for_the_clock() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 100_000_000, 1);
    let engine = Engine::builder()
        .registry(on(&inner))
        .worker(0)
        .clock(clock.clone())
        .backfill(Duration::from_mins(50))
        .wait(Duration::from_secs(3))
        .build()
        .unwrap();
    engine.next_id().unwrap();
    clock.step(-3_600_000);
    let big = 300_000_000;
    let control = engine.runs(big, Order::Any).map(|_| ());
    assert_eq!(control, Ok(()), "the reserve has hours of land");
    let mut stuck = engine.request(5_000, Order::Fresh, Duration::from_secs(30));
    assert!(poll(&mut stuck).is_pending());
    let behind = engine.runs(big, Order::Any).map(|_| ());
    assert_eq!(behind, Ok(()), "a fresh call stands before it");
}

/// Calls that never wait, while an ordered one waits for the clock.
#[test]
fn calls_that_do_not_wait_are_served_while_an_ordered_one_waits() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 100_000_000, 8);
    let engine = Engine::builder().registry(on(&inner)).clock(clock.clone()).build().unwrap();
    let _ = engine.runs(1, Order::Ordered).unwrap();
    clock.step(-8_000);
    eventually("a worker was switched to", 5, || engine.stats().windows.switches.clock == 1);
    eventually("fresh ids", 5, || engine.try_runs(1, Order::Fresh, &mut Vec::new()).is_ok());
    let mut ordered = engine.request(1, Order::Ordered, Duration::from_secs(30));
    assert!(poll(&mut ordered).is_pending());
    let begun = boot();
    let (mut served, mut tried) = (0, 0);
    while boot() < begun + 2_000_000_000 {
        tried += 1;
        served += u32::from(engine.try_runs(1, Order::Fresh, &mut Vec::new()).is_ok());
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(served > 0, "{served} of {tried} calls were served while one ordered call waited");
}

/// Wakers are called under the gate's lock.
#[test]
fn a_waker_may_call_the_engine() {
    struct Calls(Engine, AtomicBool);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            let _ = self.0.status();
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    let engine = Engine::builder().registry(on(&inner)).build().unwrap();
    let calls = Arc::new(Calls(engine.clone(), AtomicBool::new(false)));
    let waker = Waker::from(calls.clone());
    let mut pending = engine.request(200_000_000, Order::Any, Duration::from_millis(20));
    assert!(std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
    let begun = boot();
    while boot() < begun + 3_000_000_000 && !calls.1.load(Ordering::SeqCst) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let woken = calls.1.load(Ordering::SeqCst);
    if !woken {
        // The producer hangs for good; so would the drop.
        std::mem::forget((engine, pending, calls, waker));
    }
    assert!(woken, "the producer hangs in the waker");
}
