//! A record: one extent, its absolute index, and a checksum that ties both to one file.
//!
//! # Invariants
//!
//! - **R1** The checksum covers the uuid of the file and the absolute index, so a record that was written for another
//!   file, for another lap, or whose index was changed afterwards is not valid.
//! - **R2** A valid record holds a sound extent ([`Extent::is_sound`]): checked before it is written, and again after
//!   it is read.

use crate::extent::Extent;
use crate::format::RECORD_BYTES;
use crate::identity::Identity;
use crate::le;

const FIRST_AT: usize = 0;
const LEN_AT: usize = FIRST_AT + size_of::<u64>();
const TICKS_AT: usize = LEN_AT + size_of::<u32>();
const INDEX_AT: usize = TICKS_AT + size_of::<u32>();
const FLAGS_AT: usize = INDEX_AT + size_of::<u64>();
const CHECKSUM_AT: usize = FLAGS_AT + size_of::<u32>();
// Sectors (512 bytes) and pages hold whole records, so a torn write never tears one of them in a sector's middle.
const _: () = assert!(CHECKSUM_AT + size_of::<u32>() == RECORD_BYTES && 512 % RECORD_BYTES == 0);

/// Flags of version 1: none. A record with any is one that this version does not understand.
const FLAGS: u32 = 0;

/// What 32 bytes turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All zero: never written.
    Empty,
    /// Neither zero nor a valid record.
    Damaged,
    Record {
        index: u64,
        extent: Extent,
    },
}

/// Writes and checks the records of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    /// The checksum of the file's uuid, from which that of each record goes on.
    seed: u32,
    stride: u64,
}

impl Seal {
    pub(crate) fn of(identity: &Identity) -> Self {
        Self { seed: crc32c::crc32c(&identity.spill.bytes()), stride: identity.stride }
    }

