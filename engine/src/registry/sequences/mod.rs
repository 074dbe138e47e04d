//! The port to the records of named sequences: one record a name, which only moves by compare-and-set.
//!
//! The records serve three purposes, and what each keeps in `value` only rises. Where the registry is the store of the
//! sequences, `value` is the mark: the first number that no process was granted. Where a database is the store, `value`
//! and `gaps` say which numbers were seen ([`SequenceRecord::gaps`]). The record of a batch of leftovers has a name that
//! begins with `@`, which no sequence's does, and `value` is the first serial that was not claimed.
//!
//! The port knows nothing of sequences: it only stores. `sequence/` does the reasoning.
//!
//! # Invariants an adaptor must keep
//! - I1 a change is stored if, and only if, the record still has the expected version, or is absent where none is
//!   expected; each success raises the version;
//! - I2 when a change is answered with `Ok`, the record is as durable as it will ever be;
//! - I3 any failure after which the record might have been stored is [`SwapError::Unknown`], never
//!   [`SwapError::Conflict`];
//! - I4 a record that is there and cannot be read is [`ReadError::Damaged`], never [`ReadError::Absent`]: absent says for
//!   certain that the name never had a record;
//! - I5 answers come in the order of the questions, one each;
//! - I6 after a fence no record of a name's mark is made below what a person said ([`NewNames::least`]): the name may have been
//!   made since what was put back was copied.

#[cfg(any(test, feature = "test-util"))]
pub mod memory;
mod on_demand;

pub use self::on_demand::OnDemand;
use super::{ClusterId, ReadError, SwapError, Versioned};
use crate::sys::guards::Guard;

/// Gaps that a record has room for.
pub const MOST_GAPS: usize = 8;

/// Changes of one call at most: an adaptor makes all of them durable together.
pub const MOST_CHANGES: usize = 64;

/// The record of a name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SequenceRecord {
    /// The mark, the first number above all that were seen, or the first serial that was not claimed.
    pub value: u64,
    /// Ranges `(first, end)` below `value` of numbers that were not seen, ascending, apart from each other, at most
    /// [`MOST_GAPS`]. Empty where the registry is the store.
    pub gaps: Vec<(u64, u64)>,
    /// The highest number that may be issued. 0 where a database is the store, as in the rest of these; and 1 where a fence
    /// closed such a record and a person opened it, until the next grant is shown.
    pub last: u64,
    /// The least that is granted at once.
    pub step: u64,
    /// The distance between two numbers.
    pub increment: u32,
    /// What every number leaves when it is divided by `increment`.
    pub remainder: u32,
    /// Whether each request goes to the store.
    pub strict: bool,
}

/// What a record that is made may begin at: a mark where a fence left it. What a witness saw, and what leftovers are, begins
/// as it is.
pub(in crate::registry) fn check_begin(record: &SequenceRecord, least: u64) -> Result<(), SwapError> {
    let is_mark = record.step > 0;
    if is_mark && record.value < least && Guard::NewNamesAbove.holds() {
        Err(SwapError::TooLow { least })
    } else {
        Ok(())
    }
}

/// What `last` says of a witness's record that was opened after a fence.
const OPENED: u64 = 1;

impl SequenceRecord {
    /// What it is when a person opens it, who says that nothing from `least` on was granted.
    pub(in crate::registry) fn opened(self, least: u64) -> Self {
        // What was seen above the mark that a registry lost is not known, so nothing below it is unseen.
        Self {
            value: self.value.max(least),
            gaps: Vec::new(),
            last: if self.step == 0 { OPENED } else { self.last },
            ..self
        }
    }

    /// Whether nothing was shown to it since a person opened it: how much was seen above its mark is not known.
    pub(crate) fn was_opened(&self) -> bool {
        (self.step, self.last) == (0, OPENED)
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct SequenceChange<'a> {
    /// Whose record.
    pub name: &'a str,
    /// The version that it must have; `None` if there must be no record yet.
    pub expected: Option<u64>,
    /// What it is to be.
    pub record: SequenceRecord,
}

/// What a fence left of making names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NewNames {
    /// None can be made.
    pub are_closed: bool,
    /// The least that the mark of a new one may begin at; 0 where no fence said one. It counts where the registry is the store.
    pub least: u64,
}

