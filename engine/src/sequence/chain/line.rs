//! Calls that wait in line for ids of a name: first come, first served, all or nothing.
//!
//! # Invariants
//! - I1 a waiting call ends once: served, failed or cancelled. What was gathered for one that was not served goes back;
//! - I2 no waker is called, cloned or dropped under a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::task::{Poll, Waker};

use super::span::{Span, total};
use crate::sequence::error::SequenceError;
use crate::sequence::numbers::{Demand, Numbers};
use crate::sys::atomics::{AtomicU64, Mutex, Ordering, lock};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// Places in lines, and how many are taken.
#[derive(Debug)]
pub(crate) struct Places {
    taken: Arc<PlainAtomicU64>,
    most: u64,
}

impl Places {
    pub(crate) fn new(most: u64) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// How many calls wait.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).min(self.most)
    }

    /// How many have none.
    pub(crate) fn left(&self) -> u64 {
        self.most - self.taken()
    }

    /// One of them, if there is one.
    pub(crate) fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.taken));
        (place.0.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

/// A place in a line. It is another call's as soon as this one is over, whether or not its caller looks.
#[derive(Debug)]
pub(crate) struct Place(Arc<PlainAtomicU64>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls that wait at once. Each is some 200 bytes, and more with what waits for it; one more is refused at once.
pub(crate) const MOST_WAITING: u64 = 100_000;

/// The same of names that clients said and of which the store has told nothing yet: a client that makes names up keeps no call for
/// one that is known out of a line.
pub(crate) const MOST_WAITING_UNTOLD: u64 = MOST_WAITING / 4;

/// One waiting call.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) demand: Demand,
    /// In nanoseconds of boot time.
    pub(crate) deadline: u64,
    /// Its number in the line, which rises.
    pub(crate) number: u64,
    /// How often leaps of the clock had voided the name when it was served. Set and compared under the name's lock.
    leaps: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting { gathered: Vec<Span>, waker: Option<Waker>, _place: Place },
    Done(Result<Vec<Span>, SequenceError>),
    Over,
}

impl Waiter {
    /// How many ids it still needs; `None` if it is over.
    pub(crate) fn missing(&self) -> Option<u64> {
        match &*lock(&self.state) {
            State::Waiting { gathered, .. } => Some(u64::from(self.demand.count) - total(gathered)),
            _ => None,
        }
    }

    /// Gathers for it; what comes too late is returned.
    #[must_use]
    pub(crate) fn gather(&self, spans: Vec<Span>) -> Vec<Span> {
        match &mut *lock(&self.state) {
            State::Waiting { gathered, .. } => {
                gathered.extend(spans);
                Vec::new()
            }
            _ => spans,
        }
    }

    /// Takes out what was gathered for it; it goes on waiting.
    #[must_use]
    pub(crate) fn take_gathered(&self) -> Vec<Span> {
        match &mut *lock(&self.state) {
            State::Waiting { gathered, .. } => std::mem::take(gathered),
            _ => Vec::new(),
        }
    }

    /// Ends it: with its ids if it has enough, else with the error, and what was gathered is returned. The caller wakes
    /// the waker, under no lock. `None` if it was over already.
    pub(crate) fn finish(&self, error: SequenceError) -> Option<(Vec<Span>, Option<Waker>)> {
        let mut state = lock(&self.state);
        let State::Waiting { gathered, waker, .. } = &mut *state else { return None };
        let (gathered, waker) = (std::mem::take(gathered), waker.take());
        let (result, back) = if total(&gathered) >= u64::from(self.demand.count) {
            (Ok(gathered), Vec::new())
        } else {
            (Err(error), gathered)
        };
        *state = State::Done(result);
        Some((back, waker))
    }

    /// It is served now, after so many leaps.
    pub(crate) fn set_leaps(&self, leaps: u64) {
        self.leaps.store(leaps, Ordering::Relaxed);
    }

    /// Whether what it was served with is void: the clock leapt since.
    pub(crate) fn is_void(&self, leaps: u64) -> bool {
        self.leaps.load(Ordering::Relaxed) != leaps && Guard::LeapWastesServed.holds()
    }

    /// Its outcome, once.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Vec<Numbers>, SequenceError>> {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        if let State::Waiting { waker: kept, .. } = &mut *state {
            std::mem::swap(kept, &mut waker);
            drop(state);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Done(result) => Poll::Ready(result.map(joined)),
            _ => Poll::Ready(Err(SequenceError::SHUTTING_DOWN)),
        }
    }

    /// Ends it for a caller that went away; whatever it had is returned.
    #[must_use]
    pub(crate) fn cancel(&self) -> Cancelled {
        let before = std::mem::replace(&mut *lock(&self.state), State::Over);
        match before {
            State::Waiting { gathered, waker, .. } => Cancelled { back: gathered, waited: true, waker },
            State::Done(Ok(spans)) => Cancelled { back: spans, waited: false, waker: None },
            _ => Cancelled { back: Vec::new(), waited: false, waker: None },
        }
    }
}

