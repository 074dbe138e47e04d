//! A worker's record, a spill's mark and the record of a sequence's name, as bytes: 512 in every registry.
//! `docs/registry.md` has the same as a table.
//!
//! # Invariants
//! - I1 a record's checksum covers the cluster, and its kind and slot are in it: a record of another cluster, or
//!   copied to another place, does not pass.

mod named;

use std::fmt;
use std::io;

use xuid_spill::SpillId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(in crate::registry) use self::named::{EraId, NAME_BYTES, NAMED_BYTES, Named};
use crate::registry::sequences::SequenceRecord;
use crate::registry::{ClusterId, Genesis, MarkRecord, Token, WorkerRecord, printable};

/// The least that a device writes: what a power cut tears is at most the sectors that were being written.
pub(in crate::registry) const SECTOR: usize = 512;
/// The owner's text, in bytes of UTF-8.
pub(in crate::registry) const OWNER_BYTES: usize = 64;

/// The spill of a slot that has no mark yet. A drawn id is this one with a probability of 2^-128.
pub(in crate::registry) const NO_SPILL: SpillId = SpillId::from_bytes([0; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(in crate::registry) enum Kind {
    Worker = 1,
    Mark = 2,
    Sequence = 3,
}

/// Which record: the worker of that number, or the mark or the sequence in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::registry) struct Place {
    pub(in crate::registry) kind: Kind,
    pub(in crate::registry) slot: u32,
}

impl Place {
    pub(in crate::registry) fn worker(worker: u32) -> Self {
        Self { kind: Kind::Worker, slot: worker }
    }

    pub(in crate::registry) fn mark(slot: u32) -> Self {
        Self { kind: Kind::Mark, slot }
    }

    pub(in crate::registry) fn sequence(slot: u32) -> Self {
        Self { kind: Kind::Sequence, slot }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Worker => write!(f, "worker {}", self.slot),
            Kind::Mark => write!(f, "mark slot {}", self.slot),
            Kind::Sequence => write!(f, "sequence slot {}", self.slot),
        }
    }
}

/// What one sector says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry) struct Row {
    pub(in crate::registry) place: Place,
    /// Whose mark it is; [`NO_SPILL`] in worker records and unused slots.
    pub(in crate::registry) spill: SpillId,
    pub(in crate::registry) version: u64,
    /// `reserved_until` of a worker, `granted_upto` of a mark, the mark of a sequence.
    pub(in crate::registry) value: u64,
    pub(in crate::registry) token: Token,
    pub(in crate::registry) operation: u64,
    /// Unix milliseconds, for people and for the choice of the mark slot to reuse.
    pub(in crate::registry) updated_ms: u64,
    pub(in crate::registry) owner: String,
    /// Of a sequence's slot that is used: whose it is, and the rest.
    pub(in crate::registry) named: Option<Box<Named>>,
}

/// What is wrong with one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::registry) enum Flaw {
    Blank,
    Checksum,
    Misplaced,
    Nonsense,
    Unreadable(io::ErrorKind),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("is all zeros"),
            Self::Checksum => f.write_str("has a wrong checksum"),
            Self::Misplaced => f.write_str("is the record of another place"),
            Self::Nonsense => f.write_str("has fields that are impossible"),
            Self::Unreadable(kind) => write!(f, "cannot be read ({kind})"),
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordBytes {
    kind: u8,
    zeros: [u8; 3],
    slot: U32,
    spill: [u8; 16],
    version: U64,
    value: U64,
    token: [u8; 16],
    operation: U64,
    updated_ms: U64,
    owner_len: u8,
    more_zeros: [u8; 7],
    owner: [u8; OWNER_BYTES],
    rest: [u8; NAMED_BYTES],
    checksum: U32,
}

/// CRC-32C of the cluster's id and everything in the sector before the checksum (I1).
fn checksum(cluster: ClusterId, sector: &[u8; SECTOR]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cluster.bytes()), &sector[..SECTOR - 4])
}

/// At most [`OWNER_BYTES`] of a text, cut between characters.
pub(in crate::registry) fn short_owner(text: &str) -> &str {
    &text[..text.floor_char_boundary(OWNER_BYTES)]
}

impl Row {
    pub(in crate::registry) fn encode(&self, cluster: ClusterId) -> [u8; SECTOR] {
        let text = short_owner(&self.owner).as_bytes();
        let mut owner = [0; OWNER_BYTES];
        owner[..text.len()].copy_from_slice(text);
        let mut bytes = RecordBytes {
            kind: self.place.kind as u8,
            zeros: [0; 3],
            slot: self.place.slot.into(),
            spill: self.spill.bytes(),
            version: self.version.into(),
            value: self.value.into(),
            token: self.token.0,
            operation: self.operation.into(),
            updated_ms: self.updated_ms.into(),
            owner_len: text.len() as u8,
            more_zeros: [0; 7],
            owner,
            rest: self.named.as_ref().map_or([0; NAMED_BYTES], |named| named.encode()),
            checksum: U32::ZERO,
        };
        bytes.checksum = checksum(cluster, &zerocopy::transmute!(bytes)).into();
        zerocopy::transmute!(bytes)
    }

