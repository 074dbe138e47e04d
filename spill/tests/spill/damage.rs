//! Bytes that changed behind the log's back.

use xuid_spill::{Damage, HeaderError, Log, MemoryStorage, OpenError, ReadError};

use crate::support::{RECORD, RECORDS_AT, create, expected, extent, extents, identity, open, read_all};

const CAPACITY: u64 = 128;
const HEADERS: [usize; 2] = [0, 4096];

fn offset(index: u64) -> usize {
    (RECORDS_AT + index % CAPACITY * RECORD) as usize
}

/// The bytes of a log with 20 records in its second lap.
fn full_log() -> Vec<u8> {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..CAPACITY + 20)).unwrap();
    disk.bytes()
}

fn refusal(bytes: Vec<u8>) -> OpenError {
    Log::open(Box::new(MemoryStorage::from_bytes(bytes)), &expected()).unwrap_err()
}

#[test]
fn a_flipped_bit_anywhere_costs_at_most_the_record_it_is_in() {
    let bytes = full_log();
    // One place in each 512 bytes, at a distance to their begin that visits all fields and bits in turn.
    for (turn, sector) in (0..bytes.len()).step_by(512).enumerate() {
        let at = sector + turn * 5 % RECORD as usize;
        let disk = MemoryStorage::from_bytes(bytes.clone());
        disk.tamper(|bytes| bytes[at] ^= 1 << (turn % 8));
        let (log, report) = open(&disk, 0);
        let read = read_all(&log);
        let whole = 20..CAPACITY + 20;
        if at < RECORDS_AT as usize {
            assert_eq!(read.len() as u64, CAPACITY, "byte {at}");
            assert_eq!(report.damaged, 0);
        } else {
            let lost = whole.clone().find(|index| offset(*index) / 32 == at / 32).unwrap();
            let left: Vec<_> =
                whole.filter(|index| *index != lost).map(|index| (index, extent(index))).collect();
            assert_eq!(read, left, "byte {at}");
            assert_eq!((report.damaged, report.stale), (1, 0));
            assert_eq!(log.missing(), 1);
        }
    }
}

#[test]
fn one_damaged_header_is_written_again_from_the_other() {
    let bytes = full_log();
    for copy in HEADERS {
        for byte in 0..128 {
            let disk = MemoryStorage::from_bytes(bytes.clone());
            disk.tamper(|bytes| bytes[copy + byte] ^= 0x10);
            let (log, report) = open(&disk, 0);
            assert!(report.header_repaired, "byte {byte} of the copy at {copy}");
            assert_eq!(log.id(), identity().spill);
            disk.crash();
            assert!(disk.bytes() == bytes, "byte {byte} of the copy at {copy} was not repaired durably");
        }
    }
    assert!(!open(&MemoryStorage::from_bytes(bytes), 0).1.header_repaired);
}

#[test]
fn with_both_headers_damaged_the_file_is_refused() {
    let mut damaged = full_log();
    for copy in HEADERS {
        damaged[copy + 40] ^= 1;
    }
    assert!(matches!(refusal(damaged.clone()), OpenError::Header(HeaderError::Damaged)));
    // One has lost its signature, the other is damaged: still a spill.
    damaged[0] = 0;
    assert!(matches!(refusal(damaged.clone()), OpenError::Header(HeaderError::Damaged)));
    damaged[4096] = 0;
    assert!(matches!(refusal(damaged), OpenError::Header(HeaderError::NotASpill { .. })));
    assert!(matches!(refusal(vec![0; 100]), OpenError::Header(HeaderError::NotASpill { found: 100 })));
}

#[test]
fn two_intact_headers_of_different_files_are_refused() {
    let mut bytes = full_log();
    let other = MemoryStorage::new();
    let identity = xuid_spill::Identity { spill: xuid_spill::SpillId::from_bytes([9; 16]), ..identity() };
    Log::create(Box::new(other.clone()), identity, crate::support::bytes_for(CAPACITY)).unwrap();
    bytes[4096..8192].copy_from_slice(&other.bytes()[4096..8192]);
    assert!(matches!(refusal(bytes), OpenError::Header(HeaderError::CopiesDiffer)));
}

