//! The background producer: one thread that serves calls that wait, refills, tops up, turns over, spills, and asks the
//! registry thread for windows and grants. [`Producer::turn`] does one round without a thread, for a test that drives
//! the engine by hand.
//!
//! # Invariants
//! - I1 everything it sweeps, cuts or is given back is in exactly one of: ring, queue, a ticket, the reserve (U3);
//! - I2 once a second of boot time it voids threads' runs and turns ring and queue over, so that nothing there is
//!   older than two seconds of its own time (U7);
//! - I3 it sleeps until something is due: an idle second costs one turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::task::Waker;
use std::time::Duration;

use xuid_spill::Extent;

use crate::background::ledger::Ledger;
use crate::background::log_once;
use crate::background::registry_thread::{Done, Job};
use crate::background::windows::WindowKeeper;
use crate::clock::engine_clock::{Now, Steps};
use crate::clock::{SECOND, Verdict};
use crate::id::run::Run;
use crate::mint::gate::{Gate, Service, Trouble};
use crate::mint::ticket::Voids;
use crate::settings::{CALM_BLOCK, CALM_IDS, LONGEST_BLOCK, SLOTS};
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

/// So long a stop waits for a grant that is under way: ten times what a registry takes that is well, and a fifth of
/// what the server lets its callers drain.
const GRANT_WAIT: u64 = SECOND;

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

    /// The clean stop, with what is still on its way.
    fn stop(&mut self) {
        // A panic over an answer costs what that brought, and not the stop.
        for step in [Self::await_grant, Self::collect] {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(self))).is_err();
            // The wait runs wakers, and one of them may have forked. A child takes no lock: one that another thread
            // held at the fork is never given back in it, and it would keep what it has of its parent's files locked
            // for ever.
            if self.shared.generation.forked() {
                return;
            }
            if panicked {
                deferred_log::log(|| {
                    tracing::error!(
                        "the producer panicked over an answer at its stop; ids of it may be wasted"
                    );
                });
                self.shared.panics.add(1);
                self.count_lost();
            }
        }
        self.finish();
    }

    /// A grant that is under way moves the spill's mark whether the engine waits for it or not, and no process reads
    /// what lies below the mark.
    fn await_grant(&mut self) {
        self.await_grant_by(|done, left| done.recv_timeout(left).ok());
    }

    /// `next` gives the registry thread's next answer within what is left of the wait. A test that drives the engine by
    /// hand does the job there: no other thread does.
    pub(crate) fn await_grant_by(&mut self, mut next: impl FnMut(&Receiver<Done>, Duration) -> Option<Done>) {
        let until = self.shared.clock.read().boot + GRANT_WAIT;
        if self.reserve.is_granting() {
            // Callers need not wait for it.
            let mut gate = lock(&self.shared.gate);
            let (now, service) = (gate.clock.now(), gate.close());
            drop(gate);
            let woken = self.account(service, &now);
            wake(woken, &self.shared.generation);
        }
        while self.reserve.is_granting() && !self.shared.generation.forked() {
            let left = until.saturating_sub(self.shared.clock.read().boot);
            let Some(done) = next(&self.done, Duration::from_nanos(left)) else {
                deferred_log::log(|| {
                    tracing::warn!("the registry has not answered a grant: its ids are lost if it was made");
                });
                return;
            };
            self.take_in(vec![done], until - GRANT_WAIT);
        }
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

    /// Once a second: what is older than a second makes way for what is fresh.
    /// `keep`: what leaves ring and queue stays in memory.
    fn turn_over(&mut self, fresh: Vec<Extent>, tick: u64, keep: bool) {
        if Guard::TurnOverVoids.holds() {
            self.shared.void_runs();
        }
        let layout = self.shared.layout;
        let mut all: Vec<Extent> = fresh;
        all.extend(self.reserve.fresh.drain());
        let mut sweep = |run: Run| all.push(run.into_extent());
        while let Some(block) = self.shared.pop_queue() {
            sweep(block.into_run());
        }
        for partition in 0..PARTITIONS {
            self.ledger.sweep(&self.shared.ring, partition, &mut sweep);
        }
        // The newest second stays in memory, as far as the ring holds it.
        let youngest = tick.saturating_sub(layout.ticks_in_ns(SECOND)) * layout.stride();
        let mut room = CALM_IDS;
        all.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.first));
        let (mut staying, mut leaving) = (Vec::new(), Vec::new());
        for extent in all {
            let (old, new) = split_newest(&extent, youngest, room, layout.stride());
            leaving.extend(old);
            if let Some(new) = new {
                room -= new.ids();
                staying.push(new);
            }
        }
        staying.into_iter().rev().for_each(|extent| self.reserve.fresh.push(extent));
        crash_point!(TurnedOver);
        if keep {
            self.reserve.put_by(leaving);
        } else {
            // What earlier bursts put by survives a crash on disk only.
            leaving.extend(self.reserve.take_put_by());
            self.reserve.put_away(leaving);
        }
    }

    /// Tops the queue up and refills the partitions that were asked for, or all of them.
    fn refill(&mut self, tick: u64, burst: bool, all: bool) {
        let shared = self.shared.clone();
        let wanted: Vec<usize> =
            (0..PARTITIONS).filter(|partition| all || shared.ring.is_asked(*partition)).collect();
        if wanted.is_empty() {
            return;
        }
        let at_hand = if burst { self.reserve.held() } else { self.reserve.fresh.ids() };
        let longest = block_len(at_hand + shared.queue.len() as u64 * CALM_BLOCK)
            .min(shared.settings.tiers.longest_run);
        self.top_up(tick, burst, longest);
        for partition in wanted {
            if Guard::AnswerFirst.holds() {
                shared.ring.answer(partition);
            }
            let (reserve, ledger) = (&mut self.reserve, &self.ledger);
            // In a burst past the queue, which then is there for callers that find the ring empty: going through it,
            // each block would meet them at both its ends.
            let refilled = shared.ring.refill(partition, || {
                let direct = if burst { reserve.block(tick, burst, longest) } else { None };
                direct.or_else(|| shared.pop_queue()).map(|block| ledger.to_ring(block))
            });
            if !Guard::AnswerFirst.holds() {
                shared.ring.answer(partition);
            }
            if let Some(block) = refilled.left_over {
                ledger.from_ring.add(u64::from(block.len()));
                reserve.fresh.push_run(block.into_run());
            }
            if refilled.blocks > 0 {
                shared.count_refill();
            } else if refilled.dry {
                // Nothing to give: stays asked for, so that no caller wakes this thread for it again.
                shared.ring.ask_again(partition);
            }
            self.top_up(tick, burst, longest);
        }
    }

    fn top_up(&mut self, tick: u64, burst: bool, longest: u32) {
        let shared = &self.shared;
        for _ in 0..shared.queue.room() {
            let Some(block) = self.reserve.block(tick, burst, longest) else { return };
            if let Err(block) = shared.push_queue(block) {
                self.reserve.fresh.push_run(block.into_run());
                return;
            }
        }
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
                    "the wall clock leapt forward; all ids in memory are dropped, in case this machine was resumed from \
                     a snapshot"
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
        reserve.void();
        if copied {
            reserve.give_up_stock();
        }
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

    /// The clean stop, after the last turn: refuse, seal, sweep, append and sync, and only then hand back.
    pub(crate) fn finish(&mut self) {
        let shared = self.shared.clone();
        // The wait for a grant runs wakers, and one of them may have forked.
        if self.is_left_to_the_parent() {
            return;
        }
        self.collect();
        let mut gate = lock(&shared.gate);
        // After the collecting: a switch of worker moves the clock, and nothing is cut above it.
        let now = gate.clock.now();
        // As in a turn: what is held may be held by another copy of this machine too, so nothing of it is handed back.
        let steps = gate.clock.take_steps();
        if steps.void() && Guard::LeapAtStop.holds() {
            self.void(&mut gate, &now, steps);
        }
        let service = gate.close();
        crash_point!(StopRefused);
        let sealed = gate.minter.seal(&now);
        crash_point!(StopSealed);
        drop(gate);
        let woken = self.account(service, &now);
        // Before the disk, which may stand still: callers need not wait for it.
        wake(woken, &self.shared.generation);
        if self.is_left_to_the_parent() {
            return;
        }
        let mut pieces = sealed.extents;
        let mut keep = |run: Run| pieces.push(run.into_extent());
        self.ledger.returned(shared.returns.close()).into_iter().for_each(&mut keep);
        while let Some(block) = shared.pop_queue() {
            keep(block.into_run());
        }
        for partition in 0..PARTITIONS {
            self.ledger.sweep(&shared.ring, partition, &mut keep);
        }
        // After the sweeps: a thread that took a block since the close has one id of it.
        if Guard::StopVoidsAgain.holds() {
            shared.void_runs();
        }
        crash_point!(StopSwept);
        self.reserve.seal(pieces, now.tick.unwrap_or(0));
        crash_point!(StopSynced);
        if let Some(request) = self.reserve.plan_giving_up() {
            self.send(Job::Grant(request));
        }
        for (worker, from) in sealed.release {
            self.send(Job::Release { worker, from });
        }
        // A copy may be met in these, or was in what nobody listens to any more.
        self.reserve.give_up_stock();
        if let Some(request) = self.reserve.plan_giving_up() {
            self.send(Job::GrantIfCopied { request, heard: self.windows.copies });
        }
        self.publish();
        self.check_ledger();
    }

    /// Whether this is a child that was forked in the stop.
    fn is_left_to_the_parent(&self) -> bool {
        self.shared.generation.forked() && Guard::ForkedAtStop.holds()
    }
}

