//! What all names of a process share: the table, the clock, and the two threads' wake-ups and queues.
//!
//! # Invariants
//! - I1 a call that reads the clock after a leap finds nothing that was held before it: the offset that calls compare with
//!   is set after all that is held was voided, and who finds another one waits for the lock under which that is done;
//! - I2 what comes to a name from outside is compared with the count of leaps under the name's lock. A leap that is counted
//!   later visits the name later, and voids it there;
//! - I3 no name leaves the table while a leap is dealt with, so each is visited with what it holds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::named::{Named, Queued, State};
use super::named_table::NamedTable;
use super::own_threads::OwnThreads;
use super::reply::{Question, Reply};
use crate::clock::{Clock, Reading, SECOND, Supervisor, Thresholds};
use crate::sequence::chain::line::Waiter;
use crate::sequence::chain::span::total;
use crate::sequence::error::{ControlError, SequenceError};
use crate::sequence::figures::{
    GrantCounts, NameFigures, NameState, SequenceInfo, SequencesStats, StoreStatus, Trouble,
};
use crate::sequence::name::SequenceName;
use crate::sequence::settings::SequenceConfig;
use crate::sequence::store::{Alteration, NewSequence};
use crate::stats::Latency;
use crate::stats::counters::AtomicCount;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::fork_word::{GenerationWord, WordPool};
use crate::sys::guards::Guard;
use crate::sys::wake::Wake;
use crate::tiers::limits::Limits;

/// What is shared.
pub(crate) struct Hub {
    pub(crate) config: SequenceConfig,
    pub(crate) names: NamedTable,
    pub(crate) clock: Arc<dyn Clock>,
    /// Zero in a forked child.
    alive: GenerationWord,
    words: Mutex<WordPool>,
    /// Bounds of the runs of handles.
    pub(crate) limits: Limits,
    supervisor: Mutex<Supervisor>,
    /// Wall less boot time at the last look, modulo 2^64.
    offset: AtomicU64,
    /// Leaps of the clock so far.
    leaps: AtomicU64,
    due: Mutex<Due>,
    /// Names that the keeper is to look after from now on.
    activated: Mutex<Vec<Arc<Named>>>,
    controls: Mutex<VecDeque<Control>>,
    pub(crate) teller: Arc<Wake>,
    pub(crate) keeper: Arc<Wake>,
    pub(crate) threads: OwnThreads,
    deadlines: Mutex<BinaryHeap<Reverse<Deadline>>>,
    closed: AtomicBool,
    pub(crate) tally: Mutex<SequenceTally>,
    pub(crate) refused: AtomicCount,
    pub(crate) panics: AtomicCount,
    pub(crate) waiting: AtomicU64,
}

/// Names whose next grant is due. Those for which callers wait go first.
#[derive(Debug, Default)]
struct Due {
    urgent: VecDeque<Arc<Named>>,
    calm: VecDeque<Arc<Named>>,
}

/// Something that only the teller may ask the store.
pub(crate) enum Control {
    Info(SequenceName, Question<SequenceInfo>),
    List { prefix: String, after: String, limit: usize, question: Question<Vec<SequenceInfo>> },
    Create(SequenceName, NewSequence, Question<SequenceInfo>),
    Alter(SequenceName, Alteration, Question<SequenceInfo>),
    Raise(SequenceName, u64, Question<SequenceInfo>),
    AcceptIdentity(Question<()>),
}

impl Control {
    /// It only asks, and for somebody who has left.
    fn is_in_vain(&self) -> bool {
        match self {
            Self::Info(_, question) => question.is_forsaken(),
            Self::List { question, .. } => question.is_forsaken(),
            _ => false,
        }
    }

    /// The row that it changes, and would wait for.
    pub(crate) fn changes(&self) -> Option<&SequenceName> {
        match self {
            Self::Alter(name, ..) | Self::Raise(name, ..) => Some(name),
            _ => None,
        }
    }

    /// Answers it without the store.
    pub(crate) fn refuse(self, error: ControlError) {
        match self {
            Self::Info(_, question)
            | Self::Create(.., question)
            | Self::Alter(.., question)
            | Self::Raise(.., question) => question.answer(Err(error)),
            Self::List { question, .. } => question.answer(Err(error)),
            Self::AcceptIdentity(question) => question.answer(Err(error)),
        }
    }
}

