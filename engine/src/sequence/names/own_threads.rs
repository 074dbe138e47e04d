//! The two threads behind sequences: begun when they are built, or by the first use, and joined at the stop.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::sys::atomics::lock;

/// Begins the threads, or none. It is called again after an error.
pub(crate) type Begin = Box<dyn FnMut() -> io::Result<Vec<JoinHandle<()>>> + Send>;

/// The threads.
#[derive(Default)]
pub(crate) struct OwnThreads {
    /// They wait for the first use, or did until the stop.
    is_waiting: AtomicBool,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// What begins them, until they were begun or it is too late.
    begin: Option<Begin>,
    running: Vec<JoinHandle<()>>,
}

impl OwnThreads {
    /// They are begun by the first use.
    pub(crate) fn set_begin(&self, begin: Begin) {
        lock(&self.parts).begin = Some(begin);
        // Release: pairs with the Acquire of `begin`.
        self.is_waiting.store(true, Ordering::Release);
    }

    /// Begins them, if they wait for that.
    pub(crate) fn begin(&self) -> io::Result<()> {
        // Acquire: pairs with the Release of `set_begin`.
        if !self.is_waiting.load(Ordering::Acquire) {
            return Ok(());
        }
        let parts = &mut *lock(&self.parts);
        if let Some(begin) = &mut parts.begin {
            parts.running = begin()?;
            parts.begin = None;
            self.is_waiting.store(false, Ordering::Release);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn has_begun(&self) -> bool {
        !self.is_waiting.load(Ordering::Acquire)
    }

    /// Joins them, or sees to it that they never begin; how many had panicked. The thread that comes second waits for the
    /// stop, too.
    pub(crate) fn end(&self) -> usize {
        let mut parts = lock(&self.parts);
        let begin = parts.begin.take();
        let panicked = parts.running.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        drop(parts);
        // Under no lock: it is the owner of a store.
        drop(begin);
        panicked
    }
}
