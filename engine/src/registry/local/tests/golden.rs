//! The bytes on disk, against files that only a new version of the format may change.

use super::*;
use crate::registry::local::format::{Geometry, Side};
use crate::registry::local::header::Header;

const HEADER: &str = include_str!("../../../../tests/golden/registry/header.hex");
const WORKER: &str = include_str!("../../../../tests/golden/registry/worker.hex");
const MARK: &str = include_str!("../../../../tests/golden/registry/mark.hex");

/// Sixteen bytes a line, without the lines that are all zeros.
fn dump(sector: &[u8]) -> Vec<String> {
    let lines = sector.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0));
    let hex = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    lines.map(|(n, line)| format!("{:03x}: {}", n * 16, hex(line))).collect()
}

/// Lines that start with `#` are for people.
fn without_comments(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

fn worker_row() -> Row {
    Row {
        place: Place::worker(5),
        spill: NO_SPILL,
        version: 3,
        value: 0x0000_003e_8a1b_2c3d,
        token: Token(*b"a token of ours!"),
        operation: 9,
        updated_ms: 1_763_683_200_123,
        owner: "host pid 1234".into(),
        named: None,
    }
}

fn mark_row() -> Row {
    Row { place: Place::mark(2), spill: spill(0xab), value: 640, owner: String::new(), ..worker_row() }
}

#[test]
fn the_header_is_written_as_documented() {
    let genesis = Genesis { workers: 1_024, floor: 238_946_407_962, ..some_genesis(1) };
    let header = Header { identity: some_identity(), ..Header::new(&genesis, None) };
    assert_eq!(dump(&header.encode()), without_comments(HEADER));
}

#[test]
fn records_are_written_as_documented_and_read_back() {
    let cluster = some_genesis(1).cluster;
    for (row, golden) in [(worker_row(), WORKER), (mark_row(), MARK)] {
        let sector = row.encode(cluster);
        assert_eq!(dump(&sector), without_comments(golden));
        assert_eq!(Row::decode(&sector, cluster, row.place), Ok(row.clone()));
        let other = ClusterId::from_bytes([8; 16]);
        assert!(Row::decode(&sector, other, row.place).is_err(), "a record of another cluster passes");
    }
}

#[test]
fn the_regions_lie_where_they_are_documented() {
    let geometry = Geometry::registry(1_024);
    let begins = [
        (Kind::Worker, Side::A, 8_192),
        (Kind::Worker, Side::B, 532_480),
        (Kind::Mark, Side::A, 1_056_768),
        (Kind::Mark, Side::B, 1_187_840),
    ];
    for (kind, copy, begin) in begins {
        assert_eq!(geometry.begin(kind, copy), begin);
    }
    assert_eq!(geometry.bytes(), 1_318_912);
    // Regions are whole pages, however few the workers.
    assert_eq!(Geometry::registry(3).begin(Kind::Worker, Side::B), 12_288);
}
