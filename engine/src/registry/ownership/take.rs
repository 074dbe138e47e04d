//! Taking a worker that no process seems to use.

use super::choice::{check_pinned, choose};
use super::doubt::Stored;
use super::{Claim, Ownership, TakeError, Window, WorkerRequest};
use crate::registry::{ReadError, WorkerEntry};
use crate::sys::guards::Guard;

impl Ownership {
    /// Takes a worker that no process seems to use, and its first window.
    pub(crate) fn take(&mut self, request: &WorkerRequest) -> Result<Window, TakeError> {
        if let Some(window) = self.settle_claim(request)? {
            return Ok(window);
        }
        let mut entries = self.registry.workers()?;
        if self.are_of_copy(&entries) {
            return Err(TakeError::Copied { why: self.meet_copy() });
        }
        let end = request.end.min(self.furthest());
        let mut refused = request.except.clone();
        refused.extend(self.gone_back(&entries));
        if let Some(worker) =
            request.pinned.filter(|pinned| refused.contains(pinned) && !request.except.contains(pinned))
        {
            return Err(TakeError::WentBack { worker });
        }
        self.raise(&mut entries);
        if let Some(pinned) = request.pinned {
            check_pinned(&entries, pinned, request.now)?;
        }
        let preferred = request.pinned.or_else(|| self.registry.last_worker());
        // A worker that slips away to another process is passed over, so this ends with the rows.
        loop {
            let choose = |refused: &[u32]| {
                choose(&entries, request.now, preferred, (request.pinned, refused), self.identity.random)
            };
            let avoided: Vec<u32> = refused.iter().chain(&self.shared).copied().collect();
            let entry = match choose(&avoided) {
                Err(_) if !self.shared.is_empty() => choose(&refused)?,
                chosen => chosen?,
            };
            let worker = entry.worker;
            let Ok(found) = &entry.record else { return Err(TakeError::NoneUsable) };
            let floor = if Guard::Floor.holds() { self.registry.genesis().floor } else { 0 };
            let mark = if Guard::WindowAfterMark.holds() { found.record.reserved_until } else { 0 };
            let start = mark.max(floor).max(request.start);
            if start >= end {
                return Err(TakeError::NoneFree { earliest: start });
            }
            let record = self.record(worker, end);
            let outcome = self.registry.claim(worker, found.version, &record);
            match self.settle(worker, found.version, &record, outcome) {
                Stored::Yes { version } => {
                    crash_point!(Claimed);
                    self.hold(worker, version, end, record.operation);
                    return Ok(Window::new(worker, start..end));
                }
                Stored::No => {
                    if let Some(why) = self.look_for_copy(worker, None) {
                        return Err(TakeError::Copied { why });
                    }
                    refused.push(worker);
                }
                Stored::Copied => return Err(TakeError::Copied { why: self.meet_copy() }),
                Stored::Unseen => {
                    self.unknown_theirs += 1;
                    self.registry.leave(worker);
                    refused.push(worker);
                }
                Stored::Unsent { why } => return Err(ReadError::Unavailable { why }.into()),
                Stored::InDoubt { why } => {
                    let operation = record.operation;
                    self.claim = Some(Claim { worker, operation, span: start..end });
                    return Err(TakeError::InDoubt { why });
                }
            }
        }
    }

    /// Reads the records as if they had not been lowered by another process (I5).
    fn raise(&self, entries: &mut [WorkerEntry]) {
        for entry in entries {
            if let (Ok(found), Some(before)) = (&mut entry.record, self.reserved_before.get(&entry.worker)) {
                found.record.reserved_until = found.record.reserved_until.max(*before);
            }
        }
    }

    /// The workers that were left for good, and whose records still say less than was granted to us.
    fn gone_back(&self, entries: &[WorkerEntry]) -> impl Iterator<Item = u32> {
        let below = |entry: &&WorkerEntry| {
            let left = self.left.get(&entry.worker);
            let found = entry.record.as_ref().ok();
            left.zip(found).is_some_and(|(left, found)| found.record.reserved_until < *left)
        };
        entries.iter().filter(below).map(|entry| entry.worker)
    }

    /// What became of a claim in doubt: the window if the record shows our token and operation, and it is of use still.
    fn settle_claim(&mut self, request: &WorkerRequest) -> Result<Option<Window>, TakeError> {
        let Some(claim) = self.claim.take() else { return Ok(None) };
        let Claim { worker, operation, ref span } = claim;
        match self.registry.worker(worker) {
            Ok(found)
                if found.record.token == self.identity.token
                    && ((found.record.operation == operation && found.record.reserved_until == span.end)
                        || !Guard::ClaimCompared.holds()) =>
            {
                self.unknown_ours += 1;
                let wanted = !request.except.contains(&worker)
                    && request.pinned.is_none_or(|pinned| pinned == worker)
                    && (request.now..request.end).contains(&span.start.max(request.now))
                    && span.end > request.now;
                if wanted {
                    self.hold(worker, found.version, span.end, operation);
                    return Ok(Some(Window::new(worker, span.clone())));
                }
            }
            Ok(found) if self.is_of_copy(worker, &found.record, span.end) => {
                self.registry.leave(worker);
                return Err(TakeError::Copied { why: self.meet_copy() });
            }
            Err(ReadError::Unavailable { why }) => {
                self.claim = Some(claim);
                return Err(TakeError::InDoubt { why });
            }
            Ok(_) | Err(_) => self.unknown_theirs += 1,
        }
        self.registry.leave(worker);
        Ok(None)
    }
}