/// What a cancelled call had.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub(crate) back: Vec<Span>,
    /// It was not served or failed yet.
    pub(crate) waited: bool,
    /// To be dropped under no lock (I2).
    pub(crate) waker: Option<Waker>,
}

/// Spans as a caller gets them: those that touch are one.
pub(crate) fn joined(spans: Vec<Span>) -> Vec<Numbers> {
    let mut runs: Vec<Numbers> = Vec::with_capacity(spans.len());
    for numbers in spans.into_iter().map(Span::into_numbers) {
        if !runs.last_mut().is_some_and(|last| last.join(&numbers)) {
            runs.push(numbers);
        }
    }
    runs
}

/// Wakers to be called when no lock is held any more.
#[derive(Debug, Default)]
#[must_use = "callers sleep until they are woken"]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Wakes them all. A waker is a stranger's code: on a thread of ours it is called when its turn is over.
    pub(crate) fn wake(self) {
        deferred_log::wake(self.0);
    }
}

/// The line. Under the lock of its name.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// The number of the next one.
    next: u64,
}

impl Line {
    /// A call comes last.
    pub(crate) fn join(&mut self, demand: Demand, deadline: u64, place: Place) -> Arc<Waiter> {
        let state = Mutex::new(State::Waiting { gathered: Vec::new(), waker: None, _place: place });
        let waiter =
            Arc::new(Waiter { demand, deadline, number: self.next, leaps: AtomicU64::new(0), state });
        self.next += 1;
        self.waiters.push_back(waiter.clone());
        waiter
    }

    /// The first call that waits; those that are over leave the line.
    pub(crate) fn first(&mut self) -> Option<&Arc<Waiter>> {
        while self.waiters.front().is_some_and(|waiter| waiter.missing().is_none()) {
            self.leave();
        }
        self.waiters.front()
    }

    /// The first call leaves the line.
    pub(crate) fn leave(&mut self) {
        self.waiters.pop_front();
        // Most names have a line once, for their first grant.
        if self.waiters.is_empty() {
            self.waiters = VecDeque::new();
        }
    }

    /// A call that is over leaves the line, wherever it stands.
    pub(crate) fn forget(&mut self, waiter: &Waiter) {
        // Numbers rise along the line.
        if let Ok(at) = self.waiters.binary_search_by_key(&waiter.number, |other| other.number) {
            self.waiters.remove(at);
        }
        if self.waiters.is_empty() {
            self.waiters = VecDeque::new();
        }
    }

    /// How many ids those that wait still need together.
    pub(crate) fn missing(&self) -> u64 {
        self.waiters.iter().filter_map(|waiter| waiter.missing()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number that the next call gets: those that wait now have lower ones.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Those in the line.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.waiters.iter()
    }
}