#[test]
fn a_shortened_file_is_refused_and_an_enlarged_one_is_read_as_it_was_made() {
    let bytes = full_log();
    for length in [128, 4096, 4096 + 128, RECORDS_AT as usize, bytes.len() - 1] {
        let error = refusal(bytes[..length].to_vec());
        let OpenError::Header(HeaderError::Shortened(shortened)) = error else {
            panic!("{length} bytes: {error}")
        };
        assert_eq!((shortened.found, shortened.needed), (length as u64, bytes.len() as u64));
    }
    let disk = MemoryStorage::from_bytes(bytes);
    disk.tamper(|bytes| bytes.resize(bytes.len() + 5000, 0xAB));
    let (mut log, report) = open(&disk, 0);
    assert_eq!((report.surplus_bytes, report.damaged), (5000, 0));
    log.append(&extents(148..300)).unwrap();
    assert_eq!(read_all(&log).len() as u64, CAPACITY);
    assert!(disk.bytes().ends_with(&[0xAB; 5000]));
}

#[test]
fn a_record_of_the_lap_before_in_this_laps_slot_is_not_read() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..CAPACITY)).unwrap();
    let lap_before = disk.bytes();
    log.append(&extents(CAPACITY..CAPACITY + 20)).unwrap();
    // A lost write: the slot of index 128 + 5 holds the valid record of index 5 again.
    let slot = offset(5)..offset(5) + 32;
    disk.tamper(|bytes| bytes[slot.clone()].copy_from_slice(&lap_before[slot]));

    let lost = CAPACITY + 5;
    let mut out = Vec::new();
    let damage = log.read(lost..lost + 1, &mut out).unwrap();
    assert_eq!((out.len(), damage), (0, Damage { records: 1, ids: extent(lost).ids() }));
    assert_eq!(log.first_alive(lost, 0, lost + 1), None);

    let (reopened, report) = open(&disk, 0);
    assert_eq!((report.stale, report.damaged, report.head), (1, 0, CAPACITY + 20));
    assert_eq!(read_all(&reopened).len() as u64, CAPACITY - 1);
    let damage = reopened.read(lost..lost + 1, &mut out).unwrap();
    assert_eq!((out.len(), damage), (0, Damage { records: 1, ids: 0 }));
}

#[test]
fn a_valid_record_in_a_slot_that_is_not_its_own_is_damage() {
    let disk = MemoryStorage::from_bytes(full_log());
    let copied = disk.bytes()[offset(147)..offset(147) + 32].to_vec();
    disk.tamper(|bytes| bytes[offset(60)..offset(60) + 32].copy_from_slice(&copied));
    let (log, report) = open(&disk, 0);
    assert_eq!(report.damaged, 1);
    assert!(read_all(&log).iter().all(|(index, _)| *index != 60));
}

#[test]
fn records_of_another_file_are_damage() {
    let other = MemoryStorage::new();
    let identity = xuid_spill::Identity { spill: xuid_spill::SpillId::from_bytes([9; 16]), ..identity() };
    let mut log =
        Log::create(Box::new(other.clone()), identity, crate::support::bytes_for(CAPACITY)).unwrap();
    log.append(&extents(0..10)).unwrap();
    let foreign = other.bytes();
    let (disk, _log) = create(CAPACITY);
    disk.tamper(|bytes| bytes[RECORDS_AT as usize..].copy_from_slice(&foreign[RECORDS_AT as usize..]));
    let (log, report) = open(&disk, 0);
    assert_eq!((report.damaged, report.head, log.stock().extents), (10, 0, 0));
}

