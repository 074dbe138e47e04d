//! Ids of a sequence that are being waited for, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sequence::error::SequenceError;
use crate::sequence::numbers::Numbers;

/// Ids of a sequence that are being waited for: a future that needs no runtime. See
/// [`Sequence::request`](super::sequence::Sequence::request). Dropping it gives up its place in the line.
#[must_use = "ids come only to a future that is polled"]
pub struct PendingNumbers {}

impl std::fmt::Debug for PendingNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingNumbers").finish_non_exhaustive()
    }
}

impl Future for PendingNumbers {
    type Output = Result<Vec<Numbers>, SequenceError>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        todo!()
    }
}
