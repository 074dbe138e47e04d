//! Waking one thread from many.

use std::sync::OnceLock;
use std::task::{Wake as TaskWake, Waker};
use std::thread::Thread;

/// A thread to be woken, once it has said which.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    thread: OnceLock<Thread>,
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
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
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
