//! The nodes of a registry: their paths, and their bytes. `docs/registry.md` has the same as tables.
//!
//! ```text
//!   PATH/genesis      what the registry was made with; 64 or 80 bytes
//!       /era/HEX      one child: while it exists the registry is open; 16 bytes, the birth of genesis and the time
//!                     of who began it
//!       /known/HEX    an era that a fence ended, or that a process knew and did not find; empty
//!       /ended/HEX    one of those that was over when a later era began; empty
//!       /w/N          a worker's record, 512 bytes as in a local registry
//!       /s/UUID       a spill's mark, the same
//!       /q/HH/NAME    a sequence's record, the same; /q itself says in which era names can be made
//!       /live/N       ephemeral: who seems to be alive with worker N; a text for people
//!       /clock        written to read the ensemble's time
//! ```
//!
//! # Invariants
//! - I1 a record says the version that its node got when it was written: one that was written by hand, or put back, is
//!   told from the one that was there;
//! - I2 an era names the birth (`czxid`) of the genesis that it was begun for, and is younger than every worker's node:
//!   a tree, or a worker's node, that was deleted and made again from its contents is told from the one that was there.

use xuid_id::Layout;
use xuid_spill::SpillId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zookeeper_client::Stat;

use crate::clock::{Clock, SystemClock};
use crate::registry::record::{Place, Row};
use crate::registry::{ClusterId, GENESIS_VERSION, Genesis, Workers};

pub(super) const GENESIS: &str = "/genesis";
pub(super) const ERA: &str = "/era";
pub(super) const KNOWN: &str = "/known";
pub(super) const ENDED: &str = "/ended";
pub(super) const WORKERS: &str = "/w";
pub(super) const SPILLS: &str = "/s";
pub(super) const SEQUENCES: &str = "/q";
pub(super) const LIVE: &str = "/live";
pub(super) const CLOCK: &str = "/clock";
/// Nodes read or written in one request: 150 KB, of the megabyte that a server takes.
pub(super) const AT_ONCE: usize = 256;

/// The time of this host.
pub(super) fn wall_ms() -> u64 {
    SystemClock.read().wall / 1_000_000
}

/// Held by the process that fences.
pub(super) const FENCE: &str = "/fencing";

/// All that have children, or are written later.
pub(super) const FOLDERS: [&str; 7] = [ERA, KNOWN, ENDED, WORKERS, SPILLS, LIVE, CLOCK];

pub(super) fn worker_path(worker: u32) -> String {
    format!("{WORKERS}/{worker}")
}

pub(super) fn live_path(worker: u32) -> String {
    format!("{LIVE}/{worker}")
}

pub(super) fn spill_path(spill: SpillId) -> String {
    format!("{SPILLS}/{spill}")
}

/// One of the folders of names.
pub(super) fn sequence_folder(folder: u8) -> String {
    format!("{SEQUENCES}/{folder:02x}")
}

/// Spread over 256 folders, since a server lists the children of a node in one answer of a megabyte at most.
pub(super) fn sequence_path(name: &str) -> String {
    let folder = crc32c::crc32c(name.as_bytes()) as u8;
    let mut path = sequence_folder(folder) + "/";
    // These two would be taken for the folder and what is above it.
    let is_dots = matches!(name, "." | "..");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => path.push(char::from(byte)),
            b'.' if !is_dots => path.push('.'),
            _ => path.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    path
}

fn digit(of: u8) -> char {
    char::from(if of < 10 { b'0' + of } else { b'A' + of - 10 })
}

/// The name that a node's is for; `None` for one that was not made so.
pub(super) fn sequence_name(node: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), node.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn era_path(era: &str) -> String {
    format!("{ERA}/{era}")
}

pub(super) fn known_path(era: &str) -> String {
    format!("{KNOWN}/{era}")
}

pub(super) fn ended_path(era: &str) -> String {
    format!("{ENDED}/{era}")
}