/// So many that are over do not matter.
const FEW_DEADLINES: usize = 1_024;

/// When a call's time is over that no thread is parked for.
struct Deadline {
    boot: u64,
    waiter: Weak<Waiter>,
    named: Weak<Named>,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.boot == other.boot
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.boot.cmp(&other.boot)
    }
}

/// What the teller tells of its work.
#[derive(Debug, Default)]
pub(crate) struct SequenceTally {
    pub(crate) status: StoreStatus,
    pub(crate) grants: GrantCounts,
    pub(crate) store: Latency,
    pub(crate) witness: Latency,
    pub(crate) identity_changes: u64,
    /// Boot time at which the troubles began.
    pub(crate) store_since: Option<u64>,
    pub(crate) witness_since: Option<u64>,
    /// Boot time of the next try.
    pub(crate) retry_at: u64,
    pub(crate) holding: usize,
}

/// Wall less boot time, modulo 2^64.
fn offset(reading: Reading) -> u64 {
    reading.wall.wrapping_sub(reading.boot)
}

impl Hub {
    pub(crate) fn new(config: SequenceConfig, clock: Arc<dyn Clock>) -> std::io::Result<Arc<Self>> {
        let first = clock.read();
        Ok(Arc::new(Self {
            config,
            names: NamedTable::new(),
            alive: GenerationWord::new()?,
            words: Mutex::default(),
            limits: Limits::default(),
            supervisor: Mutex::new(Supervisor::new(Thresholds::default(), first)),
            offset: AtomicU64::new(offset(first)),
            leaps: AtomicU64::new(0),
            due: Mutex::default(),
            activated: Mutex::default(),
            controls: Mutex::default(),
            teller: Arc::default(),
            keeper: Arc::default(),
            threads: OwnThreads::default(),
            deadlines: Mutex::default(),
            closed: AtomicBool::new(false),
            tally: Mutex::default(),
            refused: AtomicCount::default(),
            panics: AtomicCount::default(),
            waiting: AtomicU64::new(0),
            clock,
        }))
    }

    /// Whether this is a forked child of the process that made it.
    pub(crate) fn forked(&self) -> bool {
        self.alive.forked() && Guard::SequenceForked.holds()
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses every call from now on, and wakes the two threads for the stop.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `is_closed`.
        self.closed.store(true, Ordering::Release);
        self.teller.wake();
        self.keeper.wake();
    }

    pub(crate) fn check_open(&self) -> Result<(), SequenceError> {
        if self.forked() {
            Err(SequenceError::FORKED)
        } else if self.is_closed() {
            Err(SequenceError::SHUTTING_DOWN)
        } else {
            Ok(())
        }
    }

    /// The entry of a name.
    pub(crate) fn named(&self, name: &SequenceName) -> Result<Arc<Named>, SequenceError> {
        self.check_open()?;
        self.threads.begin().map_err(|_| SequenceError::overloaded(Duration::from_secs(1)))?;
        // A stop that came in between leaves no thread that would serve the name.
        self.check_open()?;
        self.names.find_or_make(name, || {
            let word =
                lock(&self.words).take().map_err(|_| SequenceError::overloaded(Duration::from_secs(1)))?;
            let is_strict = self.config.strict.iter().any(|pattern| pattern.fits(name.as_str()));
            Ok(Named::new(name.clone(), GenerationWord::of(word), is_strict))
        })
    }

    /// The instant of a call. A leap of the clock shows in it, and voids what is held before the call goes on, whichever
    /// thread saw it first (I1).
    pub(crate) fn now(&self) -> u64 {
        let reading = self.clock.read();
        // Acquire: pairs with the Release in `look`.
        let known = self.offset.load(Ordering::Acquire);
        // Either way: what steps back is looked at, too, and is no leap.
        let moved = offset(reading).wrapping_sub(known).cast_signed().unsigned_abs();
        if moved > SECOND { self.look().boot } else { reading.boot }
    }

