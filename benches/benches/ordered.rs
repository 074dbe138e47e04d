//! What a caller pays for an order: one fresh or ordered id, cut from the land of now.
//!
//! Both are bounded by the clock: a worker has 4,096 plots a millisecond, 244 ns each, so a loop would measure the
//! clock and not the code. Here calls come in groups with a pause after each, so that there is always land; the pauses
//! are not in the figures.

mod common;
#[path = "common/ids.rs"]
mod ids;

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use xuid_benches::land::Farm;
use xuid_benches::measure::now;
use xuid_engine::{Engine, Order, Run};

/// Calls between two pauses: a sixty-fourth of a tick's plots.
const GROUP: u64 = 64;

/// After 64 calls: some 600 calls a millisecond, a seventh of the land there is.
const PAUSE: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = common::criterion();
    let farm = Farm::sustained()?;
    // Most of the time is pauses, which criterion does not count: a tenth of a second measured is a second waited.
    let mut group = criterion.benchmark_group("one id at light load, bounded by the clock");
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(100));
    group.throughput(Throughput::Elements(1));
    for (name, order) in [("xuid ordered", Order::Ordered), ("xuid fresh", Order::Fresh)] {
        bench(&mut group, name, order == Order::Ordered, || one(&farm.engine, order));
    }
    let last = Mutex::new(0u64);
    bench(&mut group, "a mutex and a read of the clock", true, || {
        let read = unix_ns();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = read.max(*last + 1);
        *last
    });
    group.finish();
    ids::assert_nobody_was_refused(&farm.engine);
    criterion.final_summary();
    Ok(())
}

/// One id; where the clock has to go on first, that belongs to the figure.
fn one(engine: &Engine, order: Order) -> u64 {
    thread_local! {
        static OUT: std::cell::RefCell<Vec<Run>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    OUT.with_borrow_mut(|out| {
        out.clear();
        while engine.try_runs(1, order, out).is_err() {
            std::hint::spin_loop();
        }
        out[0].first().raw()
    })
}

/// Checks that the ids are unique, and rise where they should, then times the calls without the pauses.
fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, rises: bool, mut call: impl FnMut() -> u64) {
    let checked: Vec<u64> = std::iter::repeat_with(&mut call).take(20_000).collect();
    assert!(!rises || checked.is_sorted_by(|one, next| one < next), "{name} does not rise");
    ids::assert_unique(name, checked);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|calls| {
            let (mut spent, mut left) = (Duration::ZERO, calls);
            while left > 0 {
                let count = left.min(GROUP);
                let begin = now();
                for _ in 0..count {
                    black_box(call());
                }
                spent += begin.elapsed();
                left -= count;
                spin_for(PAUSE);
            }
            spent
        });
    });
}

/// The wall clock, as a generator without a supervisor reads it.
#[expect(clippy::disallowed_methods, reason = "it is what the baseline costs")]
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Passes time without sleeping: a thread that sleeps comes back late and to cold caches.
fn spin_for(pause: Duration) {
    let begin = now();
    while begin.elapsed() < pause {
        std::hint::spin_loop();
    }
}
