//! What must hold for a spill of any bytes, against a naive reading of `docs/spill-format.md`.
//!
//! One body serves the property test here and the fuzz target `spill_log`. Arbitrary bytes fail a checksum long before
//! they reach what is behind it, so the first bytes of an input say what is put right: headers, checksums, indexes.

use std::collections::BTreeMap;

use xuid_spill::{Expected, Extent, HeaderError, Identity, Log, MemoryStorage, OpenError, Report, SpillId};

const MAGIC: [u8; 8] = *b"\x89XSPL\r\n\x1a";
const RECORDS_AT: usize = 8192;
const HEADER: usize = 128;
const RECORD: usize = 32;
/// Few slots, so that laps are short.
const MOST_RECORDS: usize = 48;
const LAST_ID: u128 = (1 << 63) - 1;

const IDENTITY: Identity =
    Identity { spill: SpillId::from_bytes([7; 16]), cluster: [1; 16], stride: 1 << 22, layout: [2; 16] };

/// Bits of an input's first byte: what is put right before the file is opened.
pub(crate) mod put_right {
    /// The first copy of the header is a right one.
    pub(crate) const HEADER_A: u8 = 1;
    /// The second copy is.
    pub(crate) const HEADER_B: u8 = 2;
    /// Both copies have right checksums.
    pub(crate) const HEADER_SUMS: u8 = 4;
    /// Every record has a right checksum.
    pub(crate) const RECORD_SUMS: u8 = 8;
    /// Every record has an index of its slot, in one of the first laps.
    pub(crate) const INDEXES: u8 = 16;
    /// Every record has a length and ticks that are possible.
    pub(crate) const EXTENTS: u8 = 32;
    /// The file has its whole length.
    pub(crate) const LENGTH: u8 = 64;
}

/// `[what is put right, mark, cut, header A, header B, records]`.
pub(crate) fn log(input: &[u8]) {
    let Some((&[right, mark, cut], rest)) = input.split_first_chunk() else { return };
    let file = file_of(right, cut, rest);
    let storage = MemoryStorage::from_bytes(file.clone());
    let Identity { cluster, stride, layout, .. } = IDENTITY;
    let opened = Log::open(Box::new(storage.clone()), &Expected { cluster, stride, layout });
    match (judge(&file), opened) {
        (Ok(header), Ok((log, report))) => survey(&header, &file, log, report, mark, &storage),
        (Err(why), Err(error)) => {
            assert!(why == said(&error), "{error} where {why:?} was found");
            assert_eq!(storage.bytes(), file, "a file that is refused is not changed");
        }
        (found, opened) => panic!("{opened:?} where {found:?} was found"),
    }
}

