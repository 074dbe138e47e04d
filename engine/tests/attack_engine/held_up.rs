//! A clock and a registry in the hands of a test, and what all tests share.

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
use xuid_engine::{Layout, Pending};
use xuid_spill::{DEFAULT_BYTES, Extent, Identity, Log, MappedFile, SpillId};

#[derive(Default)]
pub(crate) struct Shifted {
    pub(crate) ms: AtomicI64,
    /// A step that shows first to this thread, and from then on to everybody.
    pub(crate) ambush: Mutex<Option<(ThreadId, i64)>>,
    /// Holds up the thread `waits` at the reading before it parks: the second one, or a later one.
    pub(crate) hold_named: AtomicBool,
    /// Others are answered meanwhile: it reads under no lock, and may be held up for good.
    pub(crate) named_is_alone: AtomicBool,
    pub(crate) named_reads: AtomicU32,
    pub(crate) named_held: AtomicBool,
}

impl Shifted {
    pub(crate) fn step(&self, ms: i64) {
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

pub(crate) const CLAIM: u32 = 1;
pub(crate) const SWAP: u32 = 2;
pub(crate) const MARK: u32 = 4;

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

pub(crate) fn slow(inner: &MemoryRegistry) -> (Box<dyn Registry>, Arc<AtomicU32>, Arc<AtomicU32>) {
    let (hold, reached) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    (Box::new(Slow { inner: inner.clone(), hold: hold.clone(), reached: reached.clone() }), hold, reached)
}

pub(crate) fn registry(layout: Layout, floor: u64, workers: u32) -> MemoryRegistry {
    MemoryRegistry::new(Genesis::new(ClusterId::from_bytes([7; 16]), layout, floor, workers))
}

pub(crate) fn tick_of(clock: &dyn Clock) -> u64 {
    Layout::default().tick_at_ns(clock.read().wall).unwrap()
}

pub(crate) fn boot() -> u64 {
    SystemClock.read().boot
}

pub(crate) fn eventually(what: &str, seconds: u64, mut check: impl FnMut() -> bool) {
    let deadline = boot() + seconds * 1_000_000_000;
    while !check() {
        assert!(boot() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub(crate) fn on(registry: &MemoryRegistry) -> Box<dyn Registry> {
    Box::new(registry.clone())
}

struct Nothing;
impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

pub(crate) fn poll(pending: &mut Pending) -> Poll<usize> {
    let waker = Waker::from(Arc::new(Nothing));
    std::pin::Pin::new(pending)
        .poll(&mut Context::from_waker(&waker))
        .map(|result| result.map_or(0, |r| r.len()))
}

/// A spill in the folder, with so many extents that end at an age.
pub(crate) fn prefilled(folder: &std::path::Path, inner: &MemoryRegistry, extents: u64, age_ms: u64) {
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
