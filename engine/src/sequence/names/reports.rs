//! What is told of all names, and of one.

use std::time::Duration;

use super::hub::Hub;
use super::named::Named;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::{NameFigures, NameState, SequencesStats, StoreStatus, Trouble};
use crate::sequence::name::SequenceName;
use crate::sys::atomics::lock;

impl Hub {
    /// What a call is told whose time is over.
    pub(crate) fn refusal(&self, boot: u64) -> SequenceError {
        let tally = lock(&self.tally);
        let again = Duration::from_nanos(tally.retry_at.saturating_sub(boot)).max(Duration::from_millis(1));
        if tally.status.behind.is_some() {
            SequenceError::store_behind(Duration::from_secs(1))
        } else if tally.store_since.is_some() || tally.witness_since.is_some() {
            SequenceError::store_away(again)
        } else {
            SequenceError::overloaded(Duration::from_millis(100))
        }
    }

    /// Why calls are refused at once, if they are: the store waits for a fence.
    pub(crate) fn is_behind(&self) -> bool {
        lock(&self.tally).status.behind.is_some()
    }

    /// What is wrong with all names, if something is.
    pub(crate) fn trouble(&self) -> Option<NameState> {
        let tally = lock(&self.tally);
        if tally.status.behind.is_some() {
            Some(NameState::Behind)
        } else if tally.store_since.is_some() || tally.witness_since.is_some() {
            Some(NameState::Away)
        } else {
            None
        }
    }

    /// All counters.
    pub(crate) fn stats(&self) -> SequencesStats {
        if self.forked() {
            return SequencesStats::default();
        }
        // Before the tally, which others take with a name locked: no lock of the table is taken under it.
        let (figures, names) = (self.names.totals(), self.names.len());
        let tally = lock(&self.tally);
        SequencesStats {
            figures,
            grants: tally.grants,
            store: tally.store,
            witness: tally.witness,
            identity_changes: tally.identity_changes,
            names,
            holding: tally.holding,
            waiting: self.waiting(),
            refused: self.refused.value(),
            panics: self.panics.value(),
        }
    }

    /// One name's figures, if it is in the table.
    pub(crate) fn figures(&self, name: &SequenceName) -> Option<NameFigures> {
        if self.forked() {
            return None;
        }
        self.names.find(name).map(|named| self.figures_of(&named))
    }

    pub(crate) fn figures_of(&self, named: &Named) -> NameFigures {
        if self.forked() {
            return NameFigures::default();
        }
        let (boot, trouble) = (self.clock.read().boot, self.trouble());
        named.figures(&named.lock(), boot, trouble)
    }

    /// The names with the highest rates.
    pub(crate) fn busiest(&self, most: usize) -> Vec<(SequenceName, NameFigures)> {
        if self.forked() {
            return Vec::new();
        }
        let (boot, trouble) = (self.clock.read().boot, self.trouble());
        let mut busiest: Vec<(SequenceName, NameFigures)> = Vec::new();
        let cut = |busiest: &mut Vec<(SequenceName, NameFigures)>| {
            busiest.sort_by(|(_, left), (_, right)| right.rate.total_cmp(&left.rate));
            busiest.truncate(most);
        };
        // Never all at once: of a hundred thousand names they are more than what is kept of those that are idle.
        let room = most.saturating_mul(2).max(1_024);
        self.names.each(|named| {
            if busiest.len() >= room {
                cut(&mut busiest);
            }
            busiest.push((named.name.clone(), named.figures(&named.lock(), boot, trouble)));
        });
        cut(&mut busiest);
        busiest.sort_by(|(left, _), (right, _)| left.cmp(right));
        busiest
    }

    pub(crate) fn status(&self) -> StoreStatus {
        if self.forked() {
            return StoreStatus::default();
        }
        let boot = self.clock.read().boot;
        let tally = lock(&self.tally);
        let mut status = tally.status.clone();
        for (trouble, since) in [
            (&mut status.store_trouble, tally.store_since),
            (&mut status.witness_trouble, tally.witness_since),
        ] {
            if let (Some(Trouble { lasts, .. }), Some(since)) = (trouble, since) {
                *lasts = Duration::from_nanos(boot.saturating_sub(since));
            }
        }
        status
    }
}
