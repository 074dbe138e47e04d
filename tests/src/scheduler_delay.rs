//! How late the machine lets a thread run that only sleeps: a test on a machine that is busy elsewhere allows for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock;

const NAP: Duration = Duration::from_millis(1);
/// Threads and processes that an answer waits for one after the other: client, connection, producer, registrar.
const TURNS: u32 = 4;

/// A thread that sleeps for a millisecond at a time, and knows how much longer the longest took.
#[derive(Debug)]
pub struct SchedulerDelay {
    worst_ns: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SchedulerDelay {
    /// Watches from now on.
    pub fn watch() -> Self {
        let (worst_ns, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (worst_ns, over) = (Arc::clone(&worst_ns), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Acquire) {
                    let begin = clock::now();
                    thread::sleep(NAP);
                    let late = begin.elapsed().saturating_sub(NAP).as_nanos();
                    worst_ns.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::AcqRel);
                }
            })
        };
        Self { worst_ns, over, thread: Some(thread) }
    }

    /// The longest so far.
    pub fn worst(&self) -> Duration {
        Duration::from_nanos(self.worst_ns.load(Ordering::Acquire))
    }

    /// What takes `limit` at most on a machine of its own, takes this here.
    pub fn allow(&self, limit: Duration) -> Duration {
        limit + self.worst() * TURNS
    }
}

impl Drop for SchedulerDelay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It only sleeps, so there is nothing to hear from it.
            drop(thread.join());
        }
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
