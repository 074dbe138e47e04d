//! The spill: append, sync, open and take, on a file and in memory, beside the system calls and the checksum alone.
//!
//! The file lies in the folder for temporary files (`TMPDIR`), which must be on a disk for the syncs to mean anything.

mod common;
#[path = "common/disk.rs"]
mod disk;

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use disk::RawFile;
use xuid_benches::measure::now;
use xuid_spill::{
    DEFAULT_BYTES, Expected, Extent, Identity, Log, MappedFile, MemoryStorage, SpillId, Storage,
};

const STRIDE: u64 = 1 << 22;

/// Extents of a grant.
const GRANT: u64 = 64;

const RECORD: [u8; 32] = [0x58; 32];

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = common::criterion();
    let folder = tempfile::tempdir()?;
    check(folder.path())?;
    append(&mut criterion, folder.path())?;
    sync(&mut criterion, folder.path())?;
    take(&mut criterion, folder.path())?;
    open(&mut criterion, folder.path())?;
    criterion.final_summary();
    Ok(())
}

fn identity() -> Identity {
    let spill = SpillId::from_bytes(*b"a spill to bench");
    Identity { spill, cluster: [1; 16], stride: STRIDE, layout: *b"41/10/12 at 1 ms" }
}

fn expected() -> Expected {
    let Identity { cluster, stride, layout, .. } = identity();
    Expected { cluster, stride, layout }
}

/// An idle second; those of two numbers share no id.
fn second(number: u64) -> Extent {
    Extent { first: (1 + number * 1_000) * STRIDE, len: 4_096, ticks: 1_000 }
}

fn create(storage: impl Storage + 'static) -> Result<Log, Box<dyn Error>> {
    Ok(Log::create(Box::new(storage), identity(), DEFAULT_BYTES)?)
}

fn on_file(path: &Path) -> Result<Log, Box<dyn Error>> {
    create(MappedFile::create(path)?)
}

/// A file set aside as a log's is.
fn raw(path: &Path) -> Result<RawFile, Box<dyn Error>> {
    drop(on_file(path)?);
    Ok(RawFile::open(path)?)
}

/// Appends as many extents as the log holds.
fn fill(log: &mut Log) {
    let begin = log.head();
    let extents: Vec<Extent> = (begin..begin + log.capacity()).map(second).collect();
    assert!(log.append(&extents).is_ok(), "the disk failed");
}

/// What comes back after a restart is what was appended, each once, and nothing below the mark.
fn check(folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join("checked");
    let mut log = on_file(&path)?;
    fill(&mut log);
    log.sync()?;
    let capacity = log.capacity();
    drop(log);
    let (mut log, report) = Log::open(Box::new(MappedFile::open(&path)?), &expected())?;
    assert_eq!((report.head, report.stock.extents, report.damaged), (capacity, capacity, 0));
    log.resume_at(GRANT);
    let mut extents = Vec::new();
    let damage = log.read(log.tail()..log.head(), &mut extents)?;
    assert_eq!(damage.records, 0);
    assert!(
        extents.into_iter().eq((GRANT..capacity).map(|index| (index, second(index)))),
        "not what was put in"
    );
    Ok(())
}

fn append(criterion: &mut Criterion, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("append, without a sync");
    let mut file = on_file(&folder.join("appended"))?;
    let mut memory = create(MemoryStorage::new())?;
    append_to(&mut group, "xuid file, one extent", &mut file, 1);
    append_to(&mut group, "xuid file, 64 extents", &mut file, GRANT);
    append_to(&mut group, "xuid memory, 64 extents", &mut memory, GRANT);
    group.throughput(Throughput::Elements(1));
    let mut raw = raw(&folder.join("raw"))?;
    group.bench_function("pwrite of 32 bytes", |bencher| bencher.iter(|| raw.write(black_box(&RECORD))));
    group.bench_function("crc32c of 32 bytes", |bencher| {
        bencher.iter(|| black_box(crc32c::crc32c(black_box(&RECORD))));
    });
    group.finish();
    Ok(())
}

