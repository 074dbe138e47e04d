//! One sequence.

use std::sync::Arc;
use std::time::Duration;

use super::handle::SequenceHandle;
use super::pending::PendingNumbers;
use crate::sequence::error::{OutcomeWord, SequenceError};
use crate::sequence::figures::NameFigures;
use crate::sequence::name::SequenceName;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::Named;
use crate::sequence::names::take::Got;
use crate::sequence::names::threads::{TooFew, any_hit, neighbours_hit, next_any, ordered_hit, remember};
use crate::sequence::numbers::{Demand, MOST_IDS, Numbers};
use crate::sys::fork_word::GenerationWord;

/// The sequence of a name. Cheap to clone; shared by any number of threads.
#[derive(Clone)]
pub struct Sequence {
    /// Here, too, and not only in `named`: a hit follows one pointer.
    word: GenerationWord,
    named: Arc<Named>,
    hub: Arc<Hub>,
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("name", &self.named.name).finish_non_exhaustive()
    }
}

impl Sequence {
    pub(crate) fn new(hub: Arc<Hub>, named: Arc<Named>) -> Self {
        Self { word: named.word.clone(), named, hub }
    }

    #[cfg(test)]
    pub(crate) fn named_for_test(&self) -> &Arc<Named> {
        &self.named
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &SequenceName {
        &self.named.name
    }

    /// How many more calls may wait for its numbers: 100,000 without those of all names that are not served yet, and 25,000
    /// for names of [`sequence_within`](crate::sequence::Sequences::sequence_within) that the store has told nothing of. One
    /// more is refused at once. None in a forked child.
    #[must_use]
    pub fn places(&self) -> u64 {
        if self.hub.forked() {
            return 0;
        }
        self.hub.places_of(&self.named.lock()).left()
    }

    /// The next id in no promised order: out of a run of the thread's own, which is the fastest. Waits up to the
    /// builder's `wait` where none is held. A sequence with an increment above 1, and a strict one, answer as
    /// [`next_ordered`](Self::next_ordered).
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    #[inline]
    pub fn next_id(&self) -> Result<u64, SequenceError> {
        match any_hit(&self.word) {
            Some(id) => Ok(id),
            None => self.next_or_wait().result(),
        }
    }

    /// The next id, greater than every one that an ordered call of this process got before this call began. Of a strict
    /// sequence: than every one that any process got before.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    #[inline]
    pub fn next_ordered(&self) -> Result<u64, SequenceError> {
        let generation = self.word.load();
        match ordered_hit(generation) {
            Some((id, false)) => Ok(id),
            Some((id, true)) if self.is_good_after_asking(generation, 1) => Ok(id),
            _ => self.ordered_or_wait().result(),
        }
    }

    /// As [`next_ordered`](Self::next_ordered), without ever waiting; what is missing is asked for.
    ///
    /// # Errors
    /// [`SequenceError`], with the time to come back.
    #[inline]
    pub fn try_next_ordered(&self) -> Result<u64, SequenceError> {
        let generation = self.word.load();
        match ordered_hit(generation) {
            Some((id, false)) => Ok(id),
            Some((id, true)) if self.is_good_after_asking(generation, 1) => Ok(id),
            _ => self.ordered_or_refuse().result(),
        }
    }

    /// `count` consecutive numbers, ordered: [`Demand::contiguous`].
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    #[inline]
    pub fn take(&self, count: u32) -> Result<Numbers, SequenceError> {
        if count == 0 || count > MOST_IDS {
            return Err(SequenceError::COUNT);
        }
        let generation = self.word.load();
        match neighbours_hit(generation, u64::from(count)) {
            Ok((span, false)) => Ok(span.into_numbers()),
            Ok((span, true)) if self.is_good_after_asking(generation, span.count) => Ok(span.into_numbers()),
            Ok(_) => self.take_or_wait(count, TooFew::default()),
            Err(too_few) => self.take_or_wait(count, too_few),
        }
    }

    /// As many ids as demanded, ascending; waits up to the builder's `wait`.
    ///
    /// # Errors
    /// [`SequenceError`]; nothing was issued then.
    pub fn runs(&self, demand: Demand) -> Result<Vec<Numbers>, SequenceError> {
        let got = self.hub.take_blocking(&self.named, demand, self.hub.config.wait);
        self.hub.count_refusal(got).map(|(numbers, _)| numbers)
    }

    /// Appends as many ids as demanded to `out`, ascending, or nothing. Never waits; what is missing is asked for.
    ///
    /// # Errors
    /// [`SequenceError`], with the time to come back.
    pub fn try_runs(&self, demand: Demand, out: &mut Vec<Numbers>) -> Result<(), SequenceError> {
        match self.hub.take(&self.named, demand, None)? {
            Got::Numbers(numbers, _) => {
                out.extend(numbers);
                Ok(())
            }
            Got::Place(_) => unreachable!("a try has no place in the line"),
        }
    }

    /// As many ids as demanded within `wait`, or none, as a future that needs no runtime.
    pub fn request(&self, demand: Demand, wait: Duration) -> PendingNumbers {
        PendingNumbers::new(self.hub.clone(), self.named.clone(), demand, wait)
    }

    /// A generator owned by one thread, of ids in no promised order: faster still, since it has no thread-local to look
    /// up.
    ///
    /// # Panics
    /// If the process may not map another page.
    #[must_use]
    pub fn handle(&self) -> SequenceHandle {
        SequenceHandle::new(self.hub.clone(), self.named.clone())
    }

    /// Its figures at this process, without asking the store.
    #[must_use]
    pub fn figures(&self) -> NameFigures {
        self.hub.figures_of(&self.named)
    }

    /// Asks for the next grant, which is due with ids that this thread took just now. Whether these are good.
    #[cold]
    #[inline(never)]
    fn is_good_after_asking(&self, generation: u64, count: u64) -> bool {
        self.hub.ask_after_hit(&self.named, (generation, count))
    }

    #[cold]
    #[inline(never)]
    fn next_or_wait(&self) -> OutcomeWord {
        let result = next_any(&self.hub, &self.named, self.hub.config.wait);
        self.hub.count_refusal(result).into()
    }

    #[cold]
    #[inline(never)]
    fn ordered_or_wait(&self) -> OutcomeWord {
        self.hub.count_refusal(self.ordered(Some(self.hub.config.wait))).into()
    }

    #[cold]
    #[inline(never)]
    fn ordered_or_refuse(&self) -> OutcomeWord {
        self.ordered(None).into()
    }

    /// Neighbours for a thread that does not know a segment with so many.
    #[cold]
    #[inline(never)]
    fn take_or_wait(&self, count: u32, too_few: TooFew) -> Result<Numbers, SequenceError> {
        too_few.give_back(&self.named);
        // Before the segment is looked up, as in `ordered`.
        let generation = self.word.load();
        let demand = Demand::ordered(count).contiguous();
        let taken = self.hub.take_blocking(&self.named, demand, self.hub.config.wait);
        let (numbers, head) = self.hub.count_refusal(taken)?;
        remember(generation, head);
        match numbers.into_iter().next() {
            Some(numbers) => Ok(numbers),
            None => unreachable!("a call gets what it asks for, or an error"),
        }
    }

    /// An ordered id for a thread that does not know the segment in use.
    fn ordered(&self, wait: Option<Duration>) -> Result<u64, SequenceError> {
        // Before the segment is looked up: one that is voided meanwhile is not remembered for long.
        let generation = self.word.load();
        let numbers = match self.hub.take(&self.named, Demand::ordered(1), wait)? {
            Got::Numbers(numbers, head) => {
                remember(generation, head);
                numbers
            }
            Got::Place(waiter) => self.hub.block_on(&self.named, &waiter)?,
        };
        match numbers.first() {
            Some(numbers) => Ok(numbers.first()),
            None => unreachable!("a call gets what it asks for, or an error"),
        }
    }
}