/// What stands in an era's node (I2), and the wall clock of the process that began it, in Unix milliseconds.
pub(super) fn encode_era(genesis_birth: i64, begun_ms: u64) -> [u8; 16] {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&genesis_birth.to_le_bytes());
    data[8..].copy_from_slice(&begun_ms.to_le_bytes());
    data
}

/// The two of an era's node. One of an earlier program says no time: there the ensemble's counts.
pub(super) fn decode_era(data: &[u8], stat: &Stat) -> Option<(i64, u64)> {
    let (birth, begun) = data.split_first_chunk()?;
    let begun_ms = match *begun {
        [] => u64::try_from(stat.ctime).unwrap_or(0),
        _ => u64::from_le_bytes(begun.try_into().ok()?),
    };
    Some((i64::from_le_bytes(*birth), begun_ms))
}

/// The place of every mark: its path has the spill.
pub(super) const MARK: u32 = 0;

/// The first byte is not ASCII, and a transfer that changes line ends breaks it.
const MAGIC: [u8; 8] = *b"\x89XZKR\r\n\x1a";
/// The newest version of a genesis. Which one is written depends on the layout, and all up to it are read.
pub const VERSION: u32 = GENESIS_VERSION;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GenesisBytes {
    magic: [u8; 8],
    version: U32,
    workers: U32,
    cluster: [u8; 16],
    layout: [u8; 16],
    floor: U64,
    /// Zeros before version 3. A node of those versions has a checksum behind it and ends.
    first_worker: U32,
}

/// Behind them in version 3: the check of a key, or zeros; and the first closed worker and the one behind the last, or zeros.
const THIRD_BYTES: usize = 16;
/// A checksum ends every version.
const CHECKSUM_BYTES: usize = 4;

/// How long the node of a version is.
fn genesis_bytes(version: u32) -> usize {
    let third = if version < 3 { 0 } else { THIRD_BYTES };
    size_of::<GenesisBytes>() + third + CHECKSUM_BYTES
}

pub(super) fn encode_genesis(genesis: &Genesis) -> Vec<u8> {
    let bytes = GenesisBytes {
        magic: MAGIC,
        version: genesis.version().into(),
        workers: genesis.workers.into(),
        cluster: genesis.cluster.bytes(),
        layout: genesis.layout.to_bytes(),
        floor: genesis.floor.into(),
        first_worker: genesis.first_worker.into(),
    };
    let mut data = bytes.as_bytes().to_vec();
    if genesis.version() >= 3 {
        data.extend(genesis.key_check.unwrap_or_default().to_le_bytes());
        data.extend(genesis.closed.from.to_le_bytes());
        data.extend(genesis.closed.until.to_le_bytes());
    }
    data.extend(crc32c::crc32c(&data).to_le_bytes());
    data
}

pub(super) fn decode_genesis(data: &[u8]) -> Result<Genesis, String> {
    let Ok((bytes, rest)) = GenesisBytes::read_from_prefix(data) else {
        return Err(format!(
            "its node genesis has {} bytes and should have {}",
            data.len(),
            genesis_bytes(1)
        ));
    };
    if bytes.magic != MAGIC {
        return Err("its node genesis is not one".into());
    }
    let is_whole = data
        .split_last_chunk()
        .is_some_and(|(said, checksum)| crc32c::crc32c(said) == u32::from_le_bytes(*checksum));
    if !is_whole {
        return Err("its node genesis has a wrong checksum".into());
    }
    let version = bytes.version.get();
    if !(1..=VERSION).contains(&version) {
        return Err(format!("its format is version {version}, and this program knows 1 to {VERSION}"));
    }
    if data.len() != genesis_bytes(version) {
        let right = genesis_bytes(version);
        return Err(format!("its node genesis has {} bytes and should have {right}", data.len()));
    }
    let third = rest.first_chunk::<THIRD_BYTES>().filter(|_| version >= 3).copied().unwrap_or_default();
    let third = u128::from_le_bytes(third);
    let key_check = third as u64;
    let closed = Workers { from: (third >> 64) as u32, until: (third >> 96) as u32 };
    let (cluster, floor, workers) =
        (ClusterId::from_bytes(bytes.cluster), bytes.floor.get(), bytes.workers.get());
    Layout::from_bytes(bytes.layout)
        .ok()
        .map(|layout| Genesis::new(cluster, layout, floor, workers))
        .map(|genesis| genesis.with_third(version, bytes.first_worker.get(), key_check, closed))
        .and_then(|genesis| genesis.checked(version))
        .ok_or_else(|| "its node genesis has fields that are impossible".into())
}