/// What a panic costs.
impl Producer {
    /// Ids that came into this thread's hands, did not go out of them, and are not there: 0, except after a panic.
    fn missing(&self) -> u64 {
        let Self { shared, ledger, reserve, .. } = self;
        let (tally, counters) = (&reserve.tally, &shared.counters);
        let passed = lock(&shared.gate).minter.passed;
        let came = passed
            + tally.replayed
            + counters.queue_out.value()
            + ledger.from_ring.value()
            + ledger.from_returns.value()
            + ledger.from_tickets.value();
        let wasted =
            tally.expired + tally.trimmed + tally.wasted_spill + tally.wasted_grant + tally.wasted_step;
        let went = tally.spilled
            + wasted
            + tally.wasted_panic
            + counters.queue_in.value()
            + ledger.to_ring.value()
            + ledger.to_tickets.value();
        let there = went + reserve.held();
        debug_assert!(came >= there, "{came} came, {went} went, {} are there", reserve.held());
        came.saturating_sub(there)
    }

    /// Counts as waste what a turn had in its hands when it panicked.
    fn count_lost(&mut self) {
        self.reserve.tally.wasted_panic += self.missing();
    }

    /// I2 of the ledger.
    fn check_ledger(&self) {
        debug_assert_eq!(self.missing(), 0, "ids vanished in a turn");
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

/// The length of blocks where so many ids are at hand: long, but so that all slots of the ring get one.
fn block_len(at_hand: u64) -> u32 {
    let share = (at_hand / SLOTS as u64).clamp(16, u64::from(LONGEST_BLOCK));
    1 << share.ilog2()
}

/// Splits off the newest ticks of an extent: those that begin at `youngest` or later, as many as `room` ids hold.
fn split_newest(extent: &Extent, youngest: u64, room: u64, stride: u64) -> (Option<Extent>, Option<Extent>) {
    let too_old = youngest.saturating_sub(extent.first).div_ceil(stride).min(u64::from(extent.ticks)) as u32;
    let fits = (room / u64::from(extent.len)).min(u64::from(extent.ticks - too_old)) as u32;
    let older = extent.ticks - fits;
    let old = (older > 0).then_some(Extent { ticks: older, ..*extent });
    let first = extent.first + u64::from(older) * stride;
    (old, (fits > 0).then_some(Extent { first, ticks: fits, ..*extent }))
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

    #[test]
    fn the_newest_ticks_that_fit_stay() {
        let extent = Extent { first: 10, len: 4, ticks: 5 };
        let older = |ticks| Some(Extent { ticks, ..extent });
        let newer = |first, ticks| Some(Extent { first, len: 4, ticks });
        assert_eq!(split_newest(&extent, 0, 9, 100), (older(3), newer(310, 2)));
        assert_eq!(split_newest(&extent, 0, 3, 100), (Some(extent), None));
        assert_eq!(split_newest(&extent, 0, 20, 100), (None, Some(extent)));
        assert_eq!(split_newest(&extent, 200, 20, 100), (older(2), newer(210, 3)));
        assert_eq!(split_newest(&extent, 411, 20, 100), (Some(extent), None));
    }

    #[test]
    fn blocks_grow_with_supply() {
        assert_eq!((block_len(0), block_len(1 << 20), block_len(CALM_IDS - 1)), (16, 256, 512));
        assert_eq!((block_len(CALM_IDS), block_len(u64::MAX)), (1024, 4096));
    }
}
