//! All sequences of a store.

use std::sync::Arc;

use super::sequence::Sequence;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::{NameFigures, SequenceInfo, SequencesStats, StoreStatus};
use crate::sequence::name::SequenceName;
use crate::sequence::names::control::Control;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::reply::Reply;
use crate::sequence::names::threads;
use crate::sequence::names::untold::UntoldNames;
use crate::sequence::store::{Alteration, NewSequence};
use crate::sys::deferred_log;

/// Named sequences on a store. Cheap to clone; shared by any number of threads.
///
/// The last clone that is dropped stops it cleanly, as [`shutdown`](Self::shutdown) does. A [`Sequence`] does not keep it
/// alive.
#[derive(Clone)]
pub struct Sequences {
    hub: Arc<Hub>,
    inner: Arc<Inner>,
}

/// The threads behind sequences, stopped with the last clone.
struct Inner {
    hub: Arc<Hub>,
}

impl Inner {
    fn shutdown(&self) {
        // In a forked child there are no threads to stop, and the store's connection is the parent's.
        if self.hub.forked() {
            return;
        }
        self.hub.close();
        // Our own threads run strangers' code, too: wakers, and subscribers of the log.
        if self.hub.teller.is_current() || self.hub.keeper.is_current() {
            return;
        }
        // Here, and not by the teller alone: a database may keep that for seconds.
        self.hub.end_waiting();
        if self.hub.forked() {
            return;
        }
        for _ in 0..self.hub.threads.end() {
            deferred_log::log(|| tracing::error!("a thread of the sequences had panicked"));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequences").finish_non_exhaustive()
    }
}

impl Sequences {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let inner = Arc::new(Inner { hub: hub.clone() });
        Self { hub, inner }
    }

    /// The sequence of a name. The store is not asked: a name that it does not have is refused when ids are asked for.
    /// A caller keeps what it gets, since this looks into a table.
    ///
    /// # Errors
    /// [`SequenceError`] after a stop and in a forked child.
    pub fn sequence(&self, name: &SequenceName) -> Result<Sequence, SequenceError> {
        Ok(Sequence::new(self.hub.clone(), self.hub.named(name, None)?))
    }

    /// The same for a stranger, who may bring up so many names of which the store has told nothing. All of them together may bring up
    /// 131,072.
    ///
    /// # Errors
    /// As of [`sequence`](Self::sequence), and [`Overloaded`](crate::sequence::SequenceErrorKind::Overloaded) where there are too many.
    pub fn sequence_within(
        &self,
        name: &SequenceName,
        names: &UntoldNames,
    ) -> Result<Sequence, SequenceError> {
        Ok(Sequence::new(self.hub.clone(), self.hub.named(name, Some(names))?))
    }

    /// A sequence as the store and this process know it.
    pub fn info(&self, name: &SequenceName) -> Reply<SequenceInfo> {
        self.hub.ask(|question| Control::Info(name.clone(), question))
    }

    /// The first `limit` sequences after `after`, in the order of their names' bytes, that begin with `prefix`. At most
    /// 1,000.
    pub fn list(&self, prefix: &str, after: &str, limit: usize) -> Reply<Vec<SequenceInfo>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.hub.ask(|question| Control::List { prefix, after, limit, question })
    }

    /// Makes a sequence. One that is there with the same settings is a success, too.
    pub fn create(&self, name: &SequenceName, new: NewSequence) -> Reply<SequenceInfo> {
        self.hub.ask(|question| Control::Create(name.clone(), new, question))
    }

    /// Alters a sequence.
    pub fn alter(&self, name: &SequenceName, alteration: Alteration) -> Reply<SequenceInfo> {
        self.hub.ask(|question| Control::Alter(name.clone(), alteration, question))
    }

    /// Raises a sequence's mark to `least`, if it is below: no number below is granted from then on. What processes hold
    /// is used up. A sequence that a fence closed stays closed, and one that is not there is not made.
    pub fn raise(&self, name: &SequenceName, least: u64) -> Reply<SequenceInfo> {
        self.hub.ask(|question| Control::Raise(name.clone(), least, question))
    }

    /// The store may be gone on with although it is another one: whoever asks for this raised its marks
    /// beyond everything that was ever granted. What follows a `fence`.
    pub fn accept_identity(&self) -> Reply<()> {
        self.hub.ask(Control::AcceptIdentity)
    }

    /// Counters; all zero in a forked child, whose parent has them.
    #[must_use]
    pub fn stats(&self) -> SequencesStats {
        self.hub.stats()
    }

    /// The figures of one name, without asking the store; `None` if no call of this process asked for the name.
    #[must_use]
    pub fn figures(&self, name: &SequenceName) -> Option<NameFigures> {
        self.hub.figures(name)
    }

    /// The figures of the `most` names with the highest rates, in the order of their names. It looks at every name.
    #[must_use]
    pub fn busiest(&self, most: usize) -> Vec<(SequenceName, NameFigures)> {
        self.hub.busiest(most)
    }

    /// How it stands with store and witness.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        self.hub.status()
    }

    /// Counts what this thread took out of its own runs so far. A thread that stops calling and lives on calls this where
    /// figures shall be exact without waiting for its end.
    pub fn publish(&self) {
        threads::publish(&self.hub);
    }

    /// The clean stop: refuses every caller, and saves what is held for the next life. Blocks until that is done;
    /// further calls do nothing. Dropping the last clone does the same.
    #[expect(
        clippy::must_use_candidate,
        reason = "it is called for its effect; the figures are a by-product"
    )]
    pub fn shutdown(&self) -> SequencesStats {
        self.inner.shutdown();
        self.publish();
        self.stats()
    }
}

#[cfg(test)]
impl Sequences {
    /// Whether the two threads were started.
    pub(crate) fn has_begun_for_test(&self) -> bool {
        self.hub.threads.has_begun()
    }

    /// Both threads look at the clock.
    pub(crate) fn wake_for_test(&self) {
        self.hub.keeper.wake();
        self.hub.teller.wake();
    }

    /// The calling thread looks at the clock.
    pub(crate) fn look_for_test(&self) {
        self.hub.now();
    }
}
