//! What a log refuses to do, and what it says then.

use xuid_spill::{
    AppendError, CreateError, Expected, Extent, HeaderError, Identity, InspectError, LAST_ID, Log, MAX_BYTES,
    MIN_BYTES, MemoryStorage, OpenError, ReadError, Stock,
};

use crate::support::{STRIDE, bytes_for, create, expected, extents, identity};

fn refusal(disk: &MemoryStorage, expected: &Expected) -> OpenError {
    let before = disk.bytes();
    let error = Log::open(Box::new(disk.clone()), expected).unwrap_err();
    assert!(disk.bytes() == before, "a refused file was changed");
    error
}

#[test]
fn a_file_of_another_cluster_or_layout_is_refused_with_both_values_shown() {
    let (disk, _log) = create(8);
    // Damage that an accepted file would be repaired of, so that leaving a refused one alone is seen.
    disk.tamper(|bytes| bytes[4096] = 0);

    let error = refusal(&disk, &Expected { cluster: [0xAB; 16], ..expected() });
    assert!(matches!(error, OpenError::OtherCluster { .. }));
    let text = error.to_string();
    assert!(text.contains(&"ab".repeat(16)) && text.contains("7468652d746573742d636c7573746572"), "{text}");

    let error = refusal(&disk, &Expected { layout: [0xCD; 16], ..expected() });
    assert!(matches!(error, OpenError::OtherLayout { .. }));
    assert!(error.to_string().contains(&"cd".repeat(16)), "{error}");

    let error = refusal(&disk, &Expected { stride: 77, ..expected() });
    let text = error.to_string();
    assert!(text.contains("77") && text.contains(&STRIDE.to_string()), "{text}");
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let (disk, _log) = create(8);
    disk.tamper(|bytes| {
        for copy in [0, 4096] {
            bytes[copy + 8] = 2;
            let checksum = crc32c::crc32c(&bytes[copy..copy + 124]);
            bytes[copy + 124..copy + 128].copy_from_slice(&checksum.to_le_bytes());
        }
    });
    assert!(matches!(refusal(&disk, &expected()), OpenError::Header(HeaderError::Version { found: 2 })));
}

#[test]
fn a_size_or_stride_that_cannot_be_is_refused() {
    let create = |identity, bytes| Log::create(Box::new(MemoryStorage::new()), identity, bytes);
    assert!(matches!(create(identity(), MIN_BYTES - 1), Err(CreateError::Size { .. })));
    assert!(matches!(create(identity(), MAX_BYTES + 1), Err(CreateError::Size { .. })));
    assert!(matches!(create(Identity { stride: 0, ..identity() }, MIN_BYTES), Err(CreateError::Stride)));
    assert_eq!(create(identity(), MIN_BYTES + 31).unwrap().capacity(), 1);
}

