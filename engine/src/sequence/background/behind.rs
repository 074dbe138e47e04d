//! A store that is behind what was granted: its marks are raised, or its names closed until a fence.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::asking::{Asked, Grant};
use super::identity::{BY_A_FAST_CLOCK, NOTHING_OF_FENCES, Shows, is_later};
use super::teller::{Behind, Raise, Teller};
use crate::clock::SECOND;
use crate::sequence::error::SequenceError;
use crate::sequence::figures::GrantCounts;
use crate::sequence::names::named::Named;
use crate::sequence::store::{Identity, StoreError};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// How long marks are raised in a turn: rows may be locked, one after the other.
const MOST_RAISING: u64 = 3 * SECOND;

impl Teller {
    /// Without a witness that sees the grants of all, the store's identity is watched, and that marks do not go back. Grants of
    /// another store are thrown away, and nothing is granted until a fence.
    pub(super) fn of_the_right_store(
        &mut self,
        identity: Option<Identity>,
        grants: Vec<(Asked, Grant)>,
        behind: &[(Asked, u64)],
        counts: &mut GrantCounts,
        boot: u64,
    ) -> Option<Vec<(Asked, Grant)>> {
        if grants.is_empty() && behind.is_empty() {
            return Some(grants);
        }
        // An adaptor that granted nothing need not have said it.
        let is_unsaid = identity.is_none() && !behind.is_empty();
        let identity = if is_unsaid { self.store.identity().ok() } else { identity };
        let lacks_fence = identity.as_ref().is_some_and(|found| self.known.lacks_fence(found));
        let watched = self.is_watched() || lacks_fence && self.may_be_closed();
        let why = match &identity {
            Some(identity) => self.look_at_identity(identity, watched),
            None if watched => Some("the store did not say which one it is".to_owned()),
            None => None,
        };
        if watched {
            self.remember_beside();
        }
        let by_mark = why.is_none();
        let granted_from = grants.iter().map(|(asked, grant)| (asked, grant.first));
        let mut marks = behind.iter().map(|(asked, next)| (asked, *next)).chain(granted_from);
        let went_back = |(asked, next): (&Asked, u64)| {
            let mark = asked.named.lock().mark;
            (watched && next < mark)
                .then(|| format!("the mark of '{}' went back from {mark} to {next}", asked.named.name))
        };
        let Some(mut why) = why.or_else(|| marks.find_map(went_back)) else {
            for (asked, _) in behind {
                self.again(&asked.named);
            }
            return Some(grants);
        };
        if self.witnesses && !self.is_witness_shared {
            why += "; the witness is not known to see the grants of all servers of this store";
        }
        counts.behind += (grants.len() + behind.len()) as u64;
        let fenced = identity.and_then(|identity| identity.fenced);
        if by_mark {
            // What went back may not show in the next life: marks move on.
            let closed = self.known.close(&why, fenced.as_ref());
            self.note_unwritten(closed);
        }
        lock(&self.hub.tally).identity_changes += 1;
        self.close_names(Behind { why, fenced, by_mark, look_at: boot + SECOND });
        for asked in grants.iter().map(|(asked, _)| asked).chain(behind.iter().map(|(asked, _)| asked)) {
            self.again(&asked.named);
        }
        None
    }

    /// The store's identity and its marks are watched: no witness of all saw its grants.
    pub(super) fn is_watched(&self) -> bool {
        (!self.is_witness_shared || self.known.is_witness_changed()) && self.may_be_closed()
    }

    /// A store that may have gone back waits for a fence.
    pub(super) fn may_be_closed(&self) -> bool {
        self.store.may_go_back() && !self.hub.config.lossless
    }

    /// Nothing is granted before a fence where the life before this one saw a mark that went back, whichever witness it has
    /// learnt since. It is told by the first look: the store may have been fenced meanwhile.
    pub(super) fn stay_closed(&mut self) {
        let closed = self.known.closed().filter(|_| self.may_be_closed() && Guard::ClosingIsKept.holds());
        self.behind = closed.map(|(why, fenced)| Behind { why, fenced, by_mark: true, look_at: 0 });
    }

    /// The store went back.
    pub(super) fn seen_before(&mut self, named: &Arc<Named>, grant: Grant, from: u64) {
        let (name, first, end) = (named.name.clone(), grant.first, grant.end);
        deferred_log::log(move || {
            tracing::error!(%name, first, end, from, "the store granted numbers that were granted before; they are not used");
        });
        self.ask_above(named, from);
    }

    /// The store's mark is to be raised to what was seen, and the name asks again.
    pub(super) fn ask_above(&mut self, named: &Arc<Named>, from: u64) {
        self.raises.push(Raise { named: named.clone(), from, asks: true });
    }

    /// Raises the marks that lie below what was granted before. When one of them had no answer, they took long, or a stop
    /// waits, no other one is tried.
    pub(super) fn raise_marks(&mut self) {
        let (begun, mut is_over) = (self.hub.now(), false);
        for Raise { named, from, asks } in std::mem::take(&mut self.raises) {
            let boot = self.hub.now();
            if self.is_child() {
                return;
            }
            let mut is_raised = false;
            is_over |= boot.saturating_sub(begun) >= MOST_RAISING;
            if !is_over && !self.hub.is_closed() {
                match self.store.raise_open(&named.name, from) {
                    Ok(_) => is_raised = true,
                    Err(error @ (StoreError::Away { .. } | StoreError::Unknown { .. }))
                        if self.store.was_silent() =>
                    {
                        self.store_failed(&error.to_string(), self.hub.now());
                        is_over = true;
                    }
                    Err(_) => {}
                }
            }
            match asks {
                true if is_raised => self.again(&named),
                true => self.later(&named, boot, true),
                false => {}
            }
        }
    }

