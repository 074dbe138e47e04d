//! The keeper: ends calls whose time is over, measures how fast names are used, and looks at the clock. It never waits for
//! anything else, so calls end in time while the store does not answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::SECOND;
use crate::sequence::name::SequenceName;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::{Named, Queued};
use crate::sys::atomics::lock;
use crate::sys::deferred_log;

/// Between two looks at names that are in use.
const EVERY: u64 = SECOND;

/// Between two looks at all names: those that nobody uses any more leave the table.
const SWEEP: u64 = 10 * SECOND;

/// Names that leave in one sweep at most, so that it is over soon.
const MOST_SWEPT: usize = 10_000;

/// The keeper.
pub(crate) struct Keeper {
    hub: Arc<Hub>,
    /// Names in use.
    active: Vec<Arc<Named>>,
    looked: u64,
    swept: u64,
}

impl Keeper {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let boot = hub.clock.read().boot;
        Self { hub, active: Vec::new(), looked: boot, swept: boot }
    }

    /// Turns until the sequences are closed.
    pub(crate) fn run(mut self) {
        self.hub.keeper.adopt_current();
        while !self.hub.is_closed() {
            let wait = deferred_log::collected(|| {
                catch_unwind(AssertUnwindSafe(|| self.turn())).unwrap_or_else(|_| {
                    self.hub.panics.add(1);
                    Duration::from_secs(1)
                })
            });
            // A line, or a waker, is a stranger's code, which may fork: the child goes on here, and ends.
            if self.hub.forked() {
                std::mem::forget(self);
                return;
            }
            self.hub.keeper.wait(wait);
        }
    }

    /// One turn; how long there is nothing to do.
    pub(crate) fn turn(&mut self) -> Duration {
        let boot = self.hub.look().boot;
        let (overdue, next) = self.hub.deadlines.overdue(boot);
        for (named, waiter) in overdue {
            self.hub.expire(&named, &waiter, boot);
        }
        if boot.saturating_sub(self.looked) >= EVERY {
            self.looked = boot;
            self.look_at_names(boot);
        }
        if boot.saturating_sub(self.swept) >= SWEEP {
            // A full sweep left some behind: the next one is a second later.
            self.swept = if self.sweep() < MOST_SWEPT { boot } else { boot + EVERY - SWEEP };
        }
        let next = next.unwrap_or(u64::MAX).min(self.looked + EVERY);
        Duration::from_nanos(next.saturating_sub(boot))
    }

    /// Measures, asks for what is due, and finds the name that runs out first.
    fn look_at_names(&mut self, boot: u64) {
        self.active.extend(self.hub.take_activated());
        let (mut shortest, mut holding): (Option<(SequenceName, Duration)>, _) = (None, 0);
        let hub = &self.hub;
        self.active.retain(|named| {
            let mut state = named.lock();
            let taken = state.taken();
            state.pace.note(boot, taken, hub.config.hold);
            let is_over = state.pace.lay_idle(boot) >= hub.config.idle
                && state.line.is_empty()
                && state.queued == Queued::No;
            // Not of one that nobody uses: that would stay in use, asked for once a second where it has no row.
            if !is_over {
                hub.ask_if_due(named, &mut state, boot);
            }
            holding += usize::from(state.chain.in_segments() > 0);
            if let Some(lasts) = Named::lasts(&state, boot)
                && shortest.as_ref().is_none_or(|(_, least)| lasts < *least)
            {
                shortest = Some((named.name.clone(), lasts));
            }
            state.is_active = !is_over;
            !is_over
        });
        let tally = &mut *lock(&self.hub.tally);
        tally.holding = holding;
        tally.status.shortest = shortest;
    }

    /// Names that no caller has and nothing happens to leave the table; what is left of them is kept. How many left.
    fn sweep(&self) -> usize {
        let is_over = |named: &Named| {
            let state = named.lock();
            !state.is_active && state.queued == Queued::No && state.line.is_empty()
        };
        self.hub.sweep(is_over, MOST_SWEPT)
    }
}
