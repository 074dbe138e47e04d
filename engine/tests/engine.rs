//! The engine as an embedder sees it, over a registry in memory and over a folder.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_engine::clock::{Clock, Reading, SystemClock};
use xuid_engine::registry::memory::MemoryRegistry;
use xuid_engine::registry::{ClusterId, Genesis, Registry};
use xuid_engine::{Engine, Floor, Id, IdError, IdErrorKind, Layout, Order, Run};

/// The machine's clocks, the wall shifted as a test wants it.
struct Shifted(Mutex<i64>);

impl Shifted {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(0)))
    }

    fn step(&self, ms: i64) {
        *self.0.lock().unwrap() += ms * 1_000_000;
    }
}

impl Clock for Shifted {
    fn read(&self) -> Reading {
        let Reading { wall, boot } = SystemClock.read();
        Reading { wall: wall.wrapping_add_signed(*self.0.lock().unwrap()), boot }
    }
}

fn registry(floor: u64, workers: u32) -> MemoryRegistry {
    let genesis = Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), floor, workers);
    MemoryRegistry::new(genesis)
}

fn now_tick() -> u64 {
    Layout::default().tick_at_ns(SystemClock.read().wall).unwrap()
}

fn on(registry: &MemoryRegistry) -> Box<dyn Registry> {
    Box::new(registry.clone())
}

fn note(seen: &mut HashSet<u64>, runs: Vec<Run>) {
    for id in runs.into_iter().flatten() {
        assert!(seen.insert(id.raw()), "{id} came twice");
    }
}

fn balanced(engine: &Engine) {
    let stats = engine.shutdown();
    assert_eq!(stats.moving(), 0, "every id is accounted for: {stats:#?}");
    assert_eq!(stats.served.total(), stats.issued, "{stats:#?}");
}

#[test]
fn ids_from_many_threads_and_all_calls_are_unique_and_accounted_for() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(now_tick(), 16);
    // A machine that is busy elsewhere keeps the producer from running for longer than calls wait by default.
    let builder = Engine::builder().data_dir(folder.path()).wait(Duration::from_secs(10));
    let engine = builder.registry(on(&registry)).build().unwrap();
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let work = |n: u32| {
            let engine = engine.clone();
            move || {
                let mut ids = Vec::new();
                let mut handle = engine.handle();
                for round in 0..300u32 {
                    ids.extend((0..50).map(|_| engine.next_id().unwrap().raw()));
                    ids.extend((0..50).map(|_| handle.next_id().unwrap().raw()));
                    let order = [Order::Any, Order::Fresh, Order::Ordered][((round + n) % 3) as usize];
                    let count = 1 + round * 7 % 900;
                    match engine.runs(count, order) {
                        Ok(runs) => ids.extend(runs.into_iter().flatten().map(Id::raw)),
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                    let mut filled = vec![Id::default(); 33];
                    if engine.fill(&mut filled, order).is_ok() {
                        ids.extend(filled.into_iter().map(Id::raw));
                    }
                }
                ids
            }
        };
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(work(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let total: usize = seen.iter().map(Vec::len).sum();
    let unique: HashSet<u64> = seen.into_iter().flatten().collect();
    assert_eq!(unique.len(), total, "an id came twice");
    assert!(total > 4 * 300 * 100);
    balanced(&engine);
    // Its threads ended, and nobody else called.
    let stats = engine.stats();
    assert_eq!((stats.issued, stats.held.total()), (total as u64, 0), "{stats:#?}");
}

#[test]
fn ordered_ids_rise_across_threads() {
    let registry = registry(now_tick(), 4);
    let engine = Engine::builder().registry(on(&registry)).build().unwrap();
    let last = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    // The call is made after the one before it was answered.
                    let mut last = last.lock().unwrap();
                    let id = engine.runs(1, Order::Ordered).unwrap()[0].first().raw();
                    assert!(id > *last, "{id} after {last}");
                    *last = id;
                }
            });
        }
    });
}

