//! The spill, full or stale.

use std::sync::atomic::Ordering;
use std::time::Duration;

use xuid_engine::clock::SystemClock;
use xuid_engine::{Engine, Layout, Order};

use crate::held_up::{MARK, boot, eventually, on, poll, prefilled, registry, slow, tick_of};

/// A full log that moves on while a grant is under way.
#[test]
fn a_full_spill_survives_an_append_while_a_grant_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    prefilled(folder.path(), &inner, 530_000, 60_000);
    let (registry, hold, reached) = slow(&inner);
    hold.store(MARK, Ordering::SeqCst);
    // Two workers mint more than memory keeps, so that something is appended before the first windows end.
    let engine = Engine::builder().data_dir(folder.path()).registry(registry).workers(2).build().unwrap();
    let extents = engine.stats().spill.extents;
    eventually("a grant is under way", 5, || reached.load(Ordering::SeqCst) & MARK != 0);
    eventually("something was appended", 10, || engine.stats().spill.overwritten > 0);
    hold.store(0, Ordering::SeqCst);
    eventually("the grant is answered", 5, || engine.stats().spill.granted > 0);
    let spill = engine.stats().spill;
    assert!(spill.active, "of {extents} extents: {spill:?}");
}

/// What a spill full of stale extents costs.
#[test]
fn a_stale_spill_costs_nothing_each_turn() {
    // Half the calls would be lost each time if it cost something, and once in a while if something else runs here.
    let mut found = Vec::new();
    while found.len() < 3 {
        let [empty, stale] = [1, 520_000].map(calls_beside_a_stale_spill);
        if stale * 2 > empty {
            return;
        }
        found.push((empty, stale));
    }
    panic!("calls in 3 s with an empty spill, and with a stale one, three times: {found:?}");
}

/// How many calls are answered in three seconds beside one that waits, with so many extents of hours ago in the spill.
fn calls_beside_a_stale_spill(extents: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    prefilled(folder.path(), &inner, extents, 3 * 3_600_000);
    let engine = Engine::builder().data_dir(folder.path()).registry(on(&inner)).build().unwrap();
    let mut waiting = engine.request(1_000_000_000, Order::Any, Duration::from_secs(10));
    assert!(poll(&mut waiting).is_pending());
    let begun = boot();
    let mut calls = 0;
    while boot() < begun + 3_000_000_000 {
        calls += u64::from(engine.runs(1, Order::Fresh).is_ok());
    }
    calls
}
