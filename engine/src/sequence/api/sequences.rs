//! All sequences of a store.

use super::sequence::Sequence;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::{NameFigures, SequenceInfo, SequencesStats, StoreStatus};
use crate::sequence::name::SequenceName;
use crate::sequence::reply::Reply;
use crate::sequence::store::{Alteration, NewSequence};

/// Named sequences on a store. Cheap to clone; shared by any number of threads.
///
/// The last clone that is dropped stops it cleanly, as [`shutdown`](Self::shutdown) does. A [`Sequence`] does not keep it
/// alive.
#[derive(Clone)]
pub struct Sequences {}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequences").finish_non_exhaustive()
    }
}

impl Sequences {
    /// The sequence of a name. The store is not asked: a name that it does not have is refused when ids are asked for.
    /// A caller keeps what it gets, since this looks into a table.
    ///
    /// # Errors
    /// [`SequenceError`] after a stop and in a forked child.
    pub fn sequence(&self, name: &SequenceName) -> Result<Sequence, SequenceError> {
        todo!()
    }

    /// A sequence as the store and this process know it.
    pub fn info(&self, name: &SequenceName) -> Reply<SequenceInfo> {
        todo!()
    }

    /// The first `limit` sequences after `after`, in the order of their names' bytes, that begin with `prefix`. At most
    /// 1,000.
    pub fn list(&self, prefix: &str, after: &str, limit: usize) -> Reply<Vec<SequenceInfo>> {
        todo!()
    }

    /// Makes a sequence. One that is there with the same settings is a success, too.
    pub fn create(&self, name: &SequenceName, new: NewSequence) -> Reply<SequenceInfo> {
        todo!()
    }

    /// Alters a sequence.
    pub fn alter(&self, name: &SequenceName, alteration: Alteration) -> Reply<SequenceInfo> {
        todo!()
    }

    /// Raises a sequence's mark to `least`, if it is below: no number below is granted from then on. What processes hold
    /// is used up.
    pub fn raise(&self, name: &SequenceName, least: u64) -> Reply<SequenceInfo> {
        todo!()
    }

    /// The store may be gone on with although it is another one: whoever asks for this raised its marks
    /// beyond everything that was ever granted. What follows a `fence`.
    pub fn accept_identity(&self) -> Reply<()> {
        todo!()
    }

    /// Counters; all zero in a forked child, whose parent has them.
    #[must_use]
    pub fn stats(&self) -> SequencesStats {
        todo!()
    }

    /// The figures of one name, without asking the store; `None` if no call of this process asked for the name.
    #[must_use]
    pub fn figures(&self, name: &SequenceName) -> Option<NameFigures> {
        todo!()
    }

    /// The figures of the `most` names with the highest rates, in the order of their names. It looks at every name.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<(SequenceName, NameFigures)> {
        todo!()
    }

    /// How it stands with store and witness.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        todo!()
    }

    /// Counts what this thread took out of its own runs so far. A thread that stops calling and lives on calls this where
    /// figures shall be exact without waiting for its end.
    pub fn publish(&self) {
        todo!()
    }

    /// The clean stop: refuses every caller, and saves what is held for the next life. Blocks until that is done;
    /// further calls do nothing. Dropping the last clone does the same.
    #[expect(
        clippy::must_use_candidate,
        reason = "it is called for its effect; the figures are a by-product"
    )]
    pub fn shutdown(&self) -> SequencesStats {
        todo!()
    }
}
