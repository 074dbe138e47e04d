//! Load on an engine, or a named sequence, in this process.

mod source;

use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_engine::{Engine, Floor};
use xuid_load::{LoadThread, Recorder, Schedule, Sent, Shape, Tail};
use xuid_protocol::Order;

use self::source::{OfEngine, OfSequence, Refusal, Source};
use super::drive::{Outcome, drive};
use super::plan::Plan;

/// Ten years: land declared unused lasts for any run.
const MAX_AGE: Duration = Duration::from_hours(10 * 365 * 24);

/// Calls for one id between two looks at the clock, in a closed loop. One call takes a nanosecond and a look some
/// twenty: at 256 calls a look, that is a twelfth of a nanosecond a call. No time between two looks is left out, so the
/// longest batch holds the longest stall.
pub(super) const BATCH: u32 = 256;

/// After a refusal, a closed loop pauses as long as it was told to, up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A thread that sleeps may come back some 60 us late: it spins for the rest.
const SPIN: u64 = 150_000;

/// A sleeping thread looks this often whether the run has ended.
const NAP: u64 = 50_000_000;

/// Runs the load.
pub(super) fn run(plan: &Plan) -> Result<Outcome> {
    let folder = Folder::new()?;
    if let Some(name) = &plan.sequence {
        let (all, source) = OfSequence::make(&folder.0, name, plan.ask)?;
        let outcome = load(plan, &source)?;
        all.shutdown();
        return Ok(outcome);
    }
    let builder = Engine::builder().data_dir(&folder.0).floor(Floor::Epoch).wait(plan.ask.wait);
    let engine = builder.max_age(MAX_AGE).backfill(MAX_AGE).build()?;
    let outcome = load(plan, &OfEngine::new(engine.clone(), plan.ask))?;
    engine.shutdown();
    Ok(outcome)
}

fn load(plan: &Plan, source: &impl Source) -> Result<Outcome> {
    let shares = plan.threads as u64;
    let (batched, ascends) = (is_batched(plan), plan.ask.order == Order::Ordered);
    let load = |share: u64| {
        let (source, count) = (source.clone(), plan.ask.count);
        let timetable = plan.rate.map(|rate| (rate, share, shares));
        move |thread: &mut LoadThread| {
            Caller { source, count, seen: Seen::new(ascends), thread }.run(timetable, batched);
            Ok(())
        }
    };
    drive(plan, (0..shares).map(load).collect())
}

/// Whether latency is that of a batch of [`BATCH`] calls.
pub(super) fn is_batched(plan: &Plan) -> bool {
    let is_quick = plan.ask.order == Order::Any || plan.sequence.is_some();
    plan.rate.is_none() && plan.ask.shape == Shape::Next && is_quick
}

/// What a thread saw, where ids are to be looked at.
struct Seen {
    tail: Tail,
    ascends: bool,
    /// Above every id so far.
    floor: u64,
    /// An id that did not ascend.
    fallen: Option<u64>,
}

impl Seen {
    fn new(ascends: bool) -> Self {
        Self { tail: Tail::default(), ascends, floor: 0, fallen: None }
    }

    #[inline]
    fn note(&mut self, recorder: &mut Recorder, first: u64, count: u32) {
        recorder.note(&mut self.tail, first, count);
        if self.ascends {
            if first < self.floor {
                self.fallen = Some(first);
            }
            self.floor = first + u64::from(count);
        }
    }
}

/// One thread.
struct Caller<'t, S> {
    source: S,
    /// Ids of a call.
    count: u32,
    seen: Seen,
    thread: &'t mut LoadThread,
}

