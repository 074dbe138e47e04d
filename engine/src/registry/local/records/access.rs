//! Working under the file's lock, on the file that was opened.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::{REMEDY, Records};
use crate::clock::SECOND;
use crate::registry::local::disk::{Disk, LOCK_WAIT, lock_within};
use crate::registry::local::format::Place;
use crate::registry::local::header::HeaderPair;
use crate::registry::{ReadError, SwapError};
use crate::sys::deferred_log;

/// So long after the lock was waited for in vain it is tried without waiting: a stop has something to hand back for each
/// worker, and must not wait for each.
const MISSED: u64 = SECOND / 2;

impl<D: Disk> Records<D> {
    /// Does something under the lock, on the file that was opened.
    pub(in crate::registry::local) fn locked<T, E: From<ReadError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let boot = self.clock.read().boot;
        let was_missed = self.missed_lock.is_some_and(|missed| boot.saturating_sub(missed) < MISSED);
        let limit = if was_missed { Duration::ZERO } else { LOCK_WAIT };
        match lock_within(&mut self.disk, limit) {
            Ok(true) => self.missed_lock = None,
            Ok(false) => {
                if !was_missed {
                    self.missed_lock = Some(self.clock.read().boot);
                }
                let why = format!("another process kept it locked for {LOCK_WAIT:?}");
                return Err(ReadError::Unavailable { why }.into());
            }
            Err(error) => return Err(unavailable("lock", &error).into()),
        }
        self.is_locked = true;
        // A panic must not keep others out: they wait for this lock, and the next one to take it here may come late.
        // Nor must a line, which a subscriber may stand still at: who calls this may be no thread of the engine's.
        let (result, unsaid) = deferred_log::collect(|| {
            let work = AssertUnwindSafe(|| self.verify().map_err(E::from).and_then(|()| work(self)));
            let result = catch_unwind(work);
            self.unlock();
            result
        });
        unsaid.say();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Tries a disk that failed again, if it is time for that, and ends the doubt that a panic left. A process that
    /// only reads needs it as well: a change of its own is in doubt until then.
    pub(in crate::registry::local) fn recover(&mut self) {
        let is_due = match &self.poison {
            Some(poison) => self.clock.read().boot >= poison.retry,
            None => !self.doubtful.is_empty(),
        };
        if is_due {
            // What fails says so itself, and is tried again later.
            let _: Result<(), SwapError> = self.locked(Self::cure);
        }
    }

    /// Changes something under the lock.
    pub(in crate::registry::local) fn change(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), SwapError>,
    ) -> Result<(), SwapError> {
        if let Some(poison) = self.poison.as_ref().filter(|poison| self.clock.read().boot < poison.retry) {
            return Err(SwapError::Unavailable { why: poison.why.clone() });
        }
        let work = |records: &mut Self| {
            records.cure()?;
            work(records)
        };
        self.locked(work)
    }

    /// Whether the open file is still the registry that was opened: a file that was replaced, shortened or written
    /// over while we run is noticed before anything is believed or written.
    pub(in crate::registry::local) fn verify(&mut self) -> Result<(), ReadError> {
        if let Some(why) = &self.put_back {
            return Err(ReadError::Foreign { why: why.clone() });
        }
        let foreign = |what: String| Err(ReadError::Foreign { why: format!("{what}; {REMEDY}") });
        if !self.disk.in_place().map_err(|error| unavailable("look at", &error))? {
            return foreign("its file was removed or replaced".into());
        }
        let (size, least) =
            (self.disk.size().map_err(|error| unavailable("measure", &error))?, self.geometry().bytes());
        if size < least {
            return foreign(format!("its file has {size} bytes and should have {least}"));
        }
        let kind = self.header.kind();
        match HeaderPair::read(&self.disk, kind).map_err(|error| unavailable("read", &error))? {
            Err(flaw) => foreign(flaw.to_string()),
            Ok(found) if found.header.genesis != self.header.genesis => {
                let (now, then) = (found.header.genesis.cluster, self.header.genesis.cluster);
                foreign(format!("its header names cluster {now}, and cluster {then} was opened"))
            }
            Ok(found) if !found.header.identity.same_file(&self.header.identity) => foreign(format!(
                "its header belongs to {}, and it is {}: another copy was written over it",
                found.header.identity, self.header.identity
            )),
            Ok(found) => self.learn_header(&found),
        }
    }

    /// Another process may have made the file of sequences longer, or opened it to new names. What it did not end, as it
    /// was killed, is ended first: how long the file is has to stand in both headers before a new slot is used.
    fn learn_header(&mut self, found: &HeaderPair) -> Result<(), ReadError> {
        let (Some(known), Some(now)) = (&self.header.sequences, &found.header.sequences) else {
            return Ok(());
        };
        if known.era != now.era || now.slots < known.slots {
            let why = format!("its header is that of another time; {REMEDY}");
            return Err(ReadError::Foreign { why });
        }
        // Only under the lock no process is in the middle of it.
        if !self.is_locked {
            return Ok(());
        }
        if found.sound != [true, true]
            && let Err(error) = found.replace(&mut self.disk, &found.header)
        {
            return Err(ReadError::Unavailable { why: self.doubt(Place::sequence(0), &error) });
        }
        self.header = found.header;
        Ok(())
    }

    /// Whether a change could be made now, as far as that shows without one: the file is the one that was opened, its lock
    /// is to be had, and the disk takes writes.
    pub(in crate::registry::local) fn probe(&mut self) -> Result<(), SwapError> {
        self.change(|_| Ok(()))?;
        // Without the lock: a disk that stands still must not keep others from it.
        self.disk.would_write().map_err(|error| SwapError::Unavailable { why: refused_write(&error) })
    }
}

fn refused_write(error: &std::io::Error) -> String {
    format!("its disk takes no writes ({error}): check the disk, and whether it is mounted read-only")
}

fn unavailable(action: &str, error: &std::io::Error) -> ReadError {
    ReadError::Unavailable { why: format!("failed to {action} its file: {error}") }
}
