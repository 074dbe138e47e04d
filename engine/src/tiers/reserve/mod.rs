//! Tier 3 and what the producer has : extents owned, elapsed and unspent, on disk or in memory.
//!
//! Only the producer's thread has it. Ids go round like this: what was not used in a second is coalesced and
//! appended to the spill; under a burst the registry is asked to move the spill's mark, and what lies below it is
//! read into `granted` and cut into blocks.
//!
//! # Invariants
//! - I1 an extent read from the spill is used only after the mark was moved past it (U4);
//! - I2 an extent is dropped from memory before its record is written, and whatever a failed write may have
//!   written is waste (U3);
//! - I3 what leaves here is not older than `max_age` (U7).

use xuid_id::Layout;
mod coalesce;
mod extent_queue;
pub(crate) mod open;

use xuid_spill::{AppendError, Extent, Log, SpillId};

use crate::id::run::{Block, Run};
use crate::registry::ownership::{GrantError, GrantRequest};
use crate::stats::published::ReserveTally;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;
use crate::tiers::reserve::coalesce::{Limits, coalesce};
use crate::tiers::reserve::extent_queue::ExtentQueue;

/// A grant is at most this many extents, and ...
const GRANT_EXTENTS: u64 = 64;

/// ... this many seconds of one worker's ids, so that a crash loses a bounded amount.
const GRANT_SECONDS: u64 = 64;

/// Grants held ahead under a burst.
const GRANTS_AHEAD: u64 = 2;

/// At light load only this part of the stock is held ahead: it bridges the first millisecond of a burst and the
/// loss of the registry, and a crash loses no more than that.
const CALM_PART: u64 = 8;

/// At light load a grant is asked for when this part of what shall be held ahead is missing: as the stock grows by an
/// extent a second, asking for each alone would be most of what a quiet engine asks of its registry.
const CALM_STEP: u64 = 4;

/// Extents kept in memory where there is no spill file: an hour of seconds, in pieces.
const MOST_IN_MEMORY: usize = 100_000;

/// An extent of less than this part of a tick is not worth a record: calls for fresh ids leave such scraps in
/// every tick, and as records they would crowd whole seconds out of the spill and out of grants.
const LEAST_PART: u32 = 4;

/// Into so many extents a backfill is split, at most about.
const MOST_LONG: u64 = 8192;

/// The reserve.
pub(crate) struct Reserve {
    layout: Layout,
    ticks_a_second: u64,
    max_age: u64,
    log: Option<Log>,
    pub(crate) why_not: Option<String>,
    mark: u64,
    granting: bool,
    /// What was appended to that file below this index may be in use in another copy of this machine: the mark is moved there,
    /// and nothing below is read, not by a later life either. It outlives the log.
    give_up: Option<(SpillId, u64)>,
    /// It is in the file still.
    unerased: bool,
    /// What was appended below this index is not in the file any more.
    erased_upto: u64,
    /// The log that was abandoned, and where what may have been written to it ends.
    abandoned: Option<(SpillId, u64)>,
    /// Everything below this index was too old when it was last looked at.
    alive_from: u64,
    /// Where the oldest extent of the file was found last, and the tick of the oldest id of all: for the figures only.
    oldest_from: u64,
    pub(crate) oldest_tick: Option<u64>,
    /// No grant is asked for before this instant of boot time.
    grant_after: u64,
    /// Fresh ids on their way into queue and ring.
    pub(crate) fresh: ExtentQueue,
    /// Of grants.
    granted: ExtentQueue,
    /// Ids that are only in memory: a backfill, or all of it where there is no spill.
    backlog: ExtentQueue,
    pub(crate) tally: ReserveTally,
}

impl Reserve {
    pub(crate) fn new(layout: Layout, max_age: u64, log: Result<(Log, u64), String>) -> Self {
        let (log, mark, why_not) = match log {
            Ok((log, mark)) => (Some(log), mark, None),
            Err(why_not) => (None, 0, Some(why_not)),
        };
        Self {
            layout,
            ticks_a_second: layout.ticks_in_ns(1_000_000_000),
            max_age,
            log,
            why_not,
            mark,
            granting: false,
            give_up: None,
            unerased: false,
            erased_upto: 0,
            abandoned: None,
            alive_from: 0,
            oldest_from: 0,
            oldest_tick: None,
            grant_after: 0,
            fresh: ExtentQueue::default(),
            granted: ExtentQueue::default(),
            backlog: ExtentQueue::default(),
            tally: ReserveTally::default(),
        }
    }

