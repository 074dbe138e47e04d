//! Waking one thread from many.

use std::sync::OnceLock;
use std::task::{Wake as TaskWake, Waker};
use std::thread::Thread;

/// A thread to be woken, once it has said which.
#[derive(Debug, Default)]
pub(crate) struct Wake(OnceLock<Thread>);

impl Wake {
    /// The calling thread is the one. Later calls change nothing.
    pub(crate) fn adopt_current(&self) {
        let _ = self.0.set(std::thread::current());
    }

    /// Wakes it. Cheap where it runs already; never lost, since a thread that is woken before it parks does not.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
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
