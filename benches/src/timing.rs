//! The loops that are measured. Each runs on a thread of its own, between a start and a deadline that all threads of
//! a measurement share.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use quanta::Clock;

use crate::subject::Worker;

/// A batch is made longer while it takes less than this: reading the clock once a batch then costs under a
/// thousandth (25-50 ns of 50 us) ...
const SHORT: Duration = Duration::from_micros(50);
/// ... and shorter above this, so that the deadline is not overrun.
const LONG: Duration = Duration::from_micros(200);
/// Calls of the longest batch.
const MOST_CALLS: u64 = 1 << 20;
/// Times of no call, for the cost of the clock.
const CLOCK_READINGS: u64 = 100_000;
/// Longest time told apart, in nanoseconds; longer ones count as that. A minute.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of a time: buckets of 0.1 %.
const DIGITS: u8 = 3;

/// The time, for measuring.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// From telling threads to their common start: enough to wake them, little beside a measurement.
const LEAD: Duration = Duration::from_micros(300);

/// When a measurement begins and ends, for all threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) start: Instant,
    pub(crate) deadline: Instant,
}

impl Interval {
    /// So long, from when threads that are told now can all be there.
    pub(crate) fn soon(span: Duration) -> Self {
        let start = now() + LEAD;
        Self { start, deadline: start + span }
    }
}

/// How many calls are made between two looks at the clock; learned by each thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLength {
    calls: u64,
}

impl BatchLength {
    pub(crate) fn new() -> Self {
        Self { calls: 1 }
    }

    fn adapt(&mut self, took: Duration) {
        if took < SHORT {
            self.calls = (self.calls * 2).min(MOST_CALLS);
        } else if took > LONG {
            self.calls = (self.calls / 2).max(1);
        }
    }
}

/// Calls a second of `run`, which makes as many as it is told, from the start to this thread's first look at the clock
/// after the deadline. A thread that the machine lets begin late goes on for half the span at least: a few calls are no
/// rate.
pub(crate) fn rate(mut run: impl FnMut(u64), interval: Interval, batch_length: &mut BatchLength) -> f64 {
    let begin = begin_at(interval.start);
    let end = interval.deadline.max(begin + (interval.deadline - interval.start) / 2);
    let (mut before, mut calls) = (begin, 0u64);
    loop {
        run(batch_length.calls);
        calls += batch_length.calls;
        let after = now();
        if after >= end {
            return calls as f64 / (after - begin).as_secs_f64();
        }
        batch_length.adapt(after - before);
        before = after;
    }
}

/// Times calls by the processor's own counter: a reading of the system's clock takes longer than most of them. Where
/// there is no such counter it is the system's clock.
#[derive(Debug, Clone)]
pub(crate) struct Stopwatch(Clock);

impl Stopwatch {
    /// The first one of a process takes up to 0.2 s to find out how fast the counter counts.
    pub(crate) fn new() -> Self {
        Self(Clock::new())
    }

    /// A reading. What stands before it is done then, and what stands after it not begun.
    fn read(&self) -> u64 {
        settle();
        let now = self.0.raw();
        settle();
        now
    }

    fn ns_between(&self, start: u64, end: u64) -> u64 {
        self.0.delta_as_nanos(start, end)
    }
}

/// Waits for the instructions before it.
#[expect(unsafe_code, reason = "there is no safe fence of instructions")]
fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it, and it touches neither registers nor memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// The time of each `batch` of calls, in nanoseconds.
pub(crate) fn times(
    worker: &mut dyn Worker,
    interval: Interval,
    batch: u64,
    watch: &Stopwatch,
    times: &mut Histogram<u64>,
) {
    let span = interval.deadline.saturating_duration_since(begin_at(interval.start)).as_nanos() as u64;
    let begin = watch.read();
    loop {
        let before = watch.read();
        worker.run(batch);
        let after = watch.read();
        times.saturating_record(watch.ns_between(before, after));
        if watch.ns_between(begin, after) >= span {
            return;
        }
    }
}

