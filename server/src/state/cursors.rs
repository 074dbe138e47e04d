//! Walks over the names of sequences that go on: a number for the place that each has come to.
//!
//! A client may go on at another connection, so a server keeps them. It forgets the oldest: nothing ends a walk that its
//! client leaves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Walks that are kept.
const MOST: usize = 1_024;

/// All walks of a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursors(Arc<Mutex<Walks>>);

#[derive(Debug, Default)]
struct Walks {
    /// The number of the first in the list.
    first: u64,
    /// The names behind which walks go on.
    names: VecDeque<String>,
}

impl Cursors {
    /// Keeps a place. Returns its number, which is never 0.
    pub(crate) fn keep(&self, after: String) -> u64 {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        walks.names.push_back(after);
        if walks.names.len() > MOST {
            walks.names.pop_front();
            walks.first += 1;
        }
        walks.first + walks.names.len() as u64
    }

    /// The place of that number; `None` if it was forgotten, or never was.
    pub(crate) fn find(&self, number: u64) -> Option<String> {
        let walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number.checked_sub(walks.first + 1)?;
        walks.names.get(usize::try_from(at).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_places_are_found_by_their_numbers() {
        let cursors = Cursors::default();
        let numbers: Vec<u64> = (0..=MOST).map(|n| cursors.keep(n.to_string())).collect();
        assert!(!numbers.contains(&0));
        assert_eq!((cursors.find(numbers[0]), cursors.find(0), cursors.find(1 << 40)), (None, None, None));
        assert_eq!(cursors.find(numbers[1]).as_deref(), Some("1"));
        assert_eq!(cursors.find(numbers[MOST]).as_deref(), Some("1024"));
    }
}
