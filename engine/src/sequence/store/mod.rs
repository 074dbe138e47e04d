//! The port to a store: what keeps, for each name, the first number that no process was granted.
//!
//! One thread calls a store, the teller. A store knows nothing of segments, witnesses or callers: it moves marks and says
//! what it did.
//!
//! Marks are told in one form whatever the store keeps: the **mark** is the first number that was not granted. A grant
//! is a range `first .. end` of a mark before and after, and its ids are the numbers of the range that leave `remainder`
//! when they are divided by `increment`. A store whose column is inclusive adds one.
//!
//! # Invariants a store must keep
//! - S1 a mark only rises, by one atomic change, and [`Outcome::Granted`] is said only after that change is durable;
//! - S2 `first` and `end` are what that very change replaced and stored, never what an earlier read or a remembered step
//!   suggests;
//! - S3 a failure after which the change might have been stored, or may yet be, is [`Outcome::Unknown`] for all names
//!   that it might concern, never [`Outcome::Away`];
//! - S4 outcomes come in the order of the asks, one each, and are matched by name and not by the position of a reply;
//! - S5 the identity is read in the very transaction that it is told with;
//! - S6 each call ends within some seconds, whatever the store's network does;
//! - S7 no row is made but by `create`, and none is ever deleted.

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod database;
mod fence;
#[cfg(any(test, feature = "test-util"))]
pub mod memory;
pub mod registry;

pub use fence::{Fence, Fenced, fence, fence_all};

use crate::clock::{SECOND, boot_ns};
use crate::registry::sequences::NewNames;
use crate::sequence::name::SequenceName;

/// Names of one call of [`Store::grant`] at most.
pub const MOST_ASKS: usize = 64;

/// The highest number that a sequence can issue.
pub const HIGHEST: u64 = (1 << 63) - 1;

/// The most ids that one grant is asked for. A row's step above it counts as this.
pub const MOST_STEP: u64 = 1 << 32;

/// What a sequence was made with, and what of it can be altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSettings {
    /// The least number of ids that is granted at once; 1 to [`MOST_STEP`].
    pub step: u64,
    /// The distance between two numbers, at least 1.
    pub increment: u32,
    /// What every number leaves when it is divided by `increment`; below it.
    pub remainder: u32,
    /// The highest number that may be issued, at most [`HIGHEST`].
    pub last: u64,
    /// Whether each request goes to the store, so that ids ascend over all nodes.
    pub strict: bool,
}

impl Default for SequenceSettings {
    fn default() -> Self {
        Self { step: 1_000, increment: 1, remainder: 0, last: HIGHEST, strict: false }
    }
}

/// One row of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub name: SequenceName,
    /// The mark: the first number that was not granted.
    pub next: u64,
    /// The rest.
    pub settings: SequenceSettings,
    /// For people.
    pub description: Option<String>,
}

/// What a sequence is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSequence {
    /// The mark to begin with. The first id is the first number from there on that fits the remainder. Defaults to 1.
    pub start: u64,
    /// The rest.
    pub settings: SequenceSettings,
    /// For people; at most 256 bytes.
    pub description: Option<String>,
}

impl Default for NewSequence {
    fn default() -> Self {
        Self { start: 1, settings: SequenceSettings::default(), description: None }
    }
}

/// Another end of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewLast {
    /// This one, which is not below the present one.
    At(u64),
    /// The number before the mark: nothing is granted any more.
    Retired,
}

/// What of a sequence is to be altered.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Alteration {
    /// Another step.
    pub step: Option<u64>,
    /// Another end.
    pub last: Option<NewLast>,
    /// Another description.
    pub description: Option<String>,
}

/// One name's part of a request for grants.
///
/// A row that is not strict is granted `count` ids or its own step, whichever is more. A strict row is granted `least`.
/// Where `last` comes before that, the grant ends there, and so does the mark: at `last + 1`, or as near to it as its
/// column can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// For which name; each occurs once in a call.
    pub name: SequenceName,
    /// How many ids are wanted, at most [`MOST_STEP`].
    pub count: u64,
    /// How many callers are waiting for, at least 1 and at most `count`.
    pub least: u64,
    /// Nothing is granted of a row whose mark lies below this, and it does not move: the store went back, and a mark that moves on
    /// would hide that. 0 where that does not matter. A store that cannot go back need not look at it.
    pub floor: u64,
}

