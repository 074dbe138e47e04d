//! The one lock in front of clock and minter, and the wait queues before it.
//!
//! Held for a few hundred nanoseconds at a time by callers that found ring and queue empty, and for some milliseconds at
//! most by the producer ([`MOST_STEPS`]); never during I/O. Lock order: gate, then a ticket.
//!
//! # Invariants
//! - I1 no call cuts directly while a ticket waits that can be served, so that a burst cannot starve what came first; but
//!   for small calls where only large tickets wait: the second half of the tick that runs is theirs;
//! - I2 the wait queues are served in turn, each so that callers share what there is ([`WaitQueue`]);
//! - I3 no waker is called under the lock.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use xuid_id::Order;

use crate::clock::SECOND;
use crate::clock::engine_clock::{EngineClock, Now};
use crate::id::error::{IdError, IdErrorKind};
use crate::id::run::Run;
use crate::mint::minter::Minter;
use crate::mint::ticket::{Ticket, Voids};
use crate::mint::wait_queue::{Caller, QUEUES, WaitQueue};
use crate::mint::worker::Part;
use crate::stats::counters::{AtomicCount, Tier};
use crate::sys::guards::Guard;

/// A ticket of at most this many ids is small: a sixteenth of the default layout's tick, so that small ones do
/// not queue up behind arrays that take whole ticks.
const SMALL: u32 = 256;

/// So many ticks after a small call large ones still leave some of each tick to it.
const SMALL_ABOUT: u64 = 16;

/// The wait queue of ordered tickets. Before it: small and large ones of any age, small and large fresh ones. Each order
/// has queues of its own, because one that waits for the clock must not hold up those that do not.
const ORDERED: usize = QUEUES - 1;

/// Whether a wait queue is one of large tickets.
fn is_large(queue: usize) -> bool {
    queue < ORDERED && queue % 2 == 1
}

/// Ids a queue gets before it is the next one's turn.
const QUANTUM: u32 = 256;

/// Waiting calls at once. Each is some 200 bytes; beyond that a caller is told to come back.
const MOST_WAITING: usize = 100_000;

/// A caller may have such a part of the places that are left. So some are left for others, however many callers fill the line.
const PART_OF_PLACES: usize = 16;

/// So many quanta are given out in a pass at most: other threads wait for the lock meanwhile.
const MOST_STEPS: u32 = 16 * 1024;

/// Of a queue that is longer than this, those whose callers went away are looked for at such intervals only: each is a lock
/// that lies in nobody's cache.
const LONG_QUEUE: usize = 1_024;
const LOOK_INTERVAL: u64 = SECOND / 10;

/// Why there may be no ids.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// No window was granted yet, or the registry is away.
    NoWindow { why: String },
    /// Another process got the worker.
    WindowLost,
    /// The clock went back; so many nanoseconds until it has caught up, or a worker is free at its time.
    Behind { wait: u64 },
}

/// The engine's clock, the minter, and the wait queues before it.
pub(crate) struct Gate {
    pub(crate) clock: EngineClock,
    pub(crate) minter: Minter,
    queues: [WaitQueue; QUEUES],
    next_queue: usize,
    /// When all that wait were looked at last, in boot time.
    looked: u64,
    /// The tick of the last small call: from then on large ones leave it some of each tick, for a while.
    small_call: Option<u64>,
    pub(crate) trouble: Option<Trouble>,
    /// A window was asked for, of a registry that answers: ids are on their way.
    pub(crate) coming: bool,
    pub(crate) closed: bool,
}

impl Gate {
    pub(crate) fn new(clock: EngineClock, minter: Minter) -> Self {
        Self {
            clock,
            minter,
            queues: std::array::from_fn(WaitQueue::new),
            next_queue: 0,
            looked: 0,
            small_call: None,
            trouble: None,
            coming: false,
            closed: false,
        }
    }

