//! The state that callers, producer and registry thread share. How a call without luck gets its ids stands in `one`, a
//! miss; `many`, a call for many; and `wait`. `shown` is what callers see of what they get.

mod many;
mod one;
mod shown;
mod wait;

// What is read for figures only is no part of loom's models.
use std::sync::{Arc, Mutex as PlainMutex};

use crossbeam_utils::CachePadded;
use xuid_id::{Id, Layout, Order, Parts as IdParts};

use self::shown::Shown;
use crate::clock::Clock;
use crate::clock::engine_clock::Now;
use crate::id::error::IdError;
use crate::id::run::{Block, Run};
use crate::mint::gate::Gate;
use crate::mint::ticket::{Returns, Ticket, Voids};
use crate::registry::Genesis;
use crate::registry::health::Tally;
use crate::settings::Settings;
use crate::stats::counters::Counters;
use crate::stats::published::Gauges;
use crate::sys::atomics::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;
use crate::sys::wake::Wake;
use crate::tiers::limits::Limits;
use crate::tiers::queue::Queue;
use crate::tiers::ring::Ring;
use crate::tiers::thread_run::{ThreadRun, ThreadState, with_thread_state};

/// The bit of `standing` that tells of the close.
const CLOSED: u64 = 1;

/// What callers, producer and registry thread share.
pub(crate) struct EngineState {
    /// Tells engines of a process apart.
    pub(crate) number: u64,
    /// Of plots. What callers see of them is the layout of `genesis`.
    pub(crate) layout: Layout,
    shown: Shown,
    pub(crate) genesis: Genesis,
    pub(crate) registry: String,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) generation: GenerationWord,
    pub(crate) limits: Limits,
    pub(crate) ring: Ring,
    pub(crate) queue: Queue,
    pub(crate) gate: CachePadded<Mutex<Gate>>,
    pub(crate) returns: Returns,
    pub(crate) counters: CachePadded<Counters>,
    pub(crate) gauges: PlainMutex<Gauges>,
    pub(crate) tally: Arc<PlainMutex<Tally>>,
    pub(crate) producer: Arc<Wake>,
    pub(crate) inherited: u64,
    pub(crate) refused_spills: u64,
    /// Twice the number of voids, and one more once it is closed: a call reads both at once.
    standing: AtomicU64,
    /// A call tried and got nothing.
    starved: AtomicBool,
    pub(crate) refills: crate::stats::counters::AtomicCount,
    /// Panics of the producer.
    pub(crate) panics: crate::stats::counters::AtomicCount,
    /// Boot time at which the producer began its last turn; the end of time once it has stopped.
    pub(crate) turned: crate::stats::counters::Gauge,
}

/// What [`EngineState`] is made of, besides what it makes itself.
pub(crate) struct Parts {
    pub(crate) genesis: Genesis,
    pub(crate) registry: String,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) generation: GenerationWord,
    pub(crate) gate: Gate,
    pub(crate) tally: Arc<PlainMutex<Tally>>,
    pub(crate) inherited: u64,
    pub(crate) refused_spills: u64,
}

