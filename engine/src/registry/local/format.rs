//! The records of a registry file, as bytes. `docs/registry.md` has the same as tables.
//!
//! # Invariants
//! - I1 a record's checksum covers the cluster, and its kind and slot are in it: a record of another cluster, or
//!   copied to another place, does not pass;
//! - I2 the two copies of a record lie in different regions that begin on pages of their own.

use std::fmt;
use std::io;

use xuid_spill::SpillId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::registry::{ClusterId, Token};

/// The least that a device writes: what a power cut tears is at most the sectors that were being written.
pub(super) const SECTOR: usize = 512;
/// The two headers have a page each; what writes back pages can harm one of them at a time.
pub(super) const PAGE: u64 = 4_096;
/// Slots for marks. A process uses one spill file, and a file is given up for another one rarely (after a failed
/// sync, or refused), so 256 are many times what a host has; beyond that the oldest mark makes room.
pub(super) const MARK_SLOTS: u32 = 256;
/// The owner's text, in bytes of UTF-8.
pub(super) const OWNER_BYTES: usize = 64;

/// The spill of a slot that has no mark yet. A drawn id is this one with a probability of 2^-128.
pub(super) const NO_SPILL: SpillId = SpillId::from_bytes([0; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Kind {
    Worker = 1,
    Mark = 2,
}

/// Which record: the worker of that number, or the mark in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) slot: u32,
}

impl Place {
    pub(super) fn worker(worker: u32) -> Self {
        Self { kind: Kind::Worker, slot: worker }
    }

    pub(super) fn mark(slot: u32) -> Self {
        Self { kind: Kind::Mark, slot }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Worker => write!(f, "worker {}", self.slot),
            Kind::Mark => write!(f, "mark slot {}", self.slot),
        }
    }
}

/// Which of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Where things lie in a file of that many workers and mark slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) workers: u32,
    pub(super) marks: u32,
}

/// Room of `slots` records, in whole pages.
fn region(slots: u32) -> u64 {
    (u64::from(slots) * SECTOR as u64).next_multiple_of(PAGE)
}

impl Geometry {
    pub(super) fn slots(self, kind: Kind) -> u32 {
        match kind {
            Kind::Worker => self.workers,
            Kind::Mark => self.marks,
        }
    }

    /// Where a region begins: headers A and B, then workers A and B, then marks A and B.
    pub(super) fn begin(self, kind: Kind, copy: Side) -> u64 {
        let second = u64::from(copy == Side::B);
        match kind {
            Kind::Worker => 2 * PAGE + second * region(self.workers),
            Kind::Mark => 2 * PAGE + 2 * region(self.workers) + second * region(self.marks),
        }
    }

    pub(super) fn offset(self, place: Place, copy: Side) -> u64 {
        assert!(place.slot < self.slots(place.kind), "{place} is not in the file");
        self.begin(place.kind, copy) + u64::from(place.slot) * SECTOR as u64
    }

    /// The length of the whole file.
    pub(super) fn bytes(self) -> u64 {
        2 * PAGE + 2 * region(self.workers) + 2 * region(self.marks)
    }
}

/// What one sector says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) place: Place,
    /// Whose mark it is; [`NO_SPILL`] in worker records and unused slots.
    pub(super) spill: SpillId,
    pub(super) version: u64,
    /// `reserved_until` of a worker, `granted_upto` of a mark.
    pub(super) value: u64,
    pub(super) token: Token,
    pub(super) operation: u64,
    /// Unix milliseconds, for people and for the choice of the mark slot to reuse.
    pub(super) updated_ms: u64,
    pub(super) owner: String,
}

/// What is wrong with one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
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
    rest: [u8; 364],
    checksum: U32,
}

/// CRC-32C of the cluster's id and everything in the sector before the checksum (I1).
fn checksum(cluster: ClusterId, sector: &[u8; SECTOR]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cluster.bytes()), &sector[..SECTOR - 4])
}

/// At most [`OWNER_BYTES`] of a text, cut between characters.
pub(super) fn short_owner(text: &str) -> &str {
    &text[..text.floor_char_boundary(OWNER_BYTES)]
}

impl Row {
    pub(super) fn encode(&self, cluster: ClusterId) -> [u8; SECTOR] {
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
            rest: [0; 364],
            checksum: U32::ZERO,
        };
        bytes.checksum = checksum(cluster, &zerocopy::transmute!(bytes)).into();
        zerocopy::transmute!(bytes)
    }

    pub(super) fn decode(sector: &[u8; SECTOR], cluster: ClusterId, place: Place) -> Result<Self, Flaw> {
        let bytes: RecordBytes = zerocopy::transmute!(*sector);
        if bytes.checksum.get() != checksum(cluster, sector) {
            let blank = sector.iter().all(|byte| *byte == 0);
            return Err(if blank { Flaw::Blank } else { Flaw::Checksum });
        }
        if bytes.kind != place.kind as u8 || bytes.slot.get() != place.slot {
            return Err(Flaw::Misplaced);
        }
        let owner = bytes.owner.get(..usize::from(bytes.owner_len)).ok_or(Flaw::Nonsense)?;
        Ok(Self {
            place,
            spill: SpillId::from_bytes(bytes.spill),
            version: bytes.version.get(),
            value: bytes.value.get(),
            token: Token(bytes.token),
            operation: bytes.operation.get(),
            updated_ms: bytes.updated_ms.get(),
            owner: std::str::from_utf8(owner).map_err(|_| Flaw::Nonsense)?.to_owned(),
        })
    }

    /// The record that genesis writes: a worker of which nothing was granted below `floor`, or an unused slot.
    pub(super) fn genesis(place: Place, floor: u64) -> Self {
        let value = match place.kind {
            Kind::Worker => floor,
            Kind::Mark => u64::MAX,
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
        }
    }
}

/// What the two copies of a record say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) row: Row,
    /// The copies that say exactly this. At least one does.
    pub(super) sound: [bool; 2],
}

/// Why the two copies together say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairFlaw {
    Both(Flaw, Flaw),
    /// Both are intact and differ at one version: no crash does that.
    Disagree,
}

impl fmt::Display for PairFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Both(a, b) if a == b => write!(f, "each copy {a}"),
            Self::Both(a, b) => write!(f, "copy A {a}, copy B {b}"),
            Self::Disagree => f.write_str("its copies say different things at one version"),
        }
    }
}

impl Pair {
    /// One copy invalid: the other is exact, or the safe one of a change that was never confirmed. Both valid: a
    /// change was cut off between them, and the higher version is the one that may have been seen.
    pub(super) fn of(a: Result<Row, Flaw>, b: Result<Row, Flaw>) -> Result<Self, PairFlaw> {
        match (a, b) {
            (Ok(a), Ok(b)) if a.version == b.version => {
                if a == b {
                    Ok(Self { row: a, sound: [true, true] })
                } else {
                    Err(PairFlaw::Disagree)
                }
            }
            (Ok(a), Ok(b)) if a.version > b.version => Ok(Self { row: a, sound: [true, false] }),
            (Ok(a), Err(_)) => Ok(Self { row: a, sound: [true, false] }),
            (Ok(_) | Err(_), Ok(b)) => Ok(Self { row: b, sound: [false, true] }),
            (Err(a), Err(b)) => Err(PairFlaw::Both(a, b)),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.sound == [true, true]
    }

    /// The copy to write first: never the only one that is sound.
    pub(super) fn spare(&self) -> Side {
        if self.sound == [true, false] { Side::B } else { Side::A }
    }
}