    /// The clock went back and windows of other workers were taken: the engine's time goes to the wall, every held
    /// worker ends. Returns what each leaves untouched.
    pub(crate) fn switch(&mut self) -> Vec<(u32, u64)> {
        self.clock.switch();
        self.minter.switch()
    }

    /// Whether a plot is owned and still to be cut. Not after a leap of the clock: another copy of this machine may have the
    /// same windows.
    pub(crate) fn is_uncut(&self, plot: u64) -> bool {
        !self.clock.has_leapt() && self.minter.is_uncut(plot)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.iter().map(WaitQueue::len).sum()
    }

    /// How many wait for ids: those whose callers pause wait for these.
    pub(crate) fn servable(&self) -> usize {
        self.queues.iter().map(WaitQueue::servable).sum()
    }

    /// When the time of the first one is over whose caller pauses, in boot time.
    pub(crate) fn paused_until(&self) -> Option<u64> {
        self.queues.iter().filter_map(WaitQueue::paused_until).min()
    }

    /// Cuts one run of up to `most` ids for a call of `count` that may not wait. `None` where others go first, or nothing
    /// is left, or where a leap of the clock was not dealt with: another copy of this machine may have the same windows.
    pub(crate) fn cut(
        &mut self,
        order: Order,
        least_tick: u64,
        now: &Now,
        (count, most): (u32, u32),
    ) -> Option<Run> {
        let is_small = count <= SMALL;
        if is_small {
            self.small_call = now.tick;
        }
        let leapt = self.clock.has_leapt() && Guard::LeapStopsCuts.holds();
        if self.closed || leapt || self.ordered_first(now) || self.unordered_first(count) {
            return None;
        }
        let part = match is_small {
            true if self.large_wait() => Part::SecondHalf,
            true => Part::Whole,
            false => self.part_for_large(now),
        };
        self.cut_in_line(order, least_tick, now, part, most)
    }

    /// Whether a call waits that asked for no order, and behind which one for `count` ids belongs (I1).
    pub(crate) fn unordered_first(&self, count: u32) -> bool {
        let passes = |queue| count <= SMALL && is_large(queue);
        (0..ORDERED).any(|queue| !passes(queue) && !self.queues[queue].is_empty())
    }

    /// Whether a call for ordered ids waits that can be served. Ordered calls that wait for the clock to pass the last
    /// ordered id cannot, and hold up no other call.
    fn ordered_first(&self, now: &Now) -> bool {
        !self.queues[ORDERED].is_empty() && self.minter.ordered_waits(now) == 0
    }

    fn large_wait(&self) -> bool {
        (0..ORDERED).any(|queue| is_large(queue) && !self.queues[queue].is_empty())
    }

    /// What large calls may have: where there are small ones, too, not the second half of the tick that runs. It is
    /// theirs when it has elapsed.
    fn part_for_large(&self, now: &Now) -> Part {
        let about = |tick: u64| self.small_call.is_some_and(|last| tick.saturating_sub(last) <= SMALL_ABOUT);
        if now.tick.is_some_and(about) { Part::FirstHalf } else { Part::Whole }
    }

    fn cut_in_line(
        &mut self,
        order: Order,
        least_tick: u64,
        now: &Now,
        part: Part,
        most: u32,
    ) -> Option<Run> {
        match order {
            Order::Any => self.minter.any(now, part, most),
            // After a switch of worker the clock is behind the one the caller came by: the newest there is.
            Order::Fresh => self.minter.fresh(now, least_tick.min(now.tick?), part, most),
            Order::Ordered => self.minter.ordered(now, most),
        }
    }

    /// Puts a ticket in a queue, or says why it would wait in vain.
    pub(crate) fn enqueue(
        &mut self,
        ticket: Arc<Ticket>,
        caller: Option<&Caller>,
    ) -> Result<(), Arc<Ticket>> {
        if self.closed || !self.has_place(caller) {
            return Err(ticket);
        }
        let large = usize::from(ticket.count > SMALL);
        let queue = match ticket.order {
            Order::Any => large,
            Order::Fresh => 2 + large,
            Order::Ordered => ORDERED,
        };
        self.queues[queue].push(ticket, caller);
        Ok(())
    }

