//! The checked-in bytes of a small log, which every later version has to read, and this one to write.
//!
//! A change of the format needs a new version, a new file beside the old one, and a new table in
//! `docs/spill-format.md`. To write the file: `cargo test -p xuid-spill -- --ignored writes_the_golden_file`.

use std::path::Path;

use xuid_spill::{Extent, Identity, Log, MemoryStorage, SpillId, inspect};

use crate::support::bytes_for;

const GOLDEN: &[u8] = include_bytes!("../golden/log-v1.spill");
const TABLE: &str = include_str!("../../../docs/spill-format.md");
const CAPACITY: u64 = 8;

fn path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log-v1.spill")
}

fn golden_identity() -> Identity {
    let numbered = |first: u8| std::array::from_fn(|at| first + at as u8);
    Identity {
        spill: SpillId::from_bytes(numbered(0)),
        cluster: numbered(0x10),
        stride: 1 << 22,
        layout: numbered(0x20),
    }
}

fn golden_extent(index: u64) -> Extent {
    // Worker 5 of the 41/10/12 layout, a tick further each time.
    Extent { first: (1000 + index) << 22 | 5 << 12, len: 4096 - index as u32, ticks: 1 + index as u32 }
}

fn append(log: &mut Log, indexes: std::ops::Range<u64>) {
    let extents: Vec<_> = indexes.clone().map(golden_extent).collect();
    assert_eq!(log.append(&extents).unwrap().indexes, indexes);
}

/// Eight slots: five extents, then the mark runs ahead of the head and leaves index 5 out, then a lap over the end.
fn small_log() -> Vec<u8> {
    let disk = MemoryStorage::new();
    let mut log = Log::create(Box::new(disk.clone()), golden_identity(), bytes_for(CAPACITY)).unwrap();
    append(&mut log, 0..5);
    log.resume_at(6);
    append(&mut log, 6..9);
    append(&mut log, 9..13);
    disk.bytes()
}

#[test]
fn the_same_bytes_are_written_as_ever() {
    assert_eq!(small_log().len(), GOLDEN.len());
    let differs = small_log().iter().zip(GOLDEN).position(|(now, then)| now != then);
    assert_eq!(differs, None, "the first byte that differs from the golden file");
}

#[test]
fn the_golden_file_is_read_as_it_was_written() {
    let Identity { cluster, stride, layout, .. } = golden_identity();
    let expected = xuid_spill::Expected { cluster, stride, layout };
    let disk = MemoryStorage::from_bytes(GOLDEN.to_vec());
    let (mut log, report) = Log::open(Box::new(disk), &expected).unwrap();
    assert_eq!((log.id(), log.capacity(), log.head()), (golden_identity().spill, CAPACITY, 13));
    assert_eq!(
        (report.stock.extents, report.damaged, report.stale, report.header_repaired),
        (7, 0, 0, false)
    );
    log.resume_at(6);
    let all: Vec<_> = (6..13).map(|index| (index, golden_extent(index))).collect();
    assert_eq!(crate::support::read_all(&log), all);

    let inspection = inspect(&path()).unwrap();
    assert_eq!(inspection.identity, golden_identity());
    assert_eq!(inspection.records(0).collect::<Vec<_>>(), all);
}

#[test]
fn the_documented_bytes_are_those_of_the_golden_file() {
    let dump = |range: std::ops::Range<usize>| {
        for at in range.step_by(16) {
            let hex: Vec<_> = GOLDEN[at..at + 16].iter().map(|byte| format!("{byte:02x}")).collect();
            let line = format!("{at:04x}  {}", hex.join(" "));
            assert!(TABLE.contains(&line), "docs/spill-format.md lacks the line\n{line}");
        }
    };
    dump(0..128);
    dump(8192..8192 + 32 * CAPACITY as usize);
    assert_eq!(GOLDEN[..4096], GOLDEN[4096..8192]);
}

#[test]
#[ignore = "writes the golden file; for a new format version only"]
fn writes_the_golden_file() {
    std::fs::write(path(), small_log()).unwrap();
}
