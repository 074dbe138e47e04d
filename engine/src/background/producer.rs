//! The background producer: one thread that serves calls that wait, refills, tops up, turns over, spills, and asks the
//! registry thread for windows and grants. [`Producer::turn`] does one round without a thread, for a test that drives
//! the engine by hand.
//!
//! # Invariants
//! - I1 everything it sweeps, cuts or is given back is in exactly one of: ring, queue, a ticket, the reserve (U3);
//! - I2 once a second of boot time it voids threads' runs and turns ring and queue over, so that nothing there is
//!   older than two seconds of its own time (U7);
//! - I3 it sleeps until something is due: an idle second costs one turn.

mod lost;
mod refills;
mod stop;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::task::Waker;
use std::time::Duration;

use crate::background::ledger::Ledger;
use crate::background::log_once;
use crate::background::registry_thread::{Done, Job};
use crate::background::windows::WindowKeeper;
use crate::clock::engine_clock::{Now, Steps};
use crate::clock::{SECOND, Verdict};
use crate::mint::gate::{Gate, Service, Trouble};
use crate::mint::ticket::Voids;
use crate::shared::EngineState;
use crate::stats::counters::Tier;
use crate::sys::atomics::lock;
use crate::sys::deferred_log::{self, Unsaid};
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;
use crate::tiers::reserve::Reserve;
use crate::tiers::ring::PARTITIONS;

/// A burst counts as one for this long after a call last had to wait.
const BURST: u64 = 50_000_000;

/// The producer.
pub(crate) struct Producer {
    shared: Arc<EngineState>,
    pub(crate) reserve: Reserve,
    jobs: Sender<Job>,
    done: Receiver<Done>,
    windows: WindowKeeper,
    ledger: Ledger,
    next_turnover: u64,
    burst_until: u64,
}

impl Producer {
    pub(crate) fn new(
        shared: Arc<EngineState>,
        reserve: Reserve,
        jobs: Sender<Job>,
        done: Receiver<Done>,
        windows: WindowKeeper,
    ) -> Self {
        let boot = shared.clock.read().boot;
        let ledger = Ledger::default();
        Self { shared, reserve, jobs, done, windows, ledger, next_turnover: boot + SECOND, burst_until: 0 }
    }

    /// Turns until the engine closes, then does the clean stop.
    pub(crate) fn run(&mut self) {
        self.shared.producer.adopt_current();
        while !self.shared.is_closed() {
            // Before the turn, which may stand still on the disk that the registry is on.
            let ((), unsaid) = deferred_log::collect(|| self.tell_registry());
            if !self.say(unsaid) {
                return;
            }
            // A line may take as long as its subscriber likes: the pause is of before it.
            let (pause, unsaid) = deferred_log::collect(|| self.turn_whatever_happens());
            if !self.say(unsaid) {
                return;
            }
            if !pause.is_zero() {
                self.shared.producer.wait(pause);
            }
        }
        let ((), unsaid) = deferred_log::collect(|| self.stop());
        if self.say(unsaid) {
            self.shared.turned.set(u64::MAX);
        }
    }