    /// Takes a reading for the clock's supervisor, and voids what is held if it leapt.
    pub(crate) fn look(&self) -> Reading {
        let (reading, leapt) = {
            let mut supervisor = lock(&self.supervisor);
            // Under the lock: readings come to the supervisor in the order in which they are taken.
            let reading = self.clock.read();
            let leapt = supervisor.observe(reading).jump;
            if leapt {
                // Release: pairs with the Acquire in `leaps`. Before names are visited (I2).
                self.leaps.fetch_add(1, Ordering::Release);
                self.void_all();
            }
            // Release: pairs with the Acquire in `now`. After names were visited (I1).
            self.offset.store(offset(reading), Ordering::Release);
            (reading, leapt)
        };
        if leapt {
            deferred_log::log(|| {
                tracing::warn!(
                    "the clock leapt: what was held of the sequences is not used, as this may be a copy"
                );
            });
        }
        reading
    }

    /// How often the clock was seen to leap.
    pub(crate) fn leaps(&self) -> u64 {
        // Acquire: pairs with the Release in `look`.
        self.leaps.load(Ordering::Acquire)
    }

    /// Another copy of this machine may hold everything that is held here: none of it is used. Under the supervisor's lock
    /// (I3).
    fn void_all(&self) {
        if !Guard::LeapVoidsSegments.holds() {
            return;
        }
        // What names left behind goes first: a name that takes it up meanwhile has it before it is visited.
        if Guard::LeapVoidsLeftovers.holds() {
            self.names.void_rests();
        }
        self.names.each(|named| {
            let mut state = named.lock();
            let spans = named.void(&mut state);
            // A hit of before a stop is of before the leap, too.
            state.ended = state.ended.map(|_| named.word.load());
            state.leaps += 1;
            state.books.waste.leap += total(&spans);
            let waits = !state.line.is_empty();
            if waits {
                self.enqueue(named, &mut state, true);
            }
        });
        self.limits.void();
    }

    /// Takes names out of the table that no caller has and that `is_over` says so of. Not while a leap is dealt with (I3).
    pub(crate) fn sweep(&self, is_over: impl Fn(&Named) -> bool, most: usize) -> usize {
        let _no_leap = lock(&self.supervisor);
        self.names.sweep(is_over, most, self.config.limit)
    }

    /// Forgets how far the store had come with each name. Not while names leave the table, which take theirs along.
    pub(crate) fn forget_marks(&self) {
        let _no_sweep = lock(&self.supervisor);
        self.names.forget_marks();
    }

    /// Has the teller ask for a name, unless it is about to.
    pub(crate) fn enqueue(&self, named: &Arc<Named>, state: &mut State, urgent: bool) {
        let wanted = if urgent { Queued::Urgent } else { Queued::Calm };
        let ahead = match state.queued {
            Queued::No => true,
            Queued::Calm => urgent,
            Queued::Urgent | Queued::Asking => false,
        };
        if ahead {
            state.queued = wanted;
            let due = &mut *lock(&self.due);
            let queue = if urgent { &mut due.urgent } else { &mut due.calm };
            queue.push_back(named.clone());
            self.teller.wake();
        }
    }

    /// The keeper looks after a name, until nothing was taken of it for long.
    pub(crate) fn activate(&self, named: &Arc<Named>, state: &mut State) {
        if !std::mem::replace(&mut state.is_active, true) {
            lock(&self.activated).push(named.clone());
        }
    }

    pub(crate) fn take_activated(&self) -> Vec<Arc<Named>> {
        std::mem::take(&mut lock(&self.activated))
    }

    /// The next names that are due, at most so many.
    pub(crate) fn take_due(&self, most: usize) -> Vec<Arc<Named>> {
        let due = &mut *lock(&self.due);
        let mut names: Vec<Arc<Named>> = due.urgent.drain(..due.urgent.len().min(most)).collect();
        let calm = due.calm.len().min(most - names.len());
        names.extend(due.calm.drain(..calm));
        names
    }

    /// Whether a name is due.
    pub(crate) fn has_due(&self) -> bool {
        let due = lock(&self.due);
        !due.urgent.is_empty() || !due.calm.is_empty()
    }

    /// Asks the teller something.
    pub(crate) fn ask<T>(&self, control: impl FnOnce(Question<T>) -> Control) -> Reply<T> {
        if self.forked() {
            return Reply::ready(Err(ControlError::Forked));
        }
        if let Err(error) = self.threads.begin() {
            let why = format!("a thread could not be started: {error}");
            return Reply::ready(Err(ControlError::StoreAway { why }));
        }
        let (question, reply) = Reply::channel(Some(self.alive.clone()));
        let mut controls = lock(&self.controls);
        // Under the lock: the teller takes the last of them under it when it is closed.
        if self.is_closed() {
            drop(controls);
            return Reply::ready(Err(ControlError::ShuttingDown));
        }
        controls.push_back(control(question));
        drop(controls);
        self.teller.wake();
        reply
    }

