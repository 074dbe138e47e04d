//! Torn writes, failed writes, failed syncs.

use xuid_spill::{AppendError, Extent, MemoryStorage, SyncError};

use crate::support::{RECORD, RECORDS_AT, create, extents, open, read_all};

const CAPACITY: u64 = 128;
const RECORDS_A_SECTOR: u64 = 512 / RECORD;

/// What a reader that only looks at slots would find, given which records are where.
fn readable(slots: &[Option<u64>], mark: u64) -> Vec<(u64, Extent)> {
    let head = slots.iter().flatten().max().map_or(0, |index| index + 1);
    let lowest = mark.max(head.saturating_sub(CAPACITY));
    let mut indexes: Vec<u64> = slots.iter().flatten().copied().filter(|index| *index >= lowest).collect();
    indexes.sort_unstable();
    indexes.into_iter().map(|index| (index, crate::support::extent(index))).collect()
}

/// Appends `durable` records and syncs, appends `torn` more, and cuts the power with the sectors of `subset` saved.
/// Gives the disk and which record is in each slot.
fn cut(durable: u64, torn: u64, subset: u64) -> (MemoryStorage, Vec<Option<u64>>) {
    let (disk, mut log) = create(CAPACITY);
    let mut slots = vec![None; CAPACITY as usize];
    for index in 0..durable {
        slots[(index % CAPACITY) as usize] = Some(index);
    }
    log.append(&extents(0..durable)).unwrap();
    log.sync().unwrap();

    log.append(&extents(durable..durable + torn)).unwrap();
    let first_sector = RECORDS_AT / 512;
    let survives = |sector: u64| subset >> (sector - first_sector) & 1 == 1;
    for index in durable..durable + torn {
        let slot = index % CAPACITY;
        if survives(first_sector + slot / RECORDS_A_SECTOR) {
            slots[slot as usize] = Some(index);
        }
    }
    disk.settle(survives);
    disk.crash();
    (disk, slots)
}

#[test]
fn any_subset_of_the_sectors_of_an_append_leaves_a_log_that_reads_only_what_was_appended() {
    // In the first lap, over the end of the file, and a whole lap at once; 8 sectors have 256 subsets.
    for (durable, torn) in [(10, 60), (100, 70), (200, 60), (300, CAPACITY)] {
        for subset in 0..1 << (CAPACITY / RECORDS_A_SECTOR) {
            let (disk, slots) = cut(durable, torn, subset);
            let mark = durable - 10;
            let (mut log, report) = open(&disk, mark);
            let left = readable(&slots, mark);
            assert_eq!(read_all(&log), left, "{durable} + {torn}, sectors {subset:08b}");
            assert_eq!(report.damaged, 0);
            assert!(log.head() >= durable.min(report.head));

            // What was torn is written over, or stays a hole; nothing else comes back.
            let start = log.head();
            log.append(&extents(start..start + 5)).unwrap();
            let lowest = mark.max((start + 5).saturating_sub(CAPACITY));
            let mut now: Vec<_> = left.into_iter().filter(|(index, _)| *index >= lowest).collect();
            now.extend((start..start + 5).map(|index| (index, crate::support::extent(index))));
            assert_eq!(read_all(&log), now);
        }
    }
}

#[test]
fn a_head_that_a_crash_set_back_goes_on_at_the_mark() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..20)).unwrap();
    // 12 were granted, and then the power goes before anything of the append reached the disk.
    disk.crash();
    let (mut log, report) = open(&disk, 12);
    assert_eq!(report.head, 0);
    assert_eq!((log.tail(), log.head()), (12, 12));
    assert_eq!(log.append(&extents(12..13)).unwrap().indexes, 12..13);
    assert_eq!(read_all(&log), [(12, crate::support::extent(12))]);
}

#[test]
fn a_write_that_fails_leaves_the_head_and_spoils_only_what_had_to_make_room() {
    for landed in [0, 32, 500, 1024, 4096] {
        let (disk, mut log) = create(CAPACITY);
        log.append(&extents(0..200)).unwrap();
        disk.fail_write(1, landed);
        let error = log.append(&extents(200..240)).unwrap_err();
        let AppendError::Io { dropped, .. } = error else { panic!("{error}") };
        assert_eq!(dropped.extents, 40);
        assert_eq!((log.tail(), log.head()), (240 - CAPACITY, 200));
        assert_eq!(read_all(&log).len(), 88);

        // The next append takes the same indexes, and of the failed one nothing can be read beside it.
        let appended = log.append(&extents(1000..1040)).unwrap();
        assert_eq!((appended.indexes, appended.dropped.extents), (200..240, 0));
        let ids: Vec<_> = read_all(&log).into_iter().skip(88).map(|(_, extent)| extent).collect();
        assert_eq!(ids, extents(1000..1040));
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..5)).unwrap();
    disk.fail_sync(1);
    assert!(matches!(log.sync(), Err(SyncError::Io(_))));
    let bytes = disk.bytes();
    assert!(matches!(log.append(&extents(5..6)), Err(AppendError::Poisoned)));
    assert!(matches!(log.sync(), Err(SyncError::Poisoned)));
    assert!(disk.bytes() == bytes, "a poisoned log wrote");
    assert_eq!((log.head(), read_all(&log).len()), (5, 5));
}
