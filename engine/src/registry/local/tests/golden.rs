//! The bytes on disk, against files that only a new version of the format may change.

use xuid_id::Face;

use super::*;
use crate::registry::local::disk::MemoryDisk;
use crate::registry::local::format::{Geometry, PAGE, SECTOR, Side};
use crate::registry::local::header::{FileKind, Header, HeaderFlaw, HeaderPair};

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

/// A program that knows version 1 alone reads the version before all else, and refuses the file by its name.
#[test]
fn a_header_of_another_face_or_of_fewer_bits_is_of_version_2_and_no_other() {
    for text in ["sonyflake", "js", "41/10/12,face=worker-lowest"] {
        let genesis = Genesis { layout: text.parse().unwrap(), ..some_genesis(4) };
        let header = Header { identity: some_identity(), ..Header::new(&genesis, None) };
        let mut sector = header.encode();
        assert_eq!(sector[8..12], [2, 0, 0, 0], "{text}");
        assert_eq!(read(&sector).unwrap().header, header, "{text}");
        // Under the version of those that would read it as plain, it is no header.
        assert_eq!(read(under(1, &mut sector)), Err(HeaderFlaw::Damaged), "{text}");
    }
}

/// What a file with that header twice is.
fn read(sector: &[u8; SECTOR]) -> Result<HeaderPair, HeaderFlaw> {
    let mut image = vec![0; 2 * PAGE as usize];
    image[..SECTOR].copy_from_slice(sector);
    image[PAGE as usize..][..SECTOR].copy_from_slice(sector);
    HeaderPair::read(&MemoryDisk::new(image, some_identity()), FileKind::Registry).unwrap()
}

/// The header under another version.
fn under(version: u8, sector: &mut [u8; SECTOR]) -> &[u8; SECTOR] {
    sector[8] = version;
    let checksum = crc32c::crc32c(&sector[..SECTOR - 4]);
    sector[SECTOR - 4..].copy_from_slice(&checksum.to_le_bytes());
    sector
}

/// Where the first worker and the check of a key lie, and that no earlier version has them.
#[test]
fn a_header_of_a_later_first_worker_or_of_opaque_ids_is_of_version_3_and_no_other() {
    let opaque = Layout::default().with_face(Face::Opaque);
    let sealed = Genesis { layout: opaque, key_check: Some(0x0102_0304_0506_0708), ..some_genesis(4) };
    let later = Genesis { first_worker: 512, workers: 512, ..some_genesis(4) };
    for (genesis, at, bytes) in
        [(sealed, 128, [8, 7, 6, 5, 4, 3, 2, 1]), (later, 120, [0, 2, 0, 0, 0, 0, 0, 0])]
    {
        let header = Header { identity: some_identity(), ..Header::new(&genesis, None) };
        let mut sector = header.encode();
        assert_eq!((sector[8], &sector[at..at + 8]), (3, &bytes[..]));
        assert_eq!(read(&sector).unwrap().header, header);
        for version in [1, 2] {
            // What an earlier version has reserved it does not read, and its faces are its own.
            let earlier = read(under(version, &mut sector)).ok().map(|pair| pair.header.genesis.first_worker);
            assert_eq!(earlier, (genesis == later && version == 1).then_some(0), "version {version}");
        }
        assert_eq!(read(under(4, &mut sector)), Err(HeaderFlaw::OtherVersion(4)));
    }
    for impossible in [
        Genesis { first_worker: 1_021, ..some_genesis(4) },
        Genesis { first_worker: u32::MAX, ..some_genesis(4) },
        Genesis {
            key_check: None,
            layout: "41/10/11,face=worker-lowest".parse().unwrap(),
            workers: 1_025,
            ..sealed
        },
    ] {
        assert_eq!(impossible.checked(impossible.version()), None, "{impossible:?}");
    }
    // The check of some key is 0.
    let zero = Genesis { key_check: Some(0), ..sealed };
    assert_eq!(
        Genesis { key_check: None, ..sealed }.with_third(3, sealed.first_worker, 0, sealed.closed),
        zero
    );
    let unchecked = Genesis { key_check: None, ..sealed };
    assert_eq!(unchecked.checked(3), None, "opaque ids of any key");
    let idle = Genesis { key_check: Some(1), ..some_genesis(4) };
    assert_eq!(idle.checked(1), None, "a key that seals nothing");
}

/// Programs that read version 1 alone know 20 bits of worker at most, and would take more for damage.
#[test]
fn more_bits_of_worker_than_the_first_version_knows_are_of_version_2() {
    for (layout, version) in [("39/20/4", 1), ("38/21/4", 2), ("37/22/4", 2), ("40/10/12", 2)] {
        assert_eq!(
            Genesis { layout: layout.parse().unwrap(), ..some_genesis(4) }.version(),
            version,
            "{layout}"
        );
    }
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
    let geometry = Geometry::registry(0..1_024);
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
    assert_eq!(Geometry::registry(0..3).begin(Kind::Worker, Side::B), 12_288);
}
