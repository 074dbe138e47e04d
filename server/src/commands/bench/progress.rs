//! What load threads and the one that watches them share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::plan::Plan;

/// Threads are up by then, so that none begins late.
const LEAD: Duration = Duration::from_millis(5);

/// Nanoseconds since one moment before the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer(Instant);

impl Timer {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// One run: when it began, when it counts, when it ends, and how far each thread is.
#[derive(Debug)]
pub(super) struct Progress {
    timer: Timer,
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
    /// A run that begins in a moment.
    pub(super) fn new(plan: &Plan) -> Self {
        let timer = Timer::start();
        let ns = |time: Duration| time.as_nanos() as u64;
        let begin = timer.ns() + ns(LEAD);
        let measured = begin + ns(plan.warmup);
        Self {
            timer,
            begin,
            measured,
            end: AtomicU64::new(measured + ns(plan.time)),
            running: AtomicUsize::new(plan.threads),
            interrupted: AtomicBool::new(false),
            seats: (0..plan.threads).map(|_| Seat::default()).collect(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.timer.ns()
    }

    /// When the first request is sent.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// When the warm-up is over.
    pub(super) fn measured(&self) -> u64 {
        self.measured
    }

    /// When nothing is sent any more.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// How long it was measured, or will be.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.end().saturating_sub(self.measured))
    }

    /// Whether what happens at `at` is measured.
    #[inline]
    pub(super) fn counts(&self, at: u64) -> bool {
        at >= self.measured && at < self.end()
    }

    /// Ends it now, if it has not ended before.
    pub(super) fn finish(&self) {
        self.end.fetch_min(self.now(), Relaxed);
    }

    /// Ends it now, because somebody wants that.
    pub(super) fn interrupt(&self) {
        self.interrupted.store(true, Relaxed);
        self.finish();
    }

    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Whether a thread still runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Relaxed) > 0
    }

    /// A thread is done; the last one ends the run.
    pub(super) fn leave(&self) {
        if self.running.fetch_sub(1, Relaxed) == 1 {
            self.finish();
        }
    }

    /// What thread `seat` got so far.
    #[inline]
    pub(super) fn publish(&self, seat: usize, ids: u64, requests: u64) {
        self.seats[seat].ids.store(ids, Relaxed);
        self.seats[seat].requests.store(requests, Relaxed);
    }

    /// What all got so far: ids and requests.
    pub(super) fn seen(&self) -> (u64, u64) {
        let sum = |counter: fn(&Seat) -> &AtomicU64| {
            self.seats.iter().map(|seat| counter(seat).load(Relaxed)).sum()
        };
        (sum(|seat| &seat.ids), sum(|seat| &seat.requests))
    }
}
