//! Damaged, edited and replaced files.

use super::*;
use crate::registry::local::format::{MARK_SLOTS, Side};

const WORKERS: u32 = 3;

fn flip(disk: &MemoryDisk, place: Place, copy: Side, byte: usize) {
    disk.tamper(offset_of(WORKERS, place, copy), |sector| sector[byte] ^= 0x10);
}

#[test]
fn one_damaged_copy_is_made_good_by_the_next_start_and_by_the_next_change() {
    for copy in Side::BOTH {
        for byte in [0, 4, 30, 90, 300, 510] {
            let disk = memory(WORKERS);
            let mut registry = on(&disk);
            registry.swap_worker(1, 1, &claim_of(5_000, 1)).unwrap();
            flip(&disk, Place::worker(1), copy, byte);
            assert_eq!(registry.worker(1).unwrap().record.reserved_until, 5_000);
            registry.swap_worker(1, 2, &claim_of(6_000, 2)).unwrap();
            flip(&disk, Place::worker(1), copy.other(), byte);
            assert_eq!(on(&disk).worker(1).unwrap().record.reserved_until, 6_000);
            flip(&disk, Place::worker(1), copy, byte);
            assert_eq!(on(&disk).worker(1).unwrap().record.reserved_until, 6_000);
        }
    }
}