/// The times of no call: two readings of the watch and what stands around a call.
pub(crate) fn clock_times(worker: &mut dyn Worker, watch: &Stopwatch, times: &mut Histogram<u64>) {
    for _ in 0..CLOCK_READINGS {
        let before = watch.read();
        worker.run(0);
        let after = watch.read();
        times.saturating_record(watch.ns_between(before, after));
    }
}

/// At least `want` ids, or as many as come until the deadline.
pub(crate) fn collect(
    worker: &mut dyn Worker,
    ids_per_call: u64,
    want: u64,
    deadline: Instant,
    batch_length: &mut BatchLength,
) -> Vec<u64> {
    let mut ids = Vec::with_capacity((want + ids_per_call) as usize);
    loop {
        let missing = want.saturating_sub(ids.len() as u64);
        let before = now();
        if missing == 0 || before >= deadline {
            return ids;
        }
        worker.collect(batch_length.calls.min(missing.div_ceil(ids_per_call)), &mut ids);
        batch_length.adapt(now() - before);
    }
}

/// An empty histogram of times.
pub(crate) fn histogram() -> Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS)
}

/// Waits, awake, until all threads are to begin; returns when this one does.
fn begin_at(start: Instant) -> Instant {
    loop {
        let now = now();
        if now >= start {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::single;

    #[test]
    fn a_rate_is_what_the_worker_itself_counts() {
        let mut made = 0u64;
        let span = Duration::from_millis(20);
        let before = now();
        let rate = {
            let mut worker = single(|| {
                made += 1;
                made
            });
            rate(|calls| worker.run(calls), Interval::soon(span), &mut BatchLength::new())
        };
        let took = before.elapsed();
        assert!(took >= span);
        // The thread's own time lies between half the span and the whole.
        let (least, most) = (made as f64 / took.as_secs_f64(), made as f64 / (span / 2).as_secs_f64());
        assert!((least..=most).contains(&rate), "{rate} is not in {least}..={most}");
    }

    #[test]
    fn a_pause_of_each_call_shows_in_its_time() {
        let pause = Duration::from_micros(300);
        let mut worker = single(|| {
            let begin = now();
            while begin.elapsed() < pause {}
            0
        });
        let mut found = histogram().unwrap();
        let watch = Stopwatch::new();
        times(&mut *worker, Interval::soon(Duration::from_millis(20)), 2, &watch, &mut found);
        assert!(found.min() >= 2 * pause.as_nanos() as u64 / 1_001 * 1_000, "{}", found.min());
        assert!(found.len() <= 34, "20 ms hold 33 batches of 0.6 ms, not {}", found.len());
    }

    #[test]
    fn a_slow_subject_gives_fewer_ids_and_a_fast_one_as_many_as_wanted() {
        let mut fast = single(|| 1);
        let later = now() + Duration::from_mins(1);
        let ids = collect(&mut *fast, 1, 10_000, later, &mut BatchLength::new());
        assert_eq!(ids.len(), 10_000);
        let mut slow = single(|| {
            std::thread::sleep(Duration::from_millis(1));
            1
        });
        let soon = now() + Duration::from_millis(20);
        let ids = collect(&mut *slow, 1, 10_000, soon, &mut BatchLength::new());
        assert!((1..=20).contains(&ids.len()), "{}", ids.len());
    }

    #[test]
    fn batches_grow_while_they_are_short_and_shrink_when_they_are_long() {
        let mut batch_length = BatchLength::new();
        batch_length.adapt(Duration::ZERO);
        batch_length.adapt(Duration::ZERO);
        assert_eq!(batch_length.calls, 4);
        batch_length.adapt(Duration::from_micros(100));
        assert_eq!(batch_length.calls, 4);
        for _ in 0..9 {
            batch_length.adapt(Duration::from_millis(1));
        }
        assert_eq!(batch_length.calls, 1);
    }
}
