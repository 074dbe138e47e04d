//! A note in `windows.log`: 64 bytes. `docs/registry.md` has the same as a table.
//!
//! # Invariants
//! - I1 a note's checksum covers the cluster, and its index says in which slot of the ring it lies: a note of another
//!   cluster, or in another place, is none.

use std::ops::Range;

use xuid_spill::SpillId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::registry::{ClusterId, Token};

/// The length of a note.
pub(super) const NOTE_BYTES: usize = 64;

/// Notes in the ring: 4 MiB. A worker that is renewed each half minute fills it in 22 days.
pub(super) const SLOTS: u64 = 1 << 16;

/// Bytes of a holder's name in one note.
pub(super) const NAME_BYTES: usize = 24;

/// Something that became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Ticks of a worker were granted.
    Window { worker: u32, ticks: Range<u64> },
    /// What is left of a worker's windows from that tick on was handed back.
    HandBack { worker: u32, from: u64 },
    /// Extents of a spill were granted.
    Grant { spill: SpillKey, extents: Range<u64> },
    /// A part of the holder's name, for people; `part` 0 begins another one.
    Name { part: u8, text: Vec<u8> },
}

/// What a note keeps of a spill's id: half of it, which is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpillKey([u8; 8]);

impl From<SpillId> for SpillKey {
    fn from(spill: SpillId) -> Self {
        let bytes = spill.bytes();
        let (half, _) = bytes.as_chunks();
        Self(half[0])
    }
}

/// One note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Its number in the life of the file.
    pub(super) index: u64,
    /// Of the process that it is about.
    pub(super) token: Token,
    /// When it was written, in Unix milliseconds.
    pub(super) at_ms: u64,
    pub(super) event: Event,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NoteBytes {
    checksum: U32,
    kind: u8,
    part: u8,
    len: u8,
    zero: u8,
    index: U64,
    token: [u8; 16],
    /// The worker and four zeros, the spill, or the beginning of a name.
    of: [u8; 8],
    from: U64,
    until: U64,
    at_ms: U64,
}

const WINDOW: u8 = 1;
const HAND_BACK: u8 = 2;
const GRANT: u8 = 3;
const NAME: u8 = 4;

fn worker_bytes(worker: u32) -> [u8; 8] {
    u64::from(worker).to_le_bytes()
}

/// CRC-32C of the cluster's id and everything behind the checksum (I1).
fn checksum(cluster: ClusterId, bytes: &[u8; NOTE_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cluster.bytes()), &bytes[4..])
}

impl Note {
    pub(super) fn encode(&self, cluster: ClusterId) -> [u8; NOTE_BYTES] {
        let mut bytes = NoteBytes {
            checksum: U32::ZERO,
            kind: 0,
            part: 0,
            len: 0,
            zero: 0,
            index: self.index.into(),
            token: self.token.0,
            of: [0; 8],
            from: U64::ZERO,
            until: U64::ZERO,
            at_ms: self.at_ms.into(),
        };
        match &self.event {
            Event::Window { worker, ticks } => {
                (bytes.kind, bytes.of) = (WINDOW, worker_bytes(*worker));
                (bytes.from, bytes.until) = (ticks.start.into(), ticks.end.into());
            }
            Event::HandBack { worker, from } => {
                (bytes.kind, bytes.of) = (HAND_BACK, worker_bytes(*worker));
                bytes.from = (*from).into();
            }
            Event::Grant { spill, extents } => {
                (bytes.kind, bytes.of) = (GRANT, spill.0);
                (bytes.from, bytes.until) = (extents.start.into(), extents.end.into());
            }
            Event::Name { part, text } => {
                let mut name = [0; NAME_BYTES];
                let len = text.len().min(NAME_BYTES);
                name[..len].copy_from_slice(&text[..len]);
                let [of, from, until] = zerocopy::transmute!(name);
                (bytes.kind, bytes.part, bytes.len, bytes.of) = (NAME, *part, len as u8, of);
                (bytes.from, bytes.until) = (U64::from_bytes(from), U64::from_bytes(until));
            }
        }
        bytes.checksum = checksum(cluster, &zerocopy::transmute!(bytes)).into();
        zerocopy::transmute!(bytes)
    }

    /// The note in a slot, if there is one.
    pub(super) fn decode(raw: &[u8; NOTE_BYTES], cluster: ClusterId, slot: u64) -> Option<Self> {
        let bytes: NoteBytes = zerocopy::transmute!(*raw);
        let index = bytes.index.get();
        if bytes.checksum.get() != checksum(cluster, raw) || index % SLOTS != slot {
            return None;
        }
        let (from, until) = (bytes.from.get(), bytes.until.get());
        let worker = u32::try_from(u64::from_le_bytes(bytes.of)).ok();
        let event = match bytes.kind {
            WINDOW if from < until => Event::Window { worker: worker?, ticks: from..until },
            HAND_BACK => Event::HandBack { worker: worker?, from },
            GRANT if from < until => Event::Grant { spill: SpillKey(bytes.of), extents: from..until },
            NAME => {
                let name = [bytes.of, bytes.from.to_bytes(), bytes.until.to_bytes()].concat();
                Event::Name { part: bytes.part, text: name.get(..usize::from(bytes.len))?.to_vec() }
            }
            _ => return None,
        };
        Some(Self { index, token: Token(bytes.token), at_ms: bytes.at_ms.get(), event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes() -> [Note; 4] {
        let spill = SpillKey::from(SpillId::from_bytes(std::array::from_fn(|at| at as u8)));
        let events = [
            Event::Window { worker: 1023, ticks: 269_000_000_000..269_000_002_000 },
            Event::HandBack { worker: 1023, from: 269_000_001_000 },
            Event::Grant { spill, extents: 7..9 },
            Event::Name { part: 1, text: b"host pid 1234".to_vec() },
        ];
        let mut index = SLOTS + 4;
        events.map(|event| {
            index += 1;
            Note { index, token: Token([7; 16]), at_ms: 1_795_219_200_000, event }
        })
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_not_with_a_bit_flipped_nor_elsewhere() {
        let cluster = ClusterId::from_bytes([9; 16]);
        for note in notes() {
            let bytes = note.encode(cluster);
            let slot = note.index % SLOTS;
            assert_eq!(Note::decode(&bytes, cluster, slot), Some(note.clone()));
            assert_eq!(Note::decode(&bytes, cluster, slot + 1), None, "in another place");
            assert_eq!(Note::decode(&bytes, ClusterId::from_bytes([8; 16]), slot), None);
            for bit in 0..NOTE_BYTES * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Note::decode(&bytes, cluster, slot), None, "bit {bit} of {note:?}");
            }
        }
        assert_eq!(Note::decode(&[0; NOTE_BYTES], cluster, 0), None);
    }

    #[test]
    fn a_note_is_written_as_specified() {
        let [window, ..] = notes();
        let bytes = window.encode(ClusterId::from_bytes([9; 16]));
        assert_eq!(bytes[4..16], [1, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..40], [255, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..48], 269_000_000_000_u64.to_le_bytes());
        assert_eq!(bytes[48..56], 269_000_002_000_u64.to_le_bytes());
        assert_eq!(bytes[56..64], 1_795_219_200_000_u64.to_le_bytes());
    }
}
