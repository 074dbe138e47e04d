//! A fork: a fresh process that sets one subject up, checks it, measures it, and prints events.
//!
//! The thread that runs this file tells the measured threads what to do, and sleeps while they measure. A thread that
//! panics ends the fork with its words.

use std::any::Any;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::plan::{ClockCost, Event, Figure, Mode, Plan};
use crate::measure::{Team, duplicates};
use crate::subject::{Fixture, Subject, Worker};
use crate::timing::{self, BatchLength, Interval, Stopwatch, now};

/// Ids that a thread collects for counting duplicates; two threads' are 6 MB and sorted in some 40 ms.
const CHECKED_IDS: u64 = 400_000;
/// How long a thread collects at most: a subject of 4,096 ids a millisecond gives what is wanted in 100 ms.
const CHECK_TIME: Duration = Duration::from_millis(400);

/// What a measured thread has.
struct Measured<'f> {
    worker: Box<dyn Worker + 'f>,
    batch_length: BatchLength,
    watch: Stopwatch,
}

impl<'f> Measured<'f> {
    fn new(fixture: &'f dyn Fixture, pinned_to: Option<usize>) -> Self {
        if let Some(Err(error)) = pinned_to.map(pin) {
            panic!("{error:#}");
        }
        Self { worker: fixture.worker(), batch_length: BatchLength::new(), watch: Stopwatch::new() }
    }
}

/// Carries a plan out; each event is one line of JSON.
pub(super) fn run(plan: &Plan, subjects: &[Subject], out: &mut dyn Write) -> Result<()> {
    let subject = subjects.iter().find(|subject| subject.name == plan.subject);
    let subject = subject.with_context(|| format!("no subject is called '{}'", plan.subject))?;
    let fixture = (subject.set_up)();
    let make = |index| Measured::new(&*fixture, plan.pin.then_some(index));
    std::thread::scope(|scope| {
        let team = Team::start(scope, plan.threads, &make);
        measure(plan, subject, &*fixture, team, out)
    })
}

/// Writes one event.
pub(super) fn emit(out: &mut dyn Write, event: &Event) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(event)?)?;
    Ok(out.flush()?)
}

/// Check, warm-up, measurement, and what the fixture has to say of it.
fn measure<'s, 'f: 's>(
    plan: &Plan,
    subject: &Subject,
    fixture: &dyn Fixture,
    mut team: Team<'s, Measured<'f>>,
    out: &mut dyn Write,
) -> Result<()> {
    let ids_per_call = subject.ids_per_call;
    let collect = move |measured: &mut Measured<'_>| {
        // From here: a worker may have taken a second to set up.
        let (deadline, batch_length) = (now() + CHECK_TIME, &mut measured.batch_length);
        timing::collect(&mut *measured.worker, ids_per_call, CHECKED_IDS, deadline, batch_length)
    };
    let mut ids = team.all(collect).map_err(told)?.concat();
    ensure!(!ids.is_empty(), "no id came within {CHECK_TIME:?}: there is nothing to look for duplicates in");
    emit(out, &Event::Checked { ids: ids.len() as u64, duplicates: duplicates(&mut ids) })?;
    for _ in 0..plan.warmup.count {
        emit(out, &Event::Warmup { figure: iteration(&mut team, plan, plan.warmup.time, ids_per_call)? })?;
    }
    for _ in 0..plan.measurement.count {
        let figure = iteration(&mut team, plan, plan.measurement.time, ids_per_call)?;
        emit(out, &Event::Iteration { figure })?;
    }
    let clock_times = |measured: &mut Measured<'_>, times: &mut Histogram<u64>| {
        timing::clock_times(&mut *measured.worker, &measured.watch, times);
    };
    let clock = match plan.mode {
        Mode::Throughput => None,
        Mode::Sample => Some(joined_times(&mut team, clock_times)?),
    };
    let clock =
        clock.map(|times| ClockCost { mean_ns: times.mean(), p50_ns: times.value_at_quantile(0.5) as f64 });
    emit(out, &Event::Done { objection: fixture.objection(), clock })
}

fn iteration<'s, 'f: 's>(
    team: &mut Team<'s, Measured<'f>>,
    plan: &Plan,
    time: Duration,
    ids_per_call: u64,
) -> Result<Figure> {
    let (interval, batch) = (Interval::soon(time), plan.batch);
    if plan.mode == Mode::Sample {
        let times = joined_times(team, move |measured, times| {
            timing::times(&mut *measured.worker, interval, batch, &measured.watch, times);
        })?;
        let pairs =
            times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration()));
        return Ok(Figure::Times(pairs.collect()));
    }
    let rates = team.all(move |measured| {
        timing::rate(|calls| measured.worker.run(calls), interval, &mut measured.batch_length)
    });
    Ok(Figure::Rate(rates.map_err(told)?.iter().sum::<f64>() * ids_per_call as f64))
}

/// What all threads record of their calls.
fn joined_times<'s, 'f: 's>(
    team: &mut Team<'s, Measured<'f>>,
    record: impl Fn(&mut Measured<'f>, &mut Histogram<u64>) + Copy + Send + 's,
) -> Result<Histogram<u64>> {
    let mut joined = timing::histogram()?;
    let recorded = team.all(move |measured| {
        let mut times = timing::histogram()?;
        record(measured, &mut times);
        Ok::<_, hdrhistogram::CreationError>(times)
    });
    for times in recorded.map_err(told)? {
        joined.add(times?)?;
    }
    Ok(joined)
}

/// Keeps this thread on one of the processors it may use: the one whose turn it is.
fn pin(index: usize) -> Result<()> {
    let allowed = sched_getaffinity(None).context("processors of this thread")?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&each| allowed.is_set(each)).collect();
    let mut one = CpuSet::new();
    one.set(processors[index % processors.len()]);
    sched_setaffinity(None, &one).context("keeping a thread on one processor")
}

#[expect(clippy::needless_pass_by_value, reason = "what a thread panicked with is an error by value")]
fn told(panic: Box<dyn Any + Send>) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("a measured thread panicked: {}", text.unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jmh::plan::Iterations;
    use crate::jmh::samples::{SUBJECTS, plan};

    fn events(plan: &Plan) -> Result<Vec<Event>> {
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
