//! What is erased is found by no later opening.

use xuid_spill::{AppendError, SyncError};

use crate::support::{create, extent, extents, open, read_all};

const CAPACITY: u64 = 128;

#[test]
fn what_was_erased_is_not_there_whatever_the_mark_says() {
    // Within a lap, over the end of the file, and of a file that is full.
    for (appended, mark) in [(100, 0), (100, 60), (200, 130), (300, 200), (300, 0), (128, 0)] {
        let (disk, mut log) = create(CAPACITY);
        log.append(&extents(0..appended)).unwrap();
        log.resume_at(mark);
        let held = log.stock();
        assert_eq!(log.erase(appended).unwrap(), held);
        assert_eq!((log.stock().extents, log.tail(), log.head()), (0, appended, appended));
        // Durable: a power cut brings nothing back.
        disk.crash();
        for known in [0, mark] {
            let (log, report) = open(&disk, known);
            let left = read_all(&log);
            assert!(left.iter().all(|(index, _)| *index < mark), "{appended} {mark}: {left:?}");
            assert_eq!(report.damaged, 0);
        }
        // What comes after it is kept.
        log.append(&extents(appended..appended + 5)).unwrap();
        let (log, _) = open(&disk, mark);
        let kept: Vec<_> = (appended..appended + 5).map(|index| (index, extent(index))).collect();
        assert_eq!(read_all(&log), kept);
    }
}

/// More than is written at once.
#[test]
fn all_of_a_long_log_is_erased() {
    let (disk, mut log) = create(6_000);
    log.append(&extents(0..3_000)).unwrap();
    log.append(&extents(3_000..8_500)).unwrap();
    assert_eq!(log.erase(8_500).unwrap().extents, 6_000);
    let (log, report) = open(&disk, 0);
    assert_eq!((report.stock.extents, report.stale, read_all(&log).len()), (0, 0, 0));
}

#[test]
fn what_lies_above_is_left() {
    let (disk, mut log) = create(CAPACITY);
    log.append(&extents(0..20)).unwrap();
    assert_eq!(log.erase(12).unwrap().extents, 12);
    let kept: Vec<_> = (12..20).map(|index| (index, extent(index))).collect();
    assert_eq!(read_all(&log), kept);
    assert_eq!(log.erase(12).unwrap().extents, 0);
    let (log, report) = open(&disk, 0);
    assert_eq!((report.stock.extents, read_all(&log)), (8, kept));
}

#[test]
fn a_log_that_could_not_erase_takes_no_more_writes() {
    for sync_fails in [true, false] {
        let (disk, mut log) = create(CAPACITY);
        log.append(&extents(0..20)).unwrap();
        if sync_fails {
            disk.fail_sync(1);
        } else {
            disk.fail_write(1, 0);
        }
        assert!(matches!(log.erase(20), Err(SyncError::Io(_))));
        assert!(matches!(log.append(&extents(20..21)), Err(AppendError::Poisoned)));
        assert!(matches!(log.erase(20), Err(SyncError::Poisoned)));
        assert_eq!(log.stock().extents, 0);
    }
}
