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
//! - I4 marks: see [`marks`];
//! - I5 no window begins below the end of another one of that worker that was granted here, but for what was handed back
//!   here: a copy of this process may have lowered the record;
//! - I6 a record that shows a write of a copy of this process makes this another process: see [`copies`].

mod choice;
mod copies;
mod doubt;
mod error;
mod grant;
mod marks;
mod renew;
mod take;
mod window;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use xuid_spill::SpillId;

pub(crate) use self::error::{ExtendError, GrantError, TakeError};
pub(crate) use self::grant::GrantRequest;
pub(crate) use self::window::Window;

use self::grant::Grant;
use crate::registry::provenance::note::Event;
use crate::registry::provenance::windows_log::WindowsLog;
use crate::registry::{MarkRecord, Registry, SwapError, Token, WorkerRecord, limits};
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
    /// The folder in which it is noted what was granted.
    pub(crate) notes: Option<PathBuf>,
}

impl Identity {
    pub(crate) fn new(token: Token, owner: String) -> Self {
        // No randomness to be had is no reason to fail: a fixed choice only makes meeting likelier.
        Self { token, owner, random: || getrandom::u64().unwrap_or(0), notes: None }
    }
}

struct Hold {
    version: u64,
    reserved_until: u64,
    /// The write of ours that reserved it.
    operation: u64,
    /// Renewals at this version of which it is not known whether they were stored, by their operation.
    in_doubt: Vec<(u64, Range<u64>)>,
    /// There were more of those.
    has_forgotten: bool,
}

impl Hold {
    /// Which of the renewals in doubt a record shows.
    fn in_doubt_of(&self, found: &WorkerRecord) -> Option<usize> {
        self.in_doubt.iter().position(|(operation, span)| {
            (*operation == found.operation || !Guard::RenewalCompared.holds())
                && span.end == found.reserved_until
        })
    }
}

/// The operations of our last write of a worker and of the one before it; 0 where there was none.
#[derive(Debug, Clone, Copy, Default)]
struct Writes {
    before: u64,
    last: u64,
}

/// A claim of which it is not known whether it was stored.
struct Claim {
    worker: u32,
    operation: u64,
    span: Range<u64>,
}

/// What the engine holds, and the way to more.
pub(crate) struct Ownership {
    registry: Box<dyn Registry>,
    identity: Identity,
    notes: Option<WindowsLog>,
    operation: u64,
    /// Which writes of each worker there were with this token.
    writes: HashMap<u32, Writes>,
    holds: HashMap<u32, Hold>,
    /// Up to where a worker was reserved for us when its record could not be trusted any more. Only a fence, which
    /// raises it above all that was granted, makes the worker good again.
    left: HashMap<u32, u64>,
    /// Up to where a worker was reserved for us when it was left, and not handed back by us: no window here begins below.
    /// Only a copy of this process could hand it back meanwhile.
    reserved_before: HashMap<u32, u64>,
    /// What a copy of this process, memory and all, may go on with since: taken again only where no other worker is free.
    shared: HashSet<u32>,
    marks: HashMap<SpillId, u64>,
    /// A new mark of which it is not known whether it was stored.
    new_mark: Option<(SpillId, MarkRecord)>,
    claim: Option<Claim>,
    /// Grants of which it is not known whether they were stored.
    grants: Vec<Grant>,
    /// There were more of those, or a panic broke a write off.
    has_forgotten_grants: bool,
    /// Writes whose outcome was unknown; of those, the ones that a re-read showed to have been stored, and not to.
    pub(crate) unknown: u64,
    pub(crate) unknown_ours: u64,
    pub(crate) unknown_theirs: u64,
    pub(crate) conflicts: u64,
    /// How often a copy of this process was met.
    pub(crate) copies: u64,
}

impl Ownership {
    pub(crate) fn new(registry: Box<dyn Registry>, identity: Identity) -> Self {
        let cluster = registry.genesis().cluster;
        let notes = identity.notes.as_deref();
        let notes = notes.map(|folder| WindowsLog::new(folder, cluster, identity.owner.clone()));
        Self {
            registry,
            identity,
            notes,
            operation: 0,
            writes: HashMap::new(),
            holds: HashMap::new(),
            left: HashMap::new(),
            reserved_before: HashMap::new(),
            shared: HashSet::new(),
            marks: HashMap::new(),
            new_mark: None,
            claim: None,
            grants: Vec::new(),
            has_forgotten_grants: false,
            unknown: 0,
            unknown_ours: 0,
            unknown_theirs: 0,
            conflicts: 0,
            copies: 0,
        }
    }