    /// Says that the registry went or came back. A clock that panics does so in the turn as well, which counts it.
    fn tell_registry(&self) {
        let tell = || log_once::tell_registry(&self.shared.tally, self.shared.clock.read().boot);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell));
    }

    /// Says the lines of a turn or of the stop. False in a child: a waker, or the line itself, is a stranger's code that
    /// may fork, and the child goes on here. All that this thread has is its parent's, the lines of before the fork too.
    fn say(&self, unsaid: Unsaid) -> bool {
        if !self.shared.generation.forked() {
            unsaid.say();
        }
        !self.shared.generation.forked()
    }

    /// One round. A panic in it is a defect; it must not end the refills of everybody. What the turn had in its hands
    /// is lost, not repeated: every move takes before it gives.
    pub(crate) fn turn_whatever_happens(&mut self) -> Duration {
        let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.turn()));
        turn.unwrap_or_else(|_| {
            deferred_log::log(|| {
                tracing::error!("the producer panicked and goes on; ids it held may be wasted");
            });
            self.shared.panics.add(1);
            self.after_panic()
        })
    }

    /// After a panic in a turn: callers that had asked may ask again, and what the turn counted, and lost, is told.
    /// Returns when to go on.
    pub(crate) fn after_panic(&mut self) -> Duration {
        self.count_lost();
        self.publish();
        if Guard::PanicAnswers.holds() {
            (0..PARTITIONS).for_each(|partition| self.shared.ring.answer(partition));
        }
        Duration::from_millis(10)
    }

    /// One round. Returns how long nothing is due.
    pub(crate) fn turn(&mut self) -> Duration {
        let shared = self.shared.clone();
        self.collect();
        let mut gate = lock(&shared.gate);
        let now = gate.clock.now();
        let steps = gate.clock.take_steps();
        if steps.void() {
            self.void(&mut gate, &now, steps);
        }
        self.windows.watch(&mut gate, &now, steps, &self.jobs);
        gate.coming = self.windows.is_asking(&gate);
        for run in self.ledger.returned(shared.returns.take()) {
            self.reserve.take_back(run, now.tick);
        }
        let (mut woken, mut is_cut_short) = (Vec::new(), false);
        if shared.take_starved() || gate.servable() > 0 {
            self.burst_until = now.reading.boot + BURST;
        }
        if gate.waiting() > 0 {
            let service = self.serve(&mut gate, &now);
            is_cut_short = service.is_cut_short;
            woken = self.account(service, &now);
        }
        // A caller that pauses keeps nobody from sleeping, and wakes this thread when it goes on.
        let (waiting, paused_until) = (gate.servable() > 0, gate.paused_until());
        let turnover = now.reading.boot >= self.next_turnover;
        // Nothing new comes: what is swept into the file now would need a grant to come back, and a registry that is
        // away grants none.
        let landless = !gate.holds_window(&now) || matches!(gate.trouble, Some(Trouble::Behind { .. }));
        let asked = (0..PARTITIONS).any(|partition| shared.ring.is_asked(partition));
        let fresh = if turnover || (asked && !waiting) { gate.minter.elapsed(&now) } else { Vec::new() };
        drop(gate);
        // Not under the lock: a waker may call the engine at once, or fork. A child goes no further: what is left takes
        // locks, and those that other threads hold are never given back in it.
        wake(woken, &shared.generation);
        if shared.generation.forked() {
            return Duration::ZERO;
        }
        self.reserve.erase_given_up();

        let tick = now.tick.unwrap_or(0);
        let burst = now.reading.boot < self.burst_until;
        if turnover {
            self.next_turnover = now.reading.boot + SECOND;
            self.turn_over(fresh, tick, burst || landless);
            self.reserve.look_for_oldest(tick);
        } else {
            for extent in fresh {
                self.reserve.fresh.push(extent);
            }
        }
        if !waiting || burst {
            self.refill(tick, burst, turnover);
        }
        if let Some(request) = self.reserve.plan_grant(tick, now.reading.boot, burst) {
            self.send(Job::Grant(request));
        }
        self.publish();
        self.check_ledger();
        if is_cut_short { Duration::ZERO } else { self.pause(&now, waiting, paused_until) }
    }

    fn send(&self, job: Job) {
        // The registry thread ends only after this sender is gone.
        let sent = self.jobs.send(job);
        debug_assert!(sent.is_ok() || self.shared.is_closed());
    }

    /// Takes in what the registry thread has done: what every turn begins with.
    pub(crate) fn collect(&mut self) {
        // Before they are taken: whatever may panic comes first.
        let boot = self.shared.clock.read().boot;
        self.shared.turned.set(boot);
        let answers: Vec<Done> = self.done.try_iter().collect();
        if !answers.is_empty() {
            self.take_in(answers, boot);
        }
    }

    fn take_in(&mut self, answers: Vec<Done>, boot: u64) {
        {
            // Before anything is done with them: a panic over one costs what it brought, and must not leave this thread
            // waiting for ever for answers that it had.
            let mut gate = lock(&self.shared.gate);
            for done in &answers {
                self.windows.heard(done, &mut gate);
            }
            self.windows.hear_of_copies(&mut gate);
        }
        let mut others = Vec::new();
        let replayed = self.reserve.tally.replayed;
        for done in answers {
            match done {
                // This reads the spill, and so comes before the lock.
                Done::Granted { from, result } => self.reserve.granted(from, result, boot),
                other => others.push(other),
            }
        }
        if self.reserve.tally.replayed > replayed {
            // Before a caller can have them: what is issued was seen to come.
            self.publish();
        }
        let mut gate = lock(&self.shared.gate);
        for done in others {
            let past = self.windows.take_in(done, &mut gate, &self.jobs);
            self.reserve.keep(past);
        }
    }

    /// Gives ids to calls that wait: fresh ids first, then the reserve.
    fn serve(&mut self, gate: &mut Gate, now: &Now) -> Service {
        let (shared, reserve, ledger) = (&self.shared, &mut self.reserve, &self.ledger);
        let tick = now.tick.unwrap_or(0);
        let mut unswept = 0..PARTITIONS;
        gate.serve(now, &shared.counters.tickets_in, |minter, part, most| {
            loop {
                if let Some(run) = reserve.fresh_run(tick, most) {
                    return Some((ledger.to_ticket(run), Tier::Queue));
                }
                if let Some(block) = shared.pop_queue() {
                    reserve.fresh.push_run(block.into_run());
                } else if let Some(run) = minter.any(now, part, most) {
                    return Some((run, Tier::Minter));
                } else if let Some(partition) = unswept.next() {
                    // Blocks may lie where the walks of the waiting threads do not lead.
                    ledger.sweep(&shared.ring, partition, |run| reserve.fresh.push_run(run));
                } else {
                    return Some((ledger.to_ticket(reserve.run(tick, most)?), Tier::Reserve));
                }
            }
        })
    }

    /// Counts what a service did and takes back what came of it. Returns the wakers to call.
    fn account(&mut self, service: Service, now: &Now) -> Vec<Waker> {
        self.shared.counters.tickets_out.add(service.out);
        self.ledger.from_tickets.add(service.out);
        for run in service.back {
            self.reserve.take_back(run, now.tick);
        }
        service.woken
    }

    /// Everything granted may be in use in another copy of this machine: it is dropped, and a new window is taken.
    fn void(&mut self, gate: &mut Gate, now: &Now, steps: Steps) {
        let copied = steps.copies > 0;
        deferred_log::log(move || {
            if copied {
                tracing::error!(
                    "a copy of this machine runs, and writes to the registry as this process: all ids in memory and in \
                     the spill are dropped. Until now both may have issued the same ids"
                );
            } else {
                tracing::warn!(
                    "the wall clock leapt forward; all ids in memory and in the spill are dropped, in case this machine was resumed \
                     from a snapshot"
                );
            }
        });
        if !Guard::LeapVoidsLast.holds() {
            self.shared.void_runs();
        }
        let voids = Voids(self.shared.voids().0 + 1);
        // Before what came back is taken: what comes later, from a call that took it before, is wasted there.
        self.shared.returns.void(voids);
        // They go on waiting: none is woken.
        drop(self.account(gate.void_gathered(voids), now));
        let (reserve, ledger) = (&mut self.reserve, &self.ledger);
        while Guard::LeapDropsQueue.holds()
            && let Some(block) = self.shared.pop_queue()
        {
            reserve.fresh.push_run(block.into_run());
        }
        for partition in (0..PARTITIONS).filter(|_| Guard::LeapDropsRing.holds()) {
            ledger.sweep(&self.shared.ring, partition, |run| reserve.fresh.push_run(run));
        }
        if Guard::LeapDropsReturns.holds() {
            ledger
                .returned(self.shared.returns.take())
                .into_iter()
                .for_each(|run| reserve.fresh.push_run(run));
        }
        if Guard::LeapDropsAside.holds() {
            gate.minter.take_aside().into_iter().for_each(|extent| reserve.fresh.push(extent));
        }
        reserve.void(copied);
        self.windows.abandon(gate, &self.jobs, copied);
        // After the sweeps: a thread that took a block meanwhile read the generation before.
        if Guard::LeapDropsRuns.holds() && Guard::LeapVoidsLast.holds() {
            self.shared.void_runs();
        }
        // Last: what a call takes that reads this number is of after the leap.
        self.shared.count_void();
    }

    /// How long nothing is due. A waiting caller is served at the next tick, or as soon as a refill is asked for.
    /// The calls of a caller that pauses are ended in time.
    fn pause(&self, now: &Now, waiting: bool, paused_until: Option<u64>) -> Duration {
        let boot = now.reading.boot;
        let mut due = self.next_turnover.min(self.windows.due(boot)).min(paused_until.unwrap_or(u64::MAX));
        if waiting {
            let layout = &self.shared.layout;
            let stands = matches!(now.seen.verdict, Verdict::Stand { .. } | Verdict::Behind { .. });
            // Where no tick comes, only deadlines do.
            let next = now.tick.filter(|_| !stands).map_or(u64::MAX, |tick| layout.tick_to_ns(tick + 1));
            // Not under 50 us, the cost of a wake-up; not over a millisecond, so that deadlines are kept.
            due = due.min(boot + next.saturating_sub(now.ns).clamp(50_000, 1_000_000));
        }
        Duration::from_nanos(due.saturating_sub(boot))
    }

    pub(crate) fn publish(&self) {
        let mut gauges = lock(&self.shared.gauges);
        gauges.reserve.clone_from(&self.reserve.tally);
        gauges.held = self.reserve.held();
        gauges.oldest = self.reserve.oldest_tick;
        gauges.stock = self.reserve.stock();
        gauges.spill_active = self.reserve.has_spill();
        gauges.why_not.clone_from(&self.reserve.why_not);
        gauges.windows = self.windows.tally;
    }
}

