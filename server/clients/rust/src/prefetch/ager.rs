//! The thread that calls off what grew old. A task could not: it runs when others yield to it.
//!
//! It sleeps until the oldest age group ends, and without an end while nothing is held.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;

use super::state::PrefetchState;
use crate::moment::Moment;

/// Starts it. It ends with the source.
pub(super) fn start(state: &Arc<PrefetchState>) -> io::Result<()> {
    let state = Arc::clone(state);
    thread::Builder::new().name("xuid-ager".to_owned()).spawn(move || run(&state)).map(drop)
}

fn run(state: &PrefetchState) {
    let mut groups = state.groups();
    while !state.oldest.is_over() {
        let now = Moment::now();
        if let Some(oldest) = groups.call_off(now) {
            // Handles first: they hand out ids at this moment.
            state.oldest.raise(oldest);
            drop(groups);
            state.lock().call_off(oldest);
            groups = state.groups();
            continue;
        }
        groups = match groups.next_end() {
            None => state.aging.wait(groups).unwrap_or_else(PoisonError::into_inner),
            Some(end) => {
                let left = end.saturating_duration_since(now);
                let waited = state.aging.wait_timeout(groups, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::prefetch::options::PrefetchOptions;

    #[test]
    fn what_was_asked_for_before_all_else_and_came_last_is_called_off_in_its_own_time() {
        let state = PrefetchState::new(PrefetchOptions::new().max_age(Duration::from_millis(200)));
        let state = Arc::new(state);
        start(&state).unwrap();
        let asked = Moment::now();
        let group = state.date(asked + Duration::from_hours(1));
        // The thread sleeps by now, for an hour.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(state.date(asked), group);
        while state.oldest.group() <= group {
            let waited = Moment::now().saturating_duration_since(asked);
            assert!(waited < Duration::from_secs(10), "it is good after {waited:?}");
            thread::sleep(Duration::from_millis(1));
        }
        state.close();
    }
}