#[test]
fn a_capacity_that_no_spill_has_is_refused_before_a_slot_is_read() {
    let (disk, _log) = create(8);
    let claim = |capacity: u64| {
        disk.tamper(|bytes| {
            for copy in [0, 4096] {
                bytes[copy + 72..copy + 80].copy_from_slice(&capacity.to_le_bytes());
                let checksum = crc32c::crc32c(&bytes[copy..copy + 124]);
                bytes[copy + 124..copy + 128].copy_from_slice(&checksum.to_le_bytes());
            }
        });
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill-0");
    // Sparse: it takes no room on the disk, and to read its slots takes ten seconds.
    claim(((4 << 30) - 8192) / 32);
    std::fs::write(&path, disk.bytes()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
    let refused = xuid_spill::inspect(&path);
    assert!(matches!(refused, Err(InspectError::Header(HeaderError::Damaged))), "{refused:?}");
    assert!(matches!(refusal(&disk, &expected()), OpenError::Header(HeaderError::Damaged)));
    // The highest capacity that a header may have, in a file that is too short for it.
    claim((MAX_BYTES - 8192) / 32);
    assert!(matches!(refusal(&disk, &expected()), OpenError::Header(HeaderError::Shortened(_))));
}

#[test]
fn until_the_mark_is_known_nothing_is_read_and_nothing_appended() {
    let (disk, mut log) = create(8);
    log.append(&extents(0..5)).unwrap();
    let (mut log, report) = Log::open(Box::new(disk), &expected()).unwrap();
    assert_eq!((report.head, report.stock.extents), (5, 5));
    assert_eq!((log.tail(), log.head(), log.stock()), (5, 5, Stock::default()));
    assert_eq!(log.peek_stock(0..5), Stock::default());
    assert_eq!(log.first_alive(0, 0, 5), None);
    assert!(matches!(log.read(0..5, &mut Vec::new()), Err(ReadError::OutOfRange { .. })));
    assert!(matches!(log.append(&extents(5..6)), Err(AppendError::MarkUnknown)));
    log.resume_at(0);
    assert_eq!((log.tail(), log.stock().extents), (0, 5));
}

#[test]
fn below_the_mark_and_above_the_head_nothing_is_read() {
    let (_disk, mut log) = create(8);
    log.append(&extents(0..5)).unwrap();
    log.resume_at(2);
    let mut out = Vec::new();
    #[expect(clippy::reversed_empty_ranges, reason = "the range is wrong on purpose")]
    let reversed = 4..3;
    for asked in [1..3, 0..5, 4..6, 6..6, reversed] {
        assert!(matches!(log.read(asked.clone(), &mut out), Err(ReadError::OutOfRange { .. })), "{asked:?}");
    }
    assert!(out.is_empty());
    assert_eq!(log.read(2..5, &mut out).unwrap().records, 0);
    assert_eq!(out.len(), 3);
}

#[test]
fn a_mark_at_its_maximum_retires_the_file() {
    let (disk, mut log) = create(8);
    log.append(&extents(0..5)).unwrap();
    let (mut log, _) = crate::support::open(&disk, u64::MAX);
    assert_eq!((log.tail(), log.head(), log.stock().extents), (u64::MAX, u64::MAX, 0));
    assert!(matches!(log.append(&extents(0..1)), Err(AppendError::IndexesExhausted { .. })));
    assert_eq!(log.append(&[]).unwrap().indexes, u64::MAX..u64::MAX);
}

#[test]
fn an_extent_that_is_not_sound_is_refused_and_nothing_of_its_append_written() {
    let (disk, mut log) = create(8);
    let before = disk.bytes();
    let fine = Extent { first: 0, len: 1, ticks: 1 };
    for wrong in [
        Extent { len: 0, ..fine },
        Extent { ticks: 0, ..fine },
        Extent { len: STRIDE as u32 + 1, ..fine },
        Extent { first: LAST_ID, len: 2, ticks: 1 },
        Extent { first: LAST_ID - STRIDE + 1, len: 1, ticks: 2 },
    ] {
        let error = log.append(&[fine, wrong]).unwrap_err();
        assert!(matches!(error, AppendError::Unsound { extent, .. } if extent == wrong));
    }
    assert!(disk.bytes() == before);
    log.append(&[Extent { first: LAST_ID, ..fine }]).unwrap();
}

#[test]
fn an_append_of_more_than_a_lap_keeps_the_newest_and_counts_the_rest() {
    let (_disk, mut log) = create(8);
    log.append(&extents(0..3)).unwrap();
    let appended = log.append(&extents(3..23)).unwrap();
    assert_eq!(appended.indexes, 3..23);
    let ids = extents(0..15).iter().map(Extent::ids).sum();
    assert_eq!(appended.dropped, Stock { extents: 15, ids });
    assert_eq!(crate::support::read_all(&log).len(), 8);
    assert_eq!((log.tail(), log.head()), (15, 23));
    assert_eq!(bytes_for(8), 8192 + 8 * 32);
}
