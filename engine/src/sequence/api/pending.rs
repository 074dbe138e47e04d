//! Ids of a sequence that are being waited for, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::sequence::chain::line::Waiter;
use crate::sequence::error::SequenceError;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::Named;
use crate::sequence::names::take::Got;
use crate::sequence::numbers::{Demand, Numbers};

/// Ids of a sequence that are being waited for: a future that needs no runtime. See
/// [`Sequence::request`](super::sequence::Sequence::request). Dropping it gives up its place in the line.
#[must_use = "ids come only to a future that is polled"]
pub struct PendingNumbers {
    hub: Arc<Hub>,
    named: Arc<Named>,
    stage: Stage,
}

enum Stage {
    /// Not yet polled.
    New(Demand, Duration),
    Waiting(Arc<Waiter>),
    Over,
}

impl std::fmt::Debug for PendingNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingNumbers").finish_non_exhaustive()
    }
}

impl PendingNumbers {
    pub(crate) fn new(hub: Arc<Hub>, named: Arc<Named>, demand: Demand, wait: Duration) -> Self {
        Self { hub, named, stage: Stage::New(demand, wait) }
    }

    fn begin(&mut self, demand: Demand, wait: Duration) -> Option<Result<Vec<Numbers>, SequenceError>> {
        match self.hub.take(&self.named, demand, Some(wait)) {
            Ok(Got::Numbers(numbers, _)) => Some(Ok(numbers)),
            Ok(Got::Place(waiter)) => {
                self.hub.watch(&self.named, &waiter);
                self.stage = Stage::Waiting(waiter);
                None
            }
            Err(error) => Some(self.hub.count_refusal(Err(error))),
        }
    }
}

impl Future for PendingNumbers {
    type Output = Result<Vec<Numbers>, SequenceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // What the waiter holds is the parent's.
        if self.hub.forked() {
            return Poll::Ready(Err(SequenceError::FORKED));
        }
        if let Stage::New(demand, wait) = self.stage {
            self.stage = Stage::Over;
            if let Some(result) = self.begin(demand, wait) {
                return Poll::Ready(result);
            }
        }
        let Stage::Waiting(waiter) = &self.stage else {
            return Poll::Ready(Err(SequenceError::SHUTTING_DOWN));
        };
        // Before it is looked at what it was served with: a leap wastes that.
        self.hub.now();
        if self.hub.forked() {
            return Poll::Ready(Err(SequenceError::FORKED));
        }
        let polled = self.named.poll(waiter, context.waker());
        // A line of a leap and the clone of a waker are strangers' code, which may fork.
        if self.hub.forked() {
            return Poll::Ready(Err(SequenceError::FORKED));
        }
        if let Poll::Ready(result) = polled {
            self.stage = Stage::Over;
            return Poll::Ready(self.hub.count_refusal(result));
        }
        polled
    }
}

impl Drop for PendingNumbers {
    fn drop(&mut self) {
        if let Stage::Waiting(waiter) = &self.stage
            && !self.hub.forked()
        {
            self.named.give_up(waiter);
        }
    }
}