    /// Whether one more call of that caller may wait.
    fn has_place(&self, caller: Option<&Caller>) -> bool {
        let left = MOST_WAITING.saturating_sub(self.waiting());
        caller.map_or(left > 0, |caller| caller.waiting() < left / PART_OF_PLACES)
    }

    /// Whether a window is held that reaches beyond now.
    pub(crate) fn holds_window(&self, now: &Now) -> bool {
        let beyond =
            |tick: u64| self.minter.workers.iter().any(|held| held.end().is_some_and(|end| end > tick));
        now.tick.is_some_and(beyond)
    }

    /// Whether a call that waits for ids of now may get some: a window is held or on its way, or the clocks changed and
    /// the producer has not looked at the windows since.
    pub(crate) fn has_prospects(&self, now: &Now) -> bool {
        self.holds_window(now) || self.coming || self.clock.is_unsettled()
    }

    /// Why a call may not wait.
    pub(crate) fn refusal_in_line(&self, now: &Now, order: Order) -> IdError {
        let error = self.refusal(now, order, Duration::ZERO);
        match (error.kind(), error.retry_after()) {
            (IdErrorKind::Overloaded, Some(pause)) => IdError::without_place(pause),
            _ => error,
        }
    }

    /// Why a call got no ids now.
    pub(crate) fn refusal(&self, now: &Now, order: Order, wait: Duration) -> IdError {
        let soon = Duration::from_millis(100);
        if self.closed {
            return IdError::SHUTTING_DOWN;
        }
        // A clock that comes back from beyond the last tick is behind: that passes.
        let behind = matches!(self.trouble, Some(Trouble::Behind { .. }));
        if now.tick.is_none() && !behind {
            return IdError::EXHAUSTED;
        }
        let held = self.holds_window(now);
        match &self.trouble {
            Some(Trouble::Behind { wait }) => IdError::clock_behind(Duration::from_nanos(*wait)),
            Some(Trouble::WindowLost) if !held => IdError::window_lost(soon),
            _ if !held => IdError::not_ready(soon),
            _ if order == Order::Ordered && self.minter.ordered_waits(now) > 0 => {
                let waits = Duration::from_nanos(self.minter.ordered_waits(now));
                // Without a step another held worker serves now, and engine time is still in the tick of the last one.
                if self.minter.went_back() {
                    IdError::clock_behind(waits)
                } else {
                    IdError::overloaded(wait, waits)
                }
            }
            _ => IdError::overloaded(wait, Duration::from_millis(50)),
        }
    }

    /// Serves the queues with `any` runs from `supply` and all else from the minter, as far as both go, and counts in
    /// `given` what they get. Returns what expired or ended tickets gave back.
    pub(crate) fn serve(
        &mut self,
        now: &Now,
        given: &AtomicCount,
        mut supply: impl FnMut(&mut Minter, Part, u32) -> Option<(Run, Tier)>,
    ) -> Service {
        let mut service = Service::default();
        self.queues.iter_mut().for_each(WaitQueue::resume);
        self.expire(now, &mut service);
        let mut steps = 0;
        while steps < MOST_STEPS {
            let before = steps;
            for _ in 0..self.queues.len() {
                self.next_queue = (self.next_queue + 1) % self.queues.len();
                steps += u32::from(self.serve_front(self.next_queue, now, given, &mut supply, &mut service));
            }
            if steps == before {
                return service;
            }
        }
        service.is_cut_short = true;
        service
    }