    /// The next control. What only asks, and for somebody who has left, is passed over.
    pub(crate) fn next_control(&self) -> Option<Control> {
        let mut passed = Vec::new();
        let mut controls = lock(&self.controls);
        while let Some(control) = controls.pop_front() {
            if !control.is_in_vain() {
                drop(controls);
                return Some(control);
            }
            // It ends after the lock.
            passed.push(control);
        }
        None
    }

    /// Whether somebody asked the teller something.
    pub(crate) fn has_control(&self) -> bool {
        !lock(&self.controls).is_empty()
    }

    /// The next control, if it is one that may be answered together with others.
    pub(crate) fn next_control_if(&self, fits: impl Fn(&Control) -> bool) -> Option<Control> {
        lock(&self.controls).pop_front_if(|control| fits(control))
    }

    /// The keeper ends a call that no thread is parked for when its time is over.
    pub(crate) fn watch(&self, named: &Arc<Named>, waiter: &Arc<Waiter>) {
        let deadline =
            Deadline { boot: waiter.deadline, waiter: Arc::downgrade(waiter), named: Arc::downgrade(named) };
        let mut deadlines = lock(&self.deadlines);
        let is_first = deadlines.peek().is_none_or(|Reverse(first)| deadline.boot < first.boot);
        deadlines.push(Reverse(deadline));
        // Calls that went away leave theirs.
        let waiting = usize::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        if deadlines.len() >= FEW_DEADLINES && deadlines.len() / 2 > waiting {
            deadlines.retain(|Reverse(deadline)| deadline.waiter.strong_count() > 0);
        }
        drop(deadlines);
        if is_first {
            self.keeper.wake();
        }
    }

    /// Calls whose time is over, and when the next one's is.
    #[expect(clippy::type_complexity, reason = "a list of pairs, and a time")]
    pub(crate) fn overdue(&self, boot: u64) -> (Vec<(Arc<Named>, Arc<Waiter>)>, Option<u64>) {
        let mut deadlines = lock(&self.deadlines);
        let mut over = Vec::new();
        loop {
            let next = deadlines.peek().map(|Reverse(first)| first.boot);
            if next.is_none_or(|next| next > boot) {
                return (over, next);
            }
            let Some(Reverse(Deadline { waiter, named, .. })) = deadlines.pop() else { continue };
            // One that was served is gone, or over.
            over.extend(named.upgrade().zip(waiter.upgrade()));
        }
    }

    /// What a call is told whose time is over.
    pub(crate) fn refusal(&self, boot: u64) -> SequenceError {
        let tally = lock(&self.tally);
        let again = Duration::from_nanos(tally.retry_at.saturating_sub(boot)).max(Duration::from_millis(1));
        if tally.status.behind.is_some() {
            SequenceError::store_behind(Duration::from_secs(1))
        } else if tally.store_since.is_some() || tally.witness_since.is_some() {
            SequenceError::store_away(again)
        } else {
            SequenceError::overloaded(Duration::from_millis(100))
        }
    }

    /// Why calls are refused at once, if they are: the store waits for a fence.
    pub(crate) fn is_behind(&self) -> bool {
        lock(&self.tally).status.behind.is_some()
    }

    /// What is wrong with all names, if something is.
    pub(crate) fn trouble(&self) -> Option<NameState> {
        let tally = lock(&self.tally);
        if tally.status.behind.is_some() {
            Some(NameState::Behind)
        } else if tally.store_since.is_some() || tally.witness_since.is_some() {
            Some(NameState::Away)
        } else {
            None
        }
    }

    /// All counters.
    pub(crate) fn stats(&self) -> SequencesStats {
        if self.forked() {
            return SequencesStats::default();
        }
        let figures = self.names.totals();
        let tally = lock(&self.tally);
        SequencesStats {
            figures,
            grants: tally.grants,
            store: tally.store,
            witness: tally.witness,
            identity_changes: tally.identity_changes,
            names: self.names.len(),
            holding: tally.holding,
            waiting: self.waiting.load(Ordering::Relaxed),
            refused: self.refused.value(),
            panics: self.panics.value(),
        }
    }