fn append_to(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, log: &mut Log, count: u64) {
    group.throughput(Throughput::Elements(count));
    group.bench_function(name, |bencher| {
        let mut extents: Vec<Extent> = (0..count).map(second).collect();
        let mut next = count;
        bencher.iter(|| {
            assert!(log.append(black_box(&extents)).is_ok(), "the disk failed");
            // Ids of their own each time, as the engine's are, within the 63 bits there are.
            for extent in &mut extents {
                *extent = second(next);
                next = (next + 1) % (1 << 30);
            }
        });
    });
}

fn sync(criterion: &mut Criterion, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("append of 64 extents and sync");
    group.throughput(Throughput::Elements(GRANT)).sample_size(20);
    let mut log = on_file(&folder.join("synced"))?;
    let extents: Vec<Extent> = (0..GRANT).map(second).collect();
    group.bench_function("xuid file", |bencher| {
        bencher.iter(|| {
            assert!(log.append(black_box(&extents)).is_ok() && log.sync().is_ok(), "the disk failed");
        });
    });
    let mut raw = raw(&folder.join("raw synced"))?;
    let records = [0x58; 32 * GRANT as usize];
    group.bench_function("pwrite and fdatasync of as many bytes", |bencher| {
        bencher.iter(|| {
            raw.write(black_box(&records));
            raw.sync();
        });
    });
    group.finish();
    Ok(())
}

fn take(criterion: &mut Criterion, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("take: read, verify and mark, 64 extents");
    // Filling it again costs as much as emptying it, and is not measured.
    group.throughput(Throughput::Elements(GRANT)).measurement_time(Duration::from_millis(500));
    let mut file = on_file(&folder.join("taken"))?;
    take_from(&mut group, "xuid file", &mut file);
    let mut memory = create(MemoryStorage::new())?;
    take_from(&mut group, "xuid memory", &mut memory);
    let bytes = [0x58; 32 * GRANT as usize];
    group.bench_function("a copy and 64 crc32c of 32 bytes", |bencher| {
        bencher.iter(|| {
            let copy = *black_box(&bytes);
            for record in copy.chunks_exact(RECORD.len()) {
                black_box(crc32c::crc32c(record));
            }
        });
    });
    group.finish();
    Ok(())
}

fn take_from(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, log: &mut Log) {
    let mut taken = Vec::new();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|takes| {
            let (mut spent, mut left) = (Duration::ZERO, takes);
            while left > 0 {
                if log.stock().extents < GRANT {
                    fill(log);
                }
                let count = left.min(log.stock().extents / GRANT);
                let begin = now();
                for _ in 0..count {
                    taken.clear();
                    let (from, upto) = (log.tail(), log.tail() + GRANT);
                    let damage = log.read(from..upto, &mut taken);
                    assert!(damage.is_ok_and(|damage| damage.records == 0), "damage");
                    log.resume_at(upto);
                    black_box(&taken);
                }
                spent += begin.elapsed();
                left -= count;
            }
            spent
        });
    });
}

fn open(criterion: &mut Criterion, folder: &Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join("checked");
    let bytes = std::fs::read(&path)?;
    let memory = MemoryStorage::from_bytes(bytes.clone());
    let capacity = Log::open(Box::new(memory.clone()), &expected())?.0.capacity();
    let mut group = criterion.benchmark_group(format!("open with {capacity} extents"));
    group.throughput(Throughput::Elements(capacity)).sample_size(10);
    group.bench_function("xuid file, in the page cache", |bencher| {
        bencher.iter(|| {
            let opened = MappedFile::open(&path).is_ok_and(|file| opens(file, capacity));
            assert!(opened, "not opened");
        });
    });
    group.bench_function("xuid memory", |bencher| {
        bencher.iter(|| assert!(opens(memory.clone(), capacity), "not opened"));
    });
    group.bench_function("crc32c of each 32 bytes", |bencher| {
        bencher.iter(|| {
            for record in black_box(&bytes).chunks_exact(RECORD.len()) {
                black_box(crc32c::crc32c(record));
            }
        });
    });
    group.finish();
    Ok(())
}

/// Whether all extents are found.
fn opens(storage: impl Storage + 'static, capacity: u64) -> bool {
    let opened = Log::open(Box::new(storage), &expected());
    opened.is_ok_and(|(_, report)| report.stock.extents == capacity)
}