/// A row of [`SequenceRecords::list`]: a name, and its record or why it cannot be had.
pub type SequenceEntry = (String, Result<Versioned<SequenceRecord>, ReadError>);

/// The port. One thread calls it at a time; another process may work on the same records at any moment.
pub trait SequenceRecords: Send {
    /// For logs and people: `local /srv/xuid-data`. It begins with the kind of registry, in a word.
    fn describe(&self) -> String;

    /// Whose records they are.
    fn cluster(&self) -> ClusterId;

    /// Appends the record of each name to `out`.
    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>);

    /// Tries each of at most [`MOST_CHANGES`] changes, of different names, and appends what became of it to `out`. They
    /// stand and fall alone.
    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>);

    /// The first `limit` names after `after`, in the order of their bytes, that begin with `prefix` and not with `@`.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] or [`ReadError::Foreign`].
    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError>;

    /// The number of this opening's seat in its data folder, which no other opening has while this one lives; `None`
    /// without a folder.
    fn seat(&self) -> Option<u32> {
        None
    }

    /// What a record says that a fence closed ([`ReadError::Closed`]).
    ///
    /// # Errors
    /// [`ReadError::Absent`] if there is none of that name that is closed.
    fn closed_record(&mut self, name: &str) -> Result<SequenceRecord, ReadError> {
        Err(ReadError::Absent { what: format!("a closed record of the sequence '{name}'") })
    }

    /// Raises a record to `least`, if it is below, and opens it if a fence closed it. Where a fence closed the records to
    /// new names, or lost a name, it makes the record of a name that is not there. Only for a person who says that
    /// nothing from `least` on was granted.
    ///
    /// # Errors
    /// [`SwapError`].
    fn reopen(&mut self, name: &str, least: u64) -> Result<(), SwapError> {
        let why = format!("{least} cannot be told to the sequence '{name}' here");
        Err(SwapError::Unavailable { why })
    }

    /// What a fence left of making names.
    ///
    /// # Errors
    /// [`ReadError`].
    fn new_names(&mut self) -> Result<NewNames, ReadError> {
        Ok(NewNames::default())
    }

    /// Lets names be made again after a fence, with marks that begin at `least` or above, if [`new_names`](Self::new_names) still
    /// says what was `seen`, or this already. Only for a person who says that no other name that was there came further.
    ///
    /// # Errors
    /// [`SwapError::Conflict`] if it says something else, and the others, among them one while a record's name is lost.
    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), SwapError> {
        let _ = seen;
        let why = format!("that new names begin at {least} cannot be told here");
        if least == 0 { Ok(()) } else { Err(SwapError::Unavailable { why }) }
    }

    /// Called about once a second while there is nothing else to do.
    fn maintain(&mut self) {}

    /// It is not needed for long: what it can open again may be closed until then.
    fn put_away(&mut self) {}

    /// Leaves cleanly. Best effort, bounded in time.
    fn close(&mut self) {}
}

/// For tests: as a fence does, which reads first what is said.
#[cfg(test)]
#[cfg(not(loom))]
pub(in crate::registry) fn allow_new(records: &mut dyn SequenceRecords, least: u64) -> Result<(), SwapError> {
    let seen = records.new_names()?;
    records.allow_new(seen, least)
}

/// No sequence has this name: its record is read to see whether a registry answers.
pub(crate) const NO_SEQUENCE: &str = "@";

/// Whether a registry answers when it is asked for the record of a name; else why it does not.
pub(crate) fn answers(records: &mut dyn SequenceRecords, name: &str) -> Result<(), String> {
    let mut found = Vec::with_capacity(1);
    records.read(&[name], &mut found);
    match found.pop() {
        Some(Err(ReadError::Unavailable { why } | ReadError::Foreign { why })) => Err(why),
        _ => Ok(()),
    }
}
