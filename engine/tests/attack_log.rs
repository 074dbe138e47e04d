//! What a subscriber of the log may do: stand still, ask the engine, panic. It is a stranger's code, and runs on the
//! engine's threads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use tracing::span::{Attributes, Id as SpanId, Record};
use tracing::{Event, Metadata, Subscriber};
use xuid_engine::clock::{Clock, Reading, SystemClock};
use xuid_engine::registry::memory::MemoryRegistry;
use xuid_engine::registry::{ClusterId, Genesis};
use xuid_engine::{Engine, Layout, Order};

/// Whatever hangs would hang for ever; so long nothing here takes, on whichever machine.
const FOREVER: Duration = Duration::from_secs(30);

/// What a line meets.
#[derive(Clone)]
enum Reader {
    Quick,
    /// Reads nothing while the gate is shut.
    Stalled(Arc<Gate>),
    /// Asks this engine for everything that takes a lock.
    Asks(Engine),
    Panics,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

static READER: Mutex<Reader> = Mutex::new(Reader::Quick);
/// Lines begun on the engine's own threads.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Lines that a subscriber which asks has been through with, and what it got.
static ASKED: AtomicU64 = AtomicU64::new(0);
static GOT: AtomicU64 = AtomicU64::new(0);

struct Log;

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> SpanId {
        SpanId::from_u64(1)
    }
    fn record(&self, _: &SpanId, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &SpanId, _: &SpanId) {}
    fn enter(&self, _: &SpanId) {}
    fn exit(&self, _: &SpanId) {}

    fn event(&self, _: &Event<'_>) {
        if !std::thread::current().name().is_some_and(|name| name.starts_with("xuid-")) {
            return;
        }
        let reader = READER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        BEGUN.fetch_add(1, Ordering::SeqCst);
        match reader {
            Reader::Quick => {}
            Reader::Stalled(gate) => gate.pass(),
            Reader::Asks(engine) => {
                let got = engine.next_id().is_ok();
                // More than there is: it would wait, on a thread that somebody may be waiting for.
                let _ = engine.runs(5_000_000, Order::Any);
                let _ = (engine.stats(), engine.status(), engine.workers());
                GOT.fetch_add(u64::from(got), Ordering::SeqCst);
                ASKED.fetch_add(1, Ordering::SeqCst);
            }
            Reader::Panics => panic!("a subscriber of the test panics"),
        }
    }
}

/// One test at a time, with this reader.
fn with_reader(reader: Reader) -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Log).unwrap());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set(reader);
    alone
}

fn set(reader: Reader) {
    let before = std::mem::replace(&mut *READER.lock().unwrap_or_else(PoisonError::into_inner), reader);
    // Not under the lock: it may hold an engine's last clone.
    drop(before);
}

/// A wall clock that swings 0.8 s back and forth: two verdicts a swing, and a line a second.
#[derive(Debug, Default)]
struct Swinging {
    back_ns: AtomicU64,
    stop: AtomicBool,
}

impl Swinging {
    fn start() -> Arc<Self> {
        let clock = Arc::new(Self::default());
        let swings = clock.clone();
        spawn(move || {
            while !swings.stop.load(Ordering::Relaxed) {
                for back in [800_000_000, 0] {
                    swings.back_ns.store(back, Ordering::Relaxed);
                    sleep(Duration::from_millis(30));
                }
            }
        });
        clock
    }
}

impl Clock for Swinging {
    fn read(&self) -> Reading {
        let mut reading = SystemClock.read();
        reading.wall -= self.back_ns.load(Ordering::Relaxed);
        reading
    }
}

fn engine(clock: &Arc<Swinging>) -> Engine {
    let layout = Layout::default();
    let now = layout.tick_at_ns(SystemClock.read().wall).unwrap();
    let genesis = Genesis::new(ClusterId::from_bytes([9; 16]), layout, now - 1_000, 4);
    let registry = Box::new(MemoryRegistry::new(genesis));
    Engine::builder().registry(registry).clock(clock.clone()).build().unwrap()
}