    /// Forgets everything and draws another token: a copy of this process, memory and all, may be at work.
    pub(crate) fn reset_identity(&mut self) {
        let mut token = [0; 16];
        match getrandom::fill(&mut token) {
            Ok(()) if !Guard::LeapDrawsToken.holds() => {}
            Ok(()) => {
                self.identity.token = Token(token);
                self.writes.clear();
            }
            // The old one goes on: a write of the other copy could be taken for ours, if the answer to ours is lost.
            Err(error) => {
                deferred_log::log(
                    move || tracing::error!(%error, "no random token was drawn; restart this process"),
                );
            }
        }
        self.unknown_theirs += self.doubts();
        self.new_mark = None;
        if Guard::LeapForgetsGrant.holds() {
            self.grants.clear();
            self.has_forgotten_grants = false;
        }
        let claimed = self.claim.take_if(|_| Guard::LeapForgetsClaim.holds()).map(|claim| claim.worker);
        self.shared.extend(self.holds.keys().copied().chain(claimed).chain(self.registry.last_worker()));
        // All of it, before a registry is asked that may panic.
        let holds = std::mem::take(&mut self.holds);
        self.reserved_before.extend(holds.iter().map(|(worker, hold)| (*worker, hold.reserved_until)));
        for worker in holds.into_keys().chain(claimed) {
            self.registry.leave(worker);
        }
    }

    /// Notes what became known, for people who ask later where an id came from.
    pub(crate) fn note(&mut self, at_ms: u64, event: Event) {
        let token = self.identity.token;
        if let Some(notes) = &mut self.notes {
            notes.note(token, at_ms, event);
        }
    }

    /// After a panic in the middle of a write: it is one in doubt, if it is remembered at all.
    pub(crate) fn after_panic(&mut self) {
        self.unknown = self.unknown.max(self.unknown_ours + self.unknown_theirs + self.doubts());
    }

    /// Lets the registry see to its connection.
    pub(crate) fn maintain(&mut self) {
        self.registry.maintain();
    }

    /// Tries whether a change could be made. Whether there is anything to try.
    pub(crate) fn probe(&mut self) -> bool {
        self.registry.probe().is_some()
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

    /// The next write of a worker.
    fn record(&mut self, worker: u32, reserved_until: u64) -> WorkerRecord {
        self.operation += 1;
        let writes = self.writes.entry(worker).or_default();
        *writes = Writes { before: writes.last, last: self.operation };
        WorkerRecord {
            reserved_until,
            token: self.identity.token,
            operation: self.operation,
            owner: self.identity.owner.clone(),
        }
    }

    fn hold(&mut self, worker: u32, version: u64, reserved_until: u64, operation: u64) {
        let (in_doubt, has_forgotten) = (Vec::new(), false);
        self.holds.insert(worker, Hold { version, reserved_until, operation, in_doubt, has_forgotten });
    }

    /// Hands the rest of a worker's window back, from tick `from` on, of which no id was cut. Whatever the
    /// outcome, the worker is not used again without a new claim.
    pub(crate) fn release(&mut self, worker: u32, from: u64) -> Result<(), SwapError> {
        let Some(hold) = self.holds.remove(&worker) else { return Ok(()) };
        // They cannot land any more.
        self.unknown_theirs += hold.in_doubt.len() as u64;
        self.reserved_before.insert(worker, hold.reserved_until);
        let mut result = Ok(());
        if from < hold.reserved_until {
            let record = self.record(worker, from);
            crash_point!(HandBackUnsent);
            result = self.registry.swap_worker(worker, hold.version, &record);
            crash_point!(HandedBack);
            match result {
                Ok(()) => drop(self.reserved_before.remove(&worker)),
                Err(SwapError::Conflict) => {
                    self.look_for_copy(worker, Some(&hold));
                }
                Err(_) => {}
            }
        }
        self.registry.leave(worker);
        result
    }

    /// Leaves a worker without handing anything back.
    pub(crate) fn forget(&mut self, worker: u32) {
        self.drop_doubts(worker);
        if let Some(hold) = self.holds.remove(&worker) {
            self.reserved_before.insert(worker, hold.reserved_until);
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
        let first = self.registry.genesis().first_worker;
        let _ = self.registry.worker(first);
    }

    /// Leaves the registry.
    pub(crate) fn close(&mut self) {
        if let Some(notes) = &mut self.notes {
            notes.close();
        }
        self.registry.close();
    }
}

#[cfg(test)]
mod tests;