#[test]
fn damage_that_comes_while_the_log_is_open_is_skipped_and_its_ids_are_counted() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..10)).unwrap();
    disk.tamper(|bytes| bytes[offset(3)] ^= 1);
    let mut out = Vec::new();
    assert_eq!(log.read(2..5, &mut out).unwrap(), Damage { records: 1, ids: extent(3).ids() });
    assert_eq!(out, [(2, extent(2)), (4, extent(4))]);
    // The sums do not drift: when the mark passes the damage, what was counted for it goes.
    log.resume_at(5);
    assert_eq!(log.stock().extents, 5);
}

#[test]
fn a_file_that_shrinks_while_open_is_an_error_and_not_a_guess() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..10)).unwrap();
    disk.tamper(|bytes| bytes.truncate(offset(5)));
    let mut out = Vec::new();
    assert!(matches!(log.read(0..10, &mut out), Err(ReadError::Shortened(_))));
    assert!(out.is_empty());
    // Nothing unread is called too old.
    assert_eq!(log.first_alive(0, u64::MAX, 10), Some(0));
    assert!(log.append(&extents(10..11)).is_err());
    assert_eq!(disk.bytes().len(), offset(5));
}

/// Records that share a page of 4 KiB.
const PAGE: u64 = 128;

/// The bytes of one record, which a disk loses with its page.
fn bytes_of(slot: u64) -> std::ops::Range<u64> {
    let at = RECORDS_AT + slot * RECORD;
    at + 3..at + 4
}

#[test]
fn what_the_disk_cannot_read_costs_its_page_and_no_more() {
    let (disk, mut log) = create(8 * PAGE + 5);
    log.append(&extents(0..8 * PAGE + 25)).unwrap();
    let whole = 20..8 * PAGE + 25;
    for page in 0..9 {
        disk.fail_reads(bytes_of(page * PAGE + 4));
        let lost = page * PAGE..(page * PAGE + PAGE).min(8 * PAGE + 5);
        let (log, report) = open(&disk, 0);
        assert_eq!(
            (report.damaged, report.unreadable, report.stale),
            (lost.end - lost.start, report.damaged, 0)
        );
        // The first page has the newest: what would come next there, it may have already.
        let head = if page == 0 { 8 * PAGE + 5 + PAGE } else { whole.end };
        assert_eq!((log.head(), log.missing()), (head, report.damaged), "page {page}");
        let left = whole.clone().filter(|index| !lost.contains(&(index % (8 * PAGE + 5))));
        let ids: u64 = left.map(|index| extent(index).ids()).sum();
        assert_eq!(log.stock().ids, ids, "page {page}");
        // A grant of all gives the rest.
        let mut found = Vec::new();
        let damage = log.read(log.tail()..log.head(), &mut found).unwrap();
        assert_eq!((damage.records, damage.ids), (log.missing(), 0), "page {page}");
        assert_eq!(found.iter().map(|(_, extent)| extent.ids()).sum::<u64>(), ids, "page {page}");
    }
}

#[test]
fn a_page_that_becomes_unreadable_costs_a_grant_its_records_and_of_too_many_the_read_fails() {
    let (disk, mut log) = create(40 * PAGE);
    log.append(&extents(0..20 * PAGE)).unwrap();
    let from = PAGE / 2;
    log.resume_at(from);
    disk.fail_reads(bytes_of(3 * PAGE));
    let mut found = Vec::new();
    let damage = log.read(from..5 * PAGE, &mut found).unwrap();
    let lost = 3 * PAGE..4 * PAGE;
    let ids = lost.clone().map(|index| extent(index).ids()).sum();
    assert_eq!(damage, Damage { records: PAGE, ids });
    let rest = (from..5 * PAGE).filter(|index| !lost.contains(index));
    assert_eq!(found, rest.map(|index| (index, extent(index))).collect::<Vec<_>>());
    // A search passes it by, as it does damage.
    assert_eq!(log.first_alive(3 * PAGE, 0, log.head()), Some(4 * PAGE));
    for (pages, is_read) in [(16, true), (17, false)] {
        disk.fail_reads(bytes_of(PAGE).start..bytes_of((pages + 1) * PAGE - 1).end);
        let read = log.read(from..20 * PAGE, &mut Vec::new());
        assert_eq!(read.is_ok(), is_read, "{pages} pages: {read:?}");
        // Where the disk is away, nothing unread is passed by.
        let alive = log.first_alive(PAGE, 0, log.head());
        assert_eq!(alive, Some(if is_read { (pages + 1) * PAGE } else { PAGE }), "{pages} pages");
        assert!(is_read || matches!(read, Err(ReadError::Io(_))));
    }
}