impl EngineState {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { genesis, registry, settings, clock, generation, gate, tally, inherited, refused_spills } =
            parts;
        let turned = crate::stats::counters::Gauge::default();
        turned.set(clock.read().boot);
        Self {
            // The first generation is unique in the process, and so are engines that way.
            number: generation.load(),
            layout: genesis.layout.plots(),
            shown: Shown::new(genesis.layout, settings.veil.as_ref()),
            genesis,
            registry,
            ring: Ring::new(settings.slots),
            queue: Queue::new(settings.slots),
            settings,
            clock,
            generation,
            limits: Limits::default(),
            gate: CachePadded::new(Mutex::new(gate)),
            returns: Returns::default(),
            counters: CachePadded::default(),
            gauges: PlainMutex::default(),
            tally,
            producer: Arc::default(),
            inherited,
            refused_spills,
            standing: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            refills: crate::stats::counters::AtomicCount::default(),
            panics: crate::stats::counters::AtomicCount::default(),
            turned,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`, so that the producer's clean stop sees what came before.
        self.standing.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How often a leap made void what was in memory.
    pub(crate) fn voids(&self) -> Voids {
        // Acquire: pairs with the Release in `count_void`.
        Voids(self.standing.load(Ordering::Acquire) / 2)
    }

    /// A leap made void what was in memory, and no tier has any of it: a call that reads this number gets none.
    pub(crate) fn count_void(&self) {
        // Release: pairs with the Acquire in `voids` and `check_open`.
        self.standing.fetch_add(2, Ordering::Release);
    }

    /// Voids the runs of threads and handles; each finds out at its next call.
    pub(crate) fn void_runs(&self) {
        if !Guard::GenerationThenLimits.holds() {
            self.limits.void();
        }
        self.generation.renew();
        if Guard::GenerationThenLimits.holds() {
            self.limits.void();
        }
    }

    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `is_closed`.
        self.standing.fetch_or(CLOSED, Ordering::Release);
        self.void_runs();
        self.producer.wake();
    }

    /// The instant of a call. A step of the clock shows in one reading only: the call that meets it tells the producer.
    /// After a leap, what threads and handles hold is void at once, and the gate cuts nothing until the producer has
    /// dropped the rest.
    pub(crate) fn instant(&self, gate: &mut Gate) -> Now {
        let now = gate.clock.now();
        if now.seen.jump && Guard::LeapVoidsAtOnce.holds() {
            self.void_runs();
        }
        if now.stepped() {
            self.producer.wake();
        }
        now
    }

    /// Says how often a leap made void what was in memory: what the call takes from here on is of after that many, and is
    /// void after one more.
    pub(crate) fn check_open(&self) -> Result<Voids, IdError> {
        if self.generation.forked() {
            return Err(IdError::FORKED);
        }
        // Acquire: pairs with the Release in `close` and in `count_void`.
        let standing = self.standing.load(Ordering::Acquire);
        if standing & CLOSED == 0 { Ok(Voids(standing / 2)) } else { Err(IdError::SHUTTING_DOWN) }
    }

    /// The same for a call that may wait: its refusals are counted, and those of a try are not.
    pub(crate) fn check_open_to_wait(&self) -> Result<Voids, IdError> {
        self.check_open().inspect_err(|error| self.counters.refuse(*error))
    }

    pub(crate) fn count_refill(&self) {
        self.refills.add(1);
    }

    /// Tells the producer that a call that does not wait got nothing: else it would not know of it.
    fn starve(&self) {
        // Relaxed: the wake orders it.
        self.starved.store(true, Ordering::Relaxed);
        self.producer.wake();
    }

    /// Whether a call starved since this was asked last.
    pub(crate) fn take_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::Relaxed)
    }

    /// The queue as the producer uses it, counted.
    pub(crate) fn push_queue(&self, block: Block) -> Result<(), Block> {
        let len = u64::from(block.len());
        // First: a caller may have it, and count that, before this thread goes on.
        self.counters.queue_in.add(len);
        self.queue.push(block).inspect_err(|_| self.counters.queue_out.add(len))
    }

    pub(crate) fn pop_queue(&self) -> Option<Block> {
        let block = self.queue.pop()?;
        self.counters.queue_out.add(u64::from(block.len()));
        Some(block)
    }

    /// Takes back what a ticket had, with the ticket's number of voids.
    pub(crate) fn give_back(&self, runs: Vec<Run>, since: Voids) {
        self.counters.tickets_out.add(runs.iter().map(|run| u64::from(run.len())).sum());
        self.returns.give(runs, since);
    }

    /// A ticket's ids became a caller's.
    pub(crate) fn count_outcome(&self, ticket: &Ticket, result: &Result<Vec<Run>, IdError>) {
        match result {
            Ok(_) => {
                let sources = ticket.sources();
                self.counters.tickets_out.add(sources.total());
                self.counters.issue_of_ticket(ticket.order, &sources);
            }
            Err(error) => self.counters.refuse(*error),
        }
    }

    pub(crate) fn join(&self) -> ThreadState {
        let (counters, place) = self.counters.join();
        ThreadState { counters, cursor: self.ring.cursor(place), scratch: Vec::new() }
    }

    /// A thread state that is counted nowhere.
    pub(crate) fn pass_by(&self) -> ThreadState {
        ThreadState { counters: Arc::default(), cursor: self.ring.cursor(0), scratch: Vec::new() }
    }

    pub(crate) fn with_thread_state<T>(&self, work: impl FnOnce(&ThreadRun, &mut ThreadState) -> T) -> T {
        with_thread_state(self.number, self.is_plain(), || self.join(), work)
    }

    /// Whether callers see plots as they are.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.shown, Shown::Plots)
    }

    /// What callers see of an id that was issued.
    pub(crate) fn show(&self, id: Id) -> Id {
        self.shown.one(id)
    }

    /// The same of all ids in a slice.
    pub(crate) fn show_all(&self, ids: &mut [Id]) {
        self.shown.all(ids);
    }

    /// The same of the runs from that place on.
    pub(crate) fn show_runs(&self, runs: &mut Vec<Run>, from: usize) {
        self.shown.runs(runs, from);
    }

    /// What an id that callers see says.
    pub(crate) fn parts_of(&self, id: Id) -> IdParts {
        self.shown.parts(&self.genesis.layout, id)
    }

    /// Whether ids of that order can be told from others by callers: those that are sealed have none.
    pub(crate) fn check_order(&self, order: Order) -> Result<(), IdError> {
        match self.shown {
            Shown::Sealed(_) if order == Order::Ordered => Err(IdError::NO_ORDER),
            _ => Ok(()),
        }
    }
}
