//! Slots that cannot be read, failing disks, and files that go back under a process.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::registry::local::format::Side;
use crate::registry::local::simulated::MemoryHints;
use crate::registry::record::Place;
use crate::registry::sequences::allow_new;
use crate::sys::guards::Guard;

fn offsets(slot: u32) -> [usize; 2] {
    let geometry = crate::registry::local::format::Geometry::sequences(GROWTH_SLOTS);
    Side::BOTH.map(|copy| geometry.offset(Place::sequence(slot), copy) as usize)
}

fn spoil(disk: &MemoryDisk, slot: u32) {
    for offset in offsets(slot) {
        disk.tamper(offset, |sector| sector[40] ^= 1);
    }
}

#[test]
fn a_copy_that_is_damaged_is_made_good_from_the_other() {
    let disk = memory();
    make_names(&mut on(&disk), "n", 0..3);
    for offset in offsets(1) {
        disk.tamper(offset, |sector| sector[200] ^= 4);
        assert!(read(&mut on(&disk), "n000001").is_ok());
        let bytes = disk.bytes();
        let [a, b] = offsets(1);
        assert_eq!(bytes[a..a + 512], bytes[b..b + 512]);
    }
}

#[test]
fn a_name_whose_record_is_damaged_is_closed_alone() {
    let disk = memory();
    let mut records = on(&disk);
    make_names(&mut records, "n", 0..3);
    spoil(&disk, 1);
    assert!(matches!(read(&mut records, "n000001"), Err(ReadError::Damaged { .. })));
    assert!(matches!(grant(&mut records, "n000001", 1), Err(SwapError::Read(ReadError::Damaged { .. }))));
    assert_eq!(grant(&mut records, "n000002", 5).unwrap(), (1, 6));
}

/// A slot says nothing. Whether a name that is not found can be made: it may be the one that was in the slot.
#[test]
fn while_nothing_tells_which_name_a_slot_had_no_name_is_made() {
    let disk = memory();
    make_names(&mut on(&disk), "n", 0..3);
    spoil(&disk, 1);
    let mut records = on(&disk);
    for name in ["n000001", "another"] {
        let absent = read(&mut records, name).unwrap_err();
        assert!(matches!(&absent, ReadError::Damaged { why, .. } if why.contains("slot 1")), "{absent}");
        let refused = swap_one(&mut records, name, None, 1).unwrap_err();
        assert!(matches!(refused, SwapError::Read(ReadError::Damaged { .. })), "{refused}");
    }
    assert_eq!(grant(&mut records, "n000002", 5).unwrap(), (1, 6));
    assert!(allow_new(&mut records, 0).is_err());
}

/// A clock that is moved by hand.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn read(&self) -> Reading {
        let now = self.0.load(Ordering::Relaxed);
        Reading { wall: 1_700_000_000_000_000_000 + now, boot: now }
    }
}

#[test]
fn after_a_failed_sync_the_own_write_is_not_believed_until_all_is_written_again() {
    let (disk, clock) = (memory(), Arc::new(Hands(AtomicU64::new(0))));
    let mut records = LocalSequences::on(disk.open_again(), clock.clone()).unwrap();
    make_names(&mut records, "n", 0..3);
    let version = read(&mut records, "n000001").unwrap().version;
    disk.fail_sync(2);
    let failed = swap_one(&mut records, "n000001", Some(version), 1_001);
    assert!(matches!(failed, Err(SwapError::Unknown { .. })), "{failed:?}");
    assert!(matches!(read(&mut records, "n000001"), Err(ReadError::Unavailable { .. })));
    let refused = swap_one(&mut records, "n000002", Some(2), 1_001);
    assert!(matches!(refused, Err(SwapError::Unavailable { .. })), "{refused:?}");
    clock.0.store(2_000_000_000, Ordering::Relaxed);
    let believed = read(&mut records, "n000001").unwrap();
    disk.cut_power(|_| 0);
    assert_eq!(read(&mut on(&disk), "n000001").unwrap(), believed);
}

