//! Load on an engine in this process.

use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_engine::{Engine, Floor, Id, IdError};
use xuid_load::{Ask, LoadThread, Schedule, Sent, Shape, Tail};
use xuid_protocol::Order;

use super::drive::{Outcome, drive};
use super::plan::Plan;

/// Ten years: land declared unused lasts for any run.
const MAX_AGE: Duration = Duration::from_hours(10 * 365 * 24);

/// Calls of `next_id` between two looks at the clock, in a closed loop. One call takes a nanosecond and a look some
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
    let builder = Engine::builder().data_dir(&folder.0).floor(Floor::Epoch).wait(plan.ask.wait);
    let engine = builder.max_age(MAX_AGE).backfill(MAX_AGE).build()?;
    let shares = plan.threads as u64;
    let load = |share: u64| {
        let (engine, ask, rate) = (engine.clone(), plan.ask, plan.rate);
        move |thread: &mut LoadThread| {
            Caller::new(engine, ask, thread).run(rate.map(|rate| (rate, share, shares)));
            Ok(())
        }
    };
    let outcome = drive(plan, (0..shares).map(load).collect())?;
    engine.shutdown();
    Ok(outcome)
}

/// Whether latency is that of a batch of [`BATCH`] calls.
pub(super) fn is_batched(plan: &Plan) -> bool {
    plan.rate.is_none() && plan.ask.shape == Shape::Next && plan.ask.order == Order::Any
}

/// One thread.
struct Caller<'t> {
    engine: Engine,
    ask: Ask,
    ids: Vec<Id>,
    tail: Tail,
    thread: &'t mut LoadThread,
}

impl<'t> Caller<'t> {
    fn new(engine: Engine, ask: Ask, thread: &'t mut LoadThread) -> Self {
        let ids = vec![Id::default(); if ask.shape == Shape::Runs { 0 } else { ask.count as usize }];
        Self { engine, ask, ids, tail: Tail::default(), thread }
    }

    fn run(mut self, timetable: Option<(u64, u64, u64)>) {
        while self.thread.progress.now() < self.thread.progress.begin() {
            spin_loop();
        }
        match timetable {
            Some((rate, share, shares)) => {
                self.by_timetable(Schedule::new(self.thread.progress.begin(), rate, share, shares));
            }
            None if self.ask.shape == Shape::Next && self.ask.order == Order::Any => self.batches(),
            None => self.calls(),
        }
        if let Some(recorder) = &mut self.thread.recorder {
            recorder.end(&mut self.tail);
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

    /// One call of the kind that was asked for: how many ids it brought.
    fn call(&mut self) -> Result<u32, IdError> {
        let Self { engine, ask, ids, tail, thread, .. } = self;
        let recorder = &mut thread.recorder;
        match ask.shape {
            Shape::Next if ask.order == Order::Any => {
                let id = engine.next_id()?;
                if let Some(recorder) = recorder {
                    recorder.note(tail, id.raw(), 1);
                }
            }
            Shape::Next | Shape::Array => {
                engine.fill(ids, ask.order)?;
                if let Some(recorder) = recorder {
                    recorder.note_each(tail, ids.iter().map(|id| id.raw()));
                }
            }
            Shape::Runs => {
                for run in engine.runs(ask.count, ask.order)? {
                    if let Some(recorder) = recorder {
                        recorder.note(tail, run.first().raw(), run.len());
                    }
                }
            }
        }
        Ok(ask.count)
    }

    /// Counts one call. False: there will never be an id again.
    fn done(&mut self, outcome: Result<u32, IdError>, start: u64, sent: u64, at: u64) -> bool {
        match outcome {
            Ok(ids) => {
                self.thread.answered(ids, 1, Sent { start, at: sent }, at);
                self.thread.publish();
                true
            }
            Err(error) => self.refused(error, at),
        }
    }

    fn refused(&mut self, error: IdError, at: u64) -> bool {
        let LoadThread { progress, results, .. } = &mut *self.thread;
        let name = format!("{:?}", error.kind());
        if progress.counts(at) {
            results.refused(screaming(&name), error);
        }
        if !error.is_retryable() {
            results.failed(format!("refused for good: {error}"));
        }
        error.is_retryable()
    }

    /// `next_id` at full speed, a look at the clock every [`BATCH`] calls.
    fn batches(&mut self) {
        let mut begin = self.thread.progress.now();
        while begin < self.thread.progress.end() {
            let Self { engine, tail, thread, .. } = self;
            let outcome = match &mut thread.recorder {
                Some(recorder) => batch(engine, |id| recorder.note(tail, id.raw(), 1)),
                None => batch(engine, |id| _ = black_box(id)),
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
fn batch(engine: &Engine, mut see: impl FnMut(Id)) -> (u32, Option<IdError>) {
    for count in 0..BATCH {
        match engine.next_id() {
            Ok(id) => see(id),
            Err(error) => return (count, Some(error)),
        }
    }
    (BATCH, None)
}

fn pause_after(error: IdError) -> Duration {
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

/// The protocol's name for an engine's refusal, so that reports read alike: `ClockBehind` is `CLOCK_BEHIND`.
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
        let names = ["Overloaded", "ClockBehind", "NotReady", "ShuttingDown", "Forked"].map(screaming);
        let wanted =
            [Some("OVERLOADED"), Some("CLOCK_BEHIND"), Some("NOT_READY"), Some("SHUTTING_DOWN"), None];
        assert_eq!(names, wanted);
    }
}