    fn stride(&self) -> u64 {
        self.layout.stride()
    }

    /// The first raw id that is not too old at `tick`.
    fn oldest(&self, tick: u64) -> u64 {
        let max_age = if Guard::AgeOfSpill.holds() { self.max_age } else { u64::MAX };
        tick.saturating_sub(max_age) * self.stride()
    }

    /// Finds the tick of the oldest id, in memory or in the file, that may still be used at `tick`. Extents lie in the
    /// order of time, nearly, so the first one of each place is looked at, and what was too old is not read again.
    pub(crate) fn look_for_oldest(&mut self, tick: u64) {
        let oldest = self.oldest(tick);
        let mut found: Option<u64> =
            [&self.granted, &self.backlog].iter().filter_map(|queue| queue.front()).min();
        if let Some(log) = &self.log {
            let begin = self.mark.max(self.alive_from).max(self.oldest_from).max(log.tail());
            let alive = log.first_alive(begin, oldest, log.head());
            self.oldest_from = alive.unwrap_or(log.head());
            let mut extents = Vec::new();
            // A record that cannot be read is counted where it is granted.
            let _ = alive.map(|index| log.read(index..index + 1, &mut extents));
            found = extents.iter().map(|(_, extent)| extent.first).chain(found).min();
        }
        self.oldest_tick = found.map(|first| first.max(oldest) / self.stride());
    }

    /// Ids in memory: what is at hand for a burst.
    pub(crate) fn held(&self) -> u64 {
        self.fresh.ids() + self.granted.ids() + self.backlog.ids()
    }

    /// Extents and ids that may still be granted, and damage is not among them.
    pub(crate) fn stock(&self) -> xuid_spill::Stock {
        self.log.as_ref().map(Log::stock).unwrap_or_default()
    }

    /// Whether there is a spill in use.
    pub(crate) fn has_spill(&self) -> bool {
        self.log.is_some()
    }

