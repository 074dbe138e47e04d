//! A fork: a fresh process that sets one subject up, checks it, measures it, and prints events.
//!
//! The thread that runs this file tells the measured threads what to do over a channel each, and gathers what they
//! answer; while they measure it sleeps. A thread that panics says so, and the others end with their channels.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::plan::{ClockCost, Event, Figure, Mode, Plan};
use crate::measure::duplicates;
use crate::subject::{Fixture, Subject, Worker};
use crate::timing::{self, BatchLength, Interval, Stopwatch, now};

/// Ids that a thread collects for counting duplicates; two threads' are 6 MB and sorted in some 40 ms.
const CHECKED_IDS: u64 = 400_000;
/// How long a thread collects at most: a subject of 4,096 ids a millisecond gives what is wanted in 100 ms.
const CHECK_TIME: Duration = Duration::from_millis(400);

/// What a measured thread does next.
#[derive(Debug, Clone, Copy)]
enum Task {
    Collect,
    Rate(Interval),
    Times(Interval, u64),
    Clock,
}

/// What came of it.
enum Answer {
    Ids(Vec<u64>),
    Rate(f64),
    Times(Histogram<u64>),
}

/// Carries a plan out; each event is one line of JSON.
pub(super) fn run(plan: &Plan, subjects: &[Subject], out: &mut dyn Write) -> anyhow::Result<()> {
    let subject = subjects.iter().find(|subject| subject.name == plan.subject);
    let subject = subject.with_context(|| format!("no subject is called '{}'", plan.subject))?;
    let fixture = (subject.set_up)();
    std::thread::scope(|scope| {
        let threads = MeasuredThreads::start(scope, subject, &*fixture, plan);
        threads.measure(plan, &mut |event| emit(out, event))
    })?;
    Ok(())
}

/// Writes one event.
pub(super) fn emit(out: &mut dyn Write, event: &Event) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string(event)?)?;
    Ok(out.flush()?)
}

/// The measured threads, seen from the one that directs them.
struct MeasuredThreads<'a> {
    subject: &'a Subject,
    fixture: &'a dyn Fixture,
    tasks: Vec<Sender<Task>>,
    answers: Receiver<anyhow::Result<Answer>>,
}

impl<'a> MeasuredThreads<'a> {
    fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        subject: &'a Subject,
        fixture: &'a dyn Fixture,
        plan: &'a Plan,
    ) -> Self
    where
        'a: 'scope,
    {
        let (answer, answers) = channel();
        let start = |index| {
            let (task, tasks) = channel();
            let answer: Sender<anyhow::Result<Answer>> = answer.clone();
            scope.spawn(move || {
                let work = || {
                    if plan.pin {
                        pin(index)?;
                    }
                    obey(&mut *fixture.worker(), subject.ids_per_call, &tasks, &answer)
                };
                let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(told(&*panic)));
                if let Err(error) = ended {
                    // The directing thread no longer listens once it gave the measurement up.
                    let _ = answer.send(Err(error));
                }
            });
            task
        };
        Self { subject, fixture, tasks: (0..plan.threads).map(start).collect(), answers }
    }

    /// Check, warm-up, measurement, and what the fixture has to say of it.
    fn measure(&self, plan: &Plan, emit: &mut dyn FnMut(&Event) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let (ids, duplicates) = self.check()?;
        emit(&Event::Checked { ids, duplicates })?;
        for _ in 0..plan.warmup.count {
            emit(&Event::Warmup { figure: self.iteration(plan, plan.warmup.time)? })?;
        }
        for _ in 0..plan.measurement.count {
            emit(&Event::Iteration { figure: self.iteration(plan, plan.measurement.time)? })?;
        }
        let clock = match plan.mode {
            Mode::Throughput => None,
            Mode::Sample => Some(clock_cost(&self.joined_times(Task::Clock)?)),
        };
        emit(&Event::Done { objection: self.fixture.objection(), clock })
    }

    /// How many ids the threads collected together, and how many of them had come before.
    fn check(&self) -> anyhow::Result<(u64, u64)> {
        let mut all = Vec::new();
        for answer in self.told(Task::Collect)? {
            let Answer::Ids(mut ids) = answer else { bail!("a thread answered something else than ids") };
            all.append(&mut ids);
        }
        ensure!(
            !all.is_empty(),
            "no id came within {CHECK_TIME:?}: there is nothing to look for duplicates in"
        );
        Ok((all.len() as u64, duplicates(&mut all)))
    }

    fn iteration(&self, plan: &Plan, time: Duration) -> anyhow::Result<Figure> {
        let interval = Interval::soon(time);
        if plan.mode == Mode::Sample {
            let times = self.joined_times(Task::Times(interval, plan.batch))?;
            let counted = times.iter_recorded();
            let pair = |step: hdrhistogram::iterators::IterationValue<u64>| {
                (step.value_iterated_to(), step.count_since_last_iteration())
            };
            return Ok(Figure::Times(counted.map(pair).collect()));
        }
        let mut calls_a_second = 0.0;
        for answer in self.told(Task::Rate(interval))? {
            let Answer::Rate(rate) = answer else { bail!("a thread answered something else than its rate") };
            calls_a_second += rate;
        }
        Ok(Figure::Rate(calls_a_second * self.subject.ids_per_call as f64))
    }

    fn joined_times(&self, task: Task) -> anyhow::Result<Histogram<u64>> {
        let mut joined = timing::histogram()?;
        for answer in self.told(task)? {
            let Answer::Times(times) = answer else { bail!("a thread answered something else than times") };
            joined.add(&times)?;
        }
        Ok(joined)
    }

    /// All threads do the task; returns when each has.
    fn told(&self, task: Task) -> anyhow::Result<Vec<Answer>> {
        for thread in &self.tasks {
            // A thread that is gone left its reason among the answers.
            let _ = thread.send(task);
        }
        let answer = |_| self.answers.recv().context("all measured threads are gone")?;
        (0..self.tasks.len()).map(answer).collect()
    }
}