/// The record in a node's data, or what is wrong with it (I1). A mark says the spill that its path says; a worker none.
pub(super) fn decode_row(
    data: &[u8],
    stat: &Stat,
    cluster: ClusterId,
    place: Place,
    spill: SpillId,
) -> Result<Row, String> {
    let sector = data.try_into().map_err(|_| format!("it has {} bytes and should have 512", data.len()))?;
    let row = Row::decode(sector, cluster, place).map_err(|flaw| format!("it {flaw}"))?;
    if u64::try_from(stat.version) != Ok(row.version) {
        return Err(format!(
            "it was written as version {} and is version {}: somebody put it there by hand",
            row.version, stat.version
        ));
    }
    if row.spill != spill {
        return Err("it is the mark of another spill".into());
    }
    Ok(row)
}

/// Whether a worker's node was made after its era began (I2).
pub(super) fn is_made_again(stat: &Stat, era_birth: i64) -> bool {
    stat.czxid > era_birth
}

/// What is wrong with such a node.
pub(super) const MADE_AGAIN: &str = "it was deleted and made again";

/// The record that a compare-and-set of version `expected` stores.
pub(super) fn next_version(expected: u64) -> u64 {
    expected + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xuid_id::Face;

    use super::super::fuzzing::stat;
    use super::*;
    use crate::registry::Token;
    use crate::registry::record::NO_SPILL;

    fn genesis() -> Genesis {
        Genesis::new(ClusterId::from_bytes([7; 16]), Layout::default(), 269_000_000_000, 1_024)
    }

    #[test]
    fn genesis_is_written_as_specified() {
        let hex = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap());
        let text: String = encode_genesis(&genesis()).iter().flat_map(hex).collect();
        let golden = include_str!("../../../tests/golden/registry/zookeeper-genesis.hex");
        let golden: String = golden
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line.split_whitespace().skip(1).take(16))
            .collect();
        assert_eq!(text, golden);
        assert_eq!(decode_genesis(&encode_genesis(&genesis())), Ok(genesis()));
    }

    #[test]
    fn a_genesis_of_another_face_or_of_fewer_bits_is_of_version_2_and_no_other() {
        for text in ["sonyflake", "js"] {
            let genesis = Genesis { layout: text.parse().unwrap(), workers: 16, ..genesis() };
            let mut bytes = encode_genesis(&genesis);
            assert_eq!(bytes[8..12], [2, 0, 0, 0], "{text}");
            assert_eq!(decode_genesis(&bytes), Ok(genesis), "{text}");
            bytes[8] = 1;
            assert!(decode_genesis(&resealed(&bytes)).is_err(), "{text}");
        }
    }

    /// With the checksum of what it has become.
    fn resealed(bytes: &[u8]) -> Vec<u8> {
        let said = &bytes[..bytes.len() - 4];
        [said, &crc32c::crc32c(said).to_le_bytes()].concat()
    }

    #[test]
    fn a_genesis_of_a_later_first_worker_or_of_opaque_ids_is_of_version_3_and_longer() {
        let opaque = genesis().layout.with_face(Face::Opaque);
        let sealed = Genesis { layout: opaque, key_check: Some(0x0102_0304_0506_0708), ..genesis() };
        let closed = Genesis { closed: Workers { from: 7, until: 9 }, ..genesis() };
        assert_eq!(&encode_genesis(&closed)[68..76], [7, 0, 0, 0, 9, 0, 0, 0]);
        for genesis in [Genesis { first_worker: 512, workers: 512, ..genesis() }, sealed, closed] {
            let bytes = encode_genesis(&genesis);
            assert_eq!((bytes.len(), &bytes[8..12]), (80, &[3, 0, 0, 0][..]));
            assert_eq!(decode_genesis(&bytes), Ok(genesis));
            for version in [1, 2] {
                let mut bytes = bytes.clone();
                bytes[8] = version;
                assert!(decode_genesis(&resealed(&bytes)).is_err(), "version {version} passes");
            }
        }
        assert_eq!(&encode_genesis(&sealed)[56..68], [0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert!(decode_genesis(&encode_genesis(&Genesis { first_worker: 1, ..genesis() })).is_err());
    }

    proptest! {
        #[test]
        fn a_genesis_with_any_bit_flipped_is_refused(bit in 0usize..64 * 8) {
            let mut bytes = encode_genesis(&genesis());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode_genesis(&bytes).is_err());
        }

        #[test]
        fn rubbish_is_refused(data in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(decode_genesis(&data).is_err());
            prop_assert!(decode_row(&data, &stat(1), genesis().cluster, Place::worker(1), NO_SPILL).is_err());
        }
    }

    #[test]
    fn a_name_of_any_characters_has_a_path_of_its_own() {
        assert_eq!(sequence_path("orders"), "/q/8a/orders");
        assert!(sequence_path("a/b c%").ends_with("/a%2Fb%20c%25"));
        for name in [".", "..", "...", "a.b", "@rest:1", "Größe", "%", "a/../b", &"ü".repeat(64)] {
            let path = sequence_path(name);
            let node = path.rsplit('/').next().unwrap();
            assert_eq!(path.split('/').count(), 4, "{path}");
            assert!(!matches!(node, "." | ".."));
            assert_eq!(sequence_name(node).as_deref(), Some(name));
        }
        assert!(["%", "%a", "%zz", "%ff"].iter().all(|node| sequence_name(node).is_none()));
    }

    #[test]
    fn an_era_is_written_as_specified_and_what_is_younger_was_made_again() {
        let data = encode_era(0x1_0203, 0x4_0506);
        assert_eq!(data, [3, 2, 1, 0, 0, 0, 0, 0, 6, 5, 4, 0, 0, 0, 0, 0]);
        let decode = |len: usize| decode_era(&data[..len], &stat(0));
        assert_eq!((decode(16), decode(8)), (Some((0x1_0203, 0x4_0506)), Some((0x1_0203, 3))));
        assert!([0, 7, 9, 15].into_iter().all(|len| decode(len).is_none()));
        assert_eq!(decode_era(&[0; 17], &stat(0)), None);
        assert!(is_made_again(&stat(0), 0) && !is_made_again(&stat(0), 1) && !is_made_again(&stat(0), 2));
    }

    #[test]
    fn a_record_put_back_by_hand_is_told_from_the_one_that_was_written() {
        let place = Place::worker(5);
        let row = Row {
            place,
            spill: NO_SPILL,
            version: 3,
            value: 77,
            token: Token([1; 16]),
            operation: 9,
            updated_ms: 0,
            owner: "host pid 1".into(),
            named: None,
        };
        let cluster = genesis().cluster;
        let data = row.encode(cluster);
        let decode =
            |version, cluster, place, spill| decode_row(&data, &stat(version), cluster, place, spill);
        assert_eq!(decode(3, cluster, place, NO_SPILL), Ok(row));
        for version in [4, 2, -3] {
            let why = decode(version, cluster, place, NO_SPILL).unwrap_err();
            assert!(why.contains("by hand"), "{why}");
        }
        assert!(decode(3, cluster, Place::worker(6), NO_SPILL).is_err());
        assert!(decode(3, ClusterId::from_bytes([8; 16]), place, NO_SPILL).is_err());
        assert!(decode(3, cluster, place, SpillId::from_bytes([9; 16])).is_err());
    }
}