    fn serve_front(
        &mut self,
        queue: usize,
        now: &Now,
        given: &AtomicCount,
        supply: &mut impl FnMut(&mut Minter, Part, u32) -> Option<(Run, Tier)>,
        service: &mut Service,
    ) -> bool {
        let Some(ticket) = self.queues[queue].front() else { return false };
        let Some(missing) = ticket.missing() else {
            // Its caller went away a moment ago: it got nothing, and is not served.
            self.queues[queue].take_if(|ticket| ticket.missing().is_none());
            return true;
        };
        let mut progress = false;
        if missing > 0 {
            // A thread is given more than it asked for only while no other call waits behind it.
            let alone = self.servable() == 1;
            let most = if alone { ticket.wants() } else { missing.max(ticket.wants().min(16)) }.min(QUANTUM);
            let part = if is_large(queue) { self.part_for_large(now) } else { Part::Whole };
            let run = match ticket.order {
                Order::Any => supply(&mut self.minter, part, most),
                order => {
                    let run = self.cut_in_line(order, ticket.least_tick, now, part, most);
                    run.map(|run| (run, Tier::Minter))
                }
            };
            let Some((run, tier)) = run else { return false };
            progress = true;
            given.add(u64::from(run.len()));
            if let Err(run) = ticket.give(run, tier) {
                service.give_back(vec![run]);
            }
        }
        if ticket.missing() == Some(0) {
            progress = true;
            // What it had gathered before it began to wait may be too old by now.
            let too_old = ticket.take_older(self.minter.oldest(now));
            if too_old.is_empty() {
                service.end(&ticket, || IdError::SHUTTING_DOWN);
                self.queues[queue].pop();
            }
            service.give_back(too_old);
        }
        progress
    }

    fn expire(&mut self, now: &Now, service: &mut Service) {
        let boot = now.reading.boot;
        let looks_at_all = boot.saturating_sub(self.looked) >= LOOK_INTERVAL;
        if looks_at_all {
            self.looked = boot;
        }
        for queue in 0..self.queues.len() {
            let waiting = &mut self.queues[queue];
            let over = if looks_at_all || waiting.len() <= LONG_QUEUE {
                waiting.take_if(|ticket| ticket.deadline <= boot || ticket.missing().is_none())
            } else {
                waiting.take_overdue(boot)
            };
            for ticket in over {
                service.end(&ticket, || self.refusal(now, ticket.order, ticket.wait));
            }
        }
    }

    /// Takes from all calls that wait what they have gathered: leap number `voids` made it void.
    pub(crate) fn void_gathered(&mut self, voids: Voids) -> Service {
        let mut service = Service::default();
        for ticket in self.queues.iter().flat_map(WaitQueue::tickets) {
            service.give_back(ticket.void(voids));
        }
        service
    }

    /// Refuses every call that waits, and every one that comes.
    pub(crate) fn close(&mut self) -> Service {
        self.closed = Guard::SealFirst.holds();
        let mut service = Service::default();
        for ticket in self.queues.iter_mut().flat_map(|queue| queue.take_if(|_| true)) {
            service.end(&ticket, || IdError::SHUTTING_DOWN);
        }
        service
    }
}

/// What a round of service did.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Ids that tickets had or were to have, and gave back.
    pub(crate) out: u64,
    /// Runs that belong to the producer again.
    pub(crate) back: Vec<Run>,
    /// Wakers to call once the gate is open again: a waker is foreign code.
    pub(crate) woken: Vec<Waker>,
    /// There may be ids for more calls, which a pass has no time for.
    pub(crate) is_cut_short: bool,
}

impl Service {
    /// Ends a ticket: with its ids if it has enough, else with an error.
    fn end(&mut self, ticket: &Ticket, error: impl FnOnce() -> IdError) {
        let (back, waker) = ticket.finish(error);
        self.give_back(back);
        self.woken.extend(waker);
    }

    fn give_back(&mut self, back: Vec<Run>) {
        self.out += back.iter().map(|run| u64::from(run.len())).sum::<u64>();
        self.back.extend(back);
    }
}
