//! One name: its chain and its line under one lock, the word that voids what threads hold of it, and its figures.
//!
//! # Invariants
//! - I1 the word is renewed before the chain is drained: a thread that takes of a drained segment gets nothing, and what it
//!   took before is void at its next hit;
//! - I2 figures: an id that leaves the chain is a caller's, unless it was counted as diverted; what was diverted is counted
//!   where it went;
//! - I3 a strict name holds nothing: what comes back, what an earlier life left, and what was held when the name was found
//!   to be strict, is waste. Another process may have returned higher ids meanwhile.

use std::ops::DerefMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::retry::Retry;
use super::untold::Untold;
use crate::sequence::chain::held::Chain;
use crate::sequence::chain::line::{Line, Waiter, Wakers, joined};
use crate::sequence::chain::pace::{Holding, Pace, Want};
use crate::sequence::chain::segment::Segment;
use crate::sequence::chain::span::{Span, sorted, total};
use crate::sequence::error::SequenceError;
use crate::sequence::figures::{NameFigures, NameState, SequenceFigures, SequenceWaste};
use crate::sequence::name::SequenceName;
use crate::sequence::numbers::{Demand, Numbers};
use crate::sequence::settings::SequenceConfig;
use crate::sequence::store::SequenceSettings;
use crate::stats::counters::{Counters, ThreadTotals};
use crate::sys::atomics::lock;
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;

/// A name.
pub(crate) struct Named {
    pub(crate) name: SequenceName,
    /// Equal to what a thread remembers exactly while what it holds of this name is good: generations are never used
    /// twice, and a forked child reads zero.
    pub(crate) word: GenerationWord,
    /// Strict by configuration.
    is_strict: bool,
    /// Threads may hold runs: the increment is 1, and the name is not strict. False until the first grant.
    has_runs: AtomicBool,
    /// Some ids are loose.
    has_loose: AtomicBool,
    /// Ids that threads have in their runs, for calls of `next_id`. Made with the first one.
    threads: OnceLock<Box<Counters>>,
    state: Mutex<State>,
}

/// What is under the lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) chain: Chain,
    pub(crate) line: Line,
    pub(crate) pace: Pace,
    pub(crate) settings: Option<SequenceSettings>,
    /// The end of the last grant that was used.
    pub(crate) mark: u64,
    pub(crate) standing: Standing,
    pub(crate) queued: Queued,
    /// The keeper looks after it.
    pub(crate) is_active: bool,
    /// The generation that the stop ended. What was held was saved or wasted: what comes back from then on is waste.
    pub(crate) ended: Option<u64>,
    /// How often leaps of the clock voided what is held.
    pub(crate) leaps: u64,
    pub(crate) retry: Retry,
    /// The outcome of the last ask is not known: the least is asked for.
    pub(crate) in_doubt: bool,
    /// Of one that a stranger brought up, as long as the store told nothing of it, or that it is not there: a place among all of these, and
    /// one among the stranger's.
    pub(crate) untold: Option<Box<(Untold, Untold)>>,
    pub(crate) books: Books,
}

/// Whether calls are refused without asking the store, and until when, in boot time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    #[default]
    Open,
    Absent {
        until: u64,
    },
    Exhausted {
        until: u64,
    },
    /// The row is there and cannot be used: it waits for a fence, say. The reason that was told, by its checksum.
    Refused {
        until: u64,
        why: u32,
    },
    /// The witness has no room for it. It is asked for again after a pause, which grows.
    NoRoom {
        until: u64,
        pause_s: u32,
    },
}

/// Where a name stands among those that the teller is to ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Queued {
    #[default]
    No,
    /// Its next grant is due.
    Calm,
    /// Callers wait.
    Urgent,
    /// It is being asked for.
    Asking,
}

impl Standing {
    /// What calls are refused with without asking the store.
    pub(crate) fn refusal(self, boot: u64) -> Option<SequenceError> {
        match self {
            Self::Absent { until } if boot < until => Some(SequenceError::NO_SEQUENCE),
            Self::Exhausted { until } if boot < until => Some(SequenceError::EXHAUSTED),
            Self::Refused { until, .. } if boot < until => {
                Some(SequenceError::store_behind(Duration::from_secs(1)))
            }
            Self::NoRoom { until, .. } if boot < until => {
                Some(SequenceError::store_away(Duration::from_nanos(until - boot)))
            }
            _ => None,
        }
    }
}

