//! Attacks on the engine: each test states what should hold, and fails where it does not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use xuid_engine::clock::{Clock, Reading, SystemClock};
use xuid_engine::registry::memory::MemoryRegistry;
use xuid_engine::registry::{
    ClusterId, Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry, WorkerRecord,
};
use xuid_engine::{Engine, Layout, Order, Pending};
use xuid_spill::{DEFAULT_BYTES, Extent, Identity, Log, MappedFile, SpillId};

#[derive(Default)]
struct Shifted {
    ms: AtomicI64,
    /// A step that shows first to this thread, and from then on to everybody.
    ambush: Mutex<Option<(ThreadId, i64)>>,
    /// Holds up the thread `waits` at the reading before it parks: the second one, or a later one.
    hold_named: AtomicBool,
    /// Others are answered meanwhile: it reads under no lock, and may be held up for good.
    named_is_alone: AtomicBool,
    named_reads: AtomicU32,
    named_held: AtomicBool,
}

impl Shifted {
    fn step(&self, ms: i64) {
        self.ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Shifted {
    fn read(&self) -> Reading {
        let mut ambush = self.ambush.lock().unwrap();
        if let Some((thread, ms)) = *ambush
            && thread == std::thread::current().id()
        {
            *ambush = None;
            self.ms.fetch_add(ms, Ordering::SeqCst);
        }
        drop(ambush);
        let current = std::thread::current();
        if current.name() == Some("waits") && self.named_reads.fetch_add(1, Ordering::SeqCst) >= 1 {
            let begin = SystemClock.read().boot;
            let may_stay = || {
                self.named_is_alone.load(Ordering::SeqCst) || SystemClock.read().boot - begin < 2_000_000_000
            };
            while self.hold_named.load(Ordering::SeqCst) && may_stay() {
                self.named_held.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let Reading { wall, boot } = SystemClock.read();
        Reading { wall: wall.wrapping_add_signed(self.ms.load(Ordering::SeqCst) * 1_000_000), boot }
    }
}

const CLAIM: u32 = 1;
const SWAP: u32 = 2;
const MARK: u32 = 4;

/// A registry whose answers can be held up.
struct Slow {
    inner: MemoryRegistry,
    hold: Arc<AtomicU32>,
    reached: Arc<AtomicU32>,
}

impl Slow {
    fn pass(&self, bit: u32) {
        while self.hold.load(Ordering::SeqCst) & bit != 0 {
            self.reached.fetch_or(bit, Ordering::SeqCst);
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Registry for Slow {
    fn genesis(&self) -> &Genesis {
        self.inner.genesis()
    }
    fn describe(&self) -> String {
        "slow".into()
    }
    fn time(&mut self) -> Option<u64> {
        // The registry's wall is right, where it has one.
        self.inner.time().map(|_| SystemClock.read().wall)
    }
    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        self.inner.workers()
    }
    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.inner.worker(worker)
    }
    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let result = self.inner.claim(worker, expected, record);
        self.pass(CLAIM);
        result
    }
    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        let result = self.inner.swap_worker(worker, expected, record);
        self.pass(SWAP);
        result
    }
    fn leave(&mut self, worker: u32) {
        self.inner.leave(worker);
    }
    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.inner.mark(spill)
    }
    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.inner.create_mark(spill, record)
    }
    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        let result = self.inner.swap_mark(spill, expected, record);
        self.pass(MARK);
        result
    }
    fn close(&mut self) {
        self.inner.close();
    }
}

fn slow(inner: &MemoryRegistry) -> (Box<dyn Registry>, Arc<AtomicU32>, Arc<AtomicU32>) {
    let (hold, reached) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    (Box::new(Slow { inner: inner.clone(), hold: hold.clone(), reached: reached.clone() }), hold, reached)
}

fn registry(layout: Layout, floor: u64, workers: u32) -> MemoryRegistry {
    MemoryRegistry::new(Genesis::new(ClusterId::from_bytes([7; 16]), layout, floor, workers))
}

fn tick_of(clock: &dyn Clock) -> u64 {
    Layout::default().tick_at_ns(clock.read().wall).unwrap()
}

fn boot() -> u64 {
    SystemClock.read().boot
}

fn eventually(what: &str, seconds: u64, mut check: impl FnMut() -> bool) {
    let deadline = boot() + seconds * 1_000_000_000;
    while !check() {
        assert!(boot() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn on(registry: &MemoryRegistry) -> Box<dyn Registry> {
    Box::new(registry.clone())
}

struct Nothing;
impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

fn poll(pending: &mut Pending) -> Poll<usize> {
    let waker = Waker::from(Arc::new(Nothing));
    std::pin::Pin::new(pending)
        .poll(&mut Context::from_waker(&waker))
        .map(|result| result.map_or(0, |r| r.len()))
}

/// a leap that a caller's reading of the clock meets first.
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

/// releases behind the first of a clean stop.
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

/// the same with one worker, where the registry thread was busy with a renewal when the stop came.
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

/// a fresh ticket from before a switch.
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

/// calls that never wait, while an ordered one waits for the clock.
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

/// two steps back, the second while a worker is being taken for the first.
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

/// the land of a long backfill at the stop.
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

/// a tick longer than the furthest window, over a registry that tells the time.
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

/// wakers are called under the gate's lock.
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

/// a worker short, and short windows.
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

/// a pinned worker that was lost.
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

fn prefilled(folder: &std::path::Path, inner: &MemoryRegistry, extents: u64, age_ms: u64) {
    let layout = Layout::default();
    let spill = SpillId::from_bytes([5; 16]);
    let identity = Identity { spill, cluster: [7; 16], stride: layout.stride(), layout: layout.to_bytes() };
    let storage = MappedFile::create(&folder.join("spill-0")).unwrap();
    let mut log = Log::create(Box::new(storage), identity, DEFAULT_BYTES).unwrap();
    let base = tick_of(&SystemClock) - age_ms - extents;
    let all: Vec<_> = (0..extents)
        .map(|n| Extent { first: layout.encode(base + n, 3, 0).raw(), len: 4096, ticks: 1 })
        .collect();
    log.append(&all).unwrap();
    log.sync().unwrap();
    let record = MarkRecord { granted_upto: 0, token: xuid_engine::registry::Token::default(), operation: 0 };
    inner.clone().create_mark(spill, &record).unwrap();
}

/// a full log that moves on while a grant is under way.
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

/// a stop that comes while a grant is under way.
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

/// what a spill full of stale extents costs.
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

/// a thread that waited while the engine was shut down.
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

/// a grant that was under way when the machine was resumed from a snapshot.
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
    let before = engine.stats().wasted.step;
    hold.store(0, Ordering::SeqCst);
    eventually("the grant is answered", 5, || engine.stats().replayed > 0);
    let stats = engine.stats();
    assert!(stats.wasted.step > before, "extents of before the leap are in use after it: {:?}", stats.held);
}