    /// Appends the record of this extent to `bytes`.
    pub(crate) fn encode(self, index: u64, extent: Extent, bytes: &mut Vec<u8>) {
        debug_assert!(extent.is_sound(self.stride), "R2: {extent:?}");
        let mut record = [0; RECORD_BYTES];
        le::put(&mut record, FIRST_AT, extent.first.to_le_bytes());
        le::put(&mut record, LEN_AT, extent.len.to_le_bytes());
        le::put(&mut record, TICKS_AT, extent.ticks.to_le_bytes());
        le::put(&mut record, INDEX_AT, index.to_le_bytes());
        le::put(&mut record, FLAGS_AT, FLAGS.to_le_bytes());
        let checksum = self.checksum(&record);
        le::put(&mut record, CHECKSUM_AT, checksum.to_le_bytes());
        bytes.extend_from_slice(&record);
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Content {
        // As one comparison: a start decodes half a million records, in a young file most of them empty.
        if bytes == [0; RECORD_BYTES] {
            return Content::Empty;
        }
        let extent = Extent {
            first: le::u64_at(bytes, FIRST_AT),
            len: le::u32_at(bytes, LEN_AT),
            ticks: le::u32_at(bytes, TICKS_AT),
        };
        let index = le::u64_at(bytes, INDEX_AT);
        // The highest index would leave no head above it.
        let valid = le::u32_at(bytes, CHECKSUM_AT) == self.checksum(bytes)
            && le::u32_at(bytes, FLAGS_AT) == FLAGS
            && index < u64::MAX
            && extent.is_sound(self.stride);
        if valid { Content::Record { index, extent } } else { Content::Damaged }
    }

    fn checksum(self, record: &[u8]) -> u32 {
        #[cfg(test)]
        if tests::INDEX_LEFT_OUT.get() {
            return crc32c::crc32c_append(self.seed, &record[..INDEX_AT]);
        }
        crc32c::crc32c_append(self.seed, &record[..CHECKSUM_AT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use crate::identity::SpillId;
    use crate::{Expected, Log, MemoryStorage};

    const EXTENT: Extent = Extent { first: 7 << 22, len: 4096, ticks: 10 };

    fn seal(spill: u8) -> Seal {
        let spill = SpillId::from_bytes([spill; 16]);
        Seal::of(&Identity { spill, cluster: [2; 16], stride: 1 << 22, layout: [3; 16] })
    }

    fn record(seal: Seal, index: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        seal.encode(index, EXTENT, &mut bytes);
        bytes
    }

    #[test]
    fn a_record_of_another_file_is_damage() {
        let bytes = record(seal(1), 5);
        assert_eq!(seal(1).decode(&bytes), Content::Record { index: 5, extent: EXTENT });
        assert_eq!(seal(9).decode(&bytes), Content::Damaged);
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_found() {
        let bytes = record(seal(1), 5);
        for bit in 0..RECORD_BYTES * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal(1).decode(&flipped), Content::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn a_record_that_names_no_id_or_one_twice_is_damage_with_the_right_checksum_too() {
        for (at, word) in [(LEN_AT, 0u32), (LEN_AT, (1 << 22) + 1), (TICKS_AT, 0), (FIRST_AT + 4, 1 << 31)] {
            let mut unsound = record(seal(1), 5);
            le::put(&mut unsound, at, word.to_le_bytes());
            let checksum = seal(1).checksum(&unsound);
            le::put(&mut unsound, CHECKSUM_AT, checksum.to_le_bytes());
            assert_eq!(seal(1).decode(&unsound), Content::Damaged, "{word} at {at}");
        }
    }

    #[test]
    fn the_highest_index_and_unknown_flags_are_not_read() {
        assert_eq!(seal(1).decode(&record(seal(1), u64::MAX)), Content::Damaged);
        let mut flagged = record(seal(1), 5);
        flagged[FLAGS_AT] = 1;
        let checksum = seal(1).checksum(&flagged);
        le::put(&mut flagged, CHECKSUM_AT, checksum.to_le_bytes());
        assert_eq!(seal(1).decode(&flagged), Content::Damaged);
    }

    /// A record of the lap before whose index was overwritten, so that it claims to belong to this lap.
    fn relabelled(bytes: &[u8], index: u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        le::put(&mut bytes, INDEX_AT, index.to_le_bytes());
        bytes
    }

    #[test]
    fn a_record_of_the_lap_before_never_passes_for_this_laps() {
        let lap_before = record(seal(1), 5);
        // As it is, it says which index it has, and that is not the one asked for.
        assert_eq!(seal(1).decode(&lap_before), Content::Record { index: 5, extent: EXTENT });
        // Relabelled, it fails its checksum.
        assert_eq!(seal(1).decode(&relabelled(&lap_before, 5 + 128)), Content::Damaged);
    }

    thread_local! {
        /// The negative control: a checksum that does not cover the index.
        pub(super) static INDEX_LEFT_OUT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// The first lap of a log of 8 was granted. Of the second one a record is lost, as in a power cut, and the index of
    /// the one before it in that slot rots into the lost one's. Says which of the first lap's extents come again.
    fn granted_again() -> Vec<u64> {
        const CAPACITY: u64 = 8;
        let (first_lap, lost) = (0..CAPACITY, CAPACITY + 1);
        let identity = Identity {
            spill: SpillId::from_bytes([1; 16]),
            cluster: [2; 16],
            stride: 1 << 22,
            layout: [3; 16],
        };
        let extent = |index: u64| Extent { first: index << 22, ..EXTENT };
        let disk = MemoryStorage::new();
        let bytes = Header::offset(0) + CAPACITY * RECORD_BYTES as u64;
        let mut log = Log::create(Box::new(disk.clone()), identity, bytes).unwrap();
        log.append(&first_lap.clone().map(extent).collect::<Vec<_>>()).unwrap();
        log.resume_at(CAPACITY);
        log.append(&(CAPACITY..CAPACITY + 4).map(extent).collect::<Vec<_>>()).unwrap();
        drop(log);

        let at = Header::offset(lost % CAPACITY) as usize;
        let seal = Seal::of(&identity);
        let mut before = Vec::new();
        seal.encode(lost - CAPACITY, extent(lost - CAPACITY), &mut before);
        disk.tamper(|bytes| bytes[at..at + RECORD_BYTES].copy_from_slice(&relabelled(&before, lost)));

        let expected = Expected { cluster: [2; 16], stride: 1 << 22, layout: [3; 16] };
        let (mut log, _) = Log::open(Box::new(disk), &expected).unwrap();
        log.resume_at(CAPACITY);
        let mut found = Vec::new();
        log.read(CAPACITY..log.head(), &mut found).unwrap();
        assert!(found.len() >= 3, "the others are whole");
        found
            .into_iter()
            .map(|(_, extent)| extent.first >> 22)
            .filter(|index| first_lap.contains(index))
            .collect()
    }

    #[test]
    fn a_rotten_index_brings_no_granted_extent_back() {
        assert_eq!(granted_again(), []);
    }

    #[test]
    fn without_the_index_in_the_checksum_a_granted_extent_comes_again() {
        INDEX_LEFT_OUT.set(true);
        let again = granted_again();
        INDEX_LEFT_OUT.set(false);
        assert_eq!(again, [1]);
    }
}