    /// Notes which store answered. Why its grants are not used, if they are not.
    pub(super) fn look_at_identity(&mut self, found: &Identity, watched: bool) -> Option<String> {
        let shows = self.known.shows(found);
        {
            let status = &mut lock(&self.hub.tally).status;
            status.identity = Some(found.current.clone());
            status.is_identity_recorded = found.recorded.is_some();
        }
        if watched && let Shows::Other(why) = shows {
            self.note_fence(found);
            return Some(why);
        }
        let store = found.current.clone();
        let vouched = if watched { Ok(()) } else { self.known.vouch(found) };
        if let Err(error) = vouched.and_then(|()| self.known.learn(found)) {
            let why = format!("the folder can't remember which store it is: {error}");
            // Once: it is tried with each answer.
            if !std::mem::replace(&mut self.is_forgetful, true) {
                let why = why.clone();
                deferred_log::log(move || tracing::error!(store, "{why}"));
            }
            // The next life would go on with the store that was left, whatever that had lost.
            return watched.then_some(why).filter(|_| Guard::IdentityIsKept.holds());
        }
        self.is_forgetful = false;
        match shows {
            Shows::Known => {}
            Shows::First => deferred_log::log(move || tracing::info!(store, "the store of the sequences")),
            Shows::Fenced | Shows::Other(_) => {
                lock(&self.hub.tally).identity_changes += 1;
                deferred_log::log(move || tracing::warn!(store, "the store of the sequences is another one"));
            }
        }
        None
    }

    /// A fence that can be read for the first time was there before, perhaps. What can't be written down is tried again.
    fn note_fence(&mut self, found: &Identity) {
        let noted = self.known.note_fence(found);
        self.note_unwritten(noted);
    }

    fn note_unwritten(&mut self, written: io::Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.is_forgetful, true)
        {
            deferred_log::log(move || tracing::error!(%error, "sequences.store can't be written"));
        }
    }

    /// Nothing is granted until a fence; what is held is used up.
    fn close_names(&mut self, behind: Behind) {
        let why = behind.why.clone();
        self.behind = Some(behind);
        self.tell_behind(why);
    }

    /// What calls are told while the store waits for a fence. It may have changed since.
    fn tell_behind(&self, why: String) {
        if lock(&self.hub.tally).status.behind.replace(why.clone()).is_some() {
            return;
        }
        deferred_log::log(move || {
            tracing::error!(
                why,
                "the store may have gone back: nothing is granted until `xuid sequence fence`"
            );
        });
        let error = SequenceError::store_behind(Duration::from_secs(1));
        self.hub.names.each(|named| {
            let wakers = named.end_all(&mut named.lock(), error);
            wakers.wake();
        });
    }

    /// While the store waits for a fence, it is asked once a second whether there was one.
    pub(super) fn look_if_behind(&mut self, boot: u64) -> Option<Duration> {
        let behind = self.behind.as_mut()?;
        if boot < behind.look_at {
            return Some(Duration::from_nanos(behind.look_at - boot));
        }
        behind.look_at = boot + SECOND;
        let behind = behind.clone();
        if behind.by_mark {
            // There may have been no room for it.
            let closed = self.known.close(&behind.why, behind.fenced.as_ref());
            self.note_unwritten(closed);
        }
        let found = match self.store.identity() {
            Ok(found) => found,
            Err(error) => {
                self.store_failed(&error.to_string(), self.hub.now());
                return Some(Duration::from_secs(1));
            }
        };
        self.store_answered();
        // Not where a dump brings an older time back, or is about to: it puts back one table behind the other.
        let before = behind.fenced.as_ref().or(self.known.fenced());
        let was_fenced = is_later(found.fenced.as_ref(), before);
        let is_open = match self.known.shows(&found) {
            Shows::Fenced => true,
            Shows::Known | Shows::First => {
                let mut why = behind.why;
                if behind.by_mark
                    && !was_fenced
                    && found.fenced != behind.fenced
                    && let (Some(at), Some(before)) = (&found.fenced, before)
                {
                    why = format!(
                        "{why}; its fence of {at} is no later than the one of {before}, by its clock: {BY_A_FAST_CLOCK}"
                    );
                } else if found.recorded.is_none() {
                    why = format!("{why}; {NOTHING_OF_FENCES}");
                }
                let is_open = was_fenced || !behind.by_mark;
                if !is_open {
                    self.tell_behind(why);
                }
                is_open
            }
            Shows::Other(why) => {
                self.note_fence(&found);
                self.tell_behind(why);
                false
            }
        };
        if !is_open {
            return Some(Duration::from_secs(1));
        }
        if let Some(why) = self.look_at_identity(&found, true) {
            self.tell_behind(why);
            return Some(Duration::from_secs(1));
        }
        self.open_names();
        None
    }

    /// The store is gone on with.
    pub(super) fn open_names(&mut self) {
        self.behind = None;
        let opened = self.known.open_closed();
        self.note_unwritten(opened);
        lock(&self.hub.tally).status.behind = None;
        deferred_log::log(|| tracing::warn!("the store of the sequences is gone on with"));
    }
}
