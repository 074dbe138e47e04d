//! What is held for all handles, and what is to be said to those who find nothing. Behind one lock; knows no clock.

use std::collections::VecDeque;
use std::time::Duration;

use xuid_protocol::Run;

use super::age::AgeGroup;
use super::held::Held;
use super::stats::PrefetchStats;
use crate::error::ClientError;
use crate::moment::Moment;

/// A handle takes at least so many ids, if they are there: a lock each is enough for the slowest of users.
const LEAST_TAKEN: u64 = 8;

#[derive(Debug)]
pub(super) struct Pool {
    max_age: Duration,
    /// About oldest first.
    runs: VecDeque<Held>,
    /// Ids in `runs`.
    held: u64,
    /// Ids asked for, and not answered yet.
    asked: u64,
    /// Ids ever taken.
    taken: u64,
    /// With fewer held and asked for, a taker demands more.
    low: u64,
    /// Somebody took, and so little is left that it is time for more. An idle source has none, and is not refilled.
    demand: bool,
    handles: u64,
    /// Replies and failures that waiting callers were told of.
    pub(super) news: u64,
    failure: Option<ClientError>,
    /// Refilling has stopped until somebody asks again, for the failure will not pass by itself.
    stopped: bool,
    closed: bool,
    /// Nothing that was asked for until then is good.
    voided: Option<Moment>,
    /// Ids that grew old here, and that the refiller was not told of.
    grown_old: u64,
    stats: PrefetchStats,
}

impl Pool {
    pub(super) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            runs: VecDeque::new(),
            held: 0,
            asked: 0,
            taken: 0,
            low: 1,
            demand: true,
            handles: 0,
            news: 0,
            failure: None,
            stopped: false,
            closed: false,
            voided: None,
            grown_old: 0,
            stats: PrefetchStats::default(),
        }
    }

    /// A run for a handle, not older than allowed (P2) and not called off: whole, or as much as leaves something for
    /// the other handles.
    pub(super) fn take(&mut self, now: Moment, oldest: AgeGroup) -> Option<Held> {
        loop {
            let run = self.runs.front_mut()?;
            if !run.is_good(now, self.max_age, oldest) {
                let run = self.runs.pop_front()?;
                self.held -= run.left();
                self.stats.wasted_by_age += run.left();
                continue;
            }
            let share = (self.held / (2 * self.handles.max(1))).max(LEAST_TAKEN);
            let front = run.take_front(share);
            if run.left() == 0 {
                self.runs.pop_front();
            }
            self.held -= front.left();
            self.taken += front.left();
            return Some(front);
        }
    }

    /// Whether a taker should wake the refiller now.
    pub(super) fn raise_demand(&mut self) -> bool {
        let is_new = !self.demand && !self.stopped && self.held + self.asked < self.low;
        self.demand |= is_new;
        is_new
    }

    /// Takes back what a handle is done with: it was given `had` ids.
    pub(super) fn settle(&mut self, had: u64, rest: &Held) {
        self.stats.issued += had - rest.left();
        let wasted = if self.closed { &mut self.stats.wasted_at_end } else { &mut self.stats.wasted_by_age };
        *wasted += rest.left();
    }

    /// Takes back the rest of a handle that ends. The rest is held again, if it is good.
    pub(super) fn give_back(&mut self, had: u64, rest: Held, oldest: AgeGroup) {
        if self.closed || rest.group() < oldest || rest.left() == 0 {
            return self.settle(had, &rest);
        }
        self.stats.issued += had - rest.left();
        self.held += rest.left();
        self.runs.push_front(rest);
    }

    pub(super) fn join(&mut self) {
        self.handles += 1;
    }

    pub(super) fn leave(&mut self) {
        self.handles -= 1;
    }

    /// What the refiller must know to decide: ids held or under way, and ids ever taken. `None`: nothing to do.
    pub(super) fn demanded(&self) -> Option<(u64, u64)> {
        (self.demand && !self.stopped && !self.closed).then_some((self.held + self.asked, self.taken))
    }

    /// So many more were asked for, which answers the demand; below `low` there is another.
    pub(super) fn ask(&mut self, count: u64, low: u64) {
        self.asked += count;
        self.low = low;
        self.demand = false;
    }

    /// A refill came, asked for with `count`. `oldest` is what was called off before the lock was taken: that is not
    /// looked for again.
    pub(super) fn put(
        &mut self,
        count: u64,
        runs: Vec<Run>,
        group: AgeGroup,
        asked: Moment,
        oldest: AgeGroup,
    ) {
        self.asked -= count;
        self.failure = None;
        self.stopped = false;
        self.stats.refills += 1;
        self.news += 1;
        for run in runs {
            self.stats.received += u64::from(run.count);
            if self.closed {
                self.stats.wasted_at_end += u64::from(run.count);
            } else if group < oldest || self.voided.is_some_and(|voided| asked <= voided) {
                self.stats.wasted_by_age += u64::from(run.count);
            } else if run.count > 0 {
                self.held += u64::from(run.count);
                self.runs.push_back(Held::new(run, group, asked));
            }
        }
    }

    /// A refill failed. `stop`: it will not get better by trying.
    pub(super) fn fail(&mut self, count: u64, error: ClientError, stop: bool) {
        self.asked -= count;
        self.failure = Some(error);
        self.stopped |= stop;
        self.demand = true;
        self.stats.failed_refills += 1;
        self.news += 1;
    }

    /// Drops what is of an age group called off.
    pub(super) fn call_off(&mut self, oldest: AgeGroup) {
        let before = self.held;
        self.runs.retain(|run| {
            let keep = run.group() >= oldest;
            self.held -= if keep { 0 } else { run.left() };
            keep
        });
        self.stats.wasted_by_age += before - self.held;
        self.grown_old += before - self.held;
    }

    /// What was asked for until then, and comes from now on, is wasted.
    pub(super) fn void_until(&mut self, now: Moment) {
        self.voided = Some(now);
    }

    /// How many ids grew old here since the last call.
    pub(super) fn take_grown_old(&mut self) -> u64 {
        std::mem::take(&mut self.grown_old)
    }

    /// Somebody found nothing and begins to wait: what was given up is tried again.
    pub(super) fn begin_wait(&mut self) {
        self.stats.waits += 1;
        self.stopped = false;
        self.demand |= self.held + self.asked < self.low;
    }

    /// What somebody who waited and found nothing must be told at once.
    pub(super) fn final_word(&self) -> Option<ClientError> {
        if self.stopped { self.failure.clone() } else { None }
    }

    pub(super) fn failure(&self) -> Option<ClientError> {
        self.failure.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.news += 1;
        self.stats.wasted_at_end += self.held;
        self.held = 0;
        self.runs.clear();
    }

    pub(super) fn stats(&self) -> PrefetchStats {
        PrefetchStats { held: self.held, ..self.stats }
    }
}
