//! The words that bound the runs of an engine's handles, so that a run can be voided from outside.
//!
//! # Invariants
//! - I1 a limit is the end of its handle's run, or zero: only the handle's thread sets it to the former,
//!   any thread to the latter;
//! - I2 a limit that was set for a run of a generation that is over is zero soon after: the thread that ends a
//!   generation stores the new generation and then zero here; the handle stores the limit and then looks at the
//!   generation again. In the one order of these four, either the handle sees the new generation, and takes its limit
//!   back, or the zero comes last;
//! - I3 in a forked child a limit is zero: its page was wiped.

use crate::sys::atomics::{Mutex, Ordering, lock, store_in_order};
use crate::sys::fork_word::{ForkWord, GenerationWord};
use crate::sys::guards::Guard;

/// The word that bounds a handle's run.
#[derive(Debug)]
pub(crate) struct Limit(pub(crate) ForkWord);

impl Limit {
    #[cfg(test)]
    pub(crate) fn load(&self) -> u64 {
        self.0.word().load(Ordering::Relaxed)
    }

    /// There is no run.
    pub(crate) fn clear(&self) {
        self.0.word().store(0, Ordering::Relaxed);
    }

    /// Sets it for a run of `generation`, which was read before the run was taken (I2).
    pub(crate) fn set(&self, end: u64, generation: u64, now: &GenerationWord) {
        // In order: I2; pairs with the stores of `Limits::void`.
        store_in_order(self.0.word(), end);
        if now.load_in_order() != generation && Guard::LimitLooksAgain.holds() {
            store_in_order(self.0.word(), 0);
        }
    }
}

/// The limits of an engine's handles.
#[derive(Debug, Default)]
pub(crate) struct Limits(Mutex<Vec<ForkWord>>);

impl Limits {
    /// A limit that no thread voids: a forked child's, in which there is never a run.
    pub(crate) fn alone() -> std::io::Result<Limit> {
        ForkWord::new().map(Limit)
    }

    pub(crate) fn join(&self) -> std::io::Result<Limit> {
        let word = ForkWord::new()?;
        let mut words = lock(&self.0);
        words.retain(ForkWord::is_shared);
        words.push(word.clone());
        Ok(Limit(word))
    }

    /// Voids every handle's run. Called after the generation was renewed (I2).
    pub(crate) fn void(&self) {
        for word in lock(&self.0).iter().filter(|_| Guard::LimitVoided.holds()) {
            // In order: I2; pairs with `Limit::set`.
            store_in_order(word.word(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_set_for_a_generation_that_is_over_is_taken_back() {
        let (limits, generation) = (Limits::default(), GenerationWord::new().unwrap());
        let limit = limits.join().unwrap();
        let before = generation.load();
        limit.set(100, before, &generation);
        assert_eq!(limit.load(), 100);
        generation.renew();
        limits.void();
        assert_eq!(limit.load(), 0);
        // The handle had read the generation before it was renewed, and sets its limit after everybody's was voided.
        limit.set(200, before, &generation);
        assert_eq!(limit.load(), 0);
        limit.set(300, generation.load(), &generation);
        assert_eq!(limit.load(), 300);
    }

    #[test]
    fn the_limits_of_dropped_handles_are_forgotten() {
        let limits = Limits::default();
        drop(limits.join().unwrap());
        let kept = limits.join().unwrap();
        assert_eq!(lock(&limits.0).len(), 1);
        drop(kept);
    }
}
