//! Panics in the middle of a change. The process goes on, and what it goes on with must be durable.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::registry::local::simulated::MemoryHints;
use crate::sys::guards::Guard;
use crate::testing::support::clock::Time;
use crate::testing::support::faults::{Armed, FaultKind, Faults, FaultyDisk, Point};

const WORKERS: u32 = 2;

/// What a process that panicked in a change, after so many writes and syncs, believes of the record, and what a power
/// cut leaves of it.
fn believed_and_left(after: u32, way: usize) -> (u64, u64) {
    let disk = memory(WORKERS);
    let faults = Faults::new(Time::new(0), None);
    faults.set_working(true);
    let failing = FaultyDisk { disk: disk.open_again(), faults: faults.clone() };
    let mut registry = LocalRegistry::on(failing, clock()).unwrap();
    registry.swap_worker(0, 1, &claim_of(2_000, 1)).unwrap();

    faults.arm(Some(Armed { point: Point::Folder, after, kind: FaultKind::Panic }));
    let change = AssertUnwindSafe(|| registry.swap_worker(0, 2, &claim_of(3_000, 2)));
    assert!(catch_unwind(change).is_err(), "a change goes on after {after} steps");
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
    for after in 0..4 {
        for way in 0..4 {
            let (believed, left) = believed_and_left(after, way);
            assert!(left >= believed, "after {after} steps: believed {believed}, and {left} was left");
            seen.push(believed);
        }
    }
    assert!(seen.contains(&2_000) && seen.contains(&3_000));
}

/// What a process believes of a claim that a panic broke off, and whether its folder refuses the registry of before.
fn believed_and_known(after: u32) -> (u64, bool) {
    let (disk, hints) = (memory(WORKERS), MemoryHints::default());
    let (faults, backup) = (Faults::new(Time::new(0), None), disk.bytes());
    faults.set_working(true);
    let failing = FaultyDisk { disk: disk.open_again(), faults: faults.clone() };
    let mut registry = LocalRegistry::on_with(failing, Some(hints.process()), clock()).unwrap();
    faults.arm(Some(Armed { point: Point::Folder, after, kind: FaultKind::Panic }));
    let change = AssertUnwindSafe(|| registry.swap_worker(0, 1, &claim_of(5_000, 1)));
    assert!(catch_unwind(change).is_err(), "a change goes on after {after} steps");
    let believed = registry.worker(0).unwrap().record.reserved_until;
    registry.close();
    drop(registry);
    let restored = MemoryDisk::new(backup, some_identity());
    let restored = LocalRegistry::on_with(restored, Some(hints.process()), clock());
    (believed, matches!(restored.err(), Some(LocalError::Restored { .. })))
}

/// What a process believes is what it issues from, so its folder has to know it as well.
#[test]
fn a_change_that_a_panic_broke_off_is_known_to_the_folder_once_it_is_believed() {
    let all = || (0..4).map(believed_and_known);
    assert!(all().all(|(believed, is_known)| is_known == (believed == 5_000)));
    assert!(all().any(|(_, is_known)| is_known));
    assert!(!Guard::without(&[Guard::DoubtNoted], || all().any(|(_, is_known)| is_known)));
}