    /// Adds ids that only memory knows.
    pub(crate) fn keep(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.backlog.push(extent);
        }
        while self.backlog.extents() > MOST_IN_MEMORY {
            self.tally.wasted_spill += self.backlog.pop().map_or(0, |extent| extent.ids());
        }
    }

    /// Takes back what a call did not get. What lay with it for longer than a second is not fresh, and its age is looked
    /// at when it leaves (I3).
    pub(crate) fn take_back(&mut self, run: Run, tick: Option<u64>) {
        let youngest = tick.unwrap_or(0).saturating_sub(self.ticks_a_second) * self.stride();
        if run.raw() >= youngest || !Guard::AgeOfReturns.holds() {
            self.fresh.push_run(run);
        } else {
            self.keep([run.into_extent()]);
        }
    }

    /// Old ids, for a burst.
    fn old(&mut self, tick: u64) -> Option<&mut ExtentQueue> {
        let (oldest, stride) = (self.oldest(tick), self.stride());
        self.tally.expired += self.granted.expire(oldest, stride) + self.backlog.expire(oldest, stride);
        [&mut self.granted, &mut self.backlog].into_iter().find(|pieces| !pieces.is_empty())
    }

    /// A block for the queue: of fresh ids, and under a burst of old ones too.
    pub(crate) fn block(&mut self, tick: u64, burst: bool, longest: u32) -> Option<Block> {
        let stride = self.stride();
        if let Some(block) = self.fresh.take_block(longest, stride) {
            return Some(block);
        }
        if burst { self.old(tick)?.take_block(longest, stride) } else { None }
    }

    /// A run of fresh ids for a caller that waits. What became too old where the engine's time went ahead in a step is dropped:
    /// it would be gathered in vain.
    pub(crate) fn fresh_run(&mut self, tick: u64, most: u32) -> Option<Run> {
        let (oldest, stride) = (self.oldest(tick), self.stride());
        self.tally.expired += self.fresh.expire(oldest, stride);
        self.fresh.take(most, stride)
    }

    /// A run of old ids for a caller that waits.
    pub(crate) fn run(&mut self, tick: u64, most: u32) -> Option<Run> {
        let stride = self.stride();
        self.old(tick)?.take(most, stride)
    }

    fn limits(&self) -> Limits {
        Limits {
            max_ticks: (4 * self.ticks_a_second).max(1),
            least_ids: u64::from(self.layout.sequences() / LEAST_PART),
            max_extents: 8192,
        }
    }

    /// Fewer and larger extents of the same ids. What is long already (a backfill) is only split so that grants
    /// stay small, or, if it spans years, so that the file can hold it.
    fn coalesced(&mut self, pieces: Vec<Extent>) -> Vec<Extent> {
        let limits = self.limits();
        let is_long = |extent: &Extent| u64::from(extent.ticks) > limits.max_ticks;
        let (long, short): (Vec<_>, Vec<_>) = pieces.into_iter().partition(is_long);
        let ticks: u64 = long.iter().map(|extent| u64::from(extent.ticks)).sum();
        let most = (GRANT_SECONDS * self.ticks_a_second).max(ticks / MOST_LONG + 1).min(u64::from(u32::MAX));
        let mut extents = Vec::new();
        for extent in long {
            extents.extend(split(extent, most as u32, self.layout.stride()));
        }
        let coalesced = coalesce(short, &self.layout, &limits);
        self.tally.trimmed += coalesced.trimmed;
        extents.extend(coalesced.extents);
        extents
    }

    /// Coalesces what was not used and keeps it in memory: under a burst it is needed now.
    pub(crate) fn put_by(&mut self, pieces: Vec<Extent>) {
        let extents = self.coalesced(pieces);
        self.keep(extents);
    }

    /// What is only in memory and fit for the file: all but the long extents of a backfill.
    pub(crate) fn take_put_by(&mut self) -> Vec<Extent> {
        if self.log.is_none() || self.backlog.is_empty() {
            return Vec::new();
        }
        let most = self.limits().max_ticks;
        let (long, short): (Vec<_>, Vec<_>) =
            self.backlog.drain().into_iter().partition(|extent| u64::from(extent.ticks) > most);
        self.keep(long);
        short
    }

    /// Coalesces what was not used and puts it into the spill, or keeps it in memory where there is none.
    pub(crate) fn put_away(&mut self, pieces: Vec<Extent>) {
        if pieces.is_empty() {
            return;
        }
        let extents = self.coalesced(pieces);
        let ids = extents.iter().map(Extent::ids).sum::<u64>();
        let Some(log) = &mut self.log else { return self.keep(extents) };
        match log.append(&extents) {
            Ok(appended) => {
                crash_point!(Appended);
                self.tally.spilled += ids;
                self.tally.overwritten += appended.dropped.ids;
            }
            Err(error) => {
                self.tally.failures += 1;
                let may_be_written =
                    matches!(error, AppendError::Io { .. }) && Guard::FailedAppendWasted.holds();
                self.abandon(&format!("an append failed: {}", with_source(&error)));
                if may_be_written {
                    // Some of it may lie beyond the head.
                    let tried = extents.len() as u64;
                    self.abandoned = self.abandoned.map(|(log, head)| (log, head + tried));
                    self.tally.wasted_spill += ids;
                } else {
                    self.keep(extents);
                }
            }
        }
    }

    /// Goes on without a spill.
    pub(crate) fn abandon(&mut self, why: &str) {
        let reason = why.to_owned();
        deferred_log::log(move || {
            tracing::error!(why = reason, "the spill is given up; unused ids are kept in memory from now on");
        });
        self.abandoned = self.stock_of_log().or(self.abandoned);
        self.log = None;
        self.why_not = Some(why.to_owned());
    }

    /// The next grant to ask the registry for, if one is wanted.
    pub(crate) fn plan_grant(&mut self, tick: u64, boot: u64, burst: bool) -> Option<GrantRequest> {
        let second = self.ticks_a_second * u64::from(self.layout.sequences());
        let most = GRANT_SECONDS.saturating_mul(second);
        if self.granting || boot < self.grant_after {
            return None;
        }
        if let Some(request) = self.plan_giving_up() {
            return Some(request);
        }
        // What became too old where it lay is none at hand: it bridges nothing.
        let (too_old, stride) = (self.oldest(tick), self.stride());
        self.tally.expired += self.granted.expire(too_old, stride);
        let log = self.log.as_ref()?;
        let ahead = most.saturating_mul(GRANTS_AHEAD);
        let wanted = if burst { ahead } else { ahead.min(log.stock().ids / CALM_PART) };
        let least = if burst { 1 } else { (wanted / CALM_STEP).max(1) };
        let room = wanted.checked_sub(self.granted.ids()).filter(|room| *room >= least)?.min(most);
        // A sixth of an extent's life must be left, or it would be wasted on the way.
        let oldest = tick.saturating_sub(self.max_age - self.max_age / 6) * self.layout.stride();
        let begin = self.mark.max(self.alive_from).max(log.tail());
        let alive = log.first_alive(begin, oldest, log.head());
        // What is too old stays so, and is not read again each turn.
        self.alive_from = alive.unwrap_or(log.head());
        let from = alive?;
        let mut upto = from;
        while upto < log.head() && upto - from < GRANT_EXTENTS && log.peek_stock(from..upto + 1).ids <= room {
            upto += 1;
        }
        // Under a burst a single extent may be larger than all the room there is.
        if upto == from && burst {
            upto += 1;
        }
        if upto == from {
            return None;
        }
        self.granting = true;
        Some(GrantRequest { spill: log.id(), from, upto, gives_up: false, is_erased: false })
    }

    /// Whether a grant is under way whose extents can be read.
    pub(crate) fn is_granting(&self) -> bool {
        self.granting && self.log.is_some()
    }

    /// The registry's answer to a grant.
    pub(crate) fn granted(&mut self, from: u64, result: Result<u64, GrantError>, boot: u64) {
        self.granting = false;
        self.erase_given_up();
        let Some(log) = &mut self.log else { return self.gave_up(&result, boot) };
        match result {
            Ok(upto) => {
                let mut found = Vec::new();
                // What an append to a full log has overwritten meanwhile is gone, and counted there.
                let readable = from.max(log.tail())..upto.max(log.tail());
                let read = log.read(readable.clone(), &mut found);
                let read = read.map_err(|error| (error, log.peek_stock(readable).ids));
                crash_point!(ExtentsRead);
                log.resume_at(upto);
                self.mark = upto;
                self.tally.granted_extents += upto - from;
                let lost = match read {
                    Ok(damage) => {
                        self.tally.damaged += damage.records;
                        damage.ids
                    }
                    Err((error, unread)) => {
                        self.abandon(&format!("a read failed: {}", with_source(&error)));
                        unread
                    }
                };
                // Granted and not to be read: no other process gets them either.
                self.tally.replayed += lost;
                self.tally.wasted_grant += lost;
                for (_, extent) in found {
                    self.tally.replayed += extent.ids();
                    self.granted.push(extent);
                }
            }
            Err(GrantError::Moved { granted_upto }) => {
                deferred_log::log(move || {
                    tracing::warn!(
                        granted_upto,
                        "another process moved this spill's mark: a copy of it is in use"
                    );
                });
                log.resume_at(granted_upto);
                self.mark = granted_upto;
            }
            Err(GrantError::Later { why }) => {
                deferred_log::log(move || tracing::debug!(why, "no extents were granted"));
                self.grant_after = boot + 1_000_000_000;
            }
            Err(GrantError::Refused { why }) => {
                self.tally.refused += 1;
                self.leave_giving_up(&why);
                self.abandon(&why);
            }
        }
    }

    /// The same for a file that is used no more, of which nothing is asked but that its mark is moved.
    fn gave_up(&mut self, result: &Result<u64, GrantError>, boot: u64) {
        match result {
            Ok(mark) | Err(GrantError::Moved { granted_upto: mark }) => self.mark = *mark,
            Err(GrantError::Later { .. }) => self.grant_after = boot + 1_000_000_000,
            Err(GrantError::Refused { why }) => self.leave_giving_up(why),
        }
    }

    /// The registry never moves that mark. The next process is refused the file as this one is, but where what was unreadable is
    /// mended; what was erased is not there for it either.
    fn leave_giving_up(&mut self, why: &str) {
        if self.give_up.take().is_some_and(|(_, upto)| self.mark < upto && self.erased_upto < upto) {
            let why = why.to_owned();
            deferred_log::log(move || {
                tracing::error!(
                    why,
                    "what is in the spill was to be given up, and its mark cannot be moved: where that is not for a fence, which \
                     did so, remove this process's spill file from the data folder before it is started again, or those ids \
                     can come twice"
                );
            });
        }
    }

    /// What is in memory and shall not be used: the clock stepped as it does after a resume from a snapshot. Nor is what is in the
    /// spill: where that took the registry back, too, so it did the mark; and where a copy ran for some seconds before its clock
    /// was stepped, each may have put there what both had.
    pub(crate) fn void(&mut self, copied: bool) {
        let gives_up = if copied { Guard::CopyGivesUpSpill } else { Guard::LeapGivesUpSpill };
        if gives_up.holds() {
            self.give_up_stock();
            self.unerased = self.log.is_some() && Guard::LeapErasesSpill.holds();
        }
        if !Guard::LeapDropsReserve.holds() {
            return;
        }
        self.tally.wasted_step += self.held();
        for pieces in [&mut self.fresh, &mut self.granted, &mut self.backlog] {
            pieces.drain();
        }
    }

    /// Takes what is given up out of the file, so that a grant that is under way finds nothing there, nor does the next process
    /// if this one is killed before the registry moved the mark. Not under the gate's lock, since the disk may stand still.
    pub(crate) fn erase_given_up(&mut self) {
        if !std::mem::take(&mut self.unerased) {
            return;
        }
        let (Some(log), Some((_, upto))) = (&mut self.log, self.give_up) else { return };
        match log.erase(upto) {
            Ok(erased) => {
                self.erased_upto = upto;
                self.tally.replayed += erased.ids;
                self.tally.wasted_step += erased.ids;
            }
            Err(error) => {
                self.tally.failures += 1;
                self.abandon(&format!("what it holds could not be erased: {}", with_source(&error)));
            }
        }
    }

    /// A copy of this process runs, and did for a while: what both had in memory may have been appended here since. No
    /// process gets what is in the file, this one's successor included.
    pub(crate) fn give_up_stock(&mut self) {
        self.give_up = self.stock_of_log().or(self.abandoned).or(self.give_up);
    }

    /// The log, and how far it goes.
    fn stock_of_log(&self) -> Option<(SpillId, u64)> {
        self.log.as_ref().map(|log| (log.id(), log.head()))
    }

    /// The grant that moves the mark past what is given up; it brings nothing, as that is erased.
    pub(crate) fn plan_giving_up(&mut self) -> Option<GrantRequest> {
        let (spill, upto) = self.give_up.filter(|(_, upto)| self.mark < *upto)?;
        self.granting = true;
        Some(GrantRequest {
            spill,
            from: upto - 1,
            upto,
            gives_up: true,
            is_erased: self.erased_upto >= upto,
        })
    }

    /// The clean stop: everything in memory goes to disk and is synced. A failed sync is waste.
    pub(crate) fn seal(&mut self, mut pieces: Vec<Extent>, tick: u64) {
        let (oldest, stride) = (self.oldest(tick), self.stride());
        self.tally.expired += self.granted.expire(oldest, stride) + self.backlog.expire(oldest, stride);
        for kept in [&mut self.fresh, &mut self.granted, &mut self.backlog] {
            pieces.extend(kept.drain());
        }
        self.erase_given_up();
        let before = self.tally.spilled;
        self.put_away(pieces);
        let appended = self.tally.spilled - before;
        // Where there is no file, what is only in memory ends here.
        self.tally.wasted_spill += self.backlog.ids();
        self.backlog.drain();
        crash_point!(StopAppended);
        let synced = self.log.as_mut().map_or(Ok(()), Log::sync);
        if let Err(error) = synced {
            self.tally.failures += 1;
            self.tally.spilled = before;
            self.tally.wasted_spill += appended;
            let error = with_source(&error);
            deferred_log::log(move || tracing::error!(error = %error, "the last sync of the spill failed"));
        }
    }
}

/// An extent in pieces of at most so many ticks.
fn split(extent: Extent, most: u32, stride: u64) -> impl Iterator<Item = Extent> {
    let begins = (0..extent.ticks).step_by(most as usize);
    begins.map(move |begin| Extent {
        first: extent.first + u64::from(begin) * stride,
        len: extent.len,
        ticks: most.min(extent.ticks - begin),
    })
}

/// An error and its causes, for a log line.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