#[test]
fn an_append_over_an_unreadable_page_makes_it_good() {
    for (at, count) in [(PAGE, 1), (PAGE + 7, 3), (PAGE - 2, 2 * PAGE), (PAGE, PAGE)] {
        let (disk, mut log) = create(4 * PAGE);
        log.append(&extents(0..4 * PAGE + at)).unwrap();
        disk.fail_reads(bytes_of(PAGE + 7));
        let end = 4 * PAGE + at;
        log.append(&extents(end..end + count)).unwrap();
        let (log, report) = open(&disk, 0);
        assert_eq!((log.head(), report.unreadable, report.damaged), (end + count, 0, 0), "at {at}");
        let found = read_all(&log);
        assert!(found.iter().all(|(index, found)| *found == extent(*index)), "at {at}");
        // What else was on the page is lost, and nothing beside it.
        let is_lost = |index: &u64| (PAGE..2 * PAGE).contains(&(index % (4 * PAGE))) && *index < end;
        let expected = (log.tail()..end + count).filter(|index| !is_lost(index)).count();
        assert_eq!(found.len(), expected, "at {at}");
    }
}

#[test]
fn no_index_is_used_again_that_an_unreadable_page_may_have() {
    for begun in [0, 300, 500] {
        // The last page goes over the end of the file, to slot 0.
        let (disk, mut log) = create(4 * PAGE);
        log.append(&extents(0..begun + 20)).unwrap();
        let bad = (begun + 10) / PAGE * PAGE;
        disk.fail_reads(bytes_of(bad % (4 * PAGE)));
        let (mut log, report) = open(&disk, 0);
        let expected = if begun == 500 { begun + 20 } else { bad + PAGE };
        assert_eq!((log.head(), report.head), (expected, expected), "after {begun}");
        log.append(&[extent(10_000)]).unwrap();
        drop(log);
        disk.fail_reads(0..0);
        // It was only for a while: all is there, once.
        let (log, report) = open(&disk, 0);
        let found = read_all(&log);
        assert_eq!(report.damaged, 0);
        let old = log.tail()..begun + 20;
        let mut all: Vec<_> = old.map(|index| (index, extent(index))).collect();
        all.push((expected, extent(10_000)));
        assert_eq!(found, all, "after {begun}");
    }
}

#[test]
fn a_header_copy_that_the_disk_cannot_read_is_written_again_and_of_two_the_file_is_kept() {
    for copy in HEADERS {
        let disk = MemoryStorage::from_bytes(full_log());
        disk.fail_reads(copy as u64..copy as u64 + 1);
        let (_, report) = open(&disk, 0);
        assert!(report.header_repaired && report.damaged == 0, "the copy at {copy}");
    }
    let disk = MemoryStorage::from_bytes(full_log());
    disk.fail_reads(0..RECORDS_AT);
    // Not refused: what a disk reads again tomorrow is not set aside today.
    let error = Log::open(Box::new(disk), &expected()).unwrap_err();
    assert!(matches!(error, OpenError::Io(_)), "{error}");
}

#[test]
fn a_file_of_which_much_cannot_be_read_is_not_tried_page_by_page() {
    let (disk, log) = create(40 * PAGE);
    drop(log);
    for (pages, is_opened) in [(16, true), (17, false)] {
        disk.fail_reads(RECORDS_AT..RECORDS_AT + pages * PAGE * RECORD);
        assert_eq!(Log::open(Box::new(disk.clone()), &expected()).is_ok(), is_opened, "{pages} pages");
    }
}
