//! A copy of this process, its memory and all: proven by a record that shows our token and a write that is not ours.
//!
//! # Invariants
//! - C1 a write of ours has an operation number up to `operation`, and each number is of one write;
//! - C2 after a proof this is another process: it holds nothing and has another token, so that no record proves the same
//!   again.

use xuid_spill::SpillId;

use super::Ownership;
use crate::registry::{MarkRecord, WorkerRecord};

impl Ownership {
    /// Whether a worker's record shows a write of a copy. Ours have operations up to `last`, and that one the end `end`.
    pub(super) fn is_of_copy(&self, found: &WorkerRecord, last: u64, end: u64) -> bool {
        let other_end = found.operation == last && found.reserved_until != end;
        found.token == self.identity.token && (found.operation > last || other_end)
    }

    /// Whether a mark shows a write of a copy: one with our token that raised the mark and is not known here. `known` is
    /// what the mark was when it was read last.
    pub(super) fn is_mark_of_copy(&self, spill: SpillId, known: u64, found: &MarkRecord) -> bool {
        let is_remembered = self.moving.as_ref() == Some(found)
            || self.grants.iter().any(|grant| grant.spill == spill && grant.record == *found);
        let is_known = found.granted_upto <= known && found.operation <= self.operation;
        found.token == self.identity.token && !is_remembered && !is_known
    }

    /// After a write that was certainly not stored: whether a copy of this process was faster. Ours have operations up to
    /// `last`.
    pub(super) fn look_for_copy(&mut self, worker: u32, last: u64) -> Option<String> {
        let found = self.registry.worker(worker).ok()?.record;
        // Of the last one the end is not known here.
        self.is_of_copy(&found, last, found.reserved_until).then(|| self.meet_copy())
    }

    /// There is a copy: what is held may be held by it, too. Says why.
    pub(super) fn meet_copy(&mut self) -> String {
        self.conflicts += 1;
        self.copies += 1;
        self.reset_identity();
        // Nothing is in doubt any more.
        self.unknown_theirs = self.unknown.saturating_sub(self.unknown_ours);
        "another process writes with this one's token: a copy of this machine runs".into()
    }
}
