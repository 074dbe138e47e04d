//! One id a call, as a caller compiles it, beside what bounds it.
//!
//! A burst on declared land by one thread. An iteration is a thousand calls, so that the loop around them is all
//! that the measuring adds.

mod common;
#[path = "common/ids.rs"]
mod ids;

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use xuid_benches::land::Farm;
use xuid_engine::{Engine, Id};

/// Calls in an iteration.
const CALLS: u64 = 1_000;

/// Ids looked at before anything is timed.
const CHECKED: usize = 200_000;

thread_local! {
    static COUNTER: Cell<u64> = const { Cell::new(0) };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = common::criterion();
    let farm = Farm::declared()?;
    next_id(&mut criterion, &farm.engine);
    try_next_id(&mut criterion, &farm.engine);
    ids::assert_nobody_was_refused(&farm.engine);
    criterion.final_summary();
    Ok(())
}

fn next_id(criterion: &mut Criterion, engine: &Engine) {
    let mut group = criterion.benchmark_group("next_id, burst");
    // A caller uses the id at once; refusals show in the engine's figures.
    bench(&mut group, "xuid shared engine", || engine.next_id().map_or(0, Id::raw));
    let mut handle = engine.handle();
    bench(&mut group, "xuid handle", || handle.next_id().map_or(0, Id::raw));
    baselines(&mut group);
    group.finish();
}

fn try_next_id(criterion: &mut Criterion, engine: &Engine) {
    let mut group = criterion.benchmark_group("try_next_id, burst");
    // A try that found nothing is made again: where the producer is outrun, that belongs to the figure.
    bench(&mut group, "xuid shared engine", || {
        loop {
            if let Ok(id) = engine.try_next_id() {
                break id.raw();
            }
            std::hint::spin_loop();
        }
    });
    baselines(&mut group);
    group.finish();
}

/// A thread-local increment is the limit of anything behind `&self`; a fetch-and-add and a lock are what one would
/// write first.
fn baselines(group: &mut BenchmarkGroup<'_, WallTime>) {
    bench(group, "a thread-local counter", || {
        COUNTER.with(|counter| {
            let next = counter.get() + 1;
            counter.set(next);
            next
        })
    });
    let shared = AtomicU64::new(0);
    bench(group, "a shared fetch_add", || shared.fetch_add(1, Ordering::Relaxed));
    let locked = Mutex::new(0u64);
    bench(group, "a counter behind a mutex", || {
        let mut counter = locked.lock().unwrap_or_else(PoisonError::into_inner);
        *counter += 1;
        *counter
    });
}

/// Checks that no id comes twice, then times the calls.
fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut call: impl FnMut() -> u64) {
    ids::assert_unique(name, std::iter::repeat_with(&mut call).take(CHECKED));
    group.throughput(Throughput::Elements(CALLS));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for _ in 0..CALLS {
                black_box(call());
            }
        });
    });
}
