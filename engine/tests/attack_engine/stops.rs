//! Stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xuid_engine::clock::SystemClock;
use xuid_engine::registry::Registry;
use xuid_engine::{Engine, Layout, Order};

use crate::held_up::{MARK, SWAP, Shifted, boot, eventually, on, poll, prefilled, registry, slow, tick_of};

/// Releases behind the first of a clean stop.
#[test]
fn a_clean_stop_hands_every_window_back() {
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    let engine = Engine::builder().registry(on(&inner)).workers(4).build().unwrap();
    eventually("four workers are held", 5, || engine.workers().len() == 4);
    // Windows reach two seconds ahead.
    engine.shutdown();
    let now = tick_of(&SystemClock);
    let mut view = inner.clone();
    let ahead: Vec<_> = (0..4)
        .map(|w| view.worker(w).unwrap().record.reserved_until.cast_signed() - now.cast_signed())
        .filter(|ahead| *ahead > 20)
        .collect();
    assert!(ahead.is_empty(), "windows that were not handed back reach so many ms ahead: {ahead:?}");
}

/// The same with one worker, where the registry thread was busy with a renewal when the stop came.
#[test]
fn a_clean_stop_hands_the_window_back_behind_a_slow_renewal() {
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 1);
    let (registry, hold, reached) = slow(&inner);
    let engine = Engine::builder().registry(registry).worker(0).build().unwrap();
    hold.store(SWAP, Ordering::SeqCst);
    eventually("a renewal is under way", 5, || reached.load(Ordering::SeqCst) & SWAP != 0);
    let stopping = engine.clone();
    let stop = std::thread::spawn(move || stopping.shutdown());
    eventually("the producer has sealed", 5, || engine.workers().is_empty());
    std::thread::park_timeout(Duration::from_millis(50));
    hold.store(0, Ordering::SeqCst);
    stop.join().unwrap();
    let ahead = inner.clone().worker(0).unwrap().record.reserved_until.cast_signed()
        - tick_of(&SystemClock).cast_signed();
    assert!(ahead <= 20, "the window reaches {ahead} ms ahead after a clean stop");
}

/// The land of a long backfill at the stop.
#[test]
fn a_stop_with_years_of_declared_land_needs_little_memory() {
    let inner = registry(Layout::default(), 0, 4);
    let years = Duration::from_hours(8 * 365 * 24);
    let engine = Engine::builder().registry(on(&inner)).max_age(years).backfill(years).build().unwrap();
    engine.next_id().unwrap();
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let (before, begun) = (peak(), boot());
    engine.shutdown();
    let (grown, ms) = (peak() - before, (boot() - begun) / 1_000_000);
    assert!(grown < 256 && ms < 2_000, "the stop took {ms} ms and {grown} MiB more");
}

/// A stop that comes while a grant is under way.
#[test]
fn a_grant_under_way_at_a_clean_stop_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 4);
    prefilled(folder.path(), &inner, 5_000, 60_000);
    let (registry, hold, reached) = slow(&inner);
    hold.store(MARK, Ordering::SeqCst);
    let engine = Engine::builder().data_dir(folder.path()).registry(registry).build().unwrap();
    // The mark has moved, and nobody knows yet.
    eventually("a grant is under way", 5, || reached.load(Ordering::SeqCst) & MARK != 0);
    let stopping = engine.clone();
    let stop = std::thread::spawn(move || stopping.shutdown());
    eventually("calls are refused", 5, || engine.try_next_id().is_err());
    std::thread::park_timeout(Duration::from_millis(50));
    hold.store(0, Ordering::SeqCst);
    stop.join().unwrap();
    let stats = engine.stats();
    // 5,000 ticks were there, and what this life minted and did not use came to them.
    assert!(stats.replayed > 0, "the grant was not taken in: {stats:?}");
    assert_eq!(
        stats.minted + stats.replayed,
        stats.issued + stats.spilled + stats.wasted.total() + stats.held.total(),
        "{stats:?}"
    );
    assert_eq!(stats.spill.ids, 5_000 * 4_096 + stats.spilled - stats.replayed, "{:?}", stats.spill);
}

/// A thread that waited while the engine was shut down.
#[test]
fn no_call_succeeds_after_shutdown_returned() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 64);
    let engine = Engine::builder()
        .registry(on(&inner))
        .clock(clock.clone())
        .wait(Duration::from_secs(5))
        .build()
        .unwrap();
    // A second's ids for calls as small as the thread's: while one of them waits, the thread gets a ticket, behind them.
    let small = || engine.request(256, Order::Any, Duration::from_secs(5));
    while poll(&mut small()).is_ready() {}
    let mut queue: Vec<_> = (0..16_000).map(|_| small()).collect();
    queue.retain_mut(|pending| poll(pending).is_pending());
    assert!(queue.len() > 8_000, "{} calls wait", queue.len());
    clock.hold_named.store(true, Ordering::SeqCst);
    let over = Arc::new(AtomicBool::new(false));
    let (theirs, theirs_over) = (engine.clone(), over.clone());
    let waits = move || {
        let first = theirs.next_id();
        while !theirs_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        (first, (0..100).filter(|_| theirs.next_id().is_ok()).count())
    };
    let thread = std::thread::Builder::new().name("waits".into()).spawn(waits).unwrap();
    eventually("the thread has a ticket", 5, || clock.named_held.load(Ordering::SeqCst));
    // Where it reads the clock under the gate's lock, this returns only once it goes on, to the reading before it parks.
    let _ = engine.stats();
    clock.named_is_alone.store(true, Ordering::SeqCst);
    eventually("it was served", 5, || engine.stats().waiting == 0);
    engine.shutdown();
    clock.hold_named.store(false, Ordering::SeqCst);
    over.store(true, Ordering::SeqCst);
    let (first, late) = thread.join().unwrap();
    assert_eq!(late, 0, "{late} calls succeeded after the shutdown had returned ({first:?})");
}
