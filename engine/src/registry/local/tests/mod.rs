//! What the local registry promises, attacked.

mod closed;
mod damage;
mod fence;
#[cfg(not(loom))]
mod fence_cuts;
mod folder;
mod golden;
#[cfg(not(loom))]
mod header;
mod overwritten;
#[cfg(not(loom))]
mod panics;
#[cfg(not(loom))]
mod power;
mod restored;
#[cfg(not(loom))]
mod unreadable;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xuid_spill::SpillId;

use super::*;
use crate::clock::Reading;
use crate::registry::{ClusterId, Token};

thread_local! {
    /// How many moments of a fence pass before this thread's is cut off.
    static MOMENTS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// What is done at a moment of a fence of this thread, and how many moments pass before that.
    static AT_MOMENT: Cell<Option<Interruption>> = const { Cell::new(None) };
}

/// How many moments pass before something, and what.
type Interruption = (u32, Box<dyn FnOnce()>);

/// A moment at which a fence may be cut off, as a kill cuts it off: by a panic that nothing cleans up after.
pub(super) fn cut_here() {
    let left = MOMENTS_LEFT.get();
    MOMENTS_LEFT.set(left.and_then(|left| left.checked_sub(1)));
    assert!(left != Some(0), "cut off here");
    match AT_MOMENT.take() {
        Some((0, work)) => work(),
        Some((moments, work)) => AT_MOMENT.set(Some((moments - 1, work))),
        None => {}
    }
}

/// A clock that is read in milliseconds and moves by one with each look.
struct Stepping(AtomicU64);

impl Clock for Stepping {
    fn read(&self) -> Reading {
        let ms = self.0.fetch_add(1, Ordering::Relaxed);
        Reading { wall: ms * 1_000_000, boot: ms * 1_000_000 }
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Stepping(AtomicU64::new(1_700_000_000_000)))
}

fn some_genesis(workers: u32) -> Genesis {
    Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), 1_000, workers)
}

fn some_identity() -> FileIdentity {
    FileIdentity { inode: 42, born_ns: 1_763_683_200_123_456_789, device: 2_049, machine: 99 }
}

fn memory(workers: u32) -> MemoryDisk {
    MemoryDisk::with_registry(&some_genesis(workers), some_identity())
}

fn on(disk: &MemoryDisk) -> LocalRegistry<MemoryDisk> {
    LocalRegistry::on(disk.open_again(), clock()).unwrap()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn made_in(folder: &Path, workers: u32) -> LocalRegistry {
    let options = CreateOptions { layout: Layout::default(), floor: 1_000, workers };
    LocalRegistry::open_or_create(folder, &options).unwrap()
}

fn registry_of(folder: &Path) -> PathBuf {
    folder.join("registry")
}

fn claim_of(reserved_until: u64, operation: u64) -> WorkerRecord {
    WorkerRecord { reserved_until, token: Token([3; 16]), operation, owner: "host pid 1".into() }
}

fn mark_of(granted_upto: u64, operation: u64) -> MarkRecord {
    MarkRecord { granted_upto, token: Token([3; 16]), operation }
}

fn spill(n: u8) -> SpillId {
    SpillId::from_bytes([n; 16])
}

/// Where a copy of a worker's record lies, in a registry of that many workers.
fn offset_of(workers: u32, place: Place, copy: format::Side) -> usize {
    format::Geometry::registry(0..workers).offset(place, copy) as usize
}
