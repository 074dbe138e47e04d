//! A thread for work that blocks, beside the threads that serve: any of these may begin one. What calls this bounds how many it
//! has at a time, by a permit that goes with the work.
//!
//! Not `spawn_blocking`: where no thread can be had, it panics, and keeps the work, with its permit, for a thread that may never
//! come.
//!
//! # Invariants
//! - I1 work that has no thread is dropped before its caller is told, and what it holds with it;
//! - I2 a runtime that ends waits for no work that was begun in it.

use std::error::Error;
use std::fmt;
use std::io;
use std::thread;

use tokio::sync::oneshot;

/// No thread could be had.
#[derive(Debug)]
pub(crate) struct NoThread(io::Error);

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the system gives this process no more threads: raise the limit of processes (ulimit -u, TasksMax of systemd, \
             pids.max of a container), or see to the memory",
        )
    }
}

impl Error for NoThread {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Begins `work` on a thread of its own, which is called `name` (15 bytes are shown). The receiver gets what comes of it, or an
/// error if it panics.
pub(crate) fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, NoThread> {
    let (tell, told) = oneshot::channel();
    let builder = thread::Builder::new().name(name.to_owned());
    #[cfg(test)]
    let builder = watched(builder);
    let begun = builder.spawn(move || {
        let done = work();
        // The receiver is gone where nothing waits for it any more.
        let _ = tell.send(done);
    });
    begun.map(|_| told).map_err(NoThread)
}

#[cfg(test)]
thread_local! {
    /// Whether this thread gets no other one, as where the system has none left.
    pub(crate) static HAS_NONE_LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// How often this thread has asked for one.
    pub(crate) static ASKED_FOR: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn watched(builder: thread::Builder) -> thread::Builder {
    ASKED_FOR.set(ASKED_FOR.get() + 1);
    // A stack larger than all addresses that there are is refused as a thread too many is.
    if HAS_NONE_LEFT.get() { builder.stack_size(1 << 47) } else { builder }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn work_that_no_thread_can_be_had_for_is_dropped_and_a_later_one_has_its_thread() {
        let turn = Arc::new(());
        let held = Arc::clone(&turn);
        HAS_NONE_LEFT.set(true);
        let begun = beside("xuid-test", move || drop(held));
        HAS_NONE_LEFT.set(false);
        let error = begun.unwrap_err();
        assert!(error.to_string().contains("limit of processes") && error.source().is_some(), "{error:?}");
        assert_eq!(Arc::strong_count(&turn), 1, "it is held by what never runs");
        assert_eq!(beside("xuid-test", || 7).unwrap().blocking_recv(), Ok(7));
    }

    #[test]
    fn work_that_panics_is_told_as_such() {
        let begun = beside("xuid-test", || -> u32 { panic!("it fails") });
        assert!(begun.unwrap().blocking_recv().is_err());
    }
}
