//! Writes whose outcome is unknown, and how a re-read settles them (U2).

use super::Ownership;
use crate::registry::{SwapError, WorkerRecord};
use crate::sys::guards::Guard;

/// Renewals of a worker, and grants, that are remembered in doubt: one is tried a few times a second for as long as a
/// registry is away, and only those that were under way when it went can land.
pub(super) const MOST_IN_DOUBT: usize = 64;

/// What became of a write.
pub(super) enum Stored {
    Yes {
        version: u64,
    },
    /// Certainly not.
    No,
    /// The answer was lost, and it was not there when it was looked for; it may land still.
    Unseen,
    /// Nothing was sent.
    Unsent {
        why: String,
    },
    InDoubt {
        why: String,
    },
    /// Another write with our token is there.
    Copied,
}

impl Ownership {
    /// Writes that are remembered since it is not known whether they were stored.
    pub(super) fn doubts(&self) -> u64 {
        let renewals: usize = self.holds.values().map(|hold| hold.in_doubt.len()).sum();
        (renewals + self.grants.len()) as u64 + u64::from(self.claim.is_some())
    }

    /// What is in doubt of a worker cannot land any more.
    pub(super) fn drop_doubts(&mut self, worker: u32) {
        if let Some(hold) = self.holds.get_mut(&worker) {
            self.unknown_theirs += hold.in_doubt.drain(..).len() as u64;
            hold.has_forgotten = false;
        }
    }

    /// What became of the last renewal that was tried is known.
    pub(super) fn not_in_doubt(&mut self, worker: u32) {
        if let Some(hold) = self.holds.get_mut(&worker) {
            hold.in_doubt.pop();
        }
    }

    /// Turns an outcome into knowledge: what is unknown is read back and compared (U2).
    pub(super) fn settle(
        &mut self,
        worker: u32,
        expected: u64,
        record: &WorkerRecord,
        outcome: Result<(), SwapError>,
    ) -> Stored {
        // Without the comparison of tokens or operations this one would stand in for it.
        let alone = Guard::OwnToken.holds() && Guard::OwnOperation.holds();
        let is_ours = |found: &WorkerRecord| {
            (found.token == record.token || !Guard::OwnToken.holds())
                && (found.operation == record.operation || !Guard::OwnOperation.holds())
                // A copy of this machine counts its operations as we do.
                && (found.reserved_until == record.reserved_until || !alone || !Guard::OwnEnd.holds())
        };
        match outcome {
            Ok(()) => match self.registry.worker(worker) {
                Ok(found) if is_ours(&found.record) => Stored::Yes { version: found.version },
                // No write of ours of before can follow this one.
                Ok(found) if found.version > expected && found.record.token == record.token => Stored::Copied,
                // Stored, and moved on since: the process that did it began at our end, so the window is ours all the
                // same, but it is the last one.
                _ => Stored::Yes { version: expected },
            },
            Err(SwapError::Unknown { why }) => {
                self.unknown += 1;
                if !Guard::UnknownIsNotOurs.holds() {
                    return Stored::Yes { version: expected + 1 };
                }
                match self.registry.worker(worker) {
                    Ok(found) if is_ours(&found.record) => {
                        self.unknown_ours += 1;
                        Stored::Yes { version: found.version }
                    }
                    Ok(found) if self.is_of_copy(worker, &found.record, record.reserved_until) => {
                        Stored::Copied
                    }
                    Ok(_) => Stored::Unseen,
                    Err(_) => Stored::InDoubt { why },
                }
            }
            Err(SwapError::Unavailable { why } | SwapError::Full { why }) => Stored::Unsent { why },
            Err(SwapError::Conflict | SwapError::TooLow { .. } | SwapError::Read(_)) => Stored::No,
        }
    }
}