    pub(in crate::registry) fn decode(
        sector: &[u8; SECTOR],
        cluster: ClusterId,
        place: Place,
    ) -> Result<Self, Flaw> {
        let bytes: RecordBytes = zerocopy::transmute!(*sector);
        if bytes.checksum.get() != checksum(cluster, sector) {
            let blank = sector.iter().all(|byte| *byte == 0);
            return Err(if blank { Flaw::Blank } else { Flaw::Checksum });
        }
        if bytes.kind != place.kind as u8 || bytes.slot.get() != place.slot {
            return Err(Flaw::Misplaced);
        }
        let owner = bytes.owner.get(..usize::from(bytes.owner_len)).ok_or(Flaw::Nonsense)?;
        let named = match place.kind {
            Kind::Sequence => Named::decode(&bytes.rest, bytes.value.get()).map_err(|_| Flaw::Nonsense)?,
            Kind::Worker | Kind::Mark => None,
        };
        Ok(Self {
            place,
            spill: SpillId::from_bytes(bytes.spill),
            version: bytes.version.get(),
            value: bytes.value.get(),
            token: Token(bytes.token),
            operation: bytes.operation.get(),
            updated_ms: bytes.updated_ms.get(),
            owner: std::str::from_utf8(owner).map_err(|_| Flaw::Nonsense)?.to_owned(),
            named: named.map(Box::new),
        })
    }

    /// What it says of a worker.
    pub(in crate::registry) fn worker_record(&self) -> WorkerRecord {
        debug_assert!(self.place.kind == Kind::Worker, "{} is no worker", self.place);
        let Self { value, token, operation, .. } = *self;
        // A character that is replaced may grow: what is read is as short as what is kept.
        let owner = short_owner(&printable(&self.owner)).to_owned();
        WorkerRecord { reserved_until: value, token, operation, owner }
    }

    /// What it says of a spill.
    pub(in crate::registry) fn mark_record(&self) -> MarkRecord {
        debug_assert!(self.spill != NO_SPILL, "a mark is of a spill");
        let Self { value, token, operation, .. } = *self;
        MarkRecord { granted_upto: value, token, operation }
    }

    /// The record of a name in that era: what a registry stores for the port's.
    pub(in crate::registry) fn of_sequence(
        place: Place,
        (name, era): (&str, EraId),
        record: &SequenceRecord,
    ) -> Self {
        let SequenceRecord { value, ref gaps, last, step, increment, remainder, strict } = *record;
        assert!(named::are_gaps(gaps, value), "gaps of '{name}' below {value}: {gaps:?}");
        let (name, gaps) = (name.to_owned(), gaps.clone());
        let named = Named { name, era, is_lost: false, gaps, last, step, increment, remainder, strict };
        Self { value, named: Some(Box::new(named)), ..Self::genesis(place, 0) }
    }

    /// What it says of a name; nothing where the slot is unused, or its name lost.
    pub(in crate::registry) fn sequence_record(&self) -> Option<SequenceRecord> {
        let named = self.named.as_ref().filter(|named| !named.is_lost)?;
        let Named { last, step, increment, remainder, strict, .. } = **named;
        let gaps = named.gaps.clone();
        Some(SequenceRecord { value: self.value, gaps, last, step, increment, remainder, strict })
    }

    /// The record that a registry is made with.
    pub(in crate::registry) fn at_genesis(place: Place, genesis: &Genesis) -> Self {
        if place.kind == Kind::Worker && genesis.closed.contains(place.slot) {
            return Self::closed(place, 0);
        }
        Self::genesis(place, genesis.floor)
    }

    /// The record of a closed worker.
    pub(in crate::registry) fn closed(place: Place, not_before: u64) -> Self {
        let WorkerRecord { reserved_until, token, operation, owner } = WorkerRecord::closed(not_before);
        Self { value: reserved_until, token, operation, owner, ..Self::genesis(place, 0) }
    }

    /// Whether it is the record of a closed worker.
    pub(in crate::registry) fn is_closed(&self) -> bool {
        self.place.kind == Kind::Worker && self.value == WorkerRecord::CLOSED
    }

    /// The record that genesis writes: a worker of which nothing was granted below `floor`, or an unused slot.
    pub(in crate::registry) fn genesis(place: Place, floor: u64) -> Self {
        let value = match place.kind {
            Kind::Worker => floor,
            Kind::Mark | Kind::Sequence => u64::MAX,
        };
        Self {
            place,
            spill: NO_SPILL,
            version: 1,
            value,
            token: Token::default(),
            operation: 0,
            updated_ms: 0,
            owner: String::new(),
            named: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_stored_as_it_is_and_told_without_control_characters() {
        let place = Place::worker(7);
        let row = Row { owner: "\u{1b}[2J\u{9b}31mevil\r\nhost pid 1".into(), ..Row::genesis(place, 1) };
        let record = row.worker_record();
        assert_eq!(record.owner, "\u{fffd}[2J\u{fffd}31mevil\u{fffd}\u{fffd}host pid 1");
        let cluster = ClusterId::default();
        let stored = Row::decode(&row.encode(cluster), cluster, place).unwrap();
        assert_eq!((stored.owner, stored.value), (row.owner, row.value));
        // As what is told may be stored again, it is no longer than what can be.
        let row = Row { owner: "\u{1b}".repeat(OWNER_BYTES), ..Row::genesis(place, 1) };
        let told = row.worker_record().owner;
        assert_eq!(told, "\u{fffd}".repeat(OWNER_BYTES / 3));
        assert_eq!(Row { owner: told.clone(), ..row }.worker_record().owner, told);
    }
}