#[test]
fn fresh_ids_are_of_now_and_their_low_bits_vary() {
    let registry = registry(now_tick(), 4);
    let engine = Engine::builder().registry(on(&registry)).build().unwrap();
    let layout = engine.layout();
    let mut low = HashSet::new();
    for _ in 0..200 {
        let before = now_tick();
        let id = engine.runs(1, Order::Fresh).unwrap()[0].first();
        let parts = layout.decode(id);
        assert!(parts.tick + 10 >= before && parts.tick <= now_tick(), "{parts:?} at {before}");
        low.insert(parts.sequence % 64);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(low.len() > 16, "{} different low bits", low.len());
}

#[test]
fn a_burst_beyond_the_minted_land_waits_or_is_refused_and_repeats_nothing() {
    let registry = registry(now_tick(), 4);
    let engine = Engine::builder().registry(on(&registry)).wait(Duration::from_millis(200)).build().unwrap();
    let mut seen = HashSet::new();
    let mut refused = 0;
    for _ in 0..60 {
        match engine.runs(100_000, Order::Any) {
            Ok(runs) => note(&mut seen, runs),
            Err(error) if error.kind() == IdErrorKind::Overloaded => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(
        !seen.is_empty() && seen.len() % 100_000 == 0,
        "all or nothing: {} ids, {refused} refused",
        seen.len()
    );
    let mut out = Vec::new();
    // A process that was not run for a quarter of a second finds land for as many: it asks again.
    let refused = (0..100).find_map(|_| {
        while engine.try_runs(4_096, Order::Any, &mut out).is_ok() {}
        engine.try_runs(1 << 20, Order::Any, &mut out).err()
    });
    assert_eq!(refused.map(IdError::kind), Some(IdErrorKind::Overloaded));
    note(&mut seen, out);
    balanced(&engine);
}

#[test]
fn what_an_idle_life_spilled_is_replayed_by_the_next_and_never_twice() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(now_tick(), 16);
    let mut seen = HashSet::new();
    let mut replayed = 0;
    for life in 0..4 {
        // A grant of the spill waits for the disk, as long as that takes.
        let builder = Engine::builder().wait(Duration::from_secs(10));
        let engine = builder.data_dir(folder.path()).registry(on(&registry)).build().unwrap();
        if life % 2 == 0 {
            std::thread::park_timeout(Duration::from_millis(2_300));
            note(&mut seen, engine.runs(1_000, Order::Any).unwrap());
        } else {
            // More than the land of the time it takes: the rest must come from the spill.
            for _ in 0..40 {
                note(&mut seen, engine.runs(100_000, Order::Any).unwrap());
            }
        }
        let stats = engine.stats();
        replayed += stats.replayed;
        if life % 2 == 1 {
            assert!(stats.spill.inherited > 4_000_000, "{stats:#?}");
        }
        balanced(&engine);
    }
    assert!(replayed > 4_000_000, "{replayed} ids were replayed");
}

/// Hits of a handle are counted when its hand catches up with them: at a miss, and at the end.
#[test]
fn what_a_handle_used_and_what_it_left_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let mut total = 0;
    for calls in [0, 1, 3, 511, 512, 513, 10_000] {
        let mut handle = engine.handle();
        let ids: HashSet<_> = (0..calls).map(|_| handle.next_id().unwrap()).collect();
        assert_eq!(ids.len(), calls as usize);
        // Where it is moved to makes no difference.
        drop(Box::new(handle));
        total += calls;
        assert_eq!(engine.stats().issued, total, "after {calls}");
    }
    balanced(&engine);
}

#[test]
fn declared_land_is_served_without_waiting() {
    let registry = registry(0, 4);
    let years = Duration::from_hours(10 * 365 * 24);
    let engine = Engine::builder().registry(on(&registry)).max_age(years).backfill(years).build().unwrap();
    let mut last = None;
    for _ in 0..20_000_000 {
        last = Some(engine.next_id().unwrap());
    }
    assert!(last.is_some());
    let stats = engine.stats();
    assert!(stats.served.ring > stats.served.minter, "{stats:#?}");
    balanced(&engine);
}

#[test]
fn small_steps_back_are_waited_out_and_large_ones_change_the_worker() {
    let registry = registry(now_tick() - 100_000_000, 8);
    let clock = Shifted::new();
    let engine = Engine::builder().registry(on(&registry)).clock(clock.clone()).build().unwrap();
    let first = engine.workers();
    let mut seen = HashSet::new();
    note(&mut seen, engine.runs(5_000, Order::Any).unwrap());
    clock.step(-500);
    for _ in 0..50 {
        note(&mut seen, engine.runs(1_000, Order::Any).unwrap());
    }
    assert_eq!(engine.workers(), first, "half a second is caught up with");
    clock.step(-3_600_000);
    let mut switched = false;
    for _ in 0..400 {
        match engine.runs(500, Order::Fresh) {
            Ok(runs) => {
                note(&mut seen, runs);
                switched |= engine.workers() != first;
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        if switched {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert!(switched, "{:#?}", engine.status());
    // The figures follow with the producer's next turn.
    for _ in 0..400 {
        if engine.stats().windows.switches.clock > 0 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(engine.stats().windows.switches.clock, 1);
    for _ in 0..50 {
        note(&mut seen, engine.runs(1_000, Order::Any).unwrap());
    }
    balanced(&engine);
}

#[test]
fn ordered_ids_do_not_go_back_when_the_clock_does() {
    let registry = registry(now_tick() - 100_000_000, 8);
    let clock = Shifted::new();
    let engine = Engine::builder().registry(on(&registry)).clock(clock.clone()).build().unwrap();
    let high = engine.runs(10, Order::Ordered).unwrap().pop().unwrap().first();
    clock.step(-5_000);
    let mut behind = false;
    let deadline = SystemClock.read().boot + 3_000_000_000;
    while SystemClock.read().boot < deadline {
        match engine.runs(1, Order::Ordered) {
            Ok(runs) => assert!(runs[0].first() > high),
            Err(error) if error.kind() == IdErrorKind::ClockBehind => {
                behind = true;
                assert!(error.retry_after() <= Some(Duration::from_secs(6)), "{error:?}");
                break;
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    assert!(behind, "it must say how long the clock is behind");
}

#[test]
fn after_a_shutdown_every_call_is_refused() {
    let registry = registry(now_tick(), 4);
    let engine = Engine::builder().registry(on(&registry)).build().unwrap();
    engine.next_id().unwrap();
    engine.shutdown();
    let over = IdErrorKind::ShuttingDown;
    assert_eq!(engine.next_id().unwrap_err().kind(), over);
    assert_eq!(engine.try_next_id().unwrap_err().kind(), over);
    assert_eq!(engine.runs(1, Order::Fresh).unwrap_err().kind(), over);
    assert_eq!(engine.handle().next_id().unwrap_err().kind(), over);
    balanced(&engine);
}

#[test]
fn a_clean_stop_hands_the_rest_of_the_window_back() {
    let registry = registry(now_tick(), 1);
    for _ in 0..5 {
        // One worker: a life that kept its window would block the next.
        let engine = Engine::builder().registry(on(&registry)).build().unwrap();
        engine.next_id().unwrap();
        engine.shutdown();
    }
}

#[test]
fn impossible_settings_are_named() {
    let registry = registry(0, 4);
    let error = Engine::builder().registry(on(&registry)).wait(Duration::from_secs(61)).build().unwrap_err();
    assert!(error.to_string().contains("wait is 61s"), "{error}");
    let error = Engine::builder().floor(Floor::Now).build().unwrap_err();
    assert!(error.to_string().contains("data_dir"), "{error}");
}

#[test]
fn callers_that_only_try_get_the_reserve_too() {
    let folder = tempfile::tempdir().unwrap();
    let years = Duration::from_hours(24 * 365 * 5);
    let builder = Engine::builder().data_dir(folder.path()).floor(Floor::Epoch);
    let engine = builder.max_age(years).backfill(years).build().unwrap();
    let (begin, mut ids, mut runs) = (SystemClock.read().boot, 0_u64, Vec::new());
    // What the clock brings would take them 48 s.
    while ids < 200_000_000 {
        assert!(SystemClock.read().boot - begin < 20_000_000_000, "{ids} ids in 20 s: {:?}", engine.stats());
        if engine.try_runs(4_096, Order::Any, &mut runs).is_ok() {
            ids += 4_096;
        }
        runs.clear();
        ids += u64::from(engine.try_next_id().is_ok());
    }
}

#[test]
fn a_fill_is_whole_and_counted_wherever_its_ids_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let mut seen = HashSet::new();
    for round in 0..2_000_usize {
        let mut ids = vec![Id::default(); round % 700];
        engine.fill(&mut ids, Order::Any).unwrap();
        assert!(ids.iter().all(|id| seen.insert(*id)), "an id came twice in round {round}");
    }
    let stats = engine.shutdown();
    assert_eq!((stats.issued, stats.held.total(), stats.moving()), (seen.len() as u64, 0, 0), "{stats:#?}");
    assert_eq!(engine.next_id().map_err(IdError::kind), Err(IdErrorKind::ShuttingDown));
}

/// A hit counts nothing. What a thread had counts once it has used up its run, asks for that, or stops the engine.
#[test]
fn what_a_thread_was_given_is_counted_when_it_publishes_and_when_it_stops_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let theirs = engine.clone();
    let (published, go_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let thread = std::thread::spawn(move || {
        let mut handle = theirs.handle();
        for _ in 0..140 {
            theirs.next_id().unwrap();
            handle.next_id().unwrap();
        }
        theirs.publish();
        handle.publish();
        published.0.send(()).unwrap();
        // Lives on, and never calls again.
        let _ = go_on.1.recv();
    });
    published.1.recv().unwrap();
    assert_eq!(engine.stats().issued, 280);
    for _ in 0..3 {
        engine.next_id().unwrap();
    }
    let stats = engine.shutdown();
    assert_eq!((stats.issued, stats.served.total()), (283, 283), "{stats:#?}");
    assert_eq!(stats.moving(), 0, "what the other thread has left is held: {stats:#?}");
    drop(go_on.0);
    thread.join().unwrap();
    assert_eq!(engine.stats().held.total(), 0);
}

/// Each figure is counted for itself, so they agree only if none lags and nothing is counted twice.
#[test]
fn the_figures_of_a_running_engine_add_up_whenever_nothing_moves() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    let (mut got, mut failed, mut issued) = (0, 0, 0);
    for round in 0..400_u32 {
        let order = [Order::Any, Order::Fresh, Order::Ordered][(round % 3) as usize];
        let mut runs = Vec::new();
        // More than the land of a second is more than there is.
        let count = if round % 40 == 7 { 40_000_000 } else { 1 + round * 7 % 900 };
        match engine.try_runs(count, order, &mut runs) {
            Ok(()) => got += u64::from(count),
            Err(_) => failed += 1,
        }
        if round % 40 == 9 {
            let call = engine.request(1 << 30, order, Duration::from_millis(1));
            assert!(pollster(call, Duration::from_secs(5)).is_err());
            failed += 1;
        }
        got += u64::from(engine.next_id().is_ok());
        engine.publish();
        let stats = engine.stats();
        assert_eq!((stats.issued, stats.served.total()), (got, got), "round {round}: {stats:#?}");
        assert!(stats.issued >= issued, "a counter falls");
        issued = stats.issued;
    }
    assert!(failed >= 20, "{failed}");
    // Now and then the producer is in the middle of a turn.
    eventually_quiet(&engine);
    assert_eq!(engine.stats().issued, got);
    balanced(&engine);
}

/// Polls a future until it is ready.
fn pollster<T>(future: impl Future<Output = T>, limit: Duration) -> T {
    let (mut future, begin) = (std::pin::pin!(future), SystemClock.read().boot);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(u128::from(SystemClock.read().boot - begin) < limit.as_nanos(), "not ready within {limit:?}");
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

/// Until the figures of an engine that nobody calls agree.
fn eventually_quiet(engine: &Engine) {
    let begin = SystemClock.read().boot;
    while engine.stats().moving() != 0 {
        assert!(SystemClock.read().boot - begin < 20_000_000_000, "{:#?}", engine.stats());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Who only tries comes back, and is counted by whoever counts tries.
#[test]
fn a_call_that_may_wait_is_counted_as_refused_once_and_a_try_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
    engine.shutdown();
    let refused = || engine.stats().refused.shutting_down;
    assert!(engine.try_next_id().is_err() && engine.try_runs(5, Order::Fresh, &mut Vec::new()).is_err());
    assert_eq!(refused(), 0);
    let mut handle = engine.handle();
    assert!(engine.next_id().is_err() && handle.next_id().is_err());
    assert!(engine.runs(5, Order::Any).is_err() && engine.fill(&mut [Id::default(); 9], Order::Any).is_err());
    assert!(pollster(engine.request(1, Order::Any, Duration::ZERO), Duration::from_secs(5)).is_err());
    assert_eq!(refused(), 5);
}

#[test]
fn a_switch_takes_less_than_a_tenth_of_a_second_from_the_verdict_on() {
    let registry = registry(now_tick() - 100_000_000, 64);
    let clock = Shifted::new();
    let engine = Engine::builder().registry(on(&registry)).clock(clock.clone()).build().unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Half of the time somebody calls, and half of it the engine is idle and finds out by itself.
        let load = || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for _ in 0..100 {
                    let _ = engine.try_runs(100, Order::Any, &mut Vec::new());
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
        };
        for switch in 1..=10 {
            let thread = (switch % 2 == 0).then(|| scope.spawn(load));
            let before = engine.workers();
            clock.step(-5_000);
            let deadline = SystemClock.read().boot + 10_000_000_000;
            // To ask for the figures would be a reading of the clock, and wake the engine.
            while engine.workers().is_empty() || engine.workers() == before {
                assert!(
                    SystemClock.read().boot < deadline,
                    "no switch {switch} in 10 s: {:?}",
                    engine.status()
                );
                std::thread::park_timeout(Duration::from_millis(1));
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            if let Some(thread) = thread {
                thread.join().unwrap();
            }
            over.store(false, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let windows = engine.stats().windows;
    println!("{:?}", windows.switched);
    assert_eq!((windows.switched.count(), windows.switches.clock), (10, 10));
    assert!(windows.switched.longest() < Duration::from_millis(100), "{:?}", windows.switched);
    balanced(&engine);
}
