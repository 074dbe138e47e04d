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

#[derive(Debug)]
struct Walks {
    /// The number of the first in the list.
    first: u64,
    /// The names behind which walks go on.
    names: VecDeque<String>,
}

impl Default for Walks {
    /// Numbers begin anywhere: one of another server, or of a life before, must be unknown here.
    fn default() -> Self {
        let mut bytes = [0; 8];
        // Without randomness they begin at 1, which is no danger.
        let _ = getrandom::fill(&mut bytes);
        // Below 2^52 and some: libraries for JavaScript read a cursor as a number.
        Self { first: u64::from_le_bytes(bytes) >> 12, names: VecDeque::new() }
    }
}

impl Cursors {
    /// Keeps a place. Returns its number, which is never 0.
    pub(crate) fn keep(&self, after: String) -> u64 {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The same place again, as many walks begin: no place of others is lost for it.
        if let Some(at) = walks.names.iter().position(|name| *name == after) {
            return walks.first + 1 + at as u64;
        }
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
        assert_eq!(cursors.keep("1".to_owned()), numbers[1], "a place that is kept already");
        assert_eq!(cursors.find(numbers[1]).as_deref(), Some("1"));
        assert_eq!(cursors.find(numbers[MOST]).as_deref(), Some("1024"));
    }
}