/// Does it on another thread, and fails if it does not end.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    spawn(move || done.send(work()));
    result.recv_timeout(FOREVER).unwrap_or_else(|_| panic!("{what} hangs"))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = SystemClock.read().boot;
    while !condition() {
        assert!(SystemClock.read().boot - begun < FOREVER.as_nanos() as u64, "{what}: never");
        sleep(Duration::from_millis(5));
    }
}

/// A swing shows only while it is looked at.
fn until_lines(engine: &Engine, lines: &AtomicU64, count: u64) {
    until("lines about the clock", || {
        let _ = engine.stats();
        lines.load(Ordering::SeqCst) >= count
    });
}

#[test]
fn a_reader_of_the_log_that_stands_still_stops_no_call() {
    let gate = Arc::new(Gate::default());
    let _alone = with_reader(Reader::Quick);
    let clock = Swinging::start();
    let engine = engine(&clock);
    let before = BEGUN.load(Ordering::SeqCst);
    set(Reader::Stalled(gate.clone()));
    let asked = engine.clone();
    in_time("a line about the clock", move || until_lines(&asked, &BEGUN, before + 1));
    // The producer may stand in that line from now on until the gate is opened.
    let (asked, silent) = (engine.clone(), Duration::from_secs(3));
    in_time("a call while the log stands still", move || {
        for order in [Order::Any, Order::Fresh, Order::Ordered] {
            let _ = asked.runs(100, order);
            let _ = asked.try_runs(100, order, &mut Vec::new());
        }
        let _ = (asked.next_id(), asked.handle().next_id());
        (asked.stats(), asked.status(), asked.workers())
    });
    let asked = engine.clone();
    in_time("the figure of a producer that stands still", move || {
        until("a producer that is silent", || asked.producer_silent() > silent);
    });
    gate.open();
    let asked = engine.clone();
    in_time("a turn after it", move || until("a turn", || asked.producer_silent() < silent));
    clock.stop.store(true, Ordering::Relaxed);
    in_time("the clean stop", move || assert_eq!(drop(engine.shutdown()), ()));
    set(Reader::Quick);
}

#[test]
fn a_reader_of_the_log_may_ask_the_engine_for_ids_and_stop_it() {
    let _alone = with_reader(Reader::Quick);
    let clock = Swinging::start();
    let engine = engine(&clock);
    let before = ASKED.load(Ordering::SeqCst);
    set(Reader::Asks(engine.clone()));
    let asked = engine.clone();
    in_time("three lines whose reader asks", move || until_lines(&asked, &ASKED, before + 3));
    assert!(GOT.load(Ordering::SeqCst) > 0, "no line's reader got an id");
    clock.stop.store(true, Ordering::Relaxed);
    let asked = engine.clone();
    in_time("a call beside such a reader", move || asked.next_id()).expect("an id");
    let stopped = engine.clone();
    in_time("the clean stop", move || stopped.shutdown());
    assert_eq!(engine.producer_silent(), Duration::ZERO);
    set(Reader::Quick);
}

#[test]
fn a_reader_of_the_log_that_panics_ends_no_thread_of_the_engine() {
    let _alone = with_reader(Reader::Panics);
    let clock = Swinging::start();
    let engine = engine(&clock);
    let before = BEGUN.load(Ordering::SeqCst);
    let asked = engine.clone();
    in_time("three lines", move || until_lines(&asked, &BEGUN, before + 3));
    clock.stop.store(true, Ordering::Relaxed);
    let asked = engine.clone();
    in_time("ids for two seconds", move || {
        let begun = SystemClock.read().boot;
        while SystemClock.read().boot - begun < 2_000_000_000 {
            asked.next_id().expect("the producer lives");
        }
    });
    let stopped = engine.clone();
    let stats = in_time("the clean stop", move || stopped.shutdown());
    assert_eq!(stats.panics, 0, "a line's panic is no panic of the engine");
    set(Reader::Quick);
}