/// Counted under the lock; see I2.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Books {
    pub(crate) granted: u64,
    pub(crate) reclaimed: u64,
    pub(crate) saved: u64,
    pub(crate) waste: SequenceWaste,
    /// Left the chain, and not for a caller.
    diverted: u64,
    /// Became a caller's, of what was diverted or never in the chain.
    delivered: u64,
    /// Came back although they had been a caller's: it went away before it had them.
    undone: u64,
    /// Gathered for calls that wait.
    gathered: u64,
}

impl Named {
    pub(crate) fn new(name: SequenceName, word: GenerationWord, is_strict: bool) -> Self {
        Self {
            name,
            word,
            is_strict,
            has_runs: AtomicBool::new(false),
            has_loose: AtomicBool::new(false),
            threads: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> impl DerefMut<Target = State> {
        lock(&self.state)
    }

    /// Whether threads may hold runs of it.
    pub(crate) fn has_runs(&self) -> bool {
        // Relaxed: whichever it reads, the take that follows checks the increment of what it got.
        self.has_runs.load(Ordering::Relaxed)
    }

    /// Whether some ids may be loose.
    pub(crate) fn has_loose(&self) -> bool {
        // Relaxed: a thread that sees it late takes of the segment.
        self.has_loose.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_loose(&self, has: bool) {
        if self.has_loose.load(Ordering::Relaxed) != has {
            self.has_loose.store(has, Ordering::Relaxed);
        }
    }

    /// Counters of threads that hold runs.
    pub(crate) fn threads(&self) -> &Counters {
        self.threads.get_or_init(Box::default)
    }

    fn thread_totals(&self) -> ThreadTotals {
        self.threads.get().map(|counters| counters.totals()).unwrap_or_default()
    }

    /// Whether each request goes to the store.
    pub(crate) fn is_strict(&self, state: &State) -> bool {
        self.is_strict || state.settings.is_some_and(|settings| settings.strict)
    }

    /// What a grant, of which the witness knows, said of the name. Whether it is strict, and held what it may not hold (I3):
    /// handles are voided then, too.
    pub(crate) fn learn(&self, state: &mut State, settings: SequenceSettings) -> bool {
        let was_strict = self.is_strict(state);
        state.settings = Some(settings);
        state.untold = None;
        let has_runs = settings.increment == 1 && !self.is_strict(state);
        self.has_runs.store(has_runs, Ordering::Relaxed);
        if was_strict || !self.holds_nothing(state) {
            return false;
        }
        let spans = self.void(state);
        state.books.waste.strict += total(&spans);
        true
    }

    /// What is to be asked for now.
    pub(crate) fn want(&self, state: &mut State, boot: u64, config: &SequenceConfig) -> Option<Want> {
        let missing = state.line.missing();
        if self.is_strict(state) {
            // A grant serves those who wait when it is asked for, so it is no larger. The first of them is served by one
            // grant, or never.
            let first = state.line.first().and_then(|waiter| waiter.missing()).unwrap_or_default();
            let count = missing.min(config.step_max).max(first);
            return (count > 0).then_some(Want { count, least: count });
        }
        let taken = state.taken();
        state.pace.note(boot, taken, config.hold);
        let (is_begun, is_followed) = state.chain.progress();
        let held = state.chain.in_segments() + state.chain.loose() + state.books.gathered;
        let first = state.line.first().filter(|waiter| waiter.demand.contiguous);
        let holding = Holding {
            whole: first.and_then(|waiter| waiter.missing()).unwrap_or_default(),
            held,
            is_followed,
            is_begun,
            missing,
            step: state.settings.map(|settings| settings.step),
            in_doubt: state.in_doubt,
        };
        state.pace.want(boot, &holding, config)
    }

    /// Adds ids that no code holds, and serves the line with them. A strict name holds none (I3).
    pub(crate) fn append(&self, state: &mut State, span: Span) -> Wakers {
        if self.holds_nothing(state) {
            state.books.waste.strict += span.count;
            return Wakers::default();
        }
        state.books.waste.dropped += state.chain.append(span);
        self.serve(state)
    }

    /// Takes back what no caller got.
    pub(crate) fn give_back(&self, state: &mut State, spans: Vec<Span>) {
        if state.ended.is_some() {
            state.books.waste.dropped += total(&spans);
        } else if self.holds_nothing(state) {
            state.books.waste.strict += total(&spans);
        } else if !spans.is_empty() {
            state.books.waste.dropped += state.chain.give_back(spans);
            self.set_has_loose(state.chain.loose() > 0);
        }
    }

    fn holds_nothing(&self, state: &State) -> bool {
        self.is_strict(state) && Guard::StrictHoldsNothing.holds()
    }

    /// Takes back what a thread had of it, which it took when the word had this generation. What was voided since is
    /// waste: another copy of this machine may have it, too.
    pub(crate) fn give_back_now(&self, span: Option<Span>, generation: u64) {
        if let Some(span) = span {
            // A statement of its own: the lock is given back before a waker is called.
            let wakers = self.give_back_locked(&mut self.lock(), span, generation);
            wakers.wake();
        }
    }

    /// The same with what a call took of a segment, and is too little for it.
    pub(crate) fn undo(&self, span: Span, generation: u64) {
        let wakers = {
            let mut state = self.lock();
            state.books.diverted += span.count;
            self.give_back_locked(&mut state, span, generation)
        };
        wakers.wake();
    }

    fn give_back_locked(&self, state: &mut State, span: Span, generation: u64) -> Wakers {
        // Under the lock, under which what is held is voided.
        if self.is_of_now(state, generation) || !Guard::BackInItsGeneration.holds() {
            self.give_back(state, vec![span]);
        } else {
            state.books.waste.leap += span.count;
        }
        self.serve(state)
    }

    /// Whether what was taken in a generation was not voided since, but by a stop.
    fn is_of_now(&self, state: &State, generation: u64) -> bool {
        self.word.load() == generation || state.ended == Some(generation)
    }

    /// Whether ids that a thread took of a segment of that generation may be its caller's; else they are wasted. After a stop
    /// they are as good as before it.
    pub(crate) fn keep_hit(&self, state: &mut State, (generation, count): (u64, u64)) -> bool {
        let is_good = self.is_of_now(state, generation) || !Guard::LeapWastesHit.holds();
        if !is_good {
            state.books.diverted += count;
            state.books.waste.leap += count;
        }
        is_good
    }

    /// Serves those who wait, first come, first served, as far as it goes.
    pub(crate) fn serve(&self, state: &mut State) -> Wakers {
        let mut wakers = Wakers::default();
        while let Some(waiter) = state.line.first().cloned() {
            let Some(missing) = waiter.missing() else { continue };
            let demand = waiter.demand;
            let pulled = if demand.contiguous {
                state.chain.take_contiguous(missing)
            } else if state.chain.in_segments() + if demand.ordered { 0 } else { state.chain.loose() }
                < missing
            {
                // What there is stays for calls that ask for less, until there is enough for this one.
                break;
            } else if demand.ordered {
                state.chain.take(missing)
            } else {
                state.chain.take_any(missing)
            };
            let got = total(&pulled.spans);
            state.books.diverted += got + pulled.skipped;
            state.books.waste.contiguous += pulled.skipped;
            state.books.gathered += got;
            // Only a call that went away since is over.
            let back = waiter.gather(pulled.spans);
            state.books.gathered -= total(&back);
            self.give_back(state, back);
            if waiter.missing() != Some(0) {
                break;
            }
            wakers.add(self.finish(state, &waiter, SequenceError::SHUTTING_DOWN));
            state.line.leave();
        }
        self.set_has_loose(state.chain.loose() > 0);
        wakers
    }

    /// Ends a call that stands in line, or did: with its ids if it has enough, else with the error.
    pub(crate) fn finish(&self, state: &mut State, waiter: &Waiter, error: SequenceError) -> Option<Waker> {
        let missing = waiter.missing()?;
        waiter.set_leaps(state.leaps);
        let (back, waker) = waiter.finish(error)?;
        if missing == 0 {
            let count = u64::from(waiter.demand.count);
            state.books.gathered -= count;
            state.books.delivered += count;
        } else {
            state.books.gathered -= total(&back);
            self.give_back(state, back);
        }
        waker
    }

    /// Ends all calls that wait: no more comes. Each gets what is held, if that is enough for it, and else the error.
    pub(crate) fn end_all(&self, state: &mut State, error: SequenceError) -> Wakers {
        let mut wakers = self.serve(state);
        while let Some(waiter) = state.line.first().cloned() {
            wakers.add(self.finish(state, &waiter, error));
            state.line.leave();
            wakers.extend(self.serve(state));
        }
        wakers
    }

    /// A call's caller went away.
    pub(crate) fn give_up(&self, waiter: &Waiter) {
        let (waker, wakers) = {
            let mut state = self.lock();
            // As where a call's time is over.
            (self.cancel(&mut state, waiter), self.serve(&mut state))
        };
        wakers.wake();
        // Last: it is a stranger's code, which may panic.
        drop(waker);
    }

    /// The caller of a waiting call went away. Its waker is dropped under no lock.
    pub(crate) fn cancel(&self, state: &mut State, waiter: &Waiter) -> Option<Waker> {
        let cancelled = waiter.cancel();
        let count = total(&cancelled.back);
        if cancelled.waited {
            state.books.gathered -= count;
        } else {
            state.books.undone += count;
        }
        if !cancelled.waited && waiter.is_void(state.leaps) {
            state.books.waste.leap += count;
        } else {
            self.give_back(state, cancelled.back);
        }
        state.line.forget(waiter);
        cancelled.waker
    }

    /// What a waiting call has come to. Ids that it was served with before a leap of the clock are wasted, and it is refused.
    pub(crate) fn poll(&self, waiter: &Waiter, waker: &Waker) -> Poll<Result<Vec<Numbers>, SequenceError>> {
        let polled = waiter.poll(waker);
        // Clone and drop of a waker may fork: in a child another thread may have had the lock, and the call is refused.
        if let Poll::Ready(Ok(_)) = &polled
            && !self.word.forked()
        {
            let state = &mut *self.lock();
            if waiter.is_void(state.leaps) {
                let count = u64::from(waiter.demand.count);
                state.books.undone += count;
                state.books.waste.leap += count;
                return Poll::Ready(Err(SequenceError::overloaded(Duration::from_millis(100))));
            }
        }
        polled
    }

    /// Deals a strict grant to the calls that waited when it was asked for: those with a number below `upto`. What they
    /// do not need is wasted, since a later call must not have it.
    pub(crate) fn deal(&self, state: &mut State, span: Span, upto: u64) -> Wakers {
        let (mut rest, mut wakers) = (Some(span), Wakers::default());
        // Also where somebody makes the row another one, which is not strict.
        state.chain.raise_top(span.end());
        while let Some(waiter) = state.line.first().cloned() {
            let asked = waiter.number < upto || !Guard::StrictServesWhoAsked.holds();
            let Some(span) = rest.filter(|_| asked) else { break };
            let Some(missing) = waiter.missing() else { continue };
            if missing > span.count {
                break;
            }
            rest = span.after(missing);
            state.books.gathered += missing;
            let back = waiter.gather(vec![span.before(missing)]);
            state.books.gathered -= total(&back);
            state.books.waste.strict += total(&back);
            wakers.add(self.finish(state, &waiter, SequenceError::SHUTTING_DOWN));
            state.line.leave();
        }
        state.books.waste.strict += rest.map_or(0, |rest| rest.count);
        wakers
    }

    /// Takes ids out of the chain at once, all or nothing, unless others wait in line.
    pub(crate) fn take_now(&self, state: &mut State, demand: Demand) -> Option<Vec<Numbers>> {
        let count = u64::from(demand.count);
        if !state.line.is_empty() || self.is_strict(state) {
            return None;
        }
        let loose = if demand.ordered || demand.contiguous { 0 } else { state.chain.loose() };
        if state.chain.in_segments() + loose < count {
            return None;
        }
        let pulled = if demand.contiguous {
            state.chain.take_contiguous(count)
        } else if demand.ordered {
            state.chain.take(count)
        } else {
            state.chain.take_any(count)
        };
        self.set_has_loose(state.chain.loose() > 0);
        state.books.diverted += pulled.skipped;
        state.books.waste.contiguous += pulled.skipped;
        if total(&pulled.spans) == count {
            return Some(joined(pulled.spans));
        }
        // Other threads took of the same segments meanwhile.
        state.books.diverted += total(&pulled.spans);
        self.give_back(state, pulled.spans);
        None
    }

    /// Takes up to so many neighbours for a thread's run, of what is loose first.
    pub(crate) fn pull(&self, state: &mut State, most: u64) -> Option<Span> {
        let span = state.chain.take_some(most);
        self.set_has_loose(state.chain.loose() > 0);
        span
    }

    /// Voids what threads hold, and takes out everything that is not theirs (I1). Calls that wait go on waiting, with
    /// nothing.
    pub(crate) fn void(&self, state: &mut State) -> Vec<Span> {
        self.word.renew();
        let mut spans = state.chain.drain();
        state.books.diverted += total(&spans);
        for waiter in state.line.iter() {
            let gathered = waiter.take_gathered();
            state.books.gathered -= total(&gathered);
            spans.extend(gathered);
        }
        self.set_has_loose(false);
        // What a call had gathered lies below what was behind it.
        sorted(spans)
    }

    /// Its ids, by what became of them.
    pub(crate) fn books(&self, state: &State) -> SequenceFigures {
        let threads = self.thread_totals();
        let books = &state.books;
        let issued_by_threads: u64 = threads.issued.iter().sum();
        let gone = threads.taken + books.diverted + books.undone;
        let came = state.chain.taken() + books.delivered + issued_by_threads;
        let mut wasted = books.waste;
        wasted.thread += threads.wasted;
        let held = state.chain.in_segments() + state.chain.loose() + books.gathered + threads.in_hand();
        SequenceFigures {
            granted: books.granted,
            reclaimed: books.reclaimed,
            issued: came.saturating_sub(gone),
            wasted,
            held,
            saved: books.saved,
        }
    }

    /// All that people are told of it.
    pub(crate) fn figures(&self, state: &State, boot: u64, trouble: Option<NameState>) -> NameFigures {
        let figures = self.books(state);
        let standing = match state.standing {
            Standing::Absent { .. } => NameState::Absent,
            Standing::Exhausted { .. } => NameState::Exhausted,
            Standing::Refused { .. } => NameState::Behind,
            Standing::NoRoom { .. } => NameState::Away,
            Standing::Open => trouble.unwrap_or_default(),
        };
        let unused = figures == SequenceFigures::default() && state.line.is_empty();
        let state_now = match standing {
            NameState::Unused if !unused => NameState::Ready,
            found => found,
        };
        NameFigures {
            figures,
            rate: state.pace.rate(boot),
            hold: state.pace.lasts(boot, state.chain.in_segments()),
            state: state_now,
            settings: state.settings,
            mark: state.mark,
            next: state.chain.next(),
        }
    }

    /// How long what can be taken lasts at the present rate.
    pub(crate) fn lasts(state: &State, boot: u64) -> Option<Duration> {
        state.pace.lasts(boot, state.chain.in_segments())
    }
}

impl State {
    /// Counts ids that come back from where the name's rest was kept.
    pub(crate) fn count_return(&mut self, count: u64) {
        self.books.reclaimed += count;
    }

    /// Ids taken for callers and threads so far.
    pub(crate) fn taken(&self) -> u64 {
        self.chain.taken().wrapping_sub(self.books.diverted).wrapping_add(self.books.delivered)
    }

    /// The segment that ordered calls take from, for a thread to keep.
    pub(crate) fn head(&mut self) -> Option<Arc<Segment>> {
        self.chain.head().cloned()
    }

    /// Counts a grant that is used.
    pub(crate) fn count_grant(&mut self, end: u64, count: u64) {
        self.books.granted += count;
        self.mark = self.mark.max(end);
    }
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Named").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// Whether a thread that looked at the generation before a leap gives back after it what may be used.
    fn comes_back_after_a_leap() -> bool {
        let named = Named::new(SequenceName::new("a").unwrap(), GenerationWord::new().unwrap(), false);
        let generation = named.word.load();
        named.append(&mut named.lock(), Span { first: 1, count: 100, increment: 1 }).wake();
        let taken = named.pull(&mut named.lock(), 5);
        assert!(taken.is_some());
        let voided = named.void(&mut named.lock());
        named.give_back_now(taken, generation);
        let state = named.lock();
        assert_eq!(total(&voided) + state.books.waste.leap + state.chain.loose(), 100);
        state.chain.loose() > 0
    }

    #[test]
    fn numbers_below_those_of_a_strict_grant_are_not_for_ordered_calls_once_the_row_is_not_strict() {
        let named = Named::new(SequenceName::new("a").unwrap(), GenerationWord::new().unwrap(), false);
        let (state, settings) = (&mut *named.lock(), SequenceSettings::default());
        named.learn(state, SequenceSettings { strict: true, ..settings });
        named.deal(state, Span { first: 101, count: 10, increment: 1 }, 0).wake();
        named.learn(state, settings);
        named.append(state, Span { first: 51, count: 10, increment: 1 }).wake();
        named.append(state, Span { first: 111, count: 10, increment: 1 }).wake();
        assert_eq!((state.chain.in_segments(), state.chain.loose()), (10, 10));
    }

    #[test]
    fn what_a_thread_gives_back_after_a_leap_is_wasted() {
        assert!(!comes_back_after_a_leap());
        assert!(Guard::without(&[Guard::BackInItsGeneration], comes_back_after_a_leap));
    }
}
