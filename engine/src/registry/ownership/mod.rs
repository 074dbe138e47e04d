//! Owning ticks and ids: windows of ticks and grants of extents, by compare-and-set on the registry's records.
//!
//! Runs on the registry thread (and, before that starts, on the builder's). The only code that calls a
//! [`Registry`]'s writes.
//!
//! # Invariants
//! - I1 a [`Window`] exists only after the record that grants it was stored, or read back, with our own token
//!   and operation number (U2); it is move-only;
//! - I2 windows of one worker never overlap: each begins at or after the `reserved_until` it replaced;
//! - I3 the token is random per engine and every write has an operation number of its own, so that a record
//!   tells our write from everybody's, an earlier process on this host included;
//! - I4 marks: see [`marks`].

mod choice;
mod error;
mod grant;
mod marks;
mod window;

use std::collections::HashMap;
use std::ops::Range;

use xuid_spill::SpillId;

pub(crate) use self::error::{ExtendError, GrantError, TakeError};
pub(crate) use self::grant::GrantRequest;
pub(crate) use self::window::Window;

use self::choice::{check_pinned, choose};
use self::grant::Grant;
use crate::registry::{ReadError, Registry, SwapError, Token, WorkerEntry, WorkerRecord, limits};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// What a new worker's window should be.
#[derive(Debug, Clone)]
pub(crate) struct WorkerRequest {
    /// The tick now; only workers whose mark is not above it are taken.
    pub(crate) now: u64,
    /// Where the window should begin: `now`, or earlier for a backfill.
    pub(crate) start: u64,
    /// Where it should end.
    pub(crate) end: u64,
    /// That worker and no other.
    pub(crate) pinned: Option<u32>,
    /// Workers not to take: those held, and those left for a reason.
    pub(crate) except: Vec<u32>,
}

/// Who takes workers.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) token: Token,
    /// For people.
    pub(crate) owner: String,
    /// What chooses among workers that are as good as each other.
    pub(crate) random: fn() -> u64,
}

impl Identity {
    pub(crate) fn new(token: Token, owner: String) -> Self {
        // No randomness to be had is no reason to fail: a fixed choice only makes meeting likelier.
        Self { token, owner, random: || getrandom::u64().unwrap_or(0) }
    }
}

struct Hold {
    version: u64,
    reserved_until: u64,
    /// Renewals at this version of which nobody knows whether they were stored, by their operation.
    in_doubt: Vec<(u64, Range<u64>)>,
}

/// A claim of which nobody knows whether it was stored.
struct Claim {
    worker: u32,
    operation: u64,
    span: Range<u64>,
}

/// How often a conflict with our own earlier write is looked at again. One ghost of ours can meet us a call; a
/// second try settles it, and a third means that somebody else is at work.
const TRIES: u32 = 3;

/// Renewals in doubt that are remembered: one is tried a few times a second for as long as a registry is away, and only
/// those that were under way when it went can land.
const MOST_IN_DOUBT: usize = 64;

/// What the engine holds, and the way to more.
pub(crate) struct Ownership {
    registry: Box<dyn Registry>,
    identity: Identity,
    operation: u64,
    holds: HashMap<u32, Hold>,
    /// Up to where a worker was reserved for us when its record could not be trusted any more. Only a fence, which
    /// raises it above all that was granted, makes the worker good again.
    left: HashMap<u32, u64>,
    marks: HashMap<SpillId, u64>,
    claim: Option<Claim>,
    grant: Option<Grant>,
    /// Writes whose outcome was unknown; of those, the ones that a re-read showed to have been stored, and not to.
    pub(crate) unknown: u64,
    pub(crate) unknown_ours: u64,
    pub(crate) unknown_theirs: u64,
    pub(crate) conflicts: u64,
}

enum Stored {
    Yes {
        version: u64,
    },
    /// Certainly not.
    No,
    /// Nobody knew, and it was not there when it was looked for; it may land still.
    Unseen,
    /// Nothing was sent.
    Unsent {
        why: String,
    },
    InDoubt {
        why: String,
    },
}

