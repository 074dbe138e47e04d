//! Extending what is held, and what a conflict with an earlier write of ours comes to.

use super::doubt::{MOST_IN_DOUBT, Stored};
use super::{ExtendError, Hold, Ownership, Window};
use crate::registry::ReadError;
use crate::sys::guards::Guard;

/// How often a conflict with our own earlier write is looked at again. One ghost of ours can meet us a call; a
/// second try settles it, and a third means that another process is at work.
const TRIES: u32 = 3;

impl Ownership {
    /// A further window of a worker that is held: from the end of the last one, or from `start` if that is later.
    pub(crate) fn extend(&mut self, worker: u32, start: u64, end: u64) -> Result<Window, ExtendError> {
        let end = end.min(self.furthest());
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
                return Err(ExtendError::Later { why: "the window reaches far enough".into() });
            }
            let record = self.record(end);
            if let Some(hold) = self.holds.get_mut(&worker) {
                let most = MOST_IN_DOUBT - 1;
                self.unknown_theirs += hold.in_doubt.len().saturating_sub(most) as u64;
                hold.in_doubt.truncate(most);
                hold.in_doubt.push((record.operation, start..end));
            }
            crash_point!(RenewalUnsent);
            let outcome = self.registry.swap_worker(worker, version, &record);
            crash_point!(RenewalUnsettled);
            let refused = match self.settle(worker, version, &record, outcome) {
                Stored::Yes { version } => {
                    // All others were of the version that is gone.
                    self.not_in_doubt(worker);
                    self.drop_doubts(worker);
                    crash_point!(WindowExtended);
                    self.hold(worker, version, end);
                    return Ok(Window::new(worker, start..end));
                }
                Stored::Unsent { why } => {
                    self.not_in_doubt(worker);
                    return Err(ExtendError::Later { why });
                }
                Stored::InDoubt { why } => return Err(ExtendError::Later { why }),
                Stored::No => {
                    self.not_in_doubt(worker);
                    true
                }
                Stored::Unseen => false,
            };
            if let Some(window) = self.look_again(worker, end, refused)? {
                return Ok(window);
            }
        }
        Err(ExtendError::Later { why: "the record kept moving".into() })
    }

    /// After a conflict: a record that carries our token is an earlier write of ours that landed late. Its window is
    /// ours if it is a renewal that was in doubt; anything else means that the worker is another process's now.
    /// `refused`: the last write was certainly not stored.
    pub(super) fn look_again(
        &mut self,
        worker: u32,
        end: u64,
        refused: bool,
    ) -> Result<Option<Window>, ExtendError> {
        // What we wrote has an operation number up to this.
        let last = self.operation - u64::from(refused);
        let (known, version) =
            self.holds.get(&worker).map_or((0, 0), |hold| (hold.reserved_until, hold.version));
        match self.registry.worker(worker) {
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
            Ok(found) if found.record.token == self.identity.token && found.record.operation > last => {
                self.conflicts += 1;
                self.reset_identity();
                let why = "another process writes with this one's token: a copy of this machine runs".into();
                Err(ExtendError::Lost { worker, why, for_good: false })
            }
            Ok(found) if found.record.token == self.identity.token => {
                let reserved_until = found.record.reserved_until;
                let hold = self
                    .holds
                    .insert(worker, Hold { version: found.version, reserved_until, in_doubt: Vec::new() });
                let in_doubt = hold.map(|hold| hold.in_doubt).unwrap_or_default();
                self.unknown_theirs += in_doubt.len() as u64;
                let mut in_doubt = in_doubt.into_iter();
                let landed = in_doubt.find(|(operation, span)| {
                    *operation == found.record.operation
                        || (!Guard::RenewalCompared.holds() && span.end == reserved_until)
                });
                if let Some((_, span)) = landed.filter(|(_, span)| span.end == reserved_until) {
                    self.unknown_ours += 1;
                    self.unknown_theirs -= 1;
                    return Ok(Some(Window::new(worker, span)));
                }
                if reserved_until < end {
                    return Ok(None);
                }
                Err(ExtendError::Later { why: "an earlier write landed late".into() })
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