/// A measured thread: does its tasks until no more can come.
fn obey(
    worker: &mut dyn Worker,
    ids_per_call: u64,
    tasks: &Receiver<Task>,
    answers: &Sender<anyhow::Result<Answer>>,
) -> anyhow::Result<()> {
    let (mut batch_length, watch) = (BatchLength::new(), Stopwatch::new());
    for task in tasks {
        let answer = match task {
            Task::Collect => {
                // From here: a worker may have taken a second to set up.
                let deadline = now() + CHECK_TIME;
                Answer::Ids(timing::collect(worker, ids_per_call, CHECKED_IDS, deadline, &mut batch_length))
            }
            Task::Rate(interval) => {
                Answer::Rate(timing::rate(|calls| worker.run(calls), interval, &mut batch_length))
            }
            Task::Times(interval, batch) => {
                let mut times = timing::histogram()?;
                timing::times(worker, interval, batch, &watch, &mut times);
                Answer::Times(times)
            }
            Task::Clock => {
                let mut times = timing::histogram()?;
                timing::clock_times(worker, &watch, &mut times);
                Answer::Times(times)
            }
        };
        if answers.send(Ok(answer)).is_err() {
            break;
        }
    }
    Ok(())
}

/// What reading the clock cost.
fn clock_cost(times: &Histogram<u64>) -> ClockCost {
    ClockCost { mean_ns: times.mean(), p50_ns: times.value_at_quantile(0.5) as f64 }
}

/// Keeps this thread on one of the processors it may use: the one whose turn it is.
fn pin(index: usize) -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None).context("processors of this thread")?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&each| allowed.is_set(each)).collect();
    let mut one = CpuSet::new();
    one.set(processors[index % processors.len()]);
    sched_setaffinity(None, &one).context("keeping a thread on one processor")
}

fn told(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("a measured thread panicked: {}", text.unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jmh::plan::Iterations;
    use crate::jmh::samples::{SUBJECTS, plan};

    fn events(plan: &Plan) -> anyhow::Result<Vec<Event>> {
        let mut out = Vec::new();
        run(plan, &SUBJECTS, &mut out)?;
        let text = String::from_utf8(out)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    #[test]
    fn a_fork_tells_its_check_its_iterations_and_its_end_in_that_order() {
        let events = events(&plan("xuid/next_id", 2, Mode::Throughput)).unwrap();
        let [Event::Checked { ids, duplicates: 0 }, Event::Warmup { .. }, first, second, end] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert!((1..=2 * CHECKED_IDS).contains(ids), "{ids}");
        for iteration in [first, second] {
            let Event::Iteration { figure: Figure::Rate(rate) } = iteration else { panic!("{iteration:?}") };
            assert!(*rate > 0.0);
        }
        assert_eq!(*end, Event::Done { objection: None, clock: None });
    }

    #[test]
    fn timed_calls_come_as_counts_with_the_cost_of_the_clock_beside() {
        let plan = Plan { batch: 8, pin: true, ..plan("xuid/next_id", 1, Mode::Sample) };
        let events = events(&plan).unwrap();
        let Event::Iteration { figure: Figure::Times(times) } = &events[2] else { panic!("{events:?}") };
        assert!(!times.is_empty() && times.is_sorted(), "{times:?}");
        let Some(Event::Done { clock: Some(clock), .. }) = events.last() else { panic!("{events:?}") };
        assert!(clock.mean_ns > 0.0);
    }

    #[test]
    fn what_each_thread_counts_for_itself_shows_as_duplicates() {
        let events = events(&plan("limit/alone", 2, Mode::Throughput)).unwrap();
        let Event::Checked { ids, duplicates } = events[0] else { panic!("{events:?}") };
        // Both count from zero: what the slower one counted, the other had too.
        assert!((1..=ids / 2).contains(&duplicates), "{duplicates} of {ids}");
    }

    #[test]
    fn a_fixtures_objection_is_told() {
        let events = events(&plan("peer/objects", 1, Mode::Throughput)).unwrap();
        let Some(Event::Done { objection: Some(reason), .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(reason, "the land ran out");
    }

    #[test]
    fn a_thread_that_panics_ends_the_fork_with_its_words() {
        let error = events(&plan("peer/panics", 2, Mode::Throughput)).unwrap_err().to_string();
        assert!(error.contains("out of patience"), "{error}");
    }

    #[test]
    fn no_warm_up_is_none() {
        let none = Iterations { count: 0, time: Duration::from_millis(1) };
        let plan = Plan { warmup: none, ..plan("xuid/next_id", 1, Mode::Throughput) };
        assert!(!events(&plan).unwrap().iter().any(|event| matches!(event, Event::Warmup { .. })));
    }
}
