//! Taking ids of a name: at once, or in line. Callers' threads.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::hub::Hub;
use super::named::{Named, Queued, State};
use crate::clock::nanos;
use crate::sequence::chain::line::{Waiter, Wakers};
use crate::sequence::chain::segment::Segment;
use crate::sequence::chain::span::Span;
use crate::sequence::error::SequenceError;
use crate::sequence::numbers::{Demand, MOST_IDS, Numbers};
use crate::sys::wake::unpark_current;

/// What a call got.
pub(crate) enum Got {
    /// Its ids, and the segment that the thread may take the next ones from.
    Numbers(Vec<Numbers>, Option<Arc<Segment>>),
    /// A place in the line.
    Place(Arc<Waiter>),
}

impl Hub {
    /// Takes ids at once, or joins the line for that long; without a time it only tries. What is missing is asked for in
    /// any case.
    pub(crate) fn take(
        &self,
        named: &Arc<Named>,
        demand: Demand,
        wait: Option<Duration>,
    ) -> Result<Got, SequenceError> {
        self.check_open()?;
        if demand.count == 0 || demand.count > MOST_IDS {
            return Err(SequenceError::COUNT);
        }
        let boot = self.now();
        // A leap says a line, and that may have forked.
        self.check_open()?;
        let mut state = named.lock();
        if let Some(numbers) = named.take_now(&mut state, demand) {
            let head = state.head();
            self.ask_if_due(named, &mut state, boot);
            return Ok(Got::Numbers(numbers, head));
        }
        self.refuse_at_once(&mut state, boot)?;
        let wait = wait.filter(|wait| !wait.is_zero());
        let Some((wait, place)) = wait.and_then(|wait| Some((wait, self.places_of(&state).take()?))) else {
            // A strict name is asked for those who wait, and for no others.
            if !named.is_strict(&state) {
                self.enqueue(named, &mut state, true);
            }
            drop(state);
            return Err(self.refusal(boot));
        };
        let waiter = state.line.join(demand, boot.saturating_add(nanos(wait)), place);
        self.enqueue(named, &mut state, true);
        drop(state);
        // After it stands in line: a stop that began meanwhile fails all that stood there then.
        if self.is_closed() {
            named.give_up(&waiter);
            return Err(SequenceError::SHUTTING_DOWN);
        }
        Ok(Got::Place(waiter))
    }

    /// What needs no store to be known.
    fn refuse_at_once(&self, state: &mut State, boot: u64) -> Result<(), SequenceError> {
        if let Some(refusal) = state.standing.refusal(boot) {
            return Err(refusal);
        }
        if self.is_behind() { Err(SequenceError::store_behind(Duration::from_secs(1))) } else { Ok(()) }
    }

    /// Has the teller ask for the next grant, if it is due.
    pub(crate) fn ask_if_due(&self, named: &Arc<Named>, state: &mut State, boot: u64) {
        if !state.is_active {
            self.activate(named, state);
        }
        let refused = state.standing.refusal(boot).is_some();
        if !refused && state.queued == Queued::No && named.want(state, boot, &self.config).is_some() {
            self.enqueue(named, state, false);
        }
    }

    /// Ids for a thread's run, up to so many, and the segment that the next ones are of.
    pub(crate) fn pull(&self, named: &Arc<Named>, most: u64) -> Option<(Span, Option<Arc<Segment>>)> {
        let boot = self.now();
        // As in `take`.
        if self.forked() {
            return None;
        }
        let mut state = named.lock();
        // Those who wait in line come first.
        if !state.line.is_empty() || named.is_strict(&state) {
            return None;
        }
        let span = named.pull(&mut state, most)?;
        let head = state.head();
        self.ask_if_due(named, &mut state, boot);
        Some((span, head))
    }

    /// A thread took the id at which the next grant is to be asked for.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_next(&self, named: &Arc<Named>) {
        let boot = self.now();
        // As in `take`.
        if self.forked() {
            return;
        }
        let mut state = named.lock();
        self.ask_if_due(named, &mut state, boot);
    }

    /// A thread took so many ordered ids of that generation, with which the next grant is to be asked for. Whether the ids
    /// are good: the clock is read here, and if it leapt they were held before.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask_after_hit(&self, named: &Arc<Named>, hit: (u64, u64)) -> bool {
        self.ask_next(named);
        !self.forked() && named.keep_hit(&mut named.lock(), hit)
    }

    /// Waits for a place in the line to be served, on the calling thread.
    pub(crate) fn block_on(&self, named: &Named, waiter: &Waiter) -> Result<Vec<Numbers>, SequenceError> {
        let waker = unpark_current();
        loop {
            // Before it is looked at what it was served with: a leap wastes that.
            let boot = self.now();
            // In the line of a leap, or in the waker of a call behind this one when its time was over.
            if self.forked() {
                return Err(SequenceError::FORKED);
            }
            if let Poll::Ready(result) = named.poll(waiter, &waker) {
                return result;
            }
            // On a thread of ours, in a waker's code or a log's, there is no other thread to wait for.
            let is_own = self.teller.is_current() || self.keeper.is_current();
            if boot >= waiter.deadline || is_own {
                self.expire(named, waiter, boot);
                continue;
            }
            std::thread::park_timeout(Duration::from_nanos(waiter.deadline - boot));
        }
    }

    /// A call's time is over: it ends, with what it has if that is enough.
    pub(crate) fn expire(&self, named: &Named, waiter: &Waiter, boot: u64) {
        let refusal = self.refusal(boot);
        let mut wakers = Wakers::default();
        {
            let mut state = named.lock();
            wakers.add(named.finish(&mut state, waiter, refusal));
            state.line.forget(waiter);
            // What is held was too little for it, and may be enough for those behind it.
            wakers.extend(named.serve(&mut state));
        }
        wakers.wake();
    }

    /// All calls that wait are refused, for a stop.
    pub(crate) fn end_waiting(&self) {
        let mut wakers = Wakers::default();
        self.names.each(|named| {
            let mut state = named.lock();
            if !state.line.is_empty() {
                wakers.extend(named.end_all(&mut state, SequenceError::SHUTTING_DOWN));
            }
        });
        wakers.wake();
    }

    /// Takes ids, waiting on the calling thread.
    pub(crate) fn take_blocking(
        &self,
        named: &Arc<Named>,
        demand: Demand,
        wait: Duration,
    ) -> Result<(Vec<Numbers>, Option<Arc<Segment>>), SequenceError> {
        match self.take(named, demand, Some(wait))? {
            Got::Numbers(numbers, head) => Ok((numbers, head)),
            Got::Place(waiter) => Ok((self.block_on(named, &waiter)?, None)),
        }
    }

    /// Counts what a call that may wait was refused with.
    pub(crate) fn count_refusal<T>(&self, result: Result<T, SequenceError>) -> Result<T, SequenceError> {
        if result.is_err() && !self.forked() {
            self.refused.add(1);
        }
        result
    }
}
