//! One sequence.

use std::time::Duration;

use super::handle::SequenceHandle;
use super::pending::PendingNumbers;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::NameFigures;
use crate::sequence::name::SequenceName;
use crate::sequence::numbers::{Demand, Numbers};

/// The sequence of a name. Cheap to clone; shared by any number of threads.
#[derive(Clone)]
pub struct Sequence {}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").finish_non_exhaustive()
    }
}

impl Sequence {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &SequenceName {
        todo!()
    }

    /// The next id in no promised order: out of a run of the thread's own, which is the fastest. Waits up to the
    /// builder's `wait` where none is held. A sequence with an increment above 1, and a strict one, answer as
    /// [`next_ordered`](Self::next_ordered).
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn next_id(&self) -> Result<u64, SequenceError> {
        todo!()
    }

    /// The next id, greater than every one that an ordered call of this process got before this call began. Of a strict
    /// sequence: than every one that any process got before.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn next_ordered(&self) -> Result<u64, SequenceError> {
        todo!()
    }

    /// As [`next_ordered`](Self::next_ordered), without ever waiting; what is missing is asked for.
    ///
    /// # Errors
    /// [`SequenceError`], with the time to come back.
    pub fn try_next_ordered(&self) -> Result<u64, SequenceError> {
        todo!()
    }

    /// `count` consecutive numbers, ordered: [`Demand::contiguous`].
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn take(&self, count: u32) -> Result<Numbers, SequenceError> {
        todo!()
    }

    /// As many ids as demanded, ascending; waits up to the builder's `wait`.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn runs(&self, demand: Demand) -> Result<Vec<Numbers>, SequenceError> {
        todo!()
    }

    /// Appends as many ids as demanded to `out`, ascending, or nothing. Never waits; what is missing is asked for.
    ///
    /// # Errors
    /// [`SequenceError`], with the time to come back.
    pub fn try_runs(&self, demand: Demand, out: &mut Vec<Numbers>) -> Result<(), SequenceError> {
        todo!()
    }

    /// As many ids as demanded within `wait`, or none, as a future that needs no runtime.
    pub fn request(&self, demand: Demand, wait: Duration) -> PendingNumbers {
        todo!()
    }

    /// A generator owned by one thread, of ids in no promised order: faster still, since it has no thread-local to look
    /// up.
    ///
    /// # Panics
    /// If the process may not map another page.
    #[must_use]
    pub fn handle(&self) -> SequenceHandle {
        todo!()
    }

    /// Its figures at this process, without asking the store.
    #[must_use]
    pub fn figures(&self) -> NameFigures {
        todo!()
    }
}
