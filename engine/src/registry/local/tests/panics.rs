//! Panics in the middle of a change. The process goes on, and what it goes on with must be durable.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::registry::local::disk::Disk;

const WORKERS: u32 = 2;

/// Panics before its `n`th write or sync from now, if it is told to.
struct Breaking {
    disk: MemoryDisk,
    left: Arc<AtomicU64>,
}

impl Breaking {
    fn step(&self) {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            assert!(left > 1, "a disk that was told to panic");
        }
    }
}

impl Disk for Breaking {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.step();
        self.disk.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step();
        self.disk.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.disk.identity()
    }

    fn in_place(&self) -> io::Result<bool> {
        self.disk.in_place()
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        self.disk.try_lock()
    }

    fn unlock(&mut self) {
        self.disk.unlock();
    }
}

/// What a process that panicked at its `step`th write or sync believes of a record, and what a power cut leaves of it.
fn believed_and_left(step: u64, way: usize) -> (u64, u64) {
    let disk = memory(WORKERS);
    let left = Arc::new(AtomicU64::new(0));
    let breaking = Breaking { disk: disk.open_again(), left: left.clone() };
    let mut registry = LocalRegistry::on(breaking, clock()).unwrap();
    registry.swap_worker(0, 1, &claim_of(2_000, 1)).unwrap();

    left.store(step, Ordering::Relaxed);
    let change = AssertUnwindSafe(|| registry.swap_worker(0, 2, &claim_of(3_000, 2)));
    assert!(catch_unwind(change).is_err(), "step {step} is one of a change");
    let believed = registry.worker(0).unwrap();
    assert!(matches!(believed.record.reserved_until, 2_000 | 3_000));

    // The last way of each sector is what it was before.
    let image = disk.image(|ways| (ways - 1).saturating_sub(way));
    let found = on(&MemoryDisk::new(image, some_identity())).worker(0).unwrap();

    // Nobody else waits for the lock, and this process changes that record and others as before.
    on(&disk).swap_worker(1, 1, &claim_of(5_000, 3)).unwrap();
    registry.swap_worker(0, believed.version, &claim_of(4_000, 4)).unwrap();
    assert_eq!(on(&disk).worker(0).unwrap().record.reserved_until, 4_000);
    (believed.record.reserved_until, found.record.reserved_until)
}

#[test]
fn what_a_process_believes_after_a_panic_is_not_taken_back_by_a_power_cut() {
    let mut seen = Vec::new();
    for step in 1..=4 {
        for way in 0..4 {
            let (believed, left) = believed_and_left(step, way);
            assert!(left >= believed, "step {step}: believed {believed}, and {left} was left");
            seen.push(believed);
        }
    }
    assert!(seen.contains(&2_000) && seen.contains(&3_000));
}