#[test]
fn with_both_copies_damaged_that_worker_is_unusable_and_the_others_go_on() {
    let disk = memory(WORKERS);
    for copy in Side::BOTH {
        flip(&disk, Place::worker(1), copy, 32);
    }
    let mut registry = on(&disk);
    let error = registry.worker(1).unwrap_err();
    assert!(matches!(&error, ReadError::Damaged { what, .. } if what == "worker 1"), "{error}");
    let swapped = registry.swap_worker(1, 1, &claim_of(5_000, 1)).unwrap_err();
    assert!(matches!(swapped, SwapError::Read(ReadError::Damaged { .. })), "{swapped}");
    registry.claim(0, 1, &claim_of(5_000, 2)).unwrap();
    let rows = registry.workers().unwrap();
    assert_eq!(rows.iter().map(|row| row.record.is_ok()).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn zeros_are_damage_and_not_a_record_of_zero() {
    let disk = memory(WORKERS);
    for copy in Side::BOTH {
        disk.tamper(offset_of(WORKERS, Place::worker(2), copy), |sector| sector.fill(0));
    }
    let error = on(&disk).worker(2).unwrap_err();
    assert!(matches!(&error, ReadError::Damaged { why, .. } if why.contains("zeros")), "{error}");
}

#[test]
fn a_record_copied_to_another_place_does_not_pass() {
    let disk = memory(WORKERS);
    let from = offset_of(WORKERS, Place::worker(0), Side::A);
    let sector = disk.bytes()[from..from + 512].to_vec();
    for place in [Place::worker(1), Place::mark(0)] {
        for copy in Side::BOTH {
            disk.tamper(offset_of(WORKERS, place, copy), |there| there.copy_from_slice(&sector));
        }
    }
    let mut registry = on(&disk);
    let error = registry.worker(1).unwrap_err();
    assert!(matches!(&error, ReadError::Damaged { why, .. } if why.contains("another place")), "{error}");
    registry.create_mark(spill(1), &mark_of(0, 1)).unwrap();
    assert_eq!(registry.mark(spill(1)).unwrap().record, mark_of(0, 1));
}

#[test]
fn a_worker_outside_the_registry_is_absent() {
    let mut registry = on(&memory(WORKERS));
    assert!(matches!(registry.worker(WORKERS), Err(ReadError::Absent { .. })));
    let swapped = registry.claim(WORKERS, 1, &claim_of(5_000, 1));
    assert!(matches!(swapped, Err(SwapError::Read(ReadError::Absent { .. }))));
}

#[test]
fn a_record_that_went_back_under_a_running_process_is_refused() {
    let disk = memory(WORKERS);
    let before = disk.bytes();
    let mut registry = on(&disk);
    registry.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
    registry.create_mark(spill(1), &mark_of(0, 2)).unwrap();
    let mark = registry.mark(spill(1)).unwrap();
    registry.swap_mark(spill(1), mark.version, &mark_of(10, 3)).unwrap();
    for place in [Place::worker(0), Place::mark(0)] {
        for copy in Side::BOTH {
            let offset = offset_of(WORKERS, place, copy);
            disk.tamper(offset, |sector| sector.copy_from_slice(&before[offset..offset + 512]));
        }
    }
    let error = registry.worker(0).unwrap_err();
    let told = "worker 0 was at version 2 and is at 1";
    assert!(matches!(&error, ReadError::Foreign { why } if why.contains(told)), "{error}");
    assert!(registry.swap_worker(0, 1, &claim_of(6_000, 4)).is_err());
    assert!(matches!(registry.mark(spill(1)), Err(ReadError::Foreign { .. })));
}

#[test]
fn a_hand_back_lowers_a_record_and_is_no_damage() {
    let disk = memory(WORKERS);
    let (mut one, mut two) = (on(&disk), on(&disk));
    one.swap_worker(0, 1, &claim_of(5_000, 1)).unwrap();
    assert_eq!(two.worker(0).unwrap().record.reserved_until, 5_000);
    one.swap_worker(0, 2, &claim_of(4_000, 2)).unwrap();
    assert_eq!(two.worker(0).unwrap().record.reserved_until, 4_000);
}

#[test]
fn a_file_that_was_replaced_shortened_or_written_over_is_foreign() {
    let refused = |harm: &dyn Fn(&MemoryDisk)| {
        let disk = memory(WORKERS);
        let mut registry = on(&disk);
        harm(&disk);
        let bytes = disk.bytes();
        let swapped = registry.swap_worker(0, 1, &claim_of(5_000, 1));
        assert!(matches!(swapped, Err(SwapError::Read(ReadError::Foreign { .. }))), "{swapped:?}");
        assert!(matches!(registry.worker(0), Err(ReadError::Foreign { .. })));
        assert!(matches!(registry.workers(), Err(ReadError::Foreign { .. })));
        assert_eq!(disk.bytes(), bytes, "nothing is written");
    };
    refused(&|disk| disk.set_in_place(false));
    let over = |genesis: Genesis, identity: FileIdentity| {
        let other = MemoryDisk::with_registry(&genesis, identity).bytes();
        move |disk: &MemoryDisk| {
            for offset in [0, 4_096] {
                disk.tamper(offset, |sector| sector.copy_from_slice(&other[offset..offset + 512]));
            }
        }
    };
    let cluster = ClusterId::from_bytes([8; 16]);
    refused(&over(Genesis { cluster, ..some_genesis(WORKERS) }, some_identity()));
    refused(&over(some_genesis(WORKERS), FileIdentity { inode: 43, ..some_identity() }));
    refused(&|disk| [0, 4_096].iter().for_each(|offset| disk.tamper(*offset, |sector| sector.fill(0))));
}

#[test]
fn one_damaged_header_is_made_good_and_two_are_refused() {
    let disk = memory(WORKERS);
    disk.tamper(0, |sector| sector[20] ^= 1);
    let mut registry = on(&disk);
    assert_eq!(registry.genesis(), &some_genesis(WORKERS));
    registry.claim(0, 1, &claim_of(5_000, 1)).unwrap();
    disk.tamper(4_096, |sector| sector[20] ^= 1);
    assert_eq!(on(&disk).worker(0).unwrap().version, 2);
    for offset in [0, 4_096] {
        disk.tamper(offset, |sector| sector[20] ^= 1);
    }
    let refused = LocalRegistry::on(disk.open_again(), clock()).err().unwrap();
    assert!(matches!(refused, LocalError::HeaderDamaged { .. }), "{refused}");
}

#[test]
fn a_moved_volume_is_taken_as_it_is_and_a_copy_is_not() {
    let disk = memory(WORKERS);
    disk.identify(FileIdentity { device: 7, machine: 0, ..some_identity() });
    drop(on(&disk));
    let bytes = disk.bytes();
    drop(on(&disk));
    assert_eq!(disk.bytes(), bytes, "the header was told once where it is");
    for copied in
        [FileIdentity { inode: 43, ..some_identity() }, FileIdentity { born_ns: 5, ..some_identity() }]
    {
        disk.identify(copied);
        let refused = LocalRegistry::on(disk.open_again(), clock()).err().unwrap();
        assert!(matches!(refused, LocalError::Copied { .. }), "{refused}");
    }
}

#[test]
fn when_all_slots_have_a_mark_the_oldest_makes_room_and_its_spill_is_refused() {
    let mut registry = on(&memory(1));
    let id = |n: u32| SpillId::from_bytes(u128::from(n + 1).to_be_bytes());
    for n in 0..MARK_SLOTS {
        registry.create_mark(id(n), &mark_of(0, u64::from(n))).unwrap();
    }
    let first = registry.mark(id(0)).unwrap();
    registry.swap_mark(id(0), first.version, &mark_of(5, 0)).unwrap();
    registry.create_mark(id(MARK_SLOTS), &mark_of(0, 0)).unwrap();
    assert!(matches!(registry.mark(id(1)), Err(ReadError::Absent { .. })));
    assert_eq!(registry.mark(id(0)).unwrap().record.granted_upto, 5);
    assert!(matches!(registry.create_mark(id(0), &mark_of(0, 0)), Err(SwapError::Conflict)));
    let gone = registry.swap_mark(id(1), 2, &mark_of(9, 0));
    assert!(matches!(gone, Err(SwapError::Read(ReadError::Absent { .. }))));
}

#[test]
fn a_mark_swapped_at_an_old_version_is_a_conflict() {
    let disk = memory(1);
    let (mut one, mut two) = (on(&disk), on(&disk));
    one.create_mark(spill(1), &mark_of(0, 1)).unwrap();
    let seen = two.mark(spill(1)).unwrap();
    one.swap_mark(spill(1), seen.version, &mark_of(64, 2)).unwrap();
    assert!(matches!(two.swap_mark(spill(1), seen.version, &mark_of(64, 3)), Err(SwapError::Conflict)));
    assert_eq!(two.mark(spill(1)).unwrap().record, mark_of(64, 2));
}

/// An old content is put back under a running process, and another process changes it up to the same version.
#[test]
fn a_version_that_comes_again_with_another_content_is_not_written_over() {
    let disk = memory(2);
    let old = disk.bytes();
    let mut registry = on(&disk);
    registry.claim(1, 1, &claim_of(5_000, 1)).unwrap();
    for copy in Side::BOTH {
        let at = offset_of(2, Place::worker(1), copy);
        disk.tamper(at, |sector| sector.copy_from_slice(&old[at..at + 512]));
    }
    on(&disk).claim(1, 1, &WorkerRecord { token: Token([9; 16]), ..claim_of(6_000, 1) }).unwrap();
    // It would mint from 5000 on, which the other one does, too.
    let renewed = registry.swap_worker(1, 2, &claim_of(7_000, 2));
    assert!(matches!(renewed, Err(SwapError::Read(ReadError::Foreign { .. }))), "{renewed:?}");
}
