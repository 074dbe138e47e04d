//! A copy of this process, its memory and all: proven by a record that shows our token and a write that is not ours.
//!
//! # Invariants
//! - C1 each operation number is of one write, and those of a worker with our token are remembered as far as they can
//!   tell: the last one, and the one before it;
//! - C2 of a worker that is held, all writes of ours that may come after the last stored one are remembered in doubt, or it
//!   is remembered that some were forgotten, and the same goes for marks;
//! - C3 after a proof this is another process: it holds nothing and has another token, so that no record proves the same
//!   again.

use xuid_spill::SpillId;

use super::{Hold, Ownership, Writes};
use crate::registry::{MarkRecord, Versioned, WorkerEntry, WorkerRecord};

impl Ownership {
    /// Whether a worker's record shows a write of a copy after the last one of ours, of whatever outcome.
    fn is_after_all_of_ours(&self, worker: u32, found: &WorkerRecord) -> bool {
        found.token == self.identity.token && found.operation > self.writes_of(worker).last
    }

    /// Whether it shows a write of a copy where the last one of ours, up to `end`, is in doubt.
    pub(super) fn is_of_copy(&self, worker: u32, found: &WorkerRecord, end: u64) -> bool {
        let Writes { before, last } = self.writes_of(worker);
        let is_last = (found.operation, found.reserved_until) == (last, end);
        found.token == self.identity.token && found.operation > before && !is_last
    }

    fn writes_of(&self, worker: u32) -> Writes {
        self.writes.get(&worker).copied().unwrap_or_default()
    }

    /// Whether the record of a worker that is held shows a write of a copy: a renewal, or a hand-back. A registry that was
    /// restored shows an earlier version instead, and one that a person edited no later operation.
    pub(super) fn is_after_ours(&self, hold: &Hold, found: &Versioned<WorkerRecord>) -> bool {
        let WorkerRecord { reserved_until, token, operation, .. } = found.record;
        let is_later = reserved_until > hold.reserved_until || operation > hold.operation;
        let is_known = !is_later || hold.has_forgotten || hold.in_doubt_of(&found.record).is_some();
        token == self.identity.token && found.version > hold.version && !is_known
    }

    /// Whether one of the rows shows a write of a copy.
    pub(super) fn are_of_copy(&self, entries: &[WorkerEntry]) -> bool {
        entries.iter().any(|entry| {
            entry.record.as_ref().is_ok_and(|found| {
                let hold = self.holds.get(&entry.worker);
                self.is_after_all_of_ours(entry.worker, &found.record)
                    || hold.is_some_and(|hold| self.is_after_ours(hold, found))
            })
        })
    }

    /// Whether a mark shows a write of a copy: one with our token that raised the mark and is not known here. `known` is
    /// what the mark was when it was read last.
    pub(super) fn is_mark_of_copy(&self, spill: SpillId, known: u64, found: &MarkRecord) -> bool {
        let is_remembered = self.has_forgotten_grants
            || self.grants.iter().any(|grant| grant.spill == spill && grant.record == *found);
        let is_news = found.granted_upto > known && !is_remembered;
        found.token == self.identity.token && (found.operation > self.operation || is_news)
    }

    /// After a write that was certainly not stored: whether a copy of this process was faster. `hold`: what was held of the
    /// worker.
    pub(super) fn look_for_copy(&mut self, worker: u32, hold: Option<&Hold>) -> Option<String> {
        let found = self.registry.worker(worker).ok()?;
        let is_of_copy = found.record.token == self.identity.token
            && found.record.operation > self.writes_of(worker).before
            || hold.is_some_and(|hold| self.is_after_ours(hold, &found));
        is_of_copy.then(|| self.meet_copy())
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