    /// One name's figures, if it is in the table.
    pub(crate) fn figures(&self, name: &SequenceName) -> Option<NameFigures> {
        if self.forked() {
            return None;
        }
        self.names.find(name).map(|named| self.figures_of(&named))
    }

    pub(crate) fn figures_of(&self, named: &Named) -> NameFigures {
        if self.forked() {
            return NameFigures::default();
        }
        let (boot, trouble) = (self.clock.read().boot, self.trouble());
        named.figures(&named.lock(), boot, trouble)
    }

    /// The names with the highest rates.
    pub(crate) fn busiest(&self, most: usize) -> Vec<(SequenceName, NameFigures)> {
        if self.forked() {
            return Vec::new();
        }
        let (boot, trouble) = (self.clock.read().boot, self.trouble());
        let mut busiest: Vec<(SequenceName, NameFigures)> = Vec::new();
        let cut = |busiest: &mut Vec<(SequenceName, NameFigures)>| {
            busiest.sort_by(|(_, left), (_, right)| right.rate.total_cmp(&left.rate));
            busiest.truncate(most);
        };
        // Never all at once: of a hundred thousand names they are more than what is kept of those that are idle.
        let room = most.saturating_mul(2).max(1_024);
        self.names.each(|named| {
            if busiest.len() >= room {
                cut(&mut busiest);
            }
            busiest.push((named.name.clone(), named.figures(&named.lock(), boot, trouble)));
        });
        cut(&mut busiest);
        busiest.sort_by(|(left, _), (right, _)| left.cmp(right));
        busiest
    }

    pub(crate) fn status(&self) -> StoreStatus {
        if self.forked() {
            return StoreStatus::default();
        }
        let boot = self.clock.read().boot;
        let tally = lock(&self.tally);
        let mut status = tally.status.clone();
        for (trouble, since) in [
            (&mut status.store_trouble, tally.store_since),
            (&mut status.witness_trouble, tally.witness_since),
        ] {
            if let (Some(Trouble { lasts, .. }), Some(since)) = (trouble, since) {
                *lasts = Duration::from_nanos(boot.saturating_sub(since));
            }
        }
        status
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::clock::SystemClock;
    use crate::sequence::numbers::Demand;
    use crate::sequence::store::SequenceSettings;

    #[test]
    fn calls_that_went_away_leave_little() {
        let hub = Hub::new(SequenceConfig::default(), Arc::new(SystemClock)).unwrap();
        let name = SequenceName::new("a").unwrap();
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = hub.names.find_or_make(&name, make).unwrap();
        for _ in 0..100_000 {
            let waiter = named.lock().line.join(Demand::ordered(1), u64::MAX);
            hub.waiting.fetch_add(1, Ordering::Relaxed);
            hub.watch(&named, &waiter);
            hub.give_up(&named, &waiter);
        }
        assert!(lock(&hub.deadlines).len() <= FEW_DEADLINES);
    }

    /// Else what a store that was accepted grants of it would be taken for a mark that went back.
    #[test]
    fn the_mark_of_a_name_that_leaves_the_table_while_all_are_forgotten_is_forgotten_too() {
        let hub = Hub::new(SequenceConfig::default(), Arc::new(SystemClock)).unwrap();
        let name = SequenceName::new("a").unwrap();
        let make = || Ok::<_, ()>(Named::new(name.clone(), GenerationWord::new().unwrap(), false));
        let named = hub.names.find_or_make(&name, make).unwrap();
        {
            let state = &mut *named.lock();
            (state.mark, state.settings) = (500, Some(SequenceSettings::default()));
        }
        drop(named);
        let (leave, leaves) = channel();
        thread::scope(|scope| {
            let hub = &hub;
            scope.spawn(move || {
                // Asked a second time, it has the name's part of the table.
                let looks = Cell::new(0);
                let is_over = |_: &Named| {
                    looks.set(looks.get() + 1);
                    if looks.get() == 2 {
                        leave.send(()).unwrap();
                        thread::sleep(Duration::from_millis(50));
                    }
                    true
                };
                assert_eq!(hub.sweep(is_over, 1), 1);
            });
            leaves.recv().unwrap();
            hub.forget_marks();
        });
        assert_eq!(hub.names.find_or_make(&name, make).unwrap().lock().mark, 0);
    }
}
