//! An engine of a worker that was given to the process, and the call of asynchronous code.

use std::collections::HashSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use xuid_engine::clock::{Clock, Reading, SystemClock};
use xuid_engine::{BuildError, Engine, Floor, Id, IdError, IdErrorKind, Layout, Order};

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    SystemClock.read().wall / 1_000_000
}

fn said(built: Result<Engine, BuildError>) -> String {
    built.map_or_else(|error| error.to_string(), |engine| format!("built: {engine:?}"))
}

#[test]
fn a_first_id_is_clear_of_what_an_earlier_process_may_have_been_ahead_of_its_clock() {
    let before = now_ms();
    let engine = Engine::memory(1).build().unwrap();
    let id = engine.next_id().unwrap();
    let parts = engine.layout().decode(id);
    assert_eq!(parts.worker, 1);
    assert!(parts.unix_ms > before + 1_000, "{} ms after it was built", parts.unix_ms - before);
}

#[test]
fn engines_of_one_worker_in_one_process_never_issue_the_same_id() {
    let mut all = HashSet::new();
    let mut last = 0;
    // One after another, as a restart within the process.
    for _ in 0..3 {
        let engine = Engine::memory(2).floor(Floor::Epoch).build().unwrap();
        let ids: Vec<u64> = (0..20_000).map(|_| engine.next_id().unwrap().raw()).collect();
        assert!(*ids.iter().min().unwrap() > last, "an id of before the restart");
        last = *ids.iter().max().unwrap();
        all.extend(ids);
        engine.shutdown();
    }
    assert_eq!(all.len(), 60_000);
    // At the same time: each has the worker when the other's window has ended, or does not get it.
    let begin = Arc::new(Barrier::new(2));
    let threads = [(); 2].map(|()| {
        let begin = begin.clone();
        std::thread::spawn(move || {
            begin.wait();
            match Engine::memory(2).build() {
                Ok(engine) => (0..20_000).filter_map(|_| engine.next_id().ok()).map(Id::raw).collect(),
                Err(error) => {
                    assert!(error.to_string().contains("worker 2 cannot be had"), "{error}");
                    Vec::new()
                }
            }
        })
    });
    let ids: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!(!ids.is_empty(), "none of them got the worker");
    for id in ids {
        assert!(all.insert(id), "{id} came twice");
    }
}

#[test]
fn workers_and_layouts_are_namespaces_of_their_own() {
    let twitter: Layout = "twitter".parse().unwrap();
    let engines = [
        Engine::memory(3).floor(Floor::Epoch).build().unwrap(),
        Engine::memory(4).floor(Floor::Epoch).build().unwrap(),
        Engine::memory(3).floor(Floor::Epoch).layout(twitter).build().unwrap(),
    ];
    let workers = engines.each_ref().map(Engine::workers);
    assert_eq!(workers, [[3], [4], [3]]);
    for engine in &engines {
        engine.next_id().unwrap();
    }
}

#[test]
fn what_would_be_kept_or_is_no_worker_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let beside = said(Engine::memory(5).data_dir(folder.path()).build());
    assert_eq!(beside, "data_dir is set, and none beside Engine::memory is allowed");
    assert!(!folder.path().join("node.json").exists());
    let veil = "1b1a1918131211100b0a090803020100".parse().unwrap();
    let sealed = said(Engine::memory(5).opaque_key(veil).build());
    assert_eq!(sealed, "opaque_key is set, and none beside Engine::memory is allowed");
    let none = said(Engine::memory(1_024).build());
    assert!(none.contains("worker is 1024, and the layout has 1024"), "{none}");
    let long = said(Engine::memory(5).drift(Duration::from_secs(3)).build());
    assert!(long.contains("drift is 3s"), "{long}");
}

/// A wall clock beside the boot clock, in milliseconds.
#[derive(Debug)]
struct Stepped {
    wall: AtomicU64,
    boot: AtomicU64,
}

impl Stepped {
    fn go(&self, wall: i64, boot: u64) {
        self.wall.fetch_add(wall.cast_unsigned(), SeqCst);
        self.boot.fetch_add(boot, SeqCst);
    }
}

impl Clock for Stepped {
    fn read(&self) -> Reading {
        Reading { wall: self.wall.load(SeqCst) * 1_000_000, boot: self.boot.load(SeqCst) * 1_000_000 }
    }
}