/// The file of an input.
fn file_of(right: u8, cut: u8, rest: &[u8]) -> Vec<u8> {
    let has = |bit| right & bit != 0;
    let (headers, records) = rest.split_at(rest.len().min(2 * HEADER));
    let records = &records[..records.len().min(MOST_RECORDS * RECORD)];
    let capacity = records.len().div_ceil(RECORD).max(1);
    let mut file = vec![0; RECORDS_AT + capacity * RECORD];
    for (n, bit) in [put_right::HEADER_A, put_right::HEADER_B].into_iter().enumerate() {
        let copy = &mut file[n * 4096..][..HEADER];
        if has(bit) {
            copy.copy_from_slice(&header(capacity as u64));
        } else if let Some(bytes) = headers.get(n * HEADER..) {
            let bytes = &bytes[..bytes.len().min(HEADER)];
            copy[..bytes.len()].copy_from_slice(bytes);
        }
        if has(put_right::HEADER_SUMS) {
            seal_header(copy);
        }
    }
    file[RECORDS_AT..][..records.len()].copy_from_slice(records);
    let spill: [u8; 16] = bytes_at(&file, if has(put_right::HEADER_A) { 16 } else { 4096 + 16 });
    for slot in 0..capacity {
        let record = &mut file[RECORDS_AT + slot * RECORD..][..RECORD];
        if record.iter().all(|byte| *byte == 0) {
            continue;
        }
        if has(put_right::INDEXES) {
            let lap = u64::from(record[16] % 4);
            record[16..24].copy_from_slice(&(lap * capacity as u64 + slot as u64).to_le_bytes());
        }
        if has(put_right::EXTENTS) {
            record[7] &= 0x3f;
            record[10..12].copy_from_slice(&[0; 2]);
            record[14..16].copy_from_slice(&[0; 2]);
            record[24..28].copy_from_slice(&[0; 4]);
        }
        if has(put_right::RECORD_SUMS) {
            let sum = record_sum(&spill, record);
            record[28..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    if !has(put_right::LENGTH) {
        let left = file.len().saturating_sub(usize::from(cut) * usize::from(cut));
        file.truncate(left);
    }
    file
}

/// A header of the tests' identity, by the table.
fn header(capacity: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&32u32.to_le_bytes());
    bytes[16..32].copy_from_slice(&IDENTITY.spill.bytes());
    bytes[32..48].copy_from_slice(&IDENTITY.cluster);
    bytes[48..64].copy_from_slice(&IDENTITY.layout);
    bytes[64..72].copy_from_slice(&IDENTITY.stride.to_le_bytes());
    bytes[72..80].copy_from_slice(&capacity.to_le_bytes());
    seal_header(&mut bytes);
    bytes
}

fn seal_header(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
}

fn record_sum(spill: &[u8; 16], record: &[u8]) -> u32 {
    crc32c::crc32c(&[&spill[..], &record[..28]].concat())
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

/// Why a file is refused.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    NoSpill,
    Version,
    Damaged,
    Differ,
    Shortened,
    Cluster,
    Layout,
}

fn said(error: &OpenError) -> Why {
    match error {
        OpenError::Header(HeaderError::NotASpill { .. }) => Why::NoSpill,
        OpenError::Header(HeaderError::Version { .. }) => Why::Version,
        OpenError::Header(HeaderError::Damaged) => Why::Damaged,
        OpenError::Header(HeaderError::CopiesDiffer) => Why::Differ,
        OpenError::Header(HeaderError::Shortened(_)) => Why::Shortened,
        OpenError::OtherCluster { .. } => Why::Cluster,
        OpenError::OtherLayout { .. } => Why::Layout,
        other => panic!("memory fails at nothing: {other}"),
    }
}

/// What a file says about itself.
#[derive(Debug)]
struct Naive {
    bytes: [u8; HEADER],
    capacity: u64,
    repaired: bool,
}

/// The table of the two copies.
fn judge(file: &[u8]) -> Result<Naive, Why> {
    let (mut intact, mut other_version, mut magic) = (Vec::new(), false, false);
    for at in [0, 4096] {
        let Some(copy) = file.get(at..at + HEADER) else { continue };
        if copy[..8] != MAGIC {
            continue;
        }
        magic = true;
        if u32_at(copy, 124) != crc32c::crc32c(&copy[..124]) {
            continue;
        }
        let capacity = u64_at(copy, 72);
        match u32_at(copy, 8) {
            1 if u32_at(copy, 12) == 32
                && capacity > 0
                && 8192 + u128::from(capacity) * 32 <= 4 << 30
                && u64_at(copy, 64) > 0 =>
            {
                intact.push(bytes_at::<HEADER>(copy, 0));
            }
            1 => {}
            _ => other_version = true,
        }
    }
    if other_version {
        return Err(Why::Version);
    }
    // Reserved bytes are not read, so copies may differ in them.
    let bytes = match intact[..] {
        [] => return Err(if magic { Why::Damaged } else { Why::NoSpill }),
        [one, other] if one[..80] != other[..80] => return Err(Why::Differ),
        [one, ..] => one,
    };
    let capacity = u64_at(&bytes, 72);
    if (file.len() as u64) < 8192 + capacity * 32 {
        return Err(Why::Shortened);
    }
    if bytes[32..48] != IDENTITY.cluster {
        return Err(Why::Cluster);
    }
    if bytes[48..64] != IDENTITY.layout || u64_at(&bytes, 64) != IDENTITY.stride {
        return Err(Why::Layout);
    }
    Ok(Naive { bytes, capacity, repaired: intact.len() == 1 })
}

/// The valid records of a file by slot, and how many slots are damaged.
fn records_of(header: &Naive, file: &[u8]) -> (BTreeMap<u64, (u64, Extent)>, u64) {
    let (mut valid, mut damaged) = (BTreeMap::new(), 0);
    let spill = bytes_at(&header.bytes, 16);
    for slot in 0..header.capacity {
        let record = &file[RECORDS_AT + slot as usize * RECORD..][..RECORD];
        let (first, len, ticks) = (u64_at(record, 0), u32_at(record, 8), u32_at(record, 12));
        let index = u64_at(record, 16);
        let last = u128::from(first)
            + (u128::from(ticks).saturating_sub(1)) * u128::from(IDENTITY.stride)
            + u128::from(len).saturating_sub(1);
        let sound = len >= 1 && u64::from(len) <= IDENTITY.stride && ticks >= 1 && last <= LAST_ID;
        let right = u32_at(record, 28) == record_sum(&spill, record) && u32_at(record, 24) == 0;
        if right && sound && index < u64::MAX && index % header.capacity == slot {
            valid.insert(slot, (index, Extent { first, len, ticks }));
        } else if record.iter().any(|byte| *byte != 0) {
            damaged += 1;
        }
    }
    (valid, damaged)
}

/// What an opened log says is what is in the file, before and after an append and a reopening.
fn survey(header: &Naive, file: &[u8], mut log: Log, report: Report, mark: u8, storage: &MemoryStorage) {
    let (valid, damaged) = records_of(header, file);
    let head = valid.values().map(|(index, _)| index + 1).max().unwrap_or(0);
    let from = head.saturating_sub(header.capacity);
    let last_lap: Vec<(u64, Extent)> = valid.values().copied().filter(|(index, _)| *index >= from).collect();
    assert_eq!((report.head, report.damaged), (head, damaged));
    assert_eq!(report.stale, (valid.len() - last_lap.len()) as u64);
    assert_eq!(report.stock.extents, last_lap.len() as u64);
    assert_eq!(report.stock.ids, last_lap.iter().map(|(_, extent)| extent.ids()).sum::<u64>());
    assert_eq!(report.header_repaired, header.repaired);
    assert_eq!(report.surplus_bytes, file.len() as u64 - 8192 - header.capacity * 32);

    // A little below the head, at it, or beyond.
    let mark = head.saturating_sub(40).saturating_add(u64::from(mark % 64));
    log.resume_at(mark);
    let mut wanted: Vec<_> = last_lap.into_iter().filter(|(index, _)| *index >= mark).collect();
    wanted.sort_unstable_by_key(|(index, _)| *index);
    let read_all = |log: &Log| {
        let mut read = Vec::new();
        log.read(log.tail()..log.head(), &mut read).unwrap();
        read
    };
    assert_eq!((log.head(), log.tail()), (head.max(mark), mark.max(from)));
    assert_eq!(read_all(&log), wanted);

    let fresh = Extent { first: 5, len: 5, ticks: 5 };
    let Ok(appended) = log.append(&[fresh]) else {
        assert_eq!(log.head(), u64::MAX, "the only reason there can be");
        return;
    };
    assert_eq!(appended.indexes.start, head.max(mark), "an index that was used is not used again");
    wanted.push((appended.indexes.start, fresh));
    wanted.retain(|(index, _)| *index >= log.head().saturating_sub(header.capacity));
    assert_eq!(read_all(&log), wanted);
    let Identity { cluster, stride, layout, .. } = IDENTITY;
    let (mut again, report) =
        Log::open(Box::new(storage.clone()), &Expected { cluster, stride, layout }).unwrap();
    assert!(!report.header_repaired, "it was repaired already");
    again.resume_at(mark);
    assert_eq!((again.head(), read_all(&again)), (log.head(), wanted));
}
