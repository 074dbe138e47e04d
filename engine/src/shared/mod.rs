//! The state that callers, producer and registry thread share, and how a call without luck gets its ids: from ring,
//! queue and minter, or by waiting.

// What is read for figures only is no part of loom's models.
use std::sync::{Arc, Mutex as PlainMutex};
use std::task::Poll;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use xuid_id::{Id, Layout, Order};

use crate::clock::engine_clock::Now;
use crate::clock::{Clock, nanos};
use crate::id::error::IdError;
use crate::id::run::{Block, Run};
use crate::mint::gate::Gate;
use crate::mint::ticket::{Returns, Ticket};
use crate::registry::Genesis;
use crate::registry::health::Tally;
use crate::settings::{LONGEST_BLOCK, Settings};
use crate::stats::counters::{Counters, Sources, Tier};
use crate::stats::published::Gauges;
use crate::sys::atomics::{AtomicBool, Mutex, Ordering, lock};
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;
use crate::sys::wake::{Wake, unpark_current};
use crate::tiers::limits::Limits;
use crate::tiers::queue::Queue;
use crate::tiers::ring::Ring;
use crate::tiers::thread_run::{ThreadRun, ThreadState, with_thread_state};

/// Ids a waiting thread is glad to get beyond the one it asked for: its next run.
const EXTRA_IDS: u32 = 64;

/// A waiting call's deadline is kept by the producer. So much later, in nanoseconds, a blocked thread goes on by
/// itself: the producer is gone, or stuck in the disk.
const MARGIN: u64 = 2_000_000_000;

