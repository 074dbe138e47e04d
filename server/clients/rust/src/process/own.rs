//! What goes on in the process alone that began it.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::Process;
use crate::error::ClientError;

/// A call that waits. What it waits for has locks that a thread of the parent may hold for ever in a forked child: there it
/// is refused before they are reached, and nothing of it is dropped.
#[derive(Debug)]
pub(crate) struct Own<'a, F> {
    process: &'a Process,
    /// Boxed, so that it can be left where it is.
    call: Option<Pin<Box<F>>>,
}

impl<'a, F> Own<'a, F> {
    pub(crate) fn new(process: &'a Process, call: F) -> Self {
        Self { process, call: Some(Box::pin(call)) }
    }
}

impl<T, F: Future<Output = Result<T, ClientError>>> Future for Own<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.process.check()?;
        match &mut self.call {
            Some(call) => {
                let polled = call.as_mut().poll(context);
                // A waker is a stranger's code, its clone and its drop as well, and may have forked within. What came of it is the
                // parent's: to drop a connection would take it out of what the parent waits by.
                if let Err(forked) = self.process.check() {
                    std::mem::forget(polled);
                    return Poll::Ready(Err(forked));
                }
                polled
            }
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Own<'_, F> {
    fn drop(&mut self) {
        if self.process.check().is_err() {
            std::mem::forget(self.call.take());
        }
    }
}
