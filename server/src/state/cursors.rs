//! Walks over the names of sequences that go on: a number for the place that each has come to.
//!
//! A client may go on at another connection, so a server keeps them. Nothing ends a walk that its client leaves, so it
//! forgets those that were told longest ago; first of all places that a walk has gone on from, which a client asks for once
//! more only when it lost the answer: a long walk makes room for itself. Walks share no place but the one at which several
//! begin, so that none goes on from another one's.

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
    /// The one that was told last is the last.
    places: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    /// The name behind which the walk goes on.
    after: String,
    /// The number of the place before it; 0: walks begin here.
    before: u64,
    /// Whether more than one walk was told it: when all have gone on from it is not known.
    is_shared: bool,
    /// Whether the walk has gone on from the place that follows, or has come to its end.
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
        self.places.iter_mut().find(|place| place.number == number)
    }

    /// Whether a place was told already that a walk comes to from the place `before`.
    fn told(&mut self, before: u64, after: &str) -> Option<Place> {
        // A step of one walk, once more, or of another one? At a shared place nobody knows.
        if self.find(before).is_some_and(|before| before.is_shared) {
            return None;
        }
        let at = self.places.iter().position(|place| place.before == before && place.after == after)?;
        self.places.remove(at)
    }

    /// The walk has gone on from there.
    fn pass(&mut self, number: u64) {
        if let Some(place) = self.find(number) {
            place.passed = !place.is_shared;
        }
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
        let place = if let Some(told) = walks.told(before, &after) {
            // Where walks begin, this is one more: no place of others is lost for it. Elsewhere it is the same one.
            Place { is_shared: before == 0, passed: false, ..told }
        } else {
            walks.make_room();
            walks.last += 1;
            Place { number: walks.last, after, before, is_shared: false, passed: false }
        };
        let number = place.number;
        walks.places.push_back(place);
        number
    }

    /// The name at the place of that number, from which its walk goes on; `None` if it was forgotten, or never was.
    pub(crate) fn find(&self, number: u64) -> Option<String> {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = walks.find(number)?;
        place.passed = false;
        let (after, before) = (place.after.clone(), place.before);
        // Its client has the answer that it got there.
        walks.pass(before);
        Some(after)
    }

    /// The walk that went on from that place has come to its end.
    pub(crate) fn end(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pass(number);
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

    #[test]
    fn a_walk_that_stays_where_it_began_outlives_one_that_began_with_it() {
        let cursors = Cursors::default();
        let (mut at, slow) = (cursors.keep(0, "0".to_owned()), cursors.keep(0, "0".to_owned()));
        for n in 1..2 * MOST {
            assert!(cursors.find(at).is_some(), "step {n}");
            at = cursors.keep(at, n.to_string());
        }
        assert_eq!(cursors.find(slow).as_deref(), Some("0"));
        // Also one step on, where the other one has been.
        let mut slow = cursors.keep(slow, "1".to_owned());
        let mut fast = cursors.keep(0, "0".to_owned());
        for n in 1..2 * MOST {
            assert!(cursors.find(fast).is_some(), "step {n}");
            fast = cursors.keep(fast, n.to_string());
        }
        assert_eq!(cursors.find(slow).as_deref(), Some("1"));
        slow = cursors.keep(slow, "2".to_owned());
        assert_eq!(cursors.find(slow).as_deref(), Some("2"));
    }

    #[test]
    fn walks_of_other_strides_that_meet_make_room_for_themselves() {
        let cursors = Cursors::default();
        let waits = cursors.keep(0, "another walk".to_owned());
        let mut walks = [(1, 0), (2, 0)];
        for n in (0..10 * MOST).step_by(2) {
            for (stride, at) in &mut walks {
                for step in (n..n + 2).step_by(*stride) {
                    assert!(*at == 0 || cursors.find(*at).is_some(), "step {step} of {stride}");
                    *at = cursors.keep(*at, (step + *stride).to_string());
                }
            }
        }
        assert_eq!(cursors.find(waits).as_deref(), Some("another walk"));
    }

    #[test]
    fn walks_that_came_to_their_end_end_no_other() {
        let cursors = Cursors::default();
        let waits = cursors.keep(0, "another walk".to_owned());
        for _ in 0..2 * MOST {
            let mut at = 0;
            for after in ["a", "b", "c"] {
                at = cursors.keep(at, after.to_owned());
                assert_eq!(cursors.find(at).as_deref(), Some(after));
            }
            cursors.end(at);
        }
        assert_eq!(cursors.find(waits).as_deref(), Some("another walk"));
    }

    #[test]
    fn a_place_that_was_told_again_is_among_the_last_ones() {
        let cursors = Cursors::default();
        let begin = cursors.keep(0, "begin".to_owned());
        for round in 0..3 {
            (1..MOST).for_each(|n| _ = cursors.keep(0, format!("{round}:{n}")));
            assert_eq!(cursors.keep(0, "begin".to_owned()), begin, "round {round}");
        }
    }
}
