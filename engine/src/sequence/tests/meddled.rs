//! A database of which a test says what comes before its answers.

use std::sync::Arc;
use std::time::Duration;

use super::SteppedClock;
use crate::sequence::SequenceName;
use crate::sequence::store::memory::MemoryStore;
use crate::sequence::store::{Alteration, Ask, Identity, NewSequence, Outcome, Row, Store, StoreError};

/// What it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Create,
    Identity,
    Grant,
    List,
    Raise,
    Read,
    Record,
}

/// A database that does what it is asked unless `meddle` has another answer.
pub(super) struct MeddledStore<F> {
    pub(super) inner: MemoryStore,
    pub(super) meddle: F,
    /// It says why it fails.
    pub(super) says_why: bool,
}

/// One that takes so long over such a question.
pub(super) fn slow(
    inner: MemoryStore,
    clock: &Arc<SteppedClock>,
    over: Asked,
    time: Duration,
) -> MeddledStore<impl FnMut(Asked) -> Result<(), StoreError> + Send + use<>> {
    let clock = clock.clone();
    let meddle = move |asked| {
        if asked == over {
            clock.pass(time);
        }
        Ok(())
    };
    MeddledStore { inner, meddle, says_why: true }
}

impl<F: FnMut(Asked) -> Result<(), StoreError> + Send> Store for MeddledStore<F> {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn may_go_back(&self) -> bool {
        true
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        (self.meddle)(Asked::Identity)?;
        self.inner.identity()
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        if let Err(error) = (self.meddle)(Asked::Grant) {
            out.extend(asks.iter().map(|_| Outcome::Away { why: error.to_string() }));
            return None;
        }
        self.inner.grant(asks, out)
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        (self.meddle)(Asked::Read)?;
        self.inner.read(name)
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        (self.meddle)(Asked::List)?;
        self.inner.list(prefix, after, limit)
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        (self.meddle)(Asked::Create)?;
        self.inner.create(name, new)
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.inner.alter(name, alteration)
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        (self.meddle)(Asked::Raise)?;
        self.inner.raise(name, least)
    }

    fn was_silent(&self) -> bool {
        !self.says_why
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        (self.meddle)(Asked::Record)?;
        self.inner.record_identity()
    }
}
