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
    /// Of who joins them. Nothing else is done under it: one of them may be in [`begin`](Self::begin).
    joining: Mutex<()>,
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
        let joining = lock(&self.joining);
        let (begin, running) = {
            let parts = &mut *lock(&self.parts);
            (parts.begin.take(), std::mem::take(&mut parts.running))
        };
        let panicked = running.into_iter().map(JoinHandle::join).filter(Result::is_err).count();
        drop(joining);
        // Under no lock: it is the owner of a store.
        drop(begin);
        panicked
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A subscriber may ask for a sequence in a line that one of them says while they begin.
    #[test]
    fn a_stop_waits_for_none_of_them_that_waits_for_the_beginning() {
        let (tell, told) = channel();
        thread::spawn(move || {
            for _ in 0..100 {
                let own = Arc::new(OwnThreads::default());
                let theirs = own.clone();
                own.set_begin(Box::new(move || {
                    let own = theirs.clone();
                    let thread = thread::spawn(move || own.begin().unwrap());
                    thread::sleep(Duration::from_millis(10));
                    Ok(vec![thread])
                }));
                own.begin().unwrap();
                assert_eq!(own.end(), 0);
            }
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(20)).expect("the stop hangs");
    }
}
