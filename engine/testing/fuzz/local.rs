//! What must hold for a registry file of any bytes, against a naive reading of `docs/registry.md`.
//!
//! One body serves the property test here and the fuzz targets `local_header`, `local_record` and `local_registry`.
//! Arbitrary bytes fail a checksum long before they reach what is behind it, so the first byte of an input says what is
//! put right.

use std::sync::Arc;

use xuid_id::Layout;

use super::format::{Geometry, Kind, MARK_SLOTS, PAGE, Place, Row, SECTOR, Side};
use super::header::{FileKind, HeaderFlaw, HeaderPair};
use super::{FileIdentity, LocalRegistry, MemoryDisk};
use crate::clock::{Clock, Reading};
use crate::registry::record::Flaw;
use crate::registry::{ClusterId, Genesis, Registry, SwapError, Token, WorkerRecord};

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);
const IDENTITY: FileIdentity = FileIdentity { inode: 42, born_ns: 43, device: 44, machine: 45 };
const MAGIC: [u8; 8] = *b"\x89XREG\r\n\x1a";
const WORKERS: u32 = 4;

#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn read(&self) -> Reading {
        Reading { wall: 1_793_000_000_000_000_000, boot: 1 }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

/// A sector of an input: what is missing is zero.
fn sector(bytes: &[u8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let len = bytes.len().min(SECTOR);
    sector[..len].copy_from_slice(&bytes[..len]);
    sector
}

fn seal_header(sector: &mut [u8; SECTOR]) {
    let sum = crc32c::crc32c(&sector[..SECTOR - 4]);
    sector[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
}

fn record_sum(sector: &[u8; SECTOR]) -> u32 {
    crc32c::crc32c(&[&CLUSTER.bytes()[..], &sector[..SECTOR - 4]].concat())
}

fn genesis() -> Genesis {
    Genesis::new(CLUSTER, Layout::default(), 1_000, WORKERS)
}

/// `[what is put right, copy A, copy B]`: bits 1 and 2 give the copies their magic and version, bits 4 and 8 their
/// checksums, bits 16 and 32 fields that are possible; bit 64 makes them equal but for what follows.
pub(crate) fn header(input: &[u8]) {
    let Some((&right, rest)) = input.split_first() else { return };
    let (a, b) = rest.split_at(rest.len().min(SECTOR));
    let mut copies = [sector(a), sector(if right & 64 == 0 { b } else { a })];
    if right & 64 != 0 {
        copies[1][96] ^= b.first().copied().unwrap_or(0);
    }
    for (n, copy) in copies.iter_mut().enumerate() {
        if right & (1 << n) != 0 {
            copy[..12].copy_from_slice(&[&MAGIC[..], &[1, 0, 0, 0]].concat());
        }
        if right & (16 << n) != 0 {
            let workers = 1 + u32_at(copy, 12) % 1_024;
            copy[12..16].copy_from_slice(&workers.to_le_bytes());
            copy[32..48].copy_from_slice(&Layout::default().to_bytes());
            copy[56..60].copy_from_slice(&MARK_SLOTS.to_le_bytes());
        }
        if right & (4 << n) != 0 {
            seal_header(copy);
        }
    }
    let mut image = vec![0; 2 * PAGE as usize];
    image[..SECTOR].copy_from_slice(&copies[0]);
    image[PAGE as usize..][..SECTOR].copy_from_slice(&copies[1]);
    let found = HeaderPair::read(&MemoryDisk::new(image, IDENTITY), FileKind::Registry);
    let found = found.unwrap_or_else(|error| panic!("memory fails at nothing: {error}"));

    let newest = naive_header(&copies);
    match (found, newest) {
        (Ok(found), Ok(newest)) => {
            // What is encoded again is what was there, but for reserved bytes.
            let mut wanted = copies[newest];
            wanted[35] = 0;
            wanted[60..64].fill(0);
            wanted[104..SECTOR - 4].fill(0);
            seal_header(&mut wanted);
            assert_eq!(found.header.encode(), wanted, "{found:?}");
            assert!(found.sound[newest]);
        }
        (Err(found), Err(wanted)) => assert_eq!(found, wanted),
        (found, wanted) => panic!("{found:?} where {wanted:?} was found"),
    }
}

/// Which copy counts, by the tables.
fn naive_header(copies: &[[u8; SECTOR]; 2]) -> Result<usize, HeaderFlaw> {
    let sealed = |copy: &[u8; SECTOR]| {
        copy[..8] == MAGIC && u32_at(copy, SECTOR - 4) == crc32c::crc32c(&copy[..SECTOR - 4])
    };
    if let Some(other) = copies.iter().find(|copy| sealed(copy) && u32_at(*copy, 8) != 1) {
        return Err(HeaderFlaw::OtherVersion(u32_at(other, 8)));
    }
    let intact = |copy: &[u8; SECTOR]| {
        let [time, worker, sequence] = [copy[32], copy[33], copy[34]].map(u32::from);
        let tick_us = u32_at(copy, 36);
        let layout = time + worker + sequence == 63
            && (16..=60).contains(&time)
            && worker <= 20
            && (1..=24).contains(&sequence)
            && (1..=3_600_000_000).contains(&tick_us);
        let workers = u32_at(copy, 12);
        sealed(copy) && layout && (1..=1u64 << worker).contains(&workers.into()) && u32_at(copy, 56) == 256
    };
    // All that is not reserved.
    let says = |copy: &[u8; SECTOR]| [&copy[8..35], &copy[36..60], &copy[64..96]].concat();
    let born = |copy: &[u8; SECTOR]| [&copy[12..35], &copy[36..60]].concat();
    let generation = |copy: &[u8; SECTOR]| u64_at(copy, 96);
    let [a, b] = copies;
    match (intact(a), intact(b)) {
        (false, false) if copies.iter().all(|copy| copy[..8] != MAGIC) => Err(HeaderFlaw::NotARegistry),
        (false, false) => Err(HeaderFlaw::Damaged),
        (true, false) => Ok(0),
        (false, true) => Ok(1),
        (true, true) if born(a) != born(b) => Err(HeaderFlaw::Damaged),
        (true, true) if generation(a) == generation(b) && says(a) != says(b) => Err(HeaderFlaw::Damaged),
        (true, true) => Ok(usize::from(generation(b) > generation(a))),
    }
}

/// `[what is put right, sector]`: bit 1 gives it its place, bit 2 its checksum, bit 4 an owner of its length.
pub(crate) fn record(input: &[u8]) {
    let Some((&right, rest)) = input.split_first() else { return };
    for place in [Place::worker(3), Place::mark(200)] {
        let mut sector = sector(rest);
        if right & 1 != 0 {
            sector[0] = place.kind as u8;
            sector[4..8].copy_from_slice(&place.slot.to_le_bytes());
        }
        if right & 4 != 0 {
            sector[72] %= 65;
        }
        if right & 2 != 0 {
            let sum = record_sum(&sector);
            sector[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        let decoded = Row::decode(&sector, CLUSTER, place);
        let owner_len = usize::from(sector[72]);
        let owner = sector[80..144].get(..owner_len).and_then(|owner| str::from_utf8(owner).ok());
        let wanted = if u32_at(&sector, SECTOR - 4) != record_sum(&sector) {
            Err(if sector == [0; SECTOR] { Flaw::Blank } else { Flaw::Checksum })
        } else if (sector[0], u32_at(&sector, 4)) != (place.kind as u8, place.slot) {
            Err(Flaw::Misplaced)
        } else {
            owner.ok_or(Flaw::Nonsense)
        };
        let row = match (&decoded, wanted) {
            (Ok(row), Ok(owner)) => {
                assert_eq!(
                    (row.version, row.value, row.owner.as_str()),
                    (u64_at(&sector, 24), u64_at(&sector, 32), owner)
                );
                row
            }
            (found, wanted) => {
                assert_eq!(found.as_ref().err(), wanted.err().as_ref());
                continue;
            }
        };
        // What is encoded again is what was there, but for reserved bytes and what follows the owner's text.
        sector[1..4].fill(0);
        sector[73..80].fill(0);
        sector[80 + owner_len..SECTOR - 4].fill(0);
        let sum = record_sum(&sector);
        sector[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(row.encode(CLUSTER), sector);
        let other = ClusterId::from_bytes([8; 16]);
        assert!(Row::decode(&sector, other, place).is_err(), "a record of another cluster");
    }
}

/// A whole registry with patches: of eleven bytes each, a region, a copy, a slot, a byte's place, and what is put
/// right. It opens, every record is one of its two copies or is refused, and a change is there after a reopening.
pub(crate) fn registry(input: &[u8]) {
    let disk = MemoryDisk::with_registry(&genesis(), IDENTITY);
    let geometry = Geometry::registry(0..WORKERS);
    for patch in input.chunks_exact(11).take(64) {
        let kind = if patch[0] & 1 == 0 { Kind::Worker } else { Kind::Mark };
        let side = if patch[0] & 2 == 0 { Side::A } else { Side::B };
        let slot = u32::from(patch[1]) % geometry.slots(kind);
        let at = geometry.offset(Place { kind, slot }, side) as usize;
        disk.tamper(at, |bytes| {
            let place = usize::from(patch[2]) * 2;
            let len = (SECTOR - 4 - place.min(SECTOR - 4)).min(8);
            bytes[place..place + len].copy_from_slice(&patch[3..3 + len]);
            if patch[0] & 4 != 0 {
                let sum = record_sum(&sector(bytes));
                bytes[SECTOR - 4..].copy_from_slice(&sum.to_le_bytes());
            }
        });
    }
    let before = disk.bytes();
    let open = || LocalRegistry::on(disk.open_again(), Arc::new(Standing));
    let mut registry = open().unwrap_or_else(|error| panic!("its headers are right: {error}"));
    let mut written = Vec::new();
    for (worker, entry) in (0..).zip(registry.workers().unwrap_or_else(|error| panic!("{error}"))) {
        let copies = Side::BOTH.map(|side| {
            let at = geometry.offset(Place::worker(worker), side) as usize;
            Row::decode(&sector(&before[at..]), CLUSTER, Place::worker(worker))
        });
        let newest = match copies {
            [Ok(a), Ok(b)] if a.version == b.version => (a == b).then_some(a),
            [Ok(a), Ok(b)] => Some(if a.version > b.version { a } else { b }),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Some(one),
            [Err(_), Err(_)] => None,
        };
        let found = entry.record.ok();
        assert_eq!(found.as_ref().map(|found| found.version), newest.as_ref().map(|row| row.version));
        let Some(found) = found.filter(|found| found.version < u64::MAX) else { continue };
        assert_eq!(Some(found.record.reserved_until), newest.map(|row| row.value));
        let record = WorkerRecord { token: Token([worker as u8 + 1; 16]), operation: 1, ..found.record };
        let stale = registry.swap_worker(worker, found.version.wrapping_sub(1), &record);
        assert!(matches!(stale, Err(SwapError::Conflict)), "{stale:?}");
        registry.claim(worker, found.version, &record).unwrap_or_else(|error| panic!("{error}"));
        written.push((worker, record, found.version + 1));
    }
    let mut again = open().unwrap_or_else(|error| panic!("{error}"));
    for (worker, record, version) in written {
        let found = again.worker(worker).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.record, found.version), (record, version));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn a_header_of_any_bytes_is_read_as_the_format_says_or_refused(right: u8, bytes in vec(any::<u8>(), 0..1_100)) {
            super::header(&[vec![right], bytes].concat());
        }

        #[test]
        fn equal_headers_of_any_fields_are_read(same in any::<bool>(), bytes in vec(any::<u8>(), 512), generation: u8) {
            let generation = if same { 0 } else { generation };
            super::header(&[vec![0x7f], bytes, vec![generation]].concat());
        }

        #[test]
        fn a_record_of_any_bytes_is_read_as_the_format_says_or_refused(right in 0u8..8, bytes in vec(any::<u8>(), 0..520)) {
            super::record(&[vec![right], bytes].concat());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_registry_with_patched_records_tells_one_of_their_copies_or_none(
            patches in vec((0u8..8, 0u8..4, prop_oneof![9u8..40, any::<u8>()], any::<[u8; 8]>()), 0..12)
        ) {
            let patch = |(how, slot, at, bytes): &(u8, u8, u8, [u8; 8])| [&[*how, *slot, *at][..], bytes].concat();
            super::registry(&patches.iter().flat_map(patch).collect::<Vec<_>>());
        }
    }
}
