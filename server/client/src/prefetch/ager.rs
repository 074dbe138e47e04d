//! The thread that calls off what grew old. A task could not: it runs when others yield to it.
//!
//! It sleeps until the oldest vintage ends, and without an end while nothing is held.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;

use tokio::time::Instant;

use super::state::Shared;

/// Starts it. It ends with the source.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("xuid-ager".to_owned()).spawn(move || run(&shared)).map(drop)
}

fn run(shared: &Shared) {
    let mut cellar = shared.cellar();
    while !shared.oldest.is_over() {
        let now = Instant::now();
        if let Some(oldest) = cellar.call_off(now) {
            // Handles first: they hand out ids at this moment.
            shared.oldest.raise(oldest);
            drop(cellar);
            shared.lock().call_off(oldest);
            cellar = shared.cellar();
            continue;
        }
        cellar = match cellar.next_end() {
            None => shared.aging.wait(cellar).unwrap_or_else(PoisonError::into_inner),
            Some(end) => {
                let left = end.saturating_duration_since(now);
                let waited = shared.aging.wait_timeout(cellar, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}
