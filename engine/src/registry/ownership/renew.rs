//! Extending what is held, and what a conflict with an earlier write of ours comes to.

use super::doubt::{MOST_IN_DOUBT, Stored};
use super::{ExtendError, Ownership, Window};
use crate::registry::{ReadError, WorkerRecord};
use crate::sys::guards::Guard;

/// How often a conflict with our own earlier write is looked at again. One ghost of ours can meet us a call; a
/// second try settles it, and a third means that another process is at work.
const TRIES: u32 = 3;

impl Ownership {
    /// A further window of a worker that is held: from the end of the last one, or from `start` if that is later.
    pub(crate) fn extend(&mut self, worker: u32, start: u64, end: u64) -> Result<Window, ExtendError> {
        let (wanted, end) = (end, end.min(self.furthest()));
        for _ in 0..TRIES {
            let Some(hold) = self.holds.get(&worker) else {
                return Err(ExtendError::Lost {
                    worker,
                    why: "it is not held any more".into(),
                    for_good: false,
                });
            };
            let (version, start) = (hold.version, hold.reserved_until.max(start));
            if start >= end {
                let why = if end < wanted {
                    "no window may reach more than two minutes beyond the registry's own time, which is behind this host's clock: set \
                     that clock, or have another server of the ensemble lead"
                } else {
                    "the window reaches far enough"
                };
                return Err(ExtendError::Later { why: why.into() });
            }
            let record = self.record(worker, end);
            if let Some(hold) = self.holds.get_mut(&worker) {
                let forgotten = hold.in_doubt.len().saturating_sub(MOST_IN_DOUBT - 1);
                self.unknown_theirs += forgotten as u64;
                hold.has_forgotten |= forgotten > 0;
                hold.in_doubt.truncate(MOST_IN_DOUBT - 1);
                hold.in_doubt.push((record.operation, start..end));
            }
            crash_point!(RenewalUnsent);
            let outcome = self.registry.swap_worker(worker, version, &record);
            crash_point!(RenewalUnsettled);
            match self.settle(worker, version, &record, outcome) {
                Stored::Yes { version } => {
                    // All others were of the version that is gone.
                    self.not_in_doubt(worker);
                    self.drop_doubts(worker);
                    crash_point!(WindowExtended);
                    self.hold(worker, version, end, record.operation);
                    return Ok(Window::new(worker, start..end));
                }
                Stored::Unsent { why } => {
                    self.not_in_doubt(worker);
                    return Err(ExtendError::Later { why });
                }
                Stored::InDoubt { why } => return Err(ExtendError::Later { why }),
                Stored::No => self.not_in_doubt(worker),
                Stored::Unseen => {}
                Stored::Copied => return Err(ExtendError::Copied { worker, why: self.meet_copy() }),
            }
            if let Some(window) = self.look_again(worker)? {
                return Ok(window);
            }
        }
        Err(ExtendError::Later { why: "the record kept moving".into() })
    }

    /// After a conflict: a record that shows a renewal of ours which was in doubt landed late, and its window is ours. Any
    /// other write with our token is a copy's; anything else means that the worker is another process's now.
    pub(super) fn look_again(&mut self, worker: u32) -> Result<Option<Window>, ExtendError> {
        let (known, version) =
            self.holds.get(&worker).map_or((0, 0), |hold| (hold.reserved_until, hold.version));
        let found = self.registry.worker(worker);
        let hold = self.holds.get(&worker);
        if hold.zip(found.as_ref().ok()).is_some_and(|(hold, found)| self.is_after_ours(hold, found)) {
            return Err(ExtendError::Copied { worker, why: self.meet_copy() });
        }
        match found {
            Ok(found) if found.record.reserved_until < known && Guard::RecordWentBack.holds() => {
                self.leave_for_good(worker);
                let why = format!(
                    "its record went back from tick {known} to {}: the registry was restored and needs a fence",
                    found.record.reserved_until
                );
                Err(ExtendError::Lost { worker, why, for_good: true })
            }
            // Not stored after all, and what is in doubt may land still. A fence after a restore may have come to the
            // same version again, with a record that is not ours.
            Ok(found) if found.version == version && found.record.token == self.identity.token => Ok(None),
            Ok(found) if found.record.token == self.identity.token => {
                let WorkerRecord { reserved_until, operation, .. } = found.record;
                let Some(hold) = self.holds.get_mut(&worker) else { return Ok(None) };
                let landed = hold.in_doubt_of(&found.record);
                let landed = landed.map(|landed| Window::new(worker, hold.in_doubt.swap_remove(landed).1));
                self.unknown_ours += u64::from(landed.is_some());
                self.drop_doubts(worker);
                // Else it is the one that was stored last and was not to be read then, or one that was forgotten.
                self.hold(worker, found.version, reserved_until, operation);
                Ok(landed)
            }
            Ok(found) => {
                self.conflicts += 1;
                self.forget(worker);
                let why =
                    format!("{} reserved it up to tick {}", found.record.owner, found.record.reserved_until);
                Err(ExtendError::Lost { worker, why, for_good: false })
            }
            Err(ReadError::Unavailable { why }) => Err(ExtendError::Later { why }),
            Err(error) => {
                self.leave_for_good(worker);
                Err(ExtendError::Lost { worker, why: error.to_string(), for_good: true })
            }
        }
    }
}