/// What became of an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The mark moved from `first` to `end`, durably (S1, S2).
    Granted {
        /// The mark before.
        first: u64,
        /// The mark after.
        end: u64,
        /// The row's settings, read with the grant.
        settings: SequenceSettings,
    },
    /// There is no such row. [`Store::read`] tells of one that is spelt alike.
    Absent,
    /// The mark lies below the ask's floor. Nothing moved.
    Behind {
        /// The mark.
        next: u64,
    },
    /// No number up to `last` is left. Nothing moved.
    Exhausted {
        /// The row's settings.
        settings: SequenceSettings,
    },
    /// The row is there and cannot be used. Nothing moved.
    Refused {
        /// Why.
        why: String,
    },
    /// Whether the mark moved is not known, and it may move yet (S3).
    Unknown {
        /// What happened.
        why: String,
    },
    /// The store was not reached. Nothing moved.
    Away {
        /// What happened.
        why: String,
    },
}

/// Which database answered.
///
/// A promoted replica, a restored dump and another host have other identities as far as databases tell. Two stores of
/// one identity may still be at odds: only a witness is proof.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// What the database says that it is.
    pub current: String,
    /// What is written in the database as its identity, by the command that prepared it or the one that fenced it. It
    /// is copied with the database, so in a copy it differs from `current`. `None` where nothing is written.
    pub recorded: Option<String>,
    /// When the store was fenced last, in any words that each fence changes; a number, if it rises with each fence, whichever
    /// host was fenced. `None` where it never was, or that is not known: names that wait for a fence are then gone on with by
    /// [`accept_identity`](crate::sequence::Sequences::accept_identity) alone.
    pub fenced: Option<String>,
}

/// Why a call other than [`Store::grant`] failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such row.
    #[error("there is no such sequence{}", similar.as_ref().map(|found| format!("; there is '{found}'")).unwrap_or_default())]
    Absent {
        /// A row whose name differs in case or spaces only, if the store takes the two for one.
        similar: Option<String>,
    },
    /// There is such a row already.
    #[error("there is such a sequence already")]
    Exists(Box<Row>),
    /// A fence closed the row, or the store to new ones: more may have been granted than is known. Nothing changed.
    #[error("{why}")]
    Closed {
        /// What was closed, and what to do.
        why: String,
    },
    /// The store cannot do it, as it is set up.
    #[error("{why}")]
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// Nothing changed, and it may be tried again.
    #[error("the store cannot be reached: {why}")]
    Away {
        /// What happened.
        why: String,
    },
    /// Whether something changed is not known.
    #[error("nobody knows whether the store made the change: {why}")]
    Unknown {
        /// What happened.
        why: String,
    },
}

/// Refuses a name whose numbers would all lie below where a fence said that new ones begin.
fn check_last(settings: &SequenceSettings, least: u64) -> Result<(), StoreError> {
    if least <= settings.last {
        return Ok(());
    }
    let why = format!(
        "since a fence, new names begin at {least} here, which is above the last number, {}: say a higher one, or, if no sequence is \
         missing, `xuid sequence fence` with `--new-start 1 --lower-new-start` (in a database: without the row '@new')",
        settings.last
    );
    Err(StoreError::Refused { why })
}

/// How long rows are made in one call, if each takes long.
const MOST_CREATING: u64 = 3 * SECOND;

/// The port.
pub trait Store: Send {
    /// For logs and people, without a password: `postgres app@db1,db2/ids`.
    fn describe(&self) -> String;

    /// What stays the same over a fail-over: of which kind it is, and where in it the rows lie. What a process left of
    /// another place are numbers of other sequences, whatever their names are.
    fn place(&self) -> String {
        String::new()
    }

    /// Whether marks can go back under us, as a database's can that loses commits, is restored, or has several primaries.
    /// The registry's cannot: it is fenced.
    fn may_go_back(&self) -> bool;

    /// Which store this is.
    ///
    /// # Errors
    /// [`StoreError::Away`] or [`StoreError::Refused`].
    fn identity(&mut self) -> Result<Identity, StoreError>;

