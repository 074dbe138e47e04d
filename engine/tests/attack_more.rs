//! Attacks on the engine: each test states what should hold, and fails where it does not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, unused_imports, reason = "helpers of its neighbour")]

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
use xuid_spill::SpillId;

#[derive(Default)]
struct Shifted {
    ms: AtomicI64,
    /// A step that shows first to this thread, and from then on to everybody.
    ambush: Mutex<Option<(ThreadId, i64)>>,
    /// Holds up the thread `waits` at its second reading: the one before it parks.
    hold_named: AtomicBool,
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
        if current.name() == Some("waits") && self.named_reads.fetch_add(1, Ordering::SeqCst) == 1 {
            while self.hold_named.load(Ordering::SeqCst) {
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
    MemoryRegistry::new(Genesis { cluster: ClusterId::from_bytes([7; 16]), layout, floor, workers })
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

/// E1: a worker that was being taken when the machine was resumed from a snapshot.
#[test]
fn a_worker_under_way_at_a_leap_is_dropped() {
    let clock = Arc::new(Shifted::default());
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 8);
    let (registry, hold, reached) = slow(&inner);
    let engine = Engine::builder().registry(registry).workers(2).clock(clock.clone()).build().unwrap();
    // The first is taken by `build`; the second by the registrar, which is held up after the write was stored.
    // (If it was quicker than this line, there is nothing to see.)
    hold.store(CLAIM, Ordering::SeqCst);
    let first = engine.workers();
    if first.len() == 2 {
        return;
    }
    eventually("a worker is being taken", 5, || reached.load(Ordering::SeqCst) & CLAIM != 0);
    let mut view = inner.clone();
    let claimed: Vec<u32> =
        (0..8).filter(|w| !first.contains(w) && view.worker(*w).unwrap().version > 0).collect();
    clock.step(3_600_000);
    eventually("the leap", 5, || engine.stats().clock.jumps == 1);
    hold.store(0, Ordering::SeqCst);
    eventually("workers again", 5, || engine.workers().len() == 2);
    let kept: Vec<u32> = engine.workers().into_iter().filter(|w| claimed.contains(w)).collect();
    assert!(kept.is_empty(), "workers granted before the leap are held after it: {kept:?}");
}

/// E2: ordered calls where a tick is longer than a millisecond.
#[test]
fn ordered_calls_are_not_told_that_the_clock_is_behind_when_it_is_not() {
    let layout = Layout::new(41, 14, 8, 1_000_000, 0).unwrap();
    let inner = registry(layout, 0, 4);
    let engine = Engine::builder().registry(on(&inner)).wait(Duration::from_millis(20)).build().unwrap();
    let mut last = Ok(());
    for _ in 0..300 {
        last = engine.runs(1, Order::Ordered).map(|_| ());
        if last.is_err() {
            break;
        }
    }
    assert!(matches!(last, Err(xuid_engine::IdError::Overloaded { .. })), "{last:?}");
}

/// E4: the last engine dropped by a waker.
#[test]
fn the_last_engine_may_end_in_a_waker() {
    struct Last(Mutex<Option<Engine>>, Arc<AtomicU32>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            let engine = self.0.lock().unwrap().take();
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(engine)));
            self.1.store(1 + u32::from(dropped.is_err()), Ordering::SeqCst);
        }
    }
    let inner = registry(Layout::default(), tick_of(&SystemClock) - 1_000, 1);
    let engine = Engine::builder().registry(on(&inner)).build().unwrap();
    let outcome = Arc::new(AtomicU32::new(0));
    let mut pending = engine.request(200_000_000, Order::Any, Duration::from_millis(20));
    let waker = Waker::from(Arc::new(Last(Mutex::new(Some(engine)), outcome.clone())));
    assert!(std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
    eventually("the waker returned", 5, || outcome.load(Ordering::SeqCst) > 0);
    assert_eq!(outcome.load(Ordering::SeqCst), 1, "the drop panicked: a thread cannot join itself");
}