/// What a process that follows is told to count on: that its clock reads no earlier, and no more. After a clock was set back
/// ids are ahead of all that it ever read.
#[test]
fn ids_are_at_most_drift_ahead_of_the_latest_that_the_clock_read() {
    let begun = 1_793_000_000_000;
    let clock = Arc::new(Stepped { wall: AtomicU64::new(begun), boot: AtomicU64::new(0) });
    let engine = Engine::memory(9).floor(Floor::Epoch).clock(clock.clone()).build().unwrap();
    let newest = |latest: u64| -> i64 {
        let mut runs = Vec::new();
        // Waits for the producer's turn at most, which is not of this clock.
        engine.try_runs(1, Order::Fresh, &mut runs).unwrap();
        engine.layout().decode(runs[0].first()).unix_ms.cast_signed() - latest.cast_signed()
    };
    assert_eq!(newest(begun), 0);
    // Back by a bit less than drift, and on again: it is ahead of all readings until the wall has caught up.
    clock.go(-900, 0);
    let mut ahead = Vec::new();
    for step in 1..12 {
        clock.go(100, 100);
        let latest = begun.max(begun - 900 + step * 100);
        ahead.push(newest(latest));
    }
    assert!(ahead.iter().all(|ms| (0..=1_000).contains(ms)), "{ahead:?}");
    assert!(
        ahead.iter().any(|ms| *ms > 500),
        "a second of a clock set back at a restart would not be covered: {ahead:?}"
    );
}

/// A clock that stands until it is set.
#[derive(Debug)]
struct Standing(AtomicU64);

impl Clock for Standing {
    fn read(&self) -> Reading {
        let ms = self.0.load(SeqCst);
        Reading { wall: (1_793_000_000_000 + ms) * 1_000_000, boot: ms * 1_000_000 }
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn poll(
    future: Pin<&mut impl Future<Output = Result<Id, IdError>>>,
    woken: &Arc<Woken>,
) -> Poll<Result<Id, IdError>> {
    future.poll(&mut Context::from_waker(&Waker::from(woken.clone())))
}

#[test]
fn an_asynchronous_call_waits_in_its_future_and_not_in_its_thread() {
    let clock = Arc::new(Standing(AtomicU64::new(0)));
    let engine = Engine::memory(6)
        .floor(Floor::Epoch)
        .clock(clock.clone())
        .wait(Duration::from_mins(1))
        .build()
        .unwrap();
    let mut all = HashSet::new();
    // The clock stands, so a blocking call would never return.
    let mut spend = || {
        while let Ok(id) = engine.try_next_id() {
            assert!(all.insert(id), "{id} came twice");
        }
    };
    spend();
    let woken = Arc::new(Woken::default());
    let mut waiting = pin!(engine.next_id_async());
    assert!(poll(waiting.as_mut(), &woken).is_pending());
    let mut dropped = Box::pin(engine.next_id_async());
    assert!(poll(dropped.as_mut(), &woken).is_pending());
    drop(dropped);
    clock.0.store(5, SeqCst);
    // The producer's next turn is a second of its own away, or at the next call.
    let answer = loop {
        if let Poll::Ready(answer) = poll(waiting.as_mut(), &woken) {
            break answer;
        }
        let _ = engine.try_runs(1, Order::Any, &mut Vec::new());
        std::thread::park_timeout(Duration::from_millis(1));
    };
    assert!(all.insert(answer.unwrap()), "it came twice");
    engine.shutdown();
    let Poll::Ready(Err(error)) = poll(pin!(engine.next_id_async()), &woken) else {
        panic!("served by a shut engine")
    };
    assert_eq!(error.kind(), IdErrorKind::ShuttingDown);
}

#[test]
fn asynchronous_calls_of_many_threads_bring_no_id_twice() {
    let engine = Engine::memory(8).floor(Floor::Epoch).build().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let mut context = Context::from_waker(Waker::noop());
                let one = || {
                    let mut future = pin!(engine.next_id_async());
                    loop {
                        match future.as_mut().poll(&mut context) {
                            Poll::Ready(id) => break id.unwrap(),
                            Poll::Pending => std::thread::yield_now(),
                        }
                    }
                };
                std::iter::repeat_with(one).take(50_000).collect::<Vec<_>>()
            })
        })
        .collect();
    let all: HashSet<Id> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(all.len(), 200_000);
}
