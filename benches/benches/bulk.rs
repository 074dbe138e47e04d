//! Many ids a call: `fill` beside a plain loop over a slice, runs beside an uncontended lock, and opaque ids beside a copy.
//!
//! Bursts on declared land. What is measured is one thread at a time, with the producer refilling on another core.

mod common;
#[path = "common/ids.rs"]
mod ids;

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use criterion::{Criterion, Throughput};
use xuid_benches::land::Farm;
use xuid_engine::{Engine, Id, Order, Run, Veil};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = common::criterion();
    let farm = Farm::declared()?;
    check_fill(&farm.engine)?;
    check_runs(&farm.engine)?;
    for len in [16, 1_024, 65_536] {
        fill(&mut criterion, &farm.engine, len);
    }
    for count in [100, 4_096, 131_072] {
        runs(&mut criterion, &farm.engine, count);
    }
    seal(&mut criterion)?;
    ids::assert_nobody_was_refused(&farm.engine);
    criterion.final_summary();
    Ok(())
}

fn check_fill(engine: &Engine) -> Result<(), Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for len in [16, 1_024, 65_536, 1_024, 16] {
        let mut slice = vec![Id::default(); len];
        engine.fill(&mut slice, Order::Any)?;
        all.extend(slice.into_iter().map(Id::raw));
    }
    ids::assert_unique("fill", all);
    Ok(())
}

fn check_runs(engine: &Engine) -> Result<(), Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for count in [100, 4_096, 131_072, 4_096, 100] {
        let before = all.len();
        all.extend(engine.runs(count, Order::Any)?.into_iter().flatten().map(Id::raw));
        assert_eq!(all.len() - before, count as usize, "not as many as were asked for");
    }
    ids::assert_unique("runs", all);
    Ok(())
}

fn fill(criterion: &mut Criterion, engine: &Engine, len: usize) {
    let mut group = criterion.benchmark_group(format!("fill {len}, burst"));
    group.throughput(Throughput::Elements(len as u64));
    group.bench_function("xuid", |bencher| {
        let mut slice = vec![Id::default(); len];
        bencher.iter(|| {
            assert!(engine.fill(black_box(&mut slice), Order::Any).is_ok(), "refused");
        });
    });
    // An id is a word in memory, and so is what this writes.
    group.bench_function("a plain loop", |bencher| {
        let mut slice = vec![0u64; len];
        let mut base = 1u64 << 40;
        let mut write = || {
            let first = black_box(base);
            for (offset, id) in black_box(&mut slice).iter_mut().enumerate() {
                *id = first + offset as u64;
            }
            base += len as u64;
        };
        bencher.iter(&mut write);
    });
    group.finish();
}

/// What opaque ids cost beside plain ones: neighbours sealed together, and one by one.
fn seal(criterion: &mut Criterion) -> Result<(), Box<dyn std::error::Error>> {
    const COUNT: u64 = 4_096;
    let veil: Veil = "1b1a1918131211100b0a090803020100".parse()?;
    let plots: Vec<Id> = (0..COUNT).filter_map(|at| Id::from_raw((1 << 60) + at)).collect();
    let mut sealed = plots.clone();
    veil.seal_all(&mut sealed);
    assert!(sealed.iter().zip(&plots).all(|(id, plot)| veil.open(*id) == *plot), "it does not open again");
    ids::assert_unique("seal_all", sealed.iter().copied().map(Id::raw));

    let mut group = criterion.benchmark_group("4,096 opaque ids");
    group.throughput(Throughput::Elements(COUNT));
    group.bench_function("seal_all", |bencher| {
        bencher.iter(|| {
            sealed.copy_from_slice(&plots);
            veil.seal_all(black_box(&mut sealed));
        });
    });
    group.bench_function("seal, one by one", |bencher| {
        bencher.iter(|| {
            for (id, plot) in sealed.iter_mut().zip(&plots) {
                *id = veil.seal(black_box(*plot));
            }
        });
    });
    group.bench_function("a copy", |bencher| {
        bencher.iter(|| black_box(&mut sealed).copy_from_slice(&plots));
    });
    group.finish();
    Ok(())
}

fn runs(criterion: &mut Criterion, engine: &Engine, count: u32) {
    let mut group = criterion.benchmark_group(format!("a run of {count}, burst"));
    group.throughput(Throughput::Elements(u64::from(count)));
    // As a server does it: a try into a `Vec` in use, and only where that fails a wait.
    group.bench_function("xuid try_runs, else runs", |bencher| {
        let mut out: Vec<Run> = Vec::new();
        bencher.iter(|| {
            out.clear();
            if engine.try_runs(count, Order::Any, &mut out).is_err() {
                let runs = engine.runs(count, Order::Any);
                assert!(runs.is_ok(), "refused");
                out.extend(runs.into_iter().flatten());
            }
            black_box(&out);
        });
    });
    group.bench_function("xuid runs", |bencher| {
        bencher.iter(|| {
            let runs = engine.runs(count, Order::Any);
            assert!(runs.is_ok(), "refused");
            black_box(runs.is_ok());
        });
    });
    // One lock and unlock, whatever it may guard.
    group.throughput(Throughput::Elements(1));
    group.bench_function("a mutex locked and unlocked", |bencher| {
        let mutex = Mutex::new(0u64);
        bencher.iter(|| {
            *black_box(&mutex).lock().unwrap_or_else(PoisonError::into_inner) += 1;
        });
    });
    group.finish();
}
