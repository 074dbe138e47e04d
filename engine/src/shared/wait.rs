//! Waiting for ids: a ticket at the gate, and the thread that is parked until it is done.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use xuid_id::Order;

use super::EngineState;
use crate::clock::engine_clock::Now;
use crate::clock::nanos;
use crate::id::error::IdError;
use crate::id::run::Run;
use crate::mint::gate::Gate;
use crate::mint::ticket::Ticket;
use crate::mint::wait_queue::Caller;
use crate::stats::counters::Sources;
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
        (runs, sources): (Vec<Run>, Sources),
    ) -> Result<Arc<Ticket>, IdError> {
        if let Some(caller) = caller {
            caller.waits_for(&self.producer);
        }
        let deadline = now.reading.boot.saturating_add(nanos(wait));
        let least = gate.minter.least_fresh(now);
        self.counters.tickets_in.add(sources.total());
        let ticket = Arc::new(Ticket::new(order, count, welcome, least, deadline, wait, (runs, sources)));
        if let Err(ticket) = gate.enqueue(ticket.clone(), caller) {
            let error = gate.refusal(now, order, wait);
            self.give_back(ticket.cancel());
            self.counters.refuse(error);
            return Err(error);
        }
        self.producer.wake();
        Ok(ticket)
    }

    /// Waits for a ticket. Its deadline is kept by the producer; the margin is for a producer that is gone. On the
    /// producer's own thread, in a waker's code or a log's, there is no other thread to wait for.
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
