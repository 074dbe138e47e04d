//! Lines of the log, said by a thread that nobody waits for.
//!
//! A subscriber is a stranger's code: it may stand still on a full pipe, or panic. It gets the lines of this client from a thread that
//! is there while there are any, under the subscriber of the place where they were logged.
//!
//! # Invariants
//! - I1 no call, search or link waits for a subscriber;
//! - I2 a line that panics ends nothing;
//! - I3 at most [`MOST_LINES`] wait. What comes beyond is dropped, and the next line that is said tells how many were.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;

use tracing::Level;
use tracing::dispatcher::{Dispatch, get_default, has_been_set, with_default};
use tracing::level_filters::LevelFilter;

use crate::process::Process;

/// Lines that wait for a reader that stands still.
const MOST_LINES: usize = 256;

struct Line {
    reader: Dispatch,
    say: Box<dyn FnOnce() + Send>,
}

struct Waiting {
    lines: VecDeque<Line>,
    /// Whose they are: a forked child has its parent's, and not its thread.
    process: Option<Process>,
    /// A thread says them.
    are_said: bool,
}

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { lines: VecDeque::new(), process: None, are_said: false });
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Has a line of that level said, soon.
pub(crate) fn log(level: Level, line: impl FnOnce() + Send + 'static) {
    // Without a reader of its own, tracing may hand them to the crate `log`.
    if has_been_set() && level > LevelFilter::current() {
        return;
    }
    let reader = get_default(Clone::clone);
    // For the length of a push: but in a forked child it may be locked for good.
    let Some(mut waiting) = try_lock() else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if waiting.process.as_ref().is_none_or(|process| process.check().is_err()) {
        // The parent says them; to drop a stranger's is to call it.
        std::mem::forget(std::mem::take(&mut waiting.lines));
        (waiting.process, waiting.are_said) = (Some(Process::this()), false);
    }
    if waiting.lines.len() >= MOST_LINES {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        waiting.lines.push_back(Line { reader, say: Box::new(line) });
    }
    if !waiting.are_said {
        let said = thread::Builder::new().name("xuid-client-log".into()).spawn(say_all);
        // Where there is none to be had, they wait for the next line.
        waiting.are_said = said.is_ok();
    }
}

/// Tries again for as long as others push and pop.
fn try_lock() -> Option<MutexGuard<'static, Waiting>> {
    const TRIES: u32 = 1_000;
    for _ in 0..TRIES {
        match WAITING.try_lock() {
            Ok(waiting) => return Some(waiting),
            // Nothing in the locked sections panics half way.
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

/// Says lines until there are none.
fn say_all() {
    let process = Process::this();
    while let Some(Line { reader, say }) = next() {
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        let told = move || {
            with_default(&reader, || {
                if dropped > 0 {
                    tracing::warn!(dropped, "lines of the log were dropped, since nobody read it");
                }
                say();
            });
        };
        // The panic was told by its hook.
        let _ = catch_unwind(AssertUnwindSafe(told));
        if process.check().is_err() {
            // It has forked: the rest is the parent's.
            return;
        }
    }
}

fn next() -> Option<Line> {
    let mut waiting = WAITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let line = waiting.lines.pop_front();
    if line.is_none() {
        waiting.are_said = false;
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Reads no line before it is let, and then tells of each.
    struct Stalled {
        go_on: Mutex<mpsc::Receiver<()>>,
        heard: mpsc::Sender<String>,
    }

    impl tracing::Subscriber for Stalled {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let _ = self.go_on.lock().unwrap().recv();
            let _ = self.heard.send(format!("{:?}", event.metadata().level()));
            assert!(*event.metadata().level() != Level::ERROR, "a reader that panics");
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn who_logs_waits_for_no_reader_and_one_that_goes_on_hears_what_was_kept_and_how_much_was_not() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let (go_on, stalled) = mpsc::channel();
        let (heard, lines) = mpsc::channel();
        let reader = Stalled { go_on: Mutex::new(stalled), heard };
        let reader = Dispatch::new(reader);
        with_default(&reader, || {
            log(Level::ERROR, || tracing::error!("first"));
            for n in 0..2 * MOST_LINES {
                log(Level::DEBUG, move || tracing::debug!(n, "said"));
            }
        });
        assert!(lines.try_recv().is_err(), "nothing was read, and this thread has gone on");
        drop(go_on);
        let mut levels = Vec::new();
        while levels.iter().filter(|level| *level != "Level(Warn)").count() < MOST_LINES {
            levels.push(lines.recv_timeout(PATIENCE).unwrap());
        }
        let (warnings, others): (Vec<_>, Vec<_>) = levels.iter().partition(|level| *level == "Level(Warn)");
        assert_eq!(others[0], "Level(Error)", "its panic ends nothing");
        assert!(others[1..].iter().all(|level| *level == "Level(Debug)"), "{others:?}");
        assert!((1..=2).contains(&warnings.len()), "how many were dropped is told, and not with each");
        a_full_queue_that_no_thread_was_to_be_had_for_is_said_behind_the_next_line(PATIENCE);
    }

    /// Called by the one test of the queue, which all have in common.
    fn a_full_queue_that_no_thread_was_to_be_had_for_is_said_behind_the_next_line(patience: Duration) {
        let (go_on, stalled) = mpsc::channel();
        let (heard, lines) = mpsc::channel();
        drop(go_on);
        let reader = Dispatch::new(Stalled { go_on: Mutex::new(stalled), heard });
        let line = || Line { reader: reader.clone(), say: Box::new(|| tracing::debug!("kept")) };
        loop {
            let mut waiting = WAITING.lock().unwrap();
            if !waiting.are_said {
                waiting.lines.extend((0..MOST_LINES).map(|_| line()));
                break;
            }
            drop(waiting);
            thread::yield_now();
        }
        with_default(&reader, || log(Level::DEBUG, || tracing::debug!("one too many")));
        let told: Vec<_> = (0..=MOST_LINES).map(|_| lines.recv_timeout(patience).unwrap()).collect();
        assert_eq!(told.iter().filter(|level| *level == "Level(Debug)").count(), MOST_LINES);
    }
}
