//! Leaps of the clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use xuid_engine::clock::SystemClock;
use xuid_engine::{Engine, Layout};

use crate::held_up::{MARK, Shifted, boot, eventually, on, prefilled, registry, slow, tick_of};

/// A leap that a caller's reading of the clock meets first.
#[test]
fn a_leap_that_a_caller_sees_first_still_voids_what_is_in_memory() {
    let clock = Arc::new(Shifted::default());
    let registry = registry(Layout::default(), tick_of(&SystemClock) - 100_000, 64);
    let engine = Engine::builder().registry(on(&registry)).clock(clock.clone()).build().unwrap();
    engine.next_id().unwrap();
    eventually("a second of land is in memory", 5, || engine.stats().held.ring > 1_000_000);
    // Someone scrapes the figures a moment after the machine was resumed.
    *clock.ambush.lock().unwrap() = Some((std::thread::current().id(), 3_600_000));
    let _ = engine.stats();
    let begun = boot();
    eventually("the leap is counted", 4, || {
        engine.stats().clock.jumps == 1 || boot() > begun + 3_000_000_000
    });
    let stats = engine.stats();
    assert!(
        stats.clock.jumps == 1 && stats.wasted.step > 0,
        "the leap was overlooked: {:?} {:?}",
        stats.clock,
        stats.wasted
    );
}

/// A registry in the folder goes back with the machine, and so does its mark of what was taken from the spill.
#[test]
fn a_leap_gives_up_the_spill_beside_a_registry_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Shifted::default());
    let engine = Engine::builder().data_dir(folder.path()).clock(clock.clone()).build().unwrap();
    eventually("unused ids are in the spill", 20, || engine.stats().spill.ids > 16_000_000);
    clock.step(3_600_000);
    // Four millions a second come anew.
    eventually("they are given up", 4, || {
        let stats = engine.stats();
        stats.clock.jumps == 1 && stats.spill.ids < 8_000_000
    });
    eventually("it serves, of another worker", 4, || engine.next_id().is_ok());
}

/// A grant that was under way when the machine was resumed from a snapshot.
#[test]
fn a_grant_under_way_at_a_leap_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    prefilled(folder.path(), &inner, 5_000, 60_000);
    let (registry, hold, reached) = slow(&inner);
    hold.store(MARK, Ordering::SeqCst);
    let engine =
        Engine::builder().data_dir(folder.path()).registry(registry).clock(clock.clone()).build().unwrap();
    // The mark has moved, and the answer is on its way: in both copies of the machine.
    eventually("a grant is under way", 5, || reached.load(Ordering::SeqCst) & MARK != 0);
    clock.step(3_600_000);
    // Both figures are published by the same turn.
    eventually("the leap is dealt with", 5, || engine.stats().clock.jumps == 1);
    // What it is to bring is erased by then.
    let at_leap = engine.stats();
    assert!(at_leap.replayed > 0 && at_leap.wasted.step >= at_leap.replayed, "{:?}", at_leap.wasted);
    hold.store(0, Ordering::SeqCst);
    // The registry is asked for a worker behind it.
    eventually("the grant is answered", 5, || engine.next_id().is_ok());
    let stats = engine.stats();
    assert_eq!(
        stats.replayed, at_leap.replayed,
        "extents of before the leap are in use after it: {:?}",
        stats.held
    );
}
