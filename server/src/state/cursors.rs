//! Walks over the names of sequences that go on: a number for the place that each has come to.
//!
//! A client may go on at another connection, so a server keeps them. Nothing ends a walk that its client leaves, so it
//! forgets the oldest; first of all places that a walk has gone on from, which a client asks for once more only when it
//! lost the answer: a long walk makes room for itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Places that are kept.
const MOST: usize = 1_024;

/// All walks of a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursors(Arc<Mutex<Walks>>);

#[derive(Debug)]
struct Walks {
    /// The number of the last place.
    last: u64,
    /// From the oldest on: their numbers rise.
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    /// The name behind which the walk goes on.
    after: String,
    /// The number of the place before it; 0: the walk began here.
    before: u64,
    /// Whether the walk has gone on from the place that follows.
    passed: bool,
}

impl Default for Walks {
    /// Numbers begin anywhere: one of another server, or of a life before, must be unknown here.
    fn default() -> Self {
        let mut bytes = [0; 8];
        // Without randomness they begin at 1, which is no danger.
        let _ = getrandom::fill(&mut bytes);
        // Below 2^52 and some: libraries for JavaScript read a cursor as a number.
        Self { last: u64::from_le_bytes(bytes) >> 12, places: VecDeque::new() }
    }
}

impl Walks {
    fn find(&mut self, number: u64) -> Option<&mut Place> {
        let at = self.places.binary_search_by_key(&number, |place| place.number).ok()?;
        self.places.get_mut(at)
    }

    fn make_room(&mut self) {
        if self.places.len() >= MOST {
            let passed = self.places.iter().position(|place| place.passed);
            self.places.remove(passed.unwrap_or(0));
        }
    }
}

impl Cursors {
    /// Keeps the place that a walk came to from the place `before`, 0 at its begin. Returns its number, which is never 0.
    pub(crate) fn keep(&self, before: u64, after: String) -> u64 {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The same place again, as many walks begin: no place of others is lost for it.
        if let Some(place) = walks.places.iter_mut().find(|place| place.after == after) {
            place.passed = false;
            return place.number;
        }
        walks.make_room();
        walks.last += 1;
        let number = walks.last;
        walks.places.push_back(Place { number, after, before, passed: false });
        number
    }

    /// The name at the place of that number, from which its walk goes on; `None` if it was forgotten, or never was.
    pub(crate) fn find(&self, number: u64) -> Option<String> {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = walks.find(number)?;
        place.passed = false;
        let (after, before) = (place.after.clone(), place.before);
        // Its client has the answer that it got there.
        if let Some(before) = walks.find(before) {
            before.passed = true;
        }
        Some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_places_are_found_by_their_numbers() {
        let cursors = Cursors::default();
        let numbers: Vec<u64> = (0..=MOST).map(|n| cursors.keep(0, n.to_string())).collect();
        assert!(!numbers.contains(&0));
        assert_eq!((cursors.find(numbers[0]), cursors.find(0), cursors.find(1 << 40)), (None, None, None));
        assert_eq!(cursors.keep(0, "1".to_owned()), numbers[1], "a place that is kept already");
        assert_eq!(cursors.find(numbers[1]).as_deref(), Some("1"));
        assert_eq!(cursors.find(numbers[MOST]).as_deref(), Some("1024"));
    }

    #[test]
    fn a_long_walk_ends_no_other_and_a_step_of_it_may_be_repeated() {
        let cursors = Cursors::default();
        let waits = cursors.keep(0, "another walk".to_owned());
        let (mut at, mut before) = (cursors.keep(0, "0".to_owned()), 0);
        for n in 1..10 * MOST {
            assert!(cursors.find(at).is_some(), "step {n}");
            (at, before) = (cursors.keep(at, n.to_string()), at);
            assert_eq!(cursors.find(before), Some((n - 1).to_string()), "step {n} once more");
        }
        assert_eq!(cursors.keep(before, (10 * MOST - 1).to_string()), at, "the same step");
        assert_eq!(cursors.find(waits).as_deref(), Some("another walk"));
    }
}
