//! The places and the two copies of the records in the files of a folder, `registry` and `sequences`.
//! `docs/registry.md` has the same as tables.
//!
//! # Invariants
//! - I1 the two copies of a record lie in different regions that begin on pages of their own.

use std::fmt;
use std::ops::Range;

use crate::registry::ClusterId;
pub(super) use crate::registry::record::{Flaw, Kind, NO_SPILL, Place, Row, SECTOR, short_owner};

/// The two headers have a page each; what writes back pages can harm one of them at a time.
pub(super) const PAGE: u64 = 4_096;
/// Slots for marks. A process uses one spill file, and a file is given up for another one rarely (after a failed
/// sync, or refused), so 256 are many times what a host has; beyond that the oldest mark makes room.
pub(super) const MARK_SLOTS: u32 = 256;
/// Slots by which the file of sequences grows: two megabytes, the copies of a record one megabyte apart.
pub(super) const GROWTH_SLOTS: u32 = 2_048;
/// Slots of sequences at most: 256 MB. More names belong in a database.
pub(super) const MOST_SEQUENCES: u32 = 1 << 18;
/// Records read at a time: 64 KiB. The file of sequences grows by a multiple.
const CHUNK: u32 = 128;
const _: () = assert!(GROWTH_SLOTS.is_multiple_of(CHUNK), "a chunk lies in one growth");

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

/// Where things lie in a file of so many workers, mark slots and slots of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The worker of the first record.
    pub(super) first_worker: u32,
    pub(super) workers: u32,
    pub(super) marks: u32,
    pub(super) sequences: u32,
}

/// Room of `slots` records, in whole pages.
fn region(slots: u32) -> u64 {
    (u64::from(slots) * SECTOR as u64).next_multiple_of(PAGE)
}

impl Geometry {
    /// Of the file `registry`.
    pub(super) fn registry(workers: Range<u32>) -> Self {
        let (first_worker, workers) = (workers.start, workers.end - workers.start);
        Self { first_worker, workers, marks: MARK_SLOTS, sequences: 0 }
    }

    /// Of the file `sequences`.
    pub(super) fn sequences(slots: u32) -> Self {
        Self { first_worker: 0, workers: 0, marks: 0, sequences: slots }
    }

    /// The kinds of records that there are.
    pub(super) fn kinds(self) -> impl Iterator<Item = Kind> {
        let kinds = [Kind::Worker, Kind::Mark, Kind::Sequence];
        kinds.into_iter().filter(move |kind| self.slots(*kind) > 0)
    }

    /// All records, some that lie beside each other at a time.
    pub(super) fn chunks(self) -> impl Iterator<Item = (Kind, Range<u32>)> {
        self.kinds().flat_map(move |kind| {
            let Range { start, end } = self.numbers(kind);
            (start..end).step_by(CHUNK as usize).map(move |first| (kind, first..end.min(first + CHUNK)))
        })
    }

    /// All places, kind by kind.
    pub(super) fn places(self) -> impl Iterator<Item = Place> {
        self.kinds().flat_map(move |kind| self.numbers(kind).map(move |slot| Place { kind, slot }))
    }

    /// The numbers of the records of a kind: those of workers may begin above 0.
    pub(super) fn numbers(self, kind: Kind) -> Range<u32> {
        let first = if kind == Kind::Worker { self.first_worker } else { 0 };
        first..first + self.slots(kind)
    }

    /// How many of its kind lie before it; `None` if it is not in the file.
    pub(super) fn position(self, place: Place) -> Option<u32> {
        let numbers = self.numbers(place.kind);
        numbers.contains(&place.slot).then(|| place.slot - numbers.start)
    }

    pub(super) fn slots(self, kind: Kind) -> u32 {
        match kind {
            Kind::Worker => self.workers,
            Kind::Mark => self.marks,
            Kind::Sequence => self.sequences,
        }
    }

    /// Where a region begins: headers A and B, then workers A and B, then marks A and B; or sequences A and B, as often
    /// as the file grew.
    pub(super) fn begin(self, kind: Kind, copy: Side) -> u64 {
        let second = u64::from(copy == Side::B);
        match kind {
            Kind::Worker => 2 * PAGE + second * region(self.workers),
            Kind::Mark => 2 * PAGE + 2 * region(self.workers) + second * region(self.marks),
            Kind::Sequence => 2 * PAGE + second * region(GROWTH_SLOTS),
        }
    }

    pub(super) fn offset(self, place: Place, copy: Side) -> u64 {
        let position = self.position(place);
        assert!(position.is_some(), "{place} is not in the file");
        let position = position.unwrap_or(0);
        let (growths, slot) = match place.kind {
            Kind::Sequence => (position / GROWTH_SLOTS, position % GROWTH_SLOTS),
            Kind::Worker | Kind::Mark => (0, position),
        };
        let before = u64::from(growths) * 2 * region(GROWTH_SLOTS);
        self.begin(place.kind, copy) + before + u64::from(slot) * SECTOR as u64
    }

    /// The length of the whole file.
    pub(super) fn bytes(self) -> u64 {
        2 * PAGE + 2 * region(self.workers) + 2 * region(self.marks) + 2 * region(self.sequences)
    }
}

/// The records of a file: where they lie, and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) geometry: Geometry,
    pub(super) cluster: ClusterId,
}

impl Table {
    /// The same of a file that grew as far as it can: one that grew since may have been known.
    pub(super) fn widest(self) -> Self {
        let sequences = if self.geometry.sequences > 0 { MOST_SEQUENCES } else { 0 };
        Self { geometry: Geometry { sequences, ..self.geometry }, ..self }
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