/// Calls all wakers. A waker is foreign code: one that panics must not keep the others asleep, or end this thread. In a child
/// that one of them forked, those after it are its parent's: to drop them is to call them, too.
fn wake(wakers: Vec<Waker>, generation: &GenerationWord) {
    let mut wakers = wakers.into_iter();
    while let Some(waker) = wakers.next() {
        if generation.forked() {
            std::mem::forget((waker, wakers));
            return;
        }
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake())).is_err() {
            deferred_log::log(|| tracing::error!("a waker panicked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;
    use std::task::Wake;

    use super::*;
    use crate::sys::fork_word::ForkWord;

    /// A waker in which the word is wiped, as in a child that it forks.
    struct Wipes(ForkWord, Sender<()>);

    impl Wake for Wipes {
        fn wake(self: Arc<Self>) {
            self.0.word().store(0, Ordering::Relaxed);
            self.1.send(()).unwrap();
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn of_wakers_of_which_one_forks_the_child_calls_no_other() {
        let word = ForkWord::new().unwrap();
        let (says, said) = channel();
        let generation = GenerationWord::of(word.clone());
        generation.renew();
        let waker = Waker::from(Arc::new(Wipes(word, says)));
        wake(vec![waker.clone(), waker.clone(), waker], &generation);
        assert_eq!(said.try_iter().count(), 1);
    }
}
