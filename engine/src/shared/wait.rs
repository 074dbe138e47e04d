//! Waiting for ids: a ticket at the gate, and the thread that is parked until it is done.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use xuid_id::Order;

use super::EngineState;
use crate::clock::engine_clock::Now;
use crate::clock::nanos;
use crate::id::error::IdError;
use crate::id::run::Run;
use crate::mint::gate::Gate;
use crate::mint::ticket::{Gathered, Ticket};
use crate::mint::wait_queue::Caller;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::sys::wake::unpark_current;

/// A waiting call's deadline is kept by the producer. So much later, in nanoseconds, a blocked thread goes on by
/// itself: the producer is gone, or stuck in the disk.
const MARGIN: u64 = 2_000_000_000;

impl EngineState {
    /// Puts a ticket for what is missing in a queue of the gate.
    pub(super) fn enqueue(
        &self,
        gate: &mut Gate,
        now: &Now,
        order: Order,
        (count, welcome): (u32, u32),
        (wait, caller): (Duration, Option<&Caller>),
        gathered: Gathered,
    ) -> Result<Arc<Ticket>, IdError> {
        let deadline = now.reading.boot.saturating_add(nanos(wait));
        let least = gate.minter.least_fresh(now);
        self.counters.tickets_in.add(gathered.sources.total());
        let ticket = Arc::new(Ticket::new(order, count, welcome, least, deadline, wait, gathered));
        self.queue_up(gate, now, ticket, caller).inspect_err(|error| self.counters.refuse(*error))
    }

    fn queue_up(
        &self,
        gate: &mut Gate,
        now: &Now,
        ticket: Arc<Ticket>,
        caller: Option<&Caller>,
    ) -> Result<Arc<Ticket>, IdError> {
        if let Some(caller) = caller {
            caller.waits_for(&self.producer);
        }
        if let Err(ticket) = gate.enqueue(ticket.clone(), caller) {
            let error = gate.refusal_in_line(now, ticket.order);
            self.give_back(ticket.cancel().0, ticket.since());
            return Err(error);
        }
        self.producer.wake();
        Ok(ticket)
    }

    /// Polls a ticket. If a leap voided what it was done with, it becomes another one, and the call waits on for the rest of
    /// its time.
    pub(crate) fn poll(
        &self,
        ticket: &mut Arc<Ticket>,
        caller: Option<&Caller>,
        waker: &Waker,
    ) -> Poll<Result<Vec<Run>, IdError>> {
        // Once, and once more for each leap.
        loop {
            let polled = ticket.poll(waker);
            // Clone and drop of a waker may fork.
            if self.generation.forked() {
                return Poll::Ready(Err(IdError::FORKED));
            }
            match polled {
                Poll::Ready(Ok(runs)) if ticket.since() != self.voids() && Guard::LeapWastesDone.holds() => {
                    self.give_back(runs, ticket.since());
                }
                polled => return polled,
            }
            match self.ask_again(ticket, caller) {
                Ok(other) => *ticket = other,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// A ticket for what another one was for, with nothing in it, until the other one's deadline.
    fn ask_again(&self, ticket: &Ticket, caller: Option<&Caller>) -> Result<Arc<Ticket>, IdError> {
        let mut gate = lock(&self.gate);
        let now = self.instant(&mut gate);
        let Ticket { order, count, welcome, deadline, wait, .. } = *ticket;
        let least = gate.minter.least_fresh(&now);
        let nothing = Gathered { since: self.voids(), ..Gathered::default() };
        let ticket = Ticket::new(order, count, welcome, least, deadline, wait, nothing);
        self.queue_up(&mut gate, &now, Arc::new(ticket), caller)
    }

    /// Waits for a ticket. Its deadline is kept by the producer; the margin is for a producer that is gone. On the
    /// producer's own thread, in a waker's code or a log's, there is no other thread to wait for.
    pub(crate) fn block_on(&self, ticket: &mut Arc<Ticket>) -> Result<Vec<Run>, IdError> {
        let waker = unpark_current();
        loop {
            if let Poll::Ready(result) = self.poll(ticket, None, &waker) {
                return result;
            }
            let boot = self.clock.read().boot;
            let last = ticket.deadline.saturating_add(MARGIN);
            if boot >= last || self.producer.is_current() {
                self.give_back(ticket.cancel().0, ticket.since());
                return Err(IdError::overloaded(ticket.wait, Duration::from_millis(100)));
            }
            std::thread::park_timeout(Duration::from_nanos((last - boot).min(MARGIN)));
        }
    }
}
