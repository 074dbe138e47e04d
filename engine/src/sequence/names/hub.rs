//! What all names of a process share: the table, the clock, and the two threads' wake-ups and queues.
//!
//! # Invariants
//! - I1 a call that reads the clock after a leap finds nothing that was held before it: the offset that calls compare with
//!   is set after all that is held was voided, and who finds another one waits for the lock under which that is done;
//! - I2 what comes to a name from outside is compared with the count of leaps under the name's lock. A leap that is counted
//!   later visits the name later, and voids it there;
//! - I3 no name leaves the table while a leap is dealt with, so each is visited with what it holds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::control::{Control, Controls};
use super::deadlines::Deadlines;
use super::named::{Named, Queued, State};
use super::named_table::NamedTable;
use super::own_threads::OwnThreads;
use super::reply::{Question, Reply};
use super::untold::UntoldNames;
use crate::clock::{Clock, Reading, SECOND, Supervisor, Thresholds};
use crate::sequence::chain::line::{MOST_WAITING, MOST_WAITING_UNTOLD, Places, Waiter};
use crate::sequence::chain::span::total;
use crate::sequence::error::{ControlError, SequenceError};
use crate::sequence::figures::{GrantCounts, StoreStatus};
use crate::sequence::name::SequenceName;
use crate::sequence::settings::SequenceConfig;
use crate::stats::Latency;
use crate::stats::counters::AtomicCount;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::fork_word::{GenerationWord, WordPool};
use crate::sys::guards::Guard;
use crate::sys::wake::Wake;
use crate::tiers::limits::Limits;

/// Names of which nothing is known that strangers may bring up, all together.
const MOST_UNTOLD: usize = 131_072;

/// What is shared.
pub(crate) struct Hub {
    pub(crate) config: SequenceConfig,
    pub(crate) names: NamedTable,
    untold: UntoldNames,
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
    pub(crate) controls: Controls,
    pub(crate) teller: Arc<Wake>,
    pub(crate) keeper: Arc<Wake>,
    pub(crate) threads: OwnThreads,
    pub(crate) deadlines: Deadlines,
    closed: AtomicBool,
    pub(crate) tally: Mutex<SequenceTally>,
    pub(crate) refused: AtomicCount,
    pub(crate) panics: AtomicCount,
    pub(crate) places: Places,
    pub(crate) places_of_untold: Places,
}

/// Names whose next grant is due. Those for which callers wait go first.
#[derive(Debug, Default)]
struct Due {
    urgent: VecDeque<Arc<Named>>,
    calm: VecDeque<Arc<Named>>,
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
            untold: UntoldNames::new(MOST_UNTOLD),
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
            controls: Controls::default(),
            teller: Arc::default(),
            keeper: Arc::default(),
            threads: OwnThreads::default(),
            deadlines: Deadlines::default(),
            closed: AtomicBool::new(false),
            tally: Mutex::default(),
            refused: AtomicCount::default(),
            panics: AtomicCount::default(),
            places: Places::new(MOST_WAITING),
            places_of_untold: Places::new(MOST_WAITING_UNTOLD),
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

    /// The entry of a name. One of which nothing is known takes a place of these, if a stranger brought it up.
    pub(crate) fn named(
        &self,
        name: &SequenceName,
        within: Option<&UntoldNames>,
    ) -> Result<Arc<Named>, SequenceError> {
        let later = || SequenceError::overloaded(Duration::from_secs(1));
        self.check_open()?;
        self.threads.begin().map_err(|_| later())?;
        // A stop that came in between leaves no thread that would serve the name.
        self.check_open()?;
        self.names.find_or_make(name, || {
            let places = match within.filter(|_| !self.names.remembers(name)) {
                Some(within) => {
                    let all = self.untold.take().ok_or_else(later)?;
                    Some(Box::new((all, within.take().ok_or_else(later)?)))
                }
                None => None,
            };
            let word = lock(&self.words).take().map_err(|_| later())?;
            let is_strict = self.config.strict.iter().any(|pattern| pattern.fits(name.as_str()));
            let named = Named::new(name.clone(), GenerationWord::of(word), is_strict);
            named.lock().untold = places;
            Ok(named)
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

    /// Whether one is that callers wait for.
    pub(crate) fn has_urgent(&self) -> bool {
        !lock(&self.due).urgent.is_empty()
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
        if !self.controls.push(control(question), || self.is_closed()) {
            return Reply::ready(Err(ControlError::ShuttingDown));
        }
        self.teller.wake();
        reply
    }

    /// The keeper ends a call that no thread is parked for when its time is over.
    pub(crate) fn watch(&self, named: &Arc<Named>, waiter: &Arc<Waiter>) {
        if self.deadlines.note(named, waiter) {
            self.keeper.wake();
        }
    }

    /// The places of calls for this name, which is in this state.
    pub(crate) fn places_of(&self, state: &State) -> &Places {
        if state.untold.is_some() { &self.places_of_untold } else { &self.places }
    }

    /// Calls that stand in a line.
    pub(crate) fn waiting(&self) -> u64 {
        self.places.taken() + self.places_of_untold.taken()
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
    use crate::sequence::store::SequenceSettings;

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
