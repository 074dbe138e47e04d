//! Strangers' code that forks on a thread of the engine (a subscriber of the log, a waker) and returns in the child,
//! which goes on there as a copy of its parent.

#![expect(unsafe_code, reason = "forks")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tracing::span;
use xuid_engine::registry::local::{CreateOptions, LocalRegistry, fence_restored};
use xuid_engine::registry::{
    Genesis, MarkRecord, ReadError, Registry, SwapError, Versioned, WorkerEntry, WorkerRecord,
};
use xuid_engine::{Engine, Layout, Order, Run};
use xuid_spill::SpillId;

/// A child that does not end by itself is ended after so many seconds.
const LIMIT: u32 = 20;

/// Forks. 0 in the child, which an alarm ends.
fn fork() -> i32 {
    // SAFETY: the child goes on as a copy of this thread alone; it allocates, which glibc allows there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it only sets what the kernel does with this process.
        unsafe { libc::alarm(LIMIT) };
    }
    child
}

/// Whether the child ended by itself, and not by its alarm.
fn ends_by_itself(child: i32) -> bool {
    let mut status = -1;
    // SAFETY: waits for a child of this process, and writes into a variable of this frame.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status)
}

/// A registry that does something of its own before it changes a record.
struct Before<F: Fn(&str) + Send>(LocalRegistry, F);

impl<F: Fn(&str) + Send> Registry for Before<F> {
    fn genesis(&self) -> &Genesis {
        self.0.genesis()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        self.0.workers()
    }
    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.0.worker(worker)
    }
    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.0.claim(worker, expected, record)
    }
    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        (self.1)("worker");
        self.0.swap_worker(worker, expected, record)
    }
    fn leave(&mut self, worker: u32) {
        self.0.leave(worker);
    }
    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        self.0.mark(spill)
    }
    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        self.0.create_mark(spill, record)
    }
    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        (self.1)("mark");
        self.0.swap_mark(spill, expected, record)
    }
    fn close(&mut self) {
        self.0.close();
    }
}

fn engine(folder: &std::path::Path, before: impl Fn(&str) + Send + 'static) -> Engine {
    let options = CreateOptions { layout: Layout::default(), floor: 1_000, workers: 4 };
    let registry = LocalRegistry::open_or_create(folder, &options).unwrap();
    Engine::builder().data_dir(folder).registry(Box::new(Before(registry, before))).build().unwrap()
}

static BY_A_LINE: AtomicI32 = AtomicI32::new(0);

/// Forks at the first error that is told on the thread that asks the registry.
struct ForksAtALine;

impl tracing::Subscriber for ForksAtALine {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let is_error = event.metadata().level() == &tracing::Level::ERROR;
        let here = std::thread::current();
        if is_error && here.name() == Some("xuid-registrar") && BY_A_LINE.load(SeqCst) == 0 {
            let child = fork();
            BY_A_LINE.store(if child == 0 { -1 } else { child }, SeqCst);
        }
    }
}

#[test]
fn a_child_that_a_line_of_the_registry_thread_forks_ends_and_lets_its_parents_locks_go() {
    tracing::subscriber::set_global_default(ForksAtALine).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A renewal that panics once is told by a line.
    let panicked = AtomicI32::new(0);
    let engine = engine(folder.path(), move |what| {
        assert!(what != "worker" || panicked.swap(1, SeqCst) == 1, "a defect of an adaptor");
    });
    while BY_A_LINE.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(ends_by_itself(BY_A_LINE.load(SeqCst)), "the child lives on");
    engine.shutdown();
    drop(engine);
    // Nobody is left in a seat.
    fence_restored(folder.path(), 1_800_000_000_000_000_000).unwrap();
}

/// Forks where it is woken; the child waits until its parent has stopped.
struct ForksWhenWoken(AtomicI32);

impl Wake for ForksWhenWoken {
    fn wake(self: Arc<Self>) {
        if self.0.load(SeqCst) != 0 {
            return;
        }
        let child = fork();
        if child == 0 {
            std::thread::sleep(Duration::from_millis(1_500));
        }
        self.0.store(if child == 0 { -1 } else { child }, SeqCst);
    }
}

/// A stop that waits for a grant wakes those who wait for ids.
#[test]
fn a_child_that_a_waker_of_the_stop_forks_spills_nothing_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Arc::new(AtomicI32::new(0));
    let is_slow = slow.clone();
    let engine = engine(folder.path(), move |what| {
        if what == "mark" && is_slow.load(SeqCst) == 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    // Seconds for the spill.
    std::thread::sleep(Duration::from_millis(4_300));
    slow.store(1, SeqCst);
    let forks = Arc::new(ForksWhenWoken(AtomicI32::new(0)));
    let mut runs = engine.runs(3_000_000, Order::Any).unwrap();
    let mut pending: Vec<_> =
        (0..4).map(|_| engine.request(50_000_000, Order::Any, Duration::from_secs(10))).collect();
    for pending in &mut pending {
        let waker = Waker::from(forks.clone());
        let polled = std::pin::Pin::new(pending).poll(&mut Context::from_waker(&waker));
        let _ = polled.map(|got| runs.extend(got.unwrap_or_default()));
    }
    std::thread::sleep(Duration::from_millis(80));
    engine.shutdown();
    let child = forks.0.load(SeqCst);
    assert!(child > 0, "no waker was called in the stop");
    drop((pending, engine));
    assert!(ends_by_itself(child), "the child lives on");
    let second = Engine::builder().data_dir(folder.path()).build().unwrap();
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(30));
        runs.extend(second.runs(2_000_000, Order::Any).unwrap_or_default());
    }
    second.shutdown();
    let mut spans: Vec<_> = runs.iter().map(|run: &Run| (run.first().raw(), u64::from(run.len()))).collect();
    spans.sort_unstable();
    let (mut end, mut twice) = (0_u64, 0);
    for (first, len) in &spans {
        twice += end.min(first + len).saturating_sub(*first);
        end = end.max(first + len);
    }
    assert_eq!(twice, 0, "of {} ids", spans.iter().map(|(_, len)| len).sum::<u64>());
}