/// A sync fails while the file grows. Another process goes on in the new slots.
fn grown_while_the_disk_failed(nth: u32) {
    let (disk, clock) = (memory(), Arc::new(Hands(AtomicU64::new(0))));
    let mut records = LocalSequences::on(disk.open_again(), clock.clone()).unwrap();
    make_names(&mut records, "a", 0..GROWTH_SLOTS);
    let mut other = on(&disk);
    disk.fail_sync(nth);
    assert!(swap_one(&mut records, "b", None, 1).is_err(), "sync {nth}");
    let made = swap_one(&mut other, "c", None, 1);
    clock.0.store(2_000_000_000, Ordering::Relaxed);
    let again = swap_one(&mut records, "d", None, 1);
    disk.cut_power(|_| 0);
    let mut next = on(&disk);
    for (name, made) in [("c", made), ("d", again)] {
        assert!(made.is_ok() && read(&mut next, name).is_ok(), "sync {nth}: {name} {made:?}");
    }
}

#[test]
fn a_name_in_a_file_that_grew_while_the_disk_failed_is_not_lost() {
    // The new slots' sync, the one before the headers, one behind each, and the two of the record.
    for nth in 1..=6 {
        grown_while_the_disk_failed(nth);
    }
}

/// Two processes. An old content is written into the file after the other one's grant, and this one asks.
fn granted_from_what_was_put_back() -> Result<(u64, u64), SwapError> {
    let (disk, hints) = (memory(), MemoryHints::default());
    let open = || LocalSequences::on_with(disk.open_again(), Some(hints.process()), Arc::new(Still)).unwrap();
    let (mut ours, mut theirs) = (open(), open());
    grant(&mut ours, "orders", 100).unwrap();
    let old = disk.bytes();
    assert_eq!(grant(&mut theirs, "orders", 100).unwrap(), (101, 201));
    for offset in offsets(0) {
        disk.tamper(offset, |sector| sector.copy_from_slice(&old[offset..offset + 512]));
    }
    grant(&mut ours, "orders", 100)
}

#[test]
fn what_another_process_was_granted_is_not_granted_from_an_old_content() {
    let refused = granted_from_what_was_put_back();
    assert!(matches!(refused, Err(SwapError::Read(ReadError::Foreign { .. }))), "{refused:?}");
}

#[test]
fn without_what_the_folder_knows_an_old_content_is_granted_again() {
    let granted = Guard::without(&[Guard::PutBackRefused], granted_from_what_was_put_back);
    assert_eq!(granted.unwrap(), (101, 201));
}

#[test]
fn an_old_content_in_the_same_file_is_refused_at_the_next_start() {
    let (disk, hints) = (memory(), MemoryHints::default());
    let open = |disk: MemoryDisk| LocalSequences::on_with(disk, Some(hints.process()), Arc::new(Still));
    let mut records = open(disk.open_again()).unwrap();
    grant(&mut records, "orders", 100).unwrap();
    let backup = disk.bytes();
    make_names(&mut records, "n", 0..5);
    records.close();
    drop(records);
    let restored = open(MemoryDisk::new(backup, some_identity())).err();
    assert!(matches!(restored, Some(LocalError::Restored { .. })), "{restored:?}");
    // What is as it was is opened.
    assert!(open(disk).is_ok());
}

#[test]
fn a_file_of_before_it_grew_is_refused_for_the_names_that_it_lacks() {
    let (disk, hints) = (memory(), MemoryHints::default());
    let open = |disk: MemoryDisk| LocalSequences::on_with(disk, Some(hints.process()), Arc::new(Still));
    let mut records = open(disk.open_again()).unwrap();
    make_names(&mut records, "n", 0..GROWTH_SLOTS);
    let backup = disk.bytes();
    swap_one(&mut records, "later", None, 1).unwrap();
    records.close();
    drop(records);
    let restored = open(MemoryDisk::new(backup, some_identity())).err();
    assert!(matches!(restored, Some(LocalError::Restored { .. })), "{restored:?}");
}

#[test]
fn a_copied_file_is_refused() {
    let copy = MemoryDisk::new(memory().bytes(), FileIdentity { inode: 43, ..some_identity() });
    let refused = LocalSequences::on(copy, Arc::new(Still)).err();
    assert!(matches!(refused, Some(LocalError::Copied { .. })), "{refused:?}");
}
