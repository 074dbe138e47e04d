//! Workers that are taken, kept and lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use xuid_engine::clock::{Clock, SystemClock};
use xuid_engine::registry::Registry;
use xuid_engine::{Engine, Layout, Order};

use crate::held_up::{CLAIM, Shifted, boot, eventually, on, registry, slow, tick_of};

/// Two steps back, the second while a worker is being taken for the first.
#[test]
fn a_second_step_back_while_a_worker_is_taken_is_noticed() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 100_000_000, 8);
    let (registry, hold, reached) = slow(&inner);
    let engine = Engine::builder().registry(registry).clock(clock.clone()).build().unwrap();
    engine.next_id().unwrap();
    hold.store(CLAIM, Ordering::SeqCst);
    clock.step(-600_000);
    eventually("a worker is being taken", 5, || reached.load(Ordering::SeqCst) & CLAIM != 0);
    clock.step(-600_000);
    let _ = engine.stats();
    hold.store(0, Ordering::SeqCst);
    eventually("the switch", 5, || engine.stats().windows.switches.clock >= 1);
    let begun = boot();
    let (mut served, mut last) = (0, None);
    while boot() < begun + 5_000_000_000 && served == 0 {
        match engine.runs(10, Order::Fresh) {
            Ok(_) => served += 1,
            Err(error) => last = Some(error),
        }
    }
    assert!(
        served > 0,
        "no land for 5 s; seven workers are free; {last:?}; {:?} switches {:?}",
        engine.status(),
        engine.stats().windows.switches
    );
}

/// A tick longer than the furthest window, over a registry that tells the time.
#[test]
fn long_ticks_work_over_a_registry_with_a_clock() {
    let layout = Layout::new(41, 10, 12, 3_600_000_000, 0).unwrap();
    let clock = Arc::new(Shifted::default());
    // The middle of an hour.
    let past = (clock.read().wall / 1_000_000 % 3_600_000).cast_signed();
    clock.step(1_800_000 - past);
    let inner = registry(layout, 0, 4);
    inner.set_time(Some(clock.read().wall));
    let engine =
        Engine::builder().registry(on(&inner)).clock(clock).wait(Duration::from_secs(3)).build().unwrap();
    let got = engine.next_id();
    assert!(got.is_ok(), "{got:?} {:?}", engine.status());
}

/// A worker short, and short windows.
#[test]
fn a_missing_second_worker_does_not_hold_up_the_first_ones_renewal() {
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 2);
    let other = Engine::builder().registry(on(&inner)).build().unwrap();
    let engine =
        Engine::builder().registry(on(&inner)).workers(2).window_max(Duration::from_secs(1)).build().unwrap();
    let begun = boot();
    let (mut ok, mut bad) = (0, 0);
    while boot() < begun + 8_000_000_000 {
        match engine.runs(1, Order::Fresh) {
            Ok(_) => ok += 1,
            Err(_) => bad += 1,
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    drop(other);
    assert_eq!(bad, 0, "{bad} of {} calls found no window", ok + bad);
}

/// A pinned worker that was lost.
#[test]
fn a_pinned_worker_that_was_lost_for_a_while_is_taken_again() {
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 2);
    let engine = Engine::builder().registry(on(&inner)).worker(0).build().unwrap();
    engine.next_id().unwrap();
    // Another process moved the record on (this one was stopped for long) and is gone again.
    let mut found = inner.clone().worker(0).unwrap();
    found.version += 1;
    found.record.token = xuid_engine::registry::Token([9; 16]);
    inner.tamper_worker(0, Some(found));
    // It is taken again as soon as its last window has ended, so the moment without a worker may be too short to see.
    eventually("the worker is lost", 10, || engine.stats().windows.switches.lost > 0);
    eventually("it is taken again", 10, || engine.stats().windows.left_ms > 0 && engine.status().ready);
    let begun = boot();
    let mut got = engine.runs(1, Order::Fresh);
    while boot() < begun + 6_000_000_000 && got.is_err() {
        got = engine.runs(1, Order::Fresh);
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(got.is_ok(), "nobody holds it for 6 s, and still: {got:?}");
}
