//! The local registry: what a window and a grant of a spill cost, beside the syncs they consist of.
//!
//! A change writes and syncs one copy of a record, then the other. The file lies in the folder for temporary files
//! (`TMPDIR`), which must be on a disk for the syncs to mean anything.

mod common;
#[path = "common/disk.rs"]
mod disk;

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use disk::RawFile;
use xuid_engine::Layout;
use xuid_engine::clock::SystemClock;
use xuid_engine::registry::local::{CreateOptions, FileIdentity, LocalRegistry, MemoryDisk};
use xuid_engine::registry::{MarkRecord, Registry, SwapError, Token, WorkerRecord};
use xuid_spill::SpillId;

const WORKER: u32 = 3;
const WORKERS: u32 = 16;
const TOKEN: Token = Token([7; 16]);

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = common::criterion();
    let folder = tempfile::tempdir()?;
    let options = CreateOptions { layout: Layout::default(), floor: 0, workers: WORKERS };
    let mut file = LocalRegistry::open_or_create(&folder.path().join("registry"), &options)?;
    let image = MemoryDisk::with_registry(file.genesis(), FileIdentity::default());
    let mut memory = LocalRegistry::on(image, Arc::new(SystemClock))?;
    // Written once and not only allocated, as the registry's file is.
    let path = folder.path().join("raw");
    std::fs::write(&path, vec![0; 1 << 20])?;
    let mut raw = RawFile::open(&path)?;
    raw.sync();
    for registry in [&mut file as &mut dyn Registry, &mut memory] {
        check(registry)?;
    }
    groups(&mut criterion, &mut [("xuid file", &mut file), ("xuid memory", &mut memory)], &mut raw)?;
    criterion.final_summary();
    Ok(())
}

type Named<'a> = (&'static str, &'a mut dyn Registry);

fn groups(
    criterion: &mut Criterion,
    registries: &mut [Named<'_>],
    raw: &mut RawFile,
) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("reserve a window");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    for (name, registry) in registries.iter_mut() {
        reserve(&mut group, name, *registry)?;
    }
    two_syncs(&mut group, raw);
    group.finish();
    let mut group = criterion.benchmark_group("grant extents: move a spill's mark");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    for (name, registry) in registries.iter_mut() {
        grant(&mut group, name, *registry)?;
    }
    two_syncs(&mut group, raw);
    group.finish();
    Ok(())
}

fn worker_record(reserved_until: u64, operation: u64) -> WorkerRecord {
    WorkerRecord { reserved_until, token: TOKEN, operation, owner: "a bench".into() }
}

fn mark_record(granted_upto: u64, operation: u64) -> MarkRecord {
    MarkRecord { granted_upto, token: TOKEN, operation }
}

/// A swap moves the record and its version; one that names an old version changes nothing.
fn check(registry: &mut dyn Registry) -> Result<(), Box<dyn Error>> {
    let before = registry.worker(WORKER)?;
    let record = worker_record(before.record.reserved_until + 60_000, 1);
    registry.swap_worker(WORKER, before.version, &record)?;
    let stale = registry.swap_worker(WORKER, before.version, &worker_record(u64::MAX >> 30, 2));
    assert!(matches!(stale, Err(SwapError::Conflict)), "an old version was taken: {stale:?}");
    let after = registry.worker(WORKER)?;
    assert!(after.record == record && after.version > before.version, "{after:?}");
    Ok(())
}

fn reserve(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    registry: &mut dyn Registry,
) -> Result<(), Box<dyn Error>> {
    let begin = registry.worker(WORKER)?;
    let (mut until, mut version) = (begin.record.reserved_until, begin.version);
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            until += 60_000;
            let swapped = registry.swap_worker(WORKER, version, &worker_record(until, version));
            assert!(swapped.is_ok(), "{swapped:?}");
            version += 1;
        });
    });
    assert_eq!(registry.worker(WORKER)?.record.reserved_until, until, "a window was lost");
    Ok(())
}

fn grant(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    registry: &mut dyn Registry,
) -> Result<(), Box<dyn Error>> {
    let spill = SpillId::from_bytes(*b"a spill to bench");
    registry.create_mark(spill, &mark_record(0, 0))?;
    let (mut upto, mut version) = (0, registry.mark(spill)?.version);
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            upto += 64;
            let swapped = registry.swap_mark(spill, version, &mark_record(upto, version));
            assert!(swapped.is_ok(), "{swapped:?}");
            version += 1;
        });
    });
    assert_eq!(registry.mark(spill)?.record.granted_upto, upto, "a grant was lost");
    Ok(())
}

fn two_syncs(group: &mut BenchmarkGroup<'_, WallTime>, raw: &mut RawFile) {
    let piece = [0x58; 64];
    group.bench_function("two fdatasyncs of 64 bytes", |bencher| {
        bencher.iter(|| {
            for _ in 0..2 {
                raw.write(black_box(&piece));
                raw.sync();
            }
        });
    });
}
