//! What load threads and the one that watches them share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::duplicates::Recorder;
use crate::flight::Sent;
use crate::results::Results;

/// Threads are up by then, so that none begins late.
const LEAD: Duration = Duration::from_millis(5);

/// One run: when it began, when it counts, when it ends, and how far each thread is.
#[derive(Debug)]
pub struct Progress {
    /// All times are nanoseconds since then.
    epoch: Instant,
    begin: u64,
    measured: u64,
    /// Moves only towards the past.
    end: AtomicU64,
    /// Threads that still run.
    running: AtomicUsize,
    interrupted: AtomicBool,
    seats: Vec<Seat>,
}

/// What one thread got so far. Written by that thread alone, on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Seat {
    ids: AtomicU64,
    requests: AtomicU64,
}

impl Progress {
    /// A run of so many threads that begins in a moment.
    #[must_use]
    pub fn new(threads: usize, warmup: Duration, time: Duration) -> Self {
        let ns = |time: Duration| time.as_nanos() as u64;
        let begin = ns(LEAD);
        let measured = begin + ns(warmup);
        Self {
            epoch: now(),
            begin,
            measured,
            end: AtomicU64::new(measured + ns(time)),
            running: AtomicUsize::new(threads),
            interrupted: AtomicBool::new(false),
            seats: (0..threads).map(|_| Seat::default()).collect(),
        }
    }

    /// Nanoseconds since a moment before the run.
    #[must_use]
    #[inline]
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// When the first request is sent.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// When the warm-up is over.
    #[must_use]
    #[inline]
    pub fn measured(&self) -> u64 {
        self.measured
    }

    /// When nothing is sent any more.
    #[must_use]
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// How long it was measured, or will be.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.end().saturating_sub(self.measured))
    }

    /// Whether what happens at `at` is measured.
    #[inline]
    #[must_use]
    pub fn counts(&self, at: u64) -> bool {
        at >= self.measured && at < self.end()
    }

    /// Ends it now, if it has not ended before.
    pub fn finish(&self) {
        self.end.fetch_min(self.now(), Relaxed);
    }

    /// Ends it now, because somebody wants that.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Relaxed);
        self.finish();
    }

    /// Whether somebody ended it.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Whether a thread still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// A thread is done; the last one ends the run.
    fn leave(&self) {
        if self.running.fetch_sub(1, Relaxed) == 1 {
            self.finish();
        }
    }

    /// What thread `seat` got so far.
    #[inline]
    fn publish(&self, seat: usize, ids: u64, requests: u64) {
        self.seats[seat].ids.store(ids, Relaxed);
        self.seats[seat].requests.store(requests, Relaxed);
    }

    /// What all got so far: ids and requests.
    #[must_use]
    pub fn seen(&self) -> (u64, u64) {
        let sum = |counter: fn(&Seat) -> &AtomicU64| {
            self.seats.iter().map(|seat| counter(seat).load(Relaxed)).sum()
        };
        (sum(|seat| &seat.ids), sum(|seat| &seat.requests))
    }
}

#[expect(clippy::disallowed_methods, reason = "a load measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// What a thread of the load has.
#[derive(Debug)]
pub struct LoadThread {
    /// The run.
    pub progress: Arc<Progress>,
    /// Its number, from 0 on.
    pub seat: usize,
    /// Where it leaves the ids, if they are to be checked.
    pub recorder: Option<Recorder>,
    /// What it got.
    pub results: Results,
    _presence: Presence,
}

impl LoadThread {
    /// One that got nothing yet.
    ///
    /// # Errors
    /// There is no memory for its histograms.
    pub fn new(
        progress: &Arc<Progress>,
        seat: usize,
        recorder: Option<Recorder>,
        is_open: bool,
    ) -> Result<Self> {
        let presence = Presence(Arc::clone(progress));
        let results = Results::new(is_open)?;
        Ok(Self { progress: Arc::clone(progress), seat, recorder, results, _presence: presence })
    }

    /// Counts requests of so many ids each that were sent together and were answered at `at`.
    #[inline]
    pub fn answered(&mut self, ids: u32, requests: u64, sent: Sent, at: u64) {
        if self.progress.counts(at) {
            self.results.ids += u64::from(ids) * requests;
            self.results.requests += requests;
        }
        if self.progress.counts(sent.start) {
            self.results.answered(requests, sent, at);
        }
    }

    /// Shows how far it is to the thread that watches.
    #[inline]
    pub fn publish(&self) {
        self.progress.publish(self.seat, self.results.ids, self.results.requests);
    }
}

/// Counts a thread as running.
#[derive(Debug)]
struct Presence(Arc<Progress>);

impl Drop for Presence {
    fn drop(&mut self) {
        // Also when the thread panicked: the thread that watches must not wait for it.
        self.0.leave();
    }
}
