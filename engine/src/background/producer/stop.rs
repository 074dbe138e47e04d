//! The producer's clean stop.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::{Producer, wake};
use crate::background::registry_thread::{Done, Job};
use crate::clock::SECOND;
use crate::id::run::Run;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;
use crate::tiers::ring::PARTITIONS;

/// So long a stop waits for a grant that is under way: ten times what a registry takes that is well, and a fifth of
/// what the server lets its callers drain.
const GRANT_WAIT: u64 = SECOND;

impl Producer {
    /// The clean stop, with what is still on its way.
    pub(super) fn stop(&mut self) {
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
            self.send(Job::GiveUp { request, heard: None });
        }
        for (worker, from) in sealed.release {
            self.send(Job::Release { worker, from });
        }
        // A copy may be met in these, or was in what nobody listens to any more.
        if Guard::CopyGivesUpSpill.holds() {
            self.reserve.give_up_stock();
        }
        if let Some(request) = self.reserve.plan_giving_up() {
            self.send(Job::GiveUp { request, heard: Some(self.windows.copies) });
        }
        self.publish();
        self.check_ledger();
    }

    /// Whether this is a child that was forked in the stop.
    fn is_left_to_the_parent(&self) -> bool {
        self.shared.generation.forked() && Guard::ForkedAtStop.holds()
    }
}
