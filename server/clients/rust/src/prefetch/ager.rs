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
