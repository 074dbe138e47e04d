//! Waking one thread from many.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake as TaskWake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// A thread to be woken, once it has said which.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    thread: OnceLock<Thread>,
    /// It was woken since its last wait. The token of `unpark` alone does not tell: a stranger's code on the same
    /// thread may park, and take it.
    woken: AtomicBool,
    /// For a simulation, which has no thread to wake.
    #[cfg(test)]
    pub(crate) calls: std::sync::atomic::AtomicU64,
}

impl Wake {
    /// The calling thread is the one. Later calls change nothing.
    pub(crate) fn adopt_current(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Whether the calling thread is the one.
    pub(crate) fn is_current(&self) -> bool {
        self.thread.get().is_some_and(|thread| thread.id() == std::thread::current().id())
    }

    /// Wakes it. Cheap where it runs already; never lost, since a thread that is woken before it parks does not.
    pub(crate) fn wake(&self) {
        #[cfg(test)]
        self.calls.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the Acquire of `wait`.
        self.woken.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits until it is woken, on its own thread, but no longer than that. A wake since the last wait ends it at once.
    pub(crate) fn wait(&self, limit: Duration) {
        // With no time to wait it only takes the token, which is of the same wake.
        let limit = if self.woken.load(Ordering::Relaxed) { Duration::ZERO } else { limit };
        std::thread::park_timeout(limit);
        // Acquire: pairs with the Release of `wake`. Before the turn: what was asked for by then is seen in it.
        self.woken.swap(false, Ordering::Acquire);
    }
}

struct Unpark(Thread);

impl TaskWake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks the calling thread.
pub(crate) fn unpark_current() -> Waker {
    std::sync::Arc::new(Unpark(std::thread::current())).into()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::clock::boot_ns;

    #[test]
    fn a_wake_is_not_lost_to_a_stranger_that_parks_on_the_same_thread() {
        let (wake, begun) = (Wake::default(), boot_ns());
        wake.adopt_current();
        wake.wake();
        // A subscriber of the log, say, whose channel is full.
        std::thread::park();
        wake.wait(Duration::from_mins(1));
        assert!(boot_ns() - begun < 30_000_000_000);
        // And it is of one wait only: the next one has nothing to end it but its limit.
        wake.wait(Duration::from_millis(20));
        assert!(boot_ns() - begun >= 20_000_000);
    }
}