impl Ownership {
    pub(crate) fn new(registry: Box<dyn Registry>, identity: Identity) -> Self {
        Self {
            registry,
            identity,
            operation: 0,
            holds: HashMap::new(),
            left: HashMap::new(),
            marks: HashMap::new(),
            claim: None,
            grant: None,
            unknown: 0,
            unknown_ours: 0,
            unknown_theirs: 0,
            conflicts: 0,
        }
    }

    /// Forgets everything and draws another token: a copy of this process, memory and all, may be at work.
    pub(crate) fn reset_identity(&mut self) {
        let mut token = [0; 16];
        match getrandom::fill(&mut token) {
            Ok(()) if !Guard::LeapDrawsToken.holds() => {}
            Ok(()) => self.identity.token = Token(token),
            // The old one goes on: a write of the other copy could be taken for ours, if the answer to ours is lost.
            Err(error) => {
                deferred_log::log(
                    move || tracing::error!(%error, "no random token was drawn; restart this process"),
                );
            }
        }
        self.unknown_theirs += self.doubts();
        self.grant.take_if(|_| Guard::LeapForgetsGrant.holds());
        let claimed = self.claim.take_if(|_| Guard::LeapForgetsClaim.holds()).map(|claim| claim.worker);
        // All of it, before a registry is asked that may panic.
        let holds = std::mem::take(&mut self.holds);
        for worker in holds.into_keys().chain(claimed) {
            self.registry.leave(worker);
        }
    }

    /// Writes that are remembered since nobody knows whether they were stored.
    fn doubts(&self) -> u64 {
        let renewals: usize = self.holds.values().map(|hold| hold.in_doubt.len()).sum();
        renewals as u64 + u64::from(self.claim.is_some()) + u64::from(self.grant.is_some())
    }

    /// After a panic in the middle of a write: it is one in doubt, if it is remembered at all.
    pub(crate) fn after_panic(&mut self) {
        self.unknown = self.unknown.max(self.unknown_ours + self.unknown_theirs + self.doubts());
    }

    /// Lets the registry see to its connection.
    pub(crate) fn maintain(&mut self) {
        self.registry.maintain();
    }

    /// The registry's own wall clock in Unix nanoseconds, where it has one.
    pub(crate) fn time(&mut self) -> Option<u64> {
        self.registry.time()
    }

    /// No window reaches further than this beyond the registry's own time, where it tells one.
    fn furthest(&mut self) -> u64 {
        let layout = self.registry.genesis().layout;
        let reached = self.registry.reached().filter(|_| Guard::FurthestWindow.holds());
        // Where its clock is before the epoch, nothing can be reserved until that is put right.
        reached.map_or(u64::MAX, |ns| limits::furthest(&layout, ns).unwrap_or(0))
    }

    fn record(&mut self, reserved_until: u64) -> WorkerRecord {
        self.operation += 1;
        WorkerRecord {
            reserved_until,
            token: self.identity.token,
            operation: self.operation,
            owner: self.identity.owner.clone(),
        }
    }

