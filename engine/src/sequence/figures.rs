//! What sequences have done and how they stand, as people and metrics are told.

use std::time::Duration;

use super::name::SequenceName;
use super::store::{Row, SequenceSettings};
use crate::stats::Latency;

/// Ids of one name, or of all of them, by what became of them.
///
/// `granted + reclaimed == issued + wasted.total() + held + saved`, exactly, after a clean stop and while nothing moves.
/// Ids that a thread took out of its own run ([`Sequence::next_id`](super::Sequence::next_id)) count as held until the
/// thread has used up the run, calls for another name, calls [`Sequences::publish`](super::Sequences::publish) or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceFigures {
    /// Ids in grants that were used.
    pub granted: u64,
    /// Ids that an earlier life left.
    pub reclaimed: u64,
    /// Ids that became a caller's.
    pub issued: u64,
    /// Ids that no caller will ever get.
    pub wasted: SequenceWaste,
    /// Ids in segments, calls that wait, and threads' runs.
    pub held: u64,
    /// Ids saved for a later life, by the clean stop.
    pub saved: u64,
}

impl SequenceFigures {
    /// How far the figures were apart when they were read. 0 while nothing moves.
    #[must_use]
    pub fn moving(&self) -> i64 {
        let came = self.granted + self.reclaimed;
        let found = self.issued + self.wasted.total() + self.held + self.saved;
        came.wrapping_sub(found).cast_signed()
    }
}

/// Ids wasted, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceWaste {
    /// The rest of a segment that was too short for a call that wanted its ids in one piece.
    pub contiguous: u64,
    /// Rests of threads' runs that were void, after a stop or a leap of the clock.
    pub thread: u64,
    /// What was held when the clock leapt, as in a copy of this machine that was resumed.
    pub leap: u64,
    /// What a strict grant had beyond the calls that waited for it.
    pub strict: u64,
    /// What could not be saved at a stop, or kept in memory.
    pub dropped: u64,
}

impl SequenceWaste {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.contiguous + self.thread + self.leap + self.strict + self.dropped
    }
}

/// How it stands with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NameState {
    /// No call of this process asked for it, or none did for long, so that its figures begin anew.
    #[default]
    Unused,
    /// Ids are held, or the store was not asked yet.
    Ready,
    /// The store, or the witness, does not answer; ids go on while some are held.
    Away,
    /// The store may have gone back; what is held is used up, and nothing is granted until a fence.
    Behind,
    /// The last number was granted.
    Exhausted,
    /// The store has no such row (any more).
    Absent,
}

impl NameState {
    /// As metrics and JSON have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Ready => "ready",
            Self::Away => "away",
            Self::Behind => "behind",
            Self::Exhausted => "exhausted",
            Self::Absent => "absent",
        }
    }
}

/// One name at this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NameFigures {
    /// Its ids.
    pub figures: SequenceFigures,
    /// Ids a second over the last ten seconds.
    pub rate: f64,
    /// How long what is held lasts at that rate; `None` where nothing is asked for.
    pub hold: Option<Duration>,
    /// How it stands.
    pub state: NameState,
    /// The settings as of the last grant; `None` before the first.
    pub settings: Option<SequenceSettings>,
    /// The end of the last grant: numbers from here up to [`SequenceSettings::last`] are left.
    pub mark: u64,
    /// The number that the next ordered call of this process would get; `None` where it holds none.
    pub next: Option<u64>,
}

/// A name as its store and this process know it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SequenceInfo {
    /// The store's row.
    pub row: Row,
    /// What this process did with it.
    pub here: NameFigures,
    /// The store, for people.
    pub store: String,
}

/// What became of asks for grants, one a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantCounts {
    /// Granted and used.
    pub granted: u64,
    /// Thrown away: the witness had seen the numbers. The store went back.
    pub seen: u64,
    /// Thrown away: strict numbers, of which the witness had seen higher ones.
    pub late: u64,
    /// Thrown away: the witness did not answer, or its answer was lost.
    pub unwitnessed: u64,
    /// Thrown away: the store was another one, or its mark had gone back, and there is no witness.
    pub behind: u64,
    /// Thrown away: the clock leapt while they were asked for.
    pub leapt: u64,
    /// Of unknown outcome.
    pub unknown: u64,
    /// The store was not reached.
    pub away: u64,
    /// There was no such row.
    pub absent: u64,
    /// There was nothing left.
    pub exhausted: u64,
    /// The row could not be used.
    pub refused: u64,
}

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequencesStats {
    /// All names together, those that are forgotten by now included.
    pub figures: SequenceFigures,
    /// Asks for grants.
    pub grants: GrantCounts,
    /// How long the store took for a batch of them.
    pub store: Latency,
    /// How long the witness took.
    pub witness: Latency,
    /// Times names were closed as the store may be another one, and times another one was gone on with.
    pub identity_changes: u64,
    /// Names that this process knows.
    pub names: usize,
    /// Of these, names of which some ids are held.
    pub holding: usize,
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that may wait and got none.
    pub refused: u64,
    /// Panics of the sequences' own thread, which went on: each is a bug, of the engine or of a store's adaptor.
    pub panics: u64,
}

/// How it stands with the store and its witness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// The store, for people.
    pub store: String,
    /// The witness, for people; `None` where there is none.
    pub witness: Option<String>,
    /// Whether a store that goes back is noticed before an id is issued: by a witness that sees the grants of all, or because this
    /// store cannot.
    pub is_proof: bool,
    /// What is wrong with the store now, and for how long.
    pub store_trouble: Option<Trouble>,
    /// What is wrong with the witness now.
    pub witness_trouble: Option<Trouble>,
    /// Why nothing is granted until a fence; `None` while all is well.
    pub behind: Option<String>,
    /// The identity that the store told last.
    pub identity: Option<String>,
    /// Whether the store itself remembers its identity ([`Identity::recorded`](super::store::Identity::recorded)).
    pub is_identity_recorded: bool,
    /// The name that runs out first at its present rate, and when.
    pub shortest: Option<(SequenceName, Duration)>,
    /// What became of the leftovers of an earlier life, if that is not what should.
    pub leftovers: Option<String>,
}

/// Something does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What it said last.
    pub why: String,
    /// Since when.
    pub lasts: Duration,
}
