//! The bytes on disk, against files that only a new version of the format may change.

use super::*;
use crate::registry::local::format::{Geometry, Side};
use crate::registry::record::Place;

const HEADER: &str = include_str!("../../../../../tests/golden/registry/sequences-header.hex");
const RECORD: &str = include_str!("../../../../../tests/golden/registry/sequence.hex");

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

#[test]
fn the_header_is_written_as_documented() {
    let genesis = Genesis { workers: 1_024, floor: 238_946_407_962, ..some_genesis() };
    let sequences = SequencesHeader { slots: 4_096, era: *b"an era of ours!!", is_closed: true, least: 0 };
    let header =
        Header { identity: some_identity(), generation: 3, ..Header::new(&genesis, Some(sequences)) };
    assert_eq!(dump(&header.encode()), without_comments(HEADER));
    let least = SequencesHeader { least: 0x1122, ..sequences };
    let bytes = Header { sequences: Some(least), ..header }.encode();
    assert_eq!(bytes[144..152], [0x22, 0x11, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_record_is_written_as_documented_and_read_back() {
    let record = SequenceRecord {
        value: 5_001,
        gaps: vec![(1_001, 2_001)],
        last: 9_999_999,
        step: 1_000,
        increment: 3,
        remainder: 1,
        strict: true,
    };
    let row = Row {
        version: 3,
        token: Token(*b"a token of ours!"),
        operation: 9,
        updated_ms: 1_763_683_200_123,
        ..Row::of_sequence(Place::sequence(5), ("orders", *b"an era of ours!!"), &record)
    };
    let cluster = some_genesis().cluster;
    let sector = row.encode(cluster);
    assert_eq!(dump(&sector), without_comments(RECORD));
    assert_eq!(Row::decode(&sector, cluster, row.place), Ok(row));
    assert!(Row::decode(&sector, ClusterId::from_bytes([8; 16]), Place::sequence(5)).is_err());
    assert!(Row::decode(&sector, cluster, Place::sequence(6)).is_err());
}

#[test]
fn the_copies_lie_where_they_are_documented() {
    let geometry = Geometry::sequences(2 * GROWTH_SLOTS);
    let offsets = [(0, Side::A), (0, Side::B), (2_047, Side::A), (2_048, Side::A), (2_048, Side::B)]
        .map(|(slot, copy)| geometry.offset(Place::sequence(slot), copy));
    assert_eq!(offsets, [8_192, 1_056_768, 1_056_256, 2_105_344, 3_153_920]);
    assert_eq!(geometry.bytes(), 4_202_496);
    assert_eq!(memory().bytes().len(), 2_105_344);
}