    /// Takes a worker that nobody seems to use, and its first window.
    pub(crate) fn take(&mut self, request: &WorkerRequest) -> Result<Window, TakeError> {
        if let Some(window) = self.settle_claim(request)? {
            return Ok(window);
        }
        let entries = self.registry.workers()?;
        let end = request.end.min(self.furthest());
        if let Some(pinned) = request.pinned {
            check_pinned(&entries, pinned, request.now)?;
        }
        let mut refused = request.except.clone();
        refused.extend(self.gone_back(&entries));
        if let Some(worker) =
            request.pinned.filter(|pinned| refused.contains(pinned) && !request.except.contains(pinned))
        {
            return Err(TakeError::WentBack { worker });
        }
        let preferred = request.pinned.or_else(|| self.registry.last_worker());
        // A worker that slips away to another process is passed over, so this ends with the rows.
        loop {
            let entry =
                choose(&entries, request.now, preferred, (request.pinned, &refused), self.identity.random)?;
            let worker = entry.worker;
            let Ok(found) = &entry.record else { return Err(TakeError::NoneUsable) };
            let floor = if Guard::Floor.holds() { self.registry.genesis().floor } else { 0 };
            let mark = if Guard::WindowAfterMark.holds() { found.record.reserved_until } else { 0 };
            let start = mark.max(floor).max(request.start);
            if start >= end {
                return Err(TakeError::NoneFree { earliest: start });
            }
            let record = self.record(end);
            let outcome = self.registry.claim(worker, found.version, &record);
            match self.settle(worker, found.version, &record, outcome) {
                Stored::Yes { version } => {
                    crash_point!(Claimed);
                    self.hold(worker, version, end);
                    return Ok(Window::new(worker, start..end));
                }
                Stored::No => refused.push(worker),
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

    /// The workers that were left for good, and whose records still say less than was granted to us.
    fn gone_back(&self, entries: &[WorkerEntry]) -> impl Iterator<Item = u32> {
        let below = |entry: &&WorkerEntry| {
            let left = self.left.get(&entry.worker);
            let found = entry.record.as_ref().ok();
            left.zip(found).is_some_and(|(left, found)| found.record.reserved_until < *left)
        };
        entries.iter().filter(below).map(|entry| entry.worker)
    }

    fn hold(&mut self, worker: u32, version: u64, reserved_until: u64) {
        self.holds.insert(worker, Hold { version, reserved_until, in_doubt: Vec::new() });
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
                    self.hold(worker, found.version, span.end);
                    return Ok(Some(Window::new(worker, span.clone())));
                }
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

    /// What is in doubt of a worker cannot land any more.
    fn drop_doubts(&mut self, worker: u32) {
        if let Some(hold) = self.holds.get_mut(&worker) {
            self.unknown_theirs += hold.in_doubt.drain(..).len() as u64;
        }
    }

    /// What became of the last renewal that was tried is known.
    fn not_in_doubt(&mut self, worker: u32) {
        if let Some(hold) = self.holds.get_mut(&worker) {
            hold.in_doubt.pop();
        }
    }

    /// After a conflict: a record that carries our token is an earlier write of ours that landed late. Its window is
    /// ours if it is a renewal that was in doubt; anything else means that the worker is somebody else's now.
    /// `refused`: the last write was certainly not stored.
    fn look_again(&mut self, worker: u32, end: u64, refused: bool) -> Result<Option<Window>, ExtendError> {
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

    /// Turns an outcome into knowledge: what is unknown is read back and compared (U2).
    fn settle(
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
                // Stored, and moved on since: whoever did it began at our end, so the window is ours all the
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
                    Ok(_) => Stored::Unseen,
                    Err(_) => Stored::InDoubt { why },
                }
            }
            Err(SwapError::Unavailable { why } | SwapError::Read(ReadError::Unavailable { why })) => {
                Stored::Unsent { why }
            }
            Err(SwapError::Conflict | SwapError::Read(_)) => Stored::No,
        }
    }

    /// Hands the rest of a worker's window back, from tick `from` on, of which no id was cut. Whatever the
    /// outcome, the worker is not used again without a new claim.
    pub(crate) fn release(&mut self, worker: u32, from: u64) -> Result<(), SwapError> {
        self.drop_doubts(worker);
        let Some(hold) = self.holds.remove(&worker) else { return Ok(()) };
        let result = if from < hold.reserved_until {
            let record = self.record(from);
            crash_point!(HandBackUnsent);
            let result = self.registry.swap_worker(worker, hold.version, &record);
            crash_point!(HandedBack);
            result
        } else {
            Ok(())
        };
        self.registry.leave(worker);
        result
    }

    /// Leaves a worker without handing anything back.
    pub(crate) fn forget(&mut self, worker: u32) {
        self.drop_doubts(worker);
        if self.holds.remove(&worker).is_some() {
            self.registry.leave(worker);
        }
    }

    /// Leaves a worker whose record cannot be trusted any more.
    fn leave_for_good(&mut self, worker: u32) {
        if let Some(hold) = self.holds.get(&worker) {
            self.left.insert(worker, hold.reserved_until);
        }
        self.forget(worker);
    }

    /// Asks the registry something, to see whether it answers.
    pub(crate) fn look(&mut self) {
        // What it says is of no use here.
        let _ = self.registry.worker(0);
    }

    /// Leaves the registry.
    pub(crate) fn close(&mut self) {
        self.registry.close();
    }
}

#[cfg(test)]
mod tests;
