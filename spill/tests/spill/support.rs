//! What the tests share: one identity, extents by number, logs in memory.

use xuid_spill::{Expected, Extent, Identity, Log, MIN_BYTES, MemoryStorage, Report, SpillId};

pub(crate) const STRIDE: u64 = 1 << 22;
pub(crate) const RECORD: u64 = 32;
pub(crate) const RECORDS_AT: u64 = 8192;

pub(crate) fn identity() -> Identity {
    let spill = SpillId::from_bytes(*b"one-spill-a-test");
    Identity { spill, cluster: *b"the-test-cluster", stride: STRIDE, layout: *b"41/10/12 at 1 ms" }
}

pub(crate) fn expected() -> Expected {
    let Identity { cluster, stride, layout, .. } = identity();
    Expected { cluster, stride, layout }
}

/// A file's length for this many records.
pub(crate) fn bytes_for(records: u64) -> u64 {
    MIN_BYTES + (records - 1) * RECORD
}

/// The extents of two numbers never share an id.
pub(crate) fn extent(number: u64) -> Extent {
    Extent {
        first: (1 + number * 10) * STRIDE,
        len: 1 + (number % 4096) as u32,
        ticks: 1 + (number % 10) as u32,
    }
}

pub(crate) fn extents(numbers: std::ops::Range<u64>) -> Vec<Extent> {
    numbers.map(extent).collect()
}

pub(crate) fn create(records: u64) -> (MemoryStorage, Log) {
    let disk = MemoryStorage::new();
    let log = Log::create(Box::new(disk.clone()), identity(), bytes_for(records)).unwrap();
    (disk, log)
}

pub(crate) fn open(disk: &MemoryStorage, mark: u64) -> (Log, Report) {
    let (mut log, report) = Log::open(Box::new(disk.clone()), &expected()).unwrap();
    log.resume_at(mark);
    (log, report)
}

/// Everything that can be read, having checked what must hold whenever everything is read.
pub(crate) fn read_all(log: &Log) -> Vec<(u64, Extent)> {
    let mut all = Vec::new();
    let damage = log.read(log.tail()..log.head(), &mut all).unwrap();
    assert!(all.is_sorted_by(|one, next| one.0 < next.0));
    assert!(all.iter().all(|(index, _)| (log.tail()..log.head()).contains(index)));
    assert_eq!(all.len() as u64 + damage.records, log.head() - log.tail());
    assert_eq!(log.stock().extents, all.len() as u64);
    assert_eq!(log.stock().ids, all.iter().map(|(_, extent)| extent.ids()).sum::<u64>());
    assert_eq!(log.peek_stock(0..u64::MAX), log.stock());
    assert_eq!(log.missing(), damage.records);
    all
}
