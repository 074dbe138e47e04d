//! Calls that may be refused, of an engine and of a sequence. A refused call brings no id, and voids the figures.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::subject::{Worker, consume, local, repeat};

/// How many calls of all threads were refused.
#[derive(Default)]
pub(super) struct Refusals(AtomicU64);

impl Refusals {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, calls: u64) {
        if calls > 0 {
            self.0.fetch_add(calls, Ordering::Relaxed);
        }
    }
}

/// A worker that gets one id a call.
pub(super) fn single<'a, T, E>(
    refused: &'a Refusals,
    call: impl FnMut() -> Result<T, E> + 'a,
) -> Box<dyn Worker + 'a>
where
    T: Into<u64>,
{
    Box::new(Single { refused, call: Some(call) })
}

/// A worker that gets many ids a call, which are appended, or looked at where there is nothing to append to.
pub(super) fn many<'a, E>(
    refused: &'a Refusals,
    call: impl FnMut(Option<&mut Vec<u64>>) -> Result<(), E> + 'a,
) -> Box<dyn Worker + 'a> {
    Box::new(Many { refused, call })
}

struct Single<'a, F> {
    refused: &'a Refusals,
    /// Always there between batches.
    call: Option<F>,
}

impl<T: Into<u64>, E, F: FnMut() -> Result<T, E>> Worker for Single<'_, F> {
    fn run(&mut self, calls: u64) {
        let mut refused = 0;
        local!(self.call, call => repeat!(
            calls,
            match call() {
                Ok(id) => consume(id.into()),
                Err(_) => refused += 1,
            }
        ));
        self.refused.add(refused);
    }

    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>) {
        let before = ids.len();
        local!(self.call, call => ids.extend((0..calls).filter_map(|_| call().ok()).map(Into::into)));
        self.refused.add(calls - (ids.len() - before) as u64);
    }
}

struct Many<'a, F> {
    refused: &'a Refusals,
    call: F,
}

impl<E, F: FnMut(Option<&mut Vec<u64>>) -> Result<(), E>> Worker for Many<'_, F> {
    fn run(&mut self, calls: u64) {
        let refused = (0..calls).filter(|_| (self.call)(None).is_err()).count();
        self.refused.add(refused as u64);
    }

    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>) {
        let refused = (0..calls).filter(|_| (self.call)(Some(ids)).is_err()).count();
        self.refused.add(refused as u64);
    }
}
