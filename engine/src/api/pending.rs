//! Ids that are being waited for, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use xuid_id::Order;

use crate::id::error::IdError;
use crate::id::run::Run;
use crate::mint::ticket::Ticket;
use crate::mint::wait_queue::Caller;
use crate::shared::EngineState;

/// Ids that are being waited for: a future that needs no runtime. See [`Engine::request`](crate::Engine::request).
///
/// Dropping it gives back what was gathered.
#[must_use = "ids come only to a future that is polled"]
pub struct Pending {
    shared: Arc<EngineState>,
    caller: Option<Caller>,
    stage: Stage,
}

enum Stage {
    /// Not yet polled.
    New {
        count: u32,
        order: Order,
        wait: Duration,
    },
    Waiting(Arc<Ticket>),
    Over,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Pending {
    pub(crate) fn new(shared: Arc<EngineState>, count: u32, order: Order, wait: Duration) -> Self {
        Self { shared, caller: None, stage: Stage::New { count, order, wait } }
    }

    /// Waits on behalf of a caller, in its share of what there is.
    pub fn on_behalf_of(mut self, caller: &Caller) -> Self {
        self.caller = Some(caller.clone());
        self
    }
}

impl Future for Pending {
    type Output = Result<Vec<Run>, IdError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // What the ticket holds is the parent's.
        if self.shared.generation.forked() {
            return Poll::Ready(Err(IdError::FORKED));
        }
        if let Stage::New { count, order, wait } = self.stage {
            match self.shared.take_or_wait(count, order, wait, self.caller.as_ref()) {
                Ok(Ok(mut runs)) => {
                    self.stage = Stage::Over;
                    self.shared.show_runs(&mut runs, 0);
                    return Poll::Ready(Ok(runs));
                }
                Ok(Err(ticket)) => self.stage = Stage::Waiting(ticket),
                Err(error) => {
                    self.stage = Stage::Over;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let Self { shared, caller, stage } = &mut *self;
        let Stage::Waiting(ticket) = stage else {
            return Poll::Ready(Err(IdError::SHUTTING_DOWN));
        };
        let mut polled = shared.poll(ticket, caller.as_ref(), context.waker());
        // The clone of a waker is a stranger's code, which may fork.
        if shared.generation.forked() {
            return Poll::Ready(Err(IdError::FORKED));
        }
        if let Poll::Ready(result) = &mut polled {
            shared.count_outcome(ticket, result);
            *stage = Stage::Over;
            if let Ok(runs) = result {
                shared.show_runs(runs, 0);
                crash_point!(TicketAnswered);
            }
        }
        polled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Stage::Waiting(ticket) = &self.stage
            && !self.shared.generation.forked()
        {
            let (back, _waker) = ticket.cancel();
            if !back.is_empty() {
                self.shared.give_back(back, ticket.since());
            }
        }
    }
}
