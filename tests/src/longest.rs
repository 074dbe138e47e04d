//! A thread that takes the time of one thing again and again, and knows the longest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The longest that `measure` has returned so far. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Longest {
    ns: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Longest {
    /// Measures from now on.
    pub(crate) fn of(mut measure: impl FnMut() -> Duration + Send + 'static) -> Self {
        let (ns, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (ns, over) = (Arc::clone(&ns), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Acquire) {
                    ns.fetch_max(u64::try_from(measure().as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
                }
            })
        };
        Self { ns, over, thread: Some(thread) }
    }

    /// The longest so far.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Ordering::Acquire))
    }
}

impl Drop for Longest {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It only measures, so there is nothing to hear from it.
            drop(thread.join());
        }
    }
}