    /// Asks for at most [`MOST_ASKS`] grants of different names, and appends one outcome each to `out`. Returns which
    /// store granted them; `None` if none did.
    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity>;

    /// One row.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError>;

    /// The first `limit` rows after `after`, in the order of their names' bytes, whose names begin with `prefix`. Rows
    /// whose names are none ([`SequenceName`]) are left out.
    ///
    /// # Errors
    /// [`StoreError`].
    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// The first row that [`list`](Self::list) passes over, as it cannot be used as it is, and why.
    ///
    /// # Errors
    /// As of `list`.
    fn unusable(&mut self) -> Result<Option<(SequenceName, String)>, StoreError> {
        Ok(None)
    }

    /// Makes a row that was never there.
    ///
    /// # Errors
    /// [`StoreError::Exists`] with the row that is there, and the others.
    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError>;

    /// Makes rows as [`create`](Self::create) does, at most [`MOST_ASKS`] of different names; one answer each, in their
    /// order. They stand and fall alone.
    fn create_all(&mut self, rows: &[(SequenceName, NewSequence)]) -> Vec<Result<Row, StoreError>> {
        let (begun, mut silence) = (boot_ns(), None);
        let mut create = |(name, new): &(SequenceName, NewSequence)| {
            // Each would wait for a store that hangs, or for what another program has locked.
            if boot_ns().saturating_sub(begun) >= MOST_CREATING {
                silence.get_or_insert_with(|| "others took too long".to_owned());
            }
            if let Some(why) = &silence {
                return Err(StoreError::Away { why: format!("it was not asked: {why}") });
            }
            let made = self.create(name, new);
            if let Err(StoreError::Away { why } | StoreError::Unknown { why }) = &made {
                silence = self.was_silent().then(|| why.clone());
            }
            made
        };
        rows.iter().map(&mut create).collect()
    }

    /// Alters a row, in one change; what the row says afterwards.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if `last` would fall, and the others.
    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError>;

    /// Raises a mark to `least`, if it is below; what the row says afterwards. Always safe.
    ///
    /// # Errors
    /// [`StoreError`].
    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError>;

    /// The same for a process that was granted what lies below: a row that a fence closed stays closed.
    ///
    /// # Errors
    /// [`StoreError`].
    fn raise_open(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.raise(name, least)
    }

    /// Whether the last question that failed got no answer at all. A store that said why it failed, since another program has a row
    /// locked, say, answers others meanwhile; one that hangs is asked one question a second.
    fn was_silent(&self) -> bool {
        true
    }

    /// Whether the last grants failed only because other processes were quicker, again and again: it answers, and is not away.
    fn was_contended(&self) -> bool {
        false
    }

    /// What a fence left of making names, where the store is a registry. A database makes them as ever.
    ///
    /// # Errors
    /// [`StoreError`].
    fn new_names(&mut self) -> Result<NewNames, StoreError> {
        Ok(NewNames::default())
    }

    /// Lets names be made again after a fence, with marks that begin at `least` or above, after all marks were raised. In a
    /// registry only if it says as much as was `seen`, or this already; in a database also above what it said before. What was made
    /// meanwhile, and begins lower, is in each [`list`](Self::list) behind it.
    ///
    /// # Errors
    /// [`StoreError`], among others while a record's name is lost.
    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), StoreError> {
        let _ = seen;
        let why = format!("that new names begin at {least} cannot be told to this store");
        if least == 0 { Ok(()) } else { Err(StoreError::Refused { why }) }
    }

    /// Writes the store's present identity into it ([`Identity::recorded`]), after all marks were raised.
    ///
    /// # Errors
    /// [`StoreError`].
    fn record_identity(&mut self) -> Result<Identity, StoreError>;

    /// The same, and the fence is told of as later than this one, which a node remembers, also where a clock was ahead then
    /// ([`Identity::fenced`]). A store that tells no times has nothing else to do.
    ///
    /// # Errors
    /// [`StoreError`].
    fn record_identity_after(&mut self, fenced: &str) -> Result<Identity, StoreError> {
        let _ = fenced;
        self.record_identity()
    }

    /// Called about once a second while there is nothing else to do.
    fn maintain(&mut self) {}
}