/// What callers, producer and registry thread share.
pub(crate) struct EngineState {
    /// Tells engines of a process apart.
    pub(crate) number: u64,
    pub(crate) layout: Layout,
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
    closed: AtomicBool,
    /// Somebody tried and got nothing.
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
            layout: genesis.layout,
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
            closed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            refills: crate::stats::counters::AtomicCount::default(),
            panics: crate::stats::counters::AtomicCount::default(),
            turned,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`, so that the producer's clean stop sees what came before.
        self.closed.load(Ordering::Acquire)
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
        self.closed.store(true, Ordering::Release);
        self.void_runs();
        self.producer.wake();
    }

    /// The instant of a call. A step of the clock shows in one reading only: whoever meets it tells the producer.
    pub(crate) fn instant(&self, gate: &mut Gate) -> Now {
        let now = gate.clock.now();
        if now.stepped() {
            self.producer.wake();
        }
        now
    }

    pub(crate) fn check_open(&self) -> Result<(), IdError> {
        if self.generation.forked() {
            return Err(IdError::FORKED);
        }
        if self.is_closed() { Err(IdError::SHUTTING_DOWN) } else { Ok(()) }
    }

    /// The same for a call that may wait: its refusals are counted, and those of a try are not.
    pub(crate) fn check_open_to_wait(&self) -> Result<(), IdError> {
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

    /// Whether anybody starved since it was asked last.
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

    pub(crate) fn give_back(&self, runs: Vec<Run>) {
        self.counters.tickets_out.add(runs.iter().map(|run| u64::from(run.len())).sum());
        self.returns.give(runs);
    }

    /// A ticket's ids became a caller's.
    pub(crate) fn count_outcome(&self, ticket: &Ticket, result: &Result<Vec<Run>, IdError>) {
        match result {
            Ok(_) => {
                let sources = ticket.sources();
                self.counters.tickets_out.add(sources.total());
                self.counters.issue_of_ticket(&sources);
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
        with_thread_state(self.number, || self.join(), work)
    }

    /// Fills a thread run that is empty or void: from the ring, the queue, or straight from the
    /// minter. False if there is none to be had now.
    pub(crate) fn restock(&self, thread_run: &ThreadRun, thread_state: &mut ThreadState) -> bool {
        thread_run.close_run(&thread_state.counters);
        // Before the run is taken: a run that is voided while it is on its way is wasted, not kept too long.
        let generation = self.generation.load();
        let tiers = self.settings.tiers;
        let found = if tiers.ring { self.ring.take(&mut thread_state.cursor) } else { self.ring.skip() };
        if found.asked {
            self.producer.wake();
        }
        let (run, tier) = if let Some(block) = found.block {
            (block.into_run(), Tier::Ring)
        } else if let Some(block) = if tiers.queue { self.queue.pop() } else { None } {
            thread_state.counters.queue.add(u64::from(block.len()));
            (block.into_run(), Tier::Queue)
        } else if let Some(run) = self.cut_direct() {
            (run, Tier::Minter)
        } else {
            return false;
        };
        let generation =
            if Guard::GenerationBeforeTake.holds() { generation } else { self.generation.load() };
        thread_state.counters.taken.add(u64::from(run.len()));
        thread_run.fill(generation, &run, tier);
        true
    }

    /// A run straight from the minter: a sixty-fourth of the ids there are, so that many threads share a tick.
    fn cut_direct(&self) -> Option<Run> {
        let mut gate = lock(&self.gate);
        if gate.unordered_wait() {
            return None;
        }
        let now = self.instant(&mut gate);
        let share = (gate.minter.available(&now) / 64)
            .clamp(u64::from(EXTRA_IDS), u64::from(LONGEST_BLOCK))
            .min(u64::from(self.settings.tiers.longest_run));
        gate.cut(Order::Any, 0, &now, share as u32)
    }

    /// Gathers up to `count` ids of any age into `out`, through the thread's run.
    fn gather(
        &self,
        count: u32,
        out: &mut Vec<Run>,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
    ) -> Sources {
        let (mut sources, mut got, before) = (Sources::default(), 0, out.len());
        while got < count {
            let mut left = thread_run.left(self.generation.load());
            if left == 0 {
                if !self.restock(thread_run, thread_state) {
                    break;
                }
                left = thread_run.held();
            }
            let run = thread_run.pull(left.min(count - got), &mut sources);
            got += run.len();
            push_run(out, before, run, self.layout.sequences());
        }
        sources
    }

    /// Gathers `count` ids of any age; if there are fewer, what was gathered is counted as returned, and is an error.
    fn gather_any(&self, count: u32, out: &mut Vec<Run>) -> Result<(), Sources> {
        self.with_thread_state(|thread_run, thread_state| {
            self.gather_whole(count, out, thread_run, thread_state)
        })
    }

    pub(crate) fn gather_whole(
        &self,
        count: u32,
        out: &mut Vec<Run>,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
    ) -> Result<(), Sources> {
        let sources = self.gather(count, out, thread_run, thread_state);
        if sources.total() < u64::from(count) {
            thread_state.counters.returned.add(sources.total());
            return Err(sources);
        }
        thread_state.counters.issue_all(&sources);
        Ok(())
    }

    /// Cuts exactly `count` fresh or ordered ids, as far as there are any now; returns how many.
    fn cut(&self, gate: &mut Gate, now: &Now, order: Order, count: u32, out: &mut Vec<Run>) -> u32 {
        let least = gate.minter.least_fresh(now);
        let (mut got, before) = (0, out.len());
        while got < count {
            let Some(run) = gate.cut(order, least, now, count - got) else { break };
            got += run.len();
            push_run(out, before, run, self.layout.sequences());
        }
        got
    }

    /// Takes `count` ids without waiting, or says why not; nothing is left in `out` then.
    pub(crate) fn try_take(&self, count: u32, order: Order, out: &mut Vec<Run>) -> Result<(), IdError> {
        self.check_open()?;
        let before = out.len();
        if order == Order::Any {
            if self.gather_any(count, out).is_ok() {
                return Ok(());
            }
            self.returns.give(out.drain(before..));
            self.starve();
            let mut gate = lock(&self.gate);
            let now = self.instant(&mut gate);
            return Err(gate.refusal(&now, order, Duration::ZERO));
        }
        let mut gate = lock(&self.gate);
        let now = self.instant(&mut gate);
        if self.cut(&mut gate, &now, order, count, out) < count {
            let error = gate.refusal(&now, order, Duration::ZERO);
            drop(gate);
            self.count_direct(out[before..].iter(), true);
            self.returns.give(out.drain(before..));
            return Err(error);
        }
        drop(gate);
        self.count_direct(out[before..].iter(), false);
        Ok(())
    }

    fn count_direct<'a>(&self, runs: impl Iterator<Item = &'a Run>, returned: bool) {
        let ids = runs.map(|run| u64::from(run.len())).sum();
        self.with_thread_state(|_, thread_state| {
            let counters = &thread_state.counters;
            counters.taken.add(ids);
            if returned { counters.returned.add(ids) } else { counters.issue(Tier::Minter, ids) }
        });
    }

    /// Takes `count` ids now, or a ticket for them.
    pub(crate) fn take_or_wait(
        &self,
        count: u32,
        order: Order,
        wait: Duration,
    ) -> Result<Result<Vec<Run>, Arc<Ticket>>, IdError> {
        self.check_open_to_wait()?;
        let (mut runs, mut sources) = (Vec::new(), Sources::default());
        if order == Order::Any {
            match self.gather_any(count, &mut runs) {
                Ok(()) => return Ok(Ok(runs)),
                Err(gathered) => sources = gathered,
            }
        }
        let mut gate = lock(&self.gate);
        let now = self.instant(&mut gate);
        if order != Order::Any {
            let got = self.cut(&mut gate, &now, order, count, &mut runs);
            sources = Sources::of(Tier::Minter, u64::from(got));
            self.count_direct(runs.iter(), got < count);
            if got == count {
                return Ok(Ok(runs));
            }
            // Neither reserve nor queue can serve these: they would wait in vain.
            let too_long = order == Order::Ordered && gate.minter.ordered_waits(&now) > nanos(wait);
            if too_long || !gate.has_prospects(&now) {
                let error = gate.refusal(&now, order, wait);
                drop(gate);
                self.returns.give(runs);
                self.counters.refuse(error);
                return Err(error);
            }
        }
        self.enqueue(&mut gate, &now, order, (count, count), wait, (runs, sources)).map(Err)
    }

    fn enqueue(
        &self,
        gate: &mut Gate,
        now: &Now,
        order: Order,
        (count, welcome): (u32, u32),
        wait: Duration,
        (runs, sources): (Vec<Run>, Sources),
    ) -> Result<Arc<Ticket>, IdError> {
        let deadline = now.reading.boot.saturating_add(nanos(wait));
        let least = gate.minter.least_fresh(now);
        self.counters.tickets_in.add(sources.total());
        let ticket = Arc::new(Ticket::new(order, count, welcome, least, deadline, wait, (runs, sources)));
        if let Err(ticket) = gate.enqueue(ticket.clone()) {
            let error = gate.refusal(now, order, wait);
            self.give_back(ticket.cancel());
            self.counters.refuse(error);
            return Err(error);
        }
        self.producer.wake();
        Ok(ticket)
    }

    /// An id for a thread that may wait so long; one without a time only tries.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_cold(
        &self,
        thread_run: &ThreadRun,
        thread_state: &mut ThreadState,
        wait: Option<Duration>,
    ) -> Result<Id, IdError> {
        if let Err(error) = self.check_open() {
            thread_run.close_run(&thread_state.counters);
            self.count_refusal(wait, error);
            return Err(error);
        }
        // Before the wait: a run that comes after a shutdown, or a turn-over, is good for this one id.
        let generation = self.generation.load();
        if self.restock(thread_run, thread_state) {
            return Ok(thread_run.take_one());
        }
        let ticket = {
            let mut gate = lock(&self.gate);
            let now = self.instant(&mut gate);
            let Some(time) = wait.filter(|wait| !wait.is_zero()) else {
                let error = gate.refusal(&now, Order::Any, Duration::ZERO);
                drop(gate);
                self.starve();
                self.count_refusal(wait, error);
                return Err(error);
            };
            self.enqueue(&mut gate, &now, Order::Any, (1, EXTRA_IDS), time, (Vec::new(), Sources::default()))?
        };
        let mut runs = self.block_on(&ticket).inspect_err(|error| self.counters.refuse(*error))?;
        let last = runs.pop();
        self.give_back(runs);
        let Some(run) = last else { unreachable!("a ticket is done only with at least what was asked for") };
        self.counters.tickets_out.add(u64::from(run.len()));
        thread_state.counters.taken.add(u64::from(run.len()));
        let generation =
            if Guard::GenerationBeforeWait.holds() { generation } else { self.generation.load() };
        thread_run.fill(generation, &run, ticket.sources().last());
        Ok(thread_run.take_one())
    }

    /// Counts the refusal of a call that may wait.
    fn count_refusal(&self, wait: Option<Duration>, error: IdError) {
        if wait.is_some() {
            self.counters.refuse(error);
        }
    }

    /// Waits for a ticket. Its deadline is kept by the producer; the margin is for a producer that is gone. On the
    /// producer's own thread, in a waker's code or a log's, there is nobody to wait for.
    pub(crate) fn block_on(&self, ticket: &Ticket) -> Result<Vec<Run>, IdError> {
        let waker = unpark_current();
        loop {
            if let Poll::Ready(result) = ticket.poll(&waker) {
                return result;
            }
            let boot = self.clock.read().boot;
            let last = ticket.deadline.saturating_add(MARGIN);
            if boot >= last || self.producer.is_current() {
                self.give_back(ticket.cancel());
                return Err(IdError::overloaded(ticket.wait, Duration::from_millis(100)));
            }
            std::thread::park_timeout(Duration::from_nanos((last - boot).min(MARGIN)));
        }
    }
}

/// Appends a run, joined to the last one where it goes on in the same tick. What was in `out` before this call's
/// runs, from `before` on, stays as it is: it is another call's.
fn push_run(out: &mut Vec<Run>, before: usize, run: Run, sequences: u32) {
    match out[before..].last_mut() {
        Some(last) if last.continues_with(&run, sequences) => last.join(run),
        _ => out.push(run),
    }
}