impl<S: Source> Caller<'_, S> {
    fn run(mut self, timetable: Option<(u64, u64, u64)>, batched: bool) {
        while self.thread.progress.now() < self.thread.progress.begin() {
            spin_loop();
        }
        match timetable {
            Some((rate, share, shares)) => {
                self.by_timetable(Schedule::new(self.thread.progress.begin(), rate, share, shares));
            }
            None if batched => self.batches(),
            None => self.calls(),
        }
        if let Some(recorder) = &mut self.thread.recorder {
            recorder.end(&mut self.seen.tail);
        }
        if let Some(id) = self.seen.fallen {
            let why = format!("{id} came to an ordered call, and the same thread had a greater one before");
            self.thread.results.failed(why);
        }
    }

    /// Calls at their times. A call that is late is made at once, and its latency counts from when it was due.
    fn by_timetable(&mut self, mut schedule: Schedule) {
        loop {
            let (start, end) = (schedule.due(), self.thread.progress.end());
            let now = self.thread.progress.now();
            if now >= end || start >= end {
                break;
            }
            if now < start {
                wait_until(start, now);
                continue;
            }
            let outcome = self.call();
            schedule.advance();
            let at = self.thread.progress.now();
            if !self.done(outcome, start, now, at) {
                break;
            }
        }
        let LoadThread { progress, results, .. } = &mut *self.thread;
        results.never_sent(schedule, progress.measured(), progress.end());
    }

    /// One call after another.
    fn calls(&mut self) {
        let mut sent = self.thread.progress.now();
        while sent < self.thread.progress.end() {
            let outcome = self.call();
            let pause = outcome.err().map(pause_after);
            let at = self.thread.progress.now();
            if !self.done(outcome, sent, sent, at) {
                return;
            }
            sent = at;
            if let Some(pause) = pause {
                std::thread::sleep(pause);
                sent = self.thread.progress.now();
            }
        }
    }

    /// One call of the kind that was asked for.
    fn call(&mut self) -> Result<(), Refusal> {
        let Self { source, seen, thread, .. } = self;
        match &mut thread.recorder {
            Some(recorder) => source.call(|first, count| seen.note(recorder, first, count)),
            None => source.call(|first, _| _ = black_box(first)),
        }
    }

    /// Counts one call. False: there will never be an id again.
    fn done(&mut self, outcome: Result<(), Refusal>, start: u64, sent: u64, at: u64) -> bool {
        match outcome {
            Ok(()) => {
                self.thread.answered(self.count, 1, Sent { start, at: sent }, at);
                self.thread.publish();
                true
            }
            Err(error) => self.refused(error, at),
        }
    }

    fn refused(&mut self, error: Refusal, at: u64) -> bool {
        let LoadThread { progress, results, .. } = &mut *self.thread;
        let name = error.kind();
        if progress.counts(at) {
            results.refused(screaming(&name), error);
        }
        if !error.is_retryable() {
            results.failed(format!("refused for good: {error}"));
        }
        error.is_retryable()
    }

    /// Calls for one id at full speed, a look at the clock every [`BATCH`] calls.
    fn batches(&mut self) {
        let mut begin = self.thread.progress.now();
        while begin < self.thread.progress.end() {
            let Self { source, seen, thread, .. } = self;
            let outcome = match &mut thread.recorder {
                Some(recorder) => batch(source, |id| seen.note(recorder, id, 1)),
                None => batch(source, |id| _ = black_box(id)),
            };
            let at = self.thread.progress.now();
            let (count, error) = outcome;
            if self.thread.progress.counts(at) {
                self.thread.results.ids += u64::from(count);
                self.thread.results.requests += u64::from(count);
                self.thread.publish();
            }
            if error.is_none() && self.thread.progress.counts(begin) {
                self.thread.results.answered(1, Sent { start: begin, at: begin }, at);
            }
            begin = at;
            if let Some(error) = error {
                if !self.refused(error, at) {
                    return;
                }
                std::thread::sleep(pause_after(error));
                begin = self.thread.progress.now();
            }
        }
    }
}

/// [`BATCH`] calls, or as many as there were before a refusal.
#[inline]
fn batch(source: &mut impl Source, mut see: impl FnMut(u64)) -> (u32, Option<Refusal>) {
    for count in 0..BATCH {
        match source.next() {
            Ok(id) => see(id),
            Err(error) => return (count, Some(error)),
        }
    }
    (BATCH, None)
}

fn pause_after(error: Refusal) -> Duration {
    error.retry_after().unwrap_or_default().min(LONGEST_PAUSE)
}

/// Some way towards `start`: asleep while it is far, then spinning.
fn wait_until(start: u64, now: u64) {
    let left = start - now;
    if left > SPIN {
        std::thread::sleep(Duration::from_nanos((left - SPIN).min(NAP)));
    } else {
        spin_loop();
    }
}

/// The protocol's name for a refusal, so that reports read alike: `ClockBehind` is `CLOCK_BEHIND`.
fn screaming(name: &str) -> Option<&'static str> {
    use xuid_protocol::Status;
    let bare = |name: &str| name.to_lowercase().replace('_', "");
    Status::NAMED.iter().filter_map(|status| status.name()).find(|known| bare(known) == bare(name))
}

/// A folder that is gone when the bench is over.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("xuid-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind, it is a small folder among temporary ones.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_engine_have_the_protocols_names() {
        let names =
            ["Overloaded", "ClockBehind", "NotReady", "ShuttingDown", "StoreAway", "Forked"].map(screaming);
        let [away, down] = [Some("STORE_AWAY"), Some("SHUTTING_DOWN")];
        let wanted = [Some("OVERLOADED"), Some("CLOCK_BEHIND"), Some("NOT_READY"), down, away, None];
        assert_eq!(names, wanted);
    }
    #[test]
    fn an_ordered_id_below_one_that_came_before_is_found() {
        let check = xuid_load::DuplicateCheck::start(1 << 20, || ()).unwrap();
        let mut recorder = check.recorder();
        let mut fallen = |ascends, ids: [(u64, u32); 3]| {
            let mut seen = Seen::new(ascends);
            for (first, count) in ids {
                seen.note(&mut recorder, first, count);
            }
            seen.fallen
        };
        assert_eq!(fallen(true, [(1, 3), (4, 1), (9, 2)]), None);
        assert_eq!(fallen(true, [(1, 3), (3, 1), (9, 2)]), Some(3));
        assert_eq!(fallen(false, [(9, 3), (3, 1), (1, 2)]), None);
    }
}
