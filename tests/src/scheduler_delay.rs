//! How late the machine lets a thread run that only sleeps: a test on a machine that is busy elsewhere allows for it.

use std::thread;
use std::time::Duration;

use crate::clock;
use crate::longest::Longest;

const NAP: Duration = Duration::from_millis(1);
/// Threads and processes that an answer waits for one after the other: client, connection, producer, registrar.
const TURNS: u32 = 4;

/// A thread that sleeps for a millisecond at a time, and knows how much longer the longest took.
#[derive(Debug)]
pub struct SchedulerDelay {
    longest: Longest,
}

impl SchedulerDelay {
    /// Watches from now on.
    pub fn watch() -> Self {
        let longest = Longest::of(|| {
            let begin = clock::now();
            thread::sleep(NAP);
            begin.elapsed().saturating_sub(NAP)
        });
        Self { longest }
    }

    /// The longest so far.
    pub fn worst(&self) -> Duration {
        self.longest.get()
    }

    /// What takes `limit` at most on a machine of its own, takes this here.
    pub fn allow(&self, limit: Duration) -> Duration {
        limit + self.worst() * TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_late_and_a_limit_grows_by_it() {
        let delay = SchedulerDelay::watch();
        clock::wait_until("a first nap", Duration::from_mins(1), || Ok(!delay.worst().is_zero())).unwrap();
        assert!(delay.allow(Duration::from_secs(1)) > Duration::from_secs(1));
    }
}
