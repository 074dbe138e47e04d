//! The tiers behind a thread's run, through the public API: what a slot's worth of ids costs a caller who has none in
//! hand, and which tier it came from.
//!
//! Each call takes the 4,096 ids of a slot, so that next to nothing of the figure is the thread's own run. In a
//! burst the producer refills on another core meanwhile, and the lines of slots go from core to core; beside it, a
//! queue of words between two such threads, and one that no other core touches.

mod common;
#[path = "common/ids.rs"]
mod ids;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use crossbeam_queue::ArrayQueue;
use xuid_benches::land::Farm;
use xuid_engine::{Engine, Id, Order, Run};

/// Ids of a slot in a burst.
const SLOT: u32 = 4_096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = common::criterion();
    let farm = Farm::declared()?;
    check(&farm.engine);
    let mut group = criterion.benchmark_group("a slot's worth of ids, burst");
    group.throughput(Throughput::Elements(u64::from(SLOT)));
    let mut out = Vec::new();
    group.bench_function("xuid refilled meanwhile", |bencher| {
        bencher.iter(|| {
            out.clear();
            slot(&farm.engine, &mut out);
            black_box(&out);
        });
    });
    queue_between_threads(&mut group);
    group.bench_function("push and pop of a queue, one thread", |bencher| {
        let queue = ArrayQueue::new(SLOT as usize);
        bencher.iter(|| {
            black_box(queue.push(black_box(1u64)).is_ok());
            black_box(queue.pop())
        });
    });
    group.finish();
    ids::assert_nobody_was_refused(&farm.engine);
    report(&farm.engine);
    criterion.final_summary();
    Ok(())
}

/// As a server does it: a try, and only where that fails a wait.
fn slot(engine: &Engine, out: &mut Vec<Run>) {
    if engine.try_runs(SLOT, Order::Any, out).is_err() {
        let runs = engine.runs(SLOT, Order::Any);
        assert!(runs.is_ok(), "refused");
        out.extend(runs.into_iter().flatten());
    }
}

fn check(engine: &Engine) {
    let mut runs = Vec::new();
    (0..200).for_each(|_| slot(engine, &mut runs));
    let all: Vec<u64> = runs.into_iter().flatten().map(Id::raw).collect();
    assert_eq!(all.len(), 200 * SLOT as usize);
    ids::assert_unique("runs", all);
}

/// What a hand-over between cores costs without anything around it: the other thread pushes as fast as it can.
fn queue_between_threads(group: &mut BenchmarkGroup<'_, WallTime>) {
    let (queue, stop) = (ArrayQueue::new(4_096), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if queue.push(1u64).is_err() {
                    std::hint::spin_loop();
                }
            }
        });
        group.bench_function("pop of a queue that another thread fills", |bencher| {
            bencher.iter(|| {
                loop {
                    if let Some(word) = queue.pop() {
                        break black_box(word);
                    }
                    std::hint::spin_loop();
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
}

/// Which tier served, over checks and all measurements.
fn report(engine: &Engine) {
    let stats = engine.stats();
    let served = stats.served;
    let total = (served.ring + served.queue + served.minter + served.reserve).max(1) as f64 / 100.0;
    println!(
        "served by  ring {:.1} %  queue {:.1} %  minter {:.1} %  reserve {:.1} %;  {} refills of a partition\n",
        served.ring as f64 / total,
        served.queue as f64 / total,
        served.minter as f64 / total,
        served.reserve as f64 / total,
        stats.refills
    );
}
