//! What the records of names promise, attacked.

mod damage;
mod fences;
mod golden;
mod port;
mod power;

use std::cell::Cell;

use xuid_id::Layout;

use super::*;
use crate::clock::Reading;
use crate::registry::local::{CreateOptions, FileIdentity, LocalRegistry, MemoryDisk};
use crate::registry::sequences::{SequenceChange, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};

thread_local! {
    /// How many moments of a fence pass before this thread's is cut off.
    static MOMENTS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A moment at which a fence may be cut off, as a kill cuts it off: by a panic that nothing cleans up after.
pub(super) fn cut_here() {
    let left = MOMENTS_LEFT.get();
    MOMENTS_LEFT.set(left.and_then(|left| left.checked_sub(1)));
    assert!(left != Some(0), "cut off here");
}

/// Does something of which a fence is cut off after so many moments.
fn cut_after<T>(moments: u32, work: impl FnOnce() -> T) -> T {
    MOMENTS_LEFT.set(Some(moments));
    let done = work();
    MOMENTS_LEFT.set(None);
    done
}

/// A clock that stands still but for people's times.
struct Still;

impl Clock for Still {
    fn read(&self) -> Reading {
        Reading { wall: 1_763_683_200_123_000_000, boot: 1_000_000_000 }
    }
}

fn some_genesis() -> Genesis {
    Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), 1_000, 4)
}

fn some_identity() -> FileIdentity {
    FileIdentity { inode: 42, born_ns: 1_763_683_200_123_456_789, device: 2_049, machine: 99 }
}

fn memory() -> MemoryDisk {
    MemoryDisk::with_sequences(&some_genesis(), some_identity())
}

fn on(disk: &MemoryDisk) -> LocalSequences<MemoryDisk> {
    LocalSequences::on(disk.open_again(), Arc::new(Still)).unwrap()
}

/// A folder with a registry.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions { layout: Layout::default(), floor: 1_000, workers: 4 };
    drop(LocalRegistry::open_or_create(folder.path(), &options).unwrap());
    folder
}

fn opened(folder: &Path) -> LocalSequences {
    LocalSequences::open_or_create(folder, None).unwrap()
}

fn file_of(folder: &Path) -> PathBuf {
    folder.join("sequences")
}

fn marked(value: u64) -> SequenceRecord {
    SequenceRecord { value, last: (1 << 63) - 1, step: 1_000, increment: 1, ..SequenceRecord::default() }
}

fn change(name: &str, expected: Option<u64>, value: u64) -> SequenceChange<'_> {
    SequenceChange { name, expected, record: marked(value) }
}

fn swap(records: &mut dyn SequenceRecords, changes: &[SequenceChange<'_>]) -> Vec<Result<(), SwapError>> {
    let mut outcomes = Vec::new();
    records.swap(changes, &mut outcomes);
    assert_eq!(outcomes.len(), changes.len());
    outcomes
}

fn swap_one(
    records: &mut dyn SequenceRecords,
    name: &str,
    expected: Option<u64>,
    value: u64,
) -> Result<(), SwapError> {
    swap(records, &[change(name, expected, value)]).pop().unwrap()
}

fn read(records: &mut dyn SequenceRecords, name: &str) -> Result<Versioned<SequenceRecord>, ReadError> {
    let mut found = Vec::new();
    records.read(&[name], &mut found);
    assert_eq!(found.len(), 1);
    found.pop().unwrap()
}

/// Makes a name, or moves its mark by so much; the numbers that are granted by that.
fn grant(records: &mut dyn SequenceRecords, name: &str, count: u64) -> Result<(u64, u64), SwapError> {
    let (first, expected) = match read(records, name) {
        Ok(found) => (found.record.value, Some(found.version)),
        Err(ReadError::Absent { .. }) => {
            swap_one(records, name, None, 1 + count)?;
            return Ok((1, 1 + count));
        }
        Err(error) => return Err(error.into()),
    };
    swap_one(records, name, expected, first + count)?;
    Ok((first, first + count))
}

/// So many names, in calls of as many as one takes.
fn make_names(records: &mut dyn SequenceRecords, prefix: &str, numbers: std::ops::Range<u32>) {
    let names: Vec<String> = numbers.map(|n| format!("{prefix}{n:06}")).collect();
    for names in names.chunks(crate::registry::sequences::MOST_CHANGES) {
        let changes: Vec<_> = names.iter().map(|name| change(name, None, 1)).collect();
        assert!(swap(records, &changes).iter().all(Result::is_ok));
    }
}
