//! Measuring: each plan in its forks, one after another, told as it goes.

use std::time::Duration;

use indicatif::HumanCount;
use serde_json::Value;

use super::entry::{Entry, benchmark, result, time_text};
use super::host::{Host, Raw};
use super::plan::{Event, Figure, Iterations, Mode, Plan};
use super::report;
use super::screen::Screen;
use super::stats::Sample;
use crate::subject::Subject;

/// What a fork takes beside its iterations: starting, setting up, the check, stopping.
const AROUND: Duration = Duration::from_millis(300);

/// What came of a session.
pub(super) struct Outcome {
    /// As they are written to files.
    pub(super) results: Vec<Value>,
    /// As they are read.
    pub(super) entries: Vec<Entry>,
    /// Benchmarks that could not be measured, and why.
    pub(super) failures: Vec<String>,
}

/// Measures all plans. One that fails does not keep the rest from being measured.
pub(super) fn measure(
    plans: &[Plan],
    forks: u32,
    subjects: &[Subject],
    host: &Host<'_>,
    screen: &mut Screen,
) -> anyhow::Result<Outcome> {
    screen.plan(plans.iter().map(|plan| fork_time(plan) * forks).sum());
    let (mut results, mut entries, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for plan in plans {
        let Some(subject) = subjects.iter().find(|subject| subject.name == plan.subject) else { continue };
        screen.say(&head(plan, subject))?;
        match forked(plan, forks, host, screen) {
            Ok(raws) => {
                let result = result(plan, subject, &raws);
                let entry = Entry::try_from(&result)?;
                screen.say(&format!("\n{}\n", report::result(&entry)))?;
                entries.push(entry);
                results.push(result);
            }
            Err(error) => {
                screen.say(&format!("<failure>\n{error:#}\n"))?;
                failures.push(format!("{}, {}: {error:#}", plan.subject, threads_text(plan.threads)));
            }
        }
    }
    screen.close();
    Ok(Outcome { results, entries, failures })
}

fn forked(plan: &Plan, forks: u32, host: &Host<'_>, screen: &mut Screen) -> anyhow::Result<Vec<Raw>> {
    let mut raws = Vec::new();
    for fork in 1..=forks {
        let threads = threads_text(plan.threads);
        screen.name(format!("{}, {threads}, fork {fork} of {forks}", plan.subject));
        screen.say(&format!("\n# Run progress: {}\n# Fork: {fork} of {forks}", screen.progress()))?;
        let (mut warmups, mut iterations) = (0, 0);
        raws.push(host.fork(plan, &mut |event| {
            match event {
                Event::Checked { ids, duplicates } => {
                    screen.advance(AROUND);
                    let (ids, duplicates) = (HumanCount(*ids), HumanCount(*duplicates));
                    screen.say(&format!("# Check: {ids} ids collected, {duplicates} duplicates"))?;
                }
                Event::Warmup { figure } => {
                    warmups += 1;
                    screen.advance(plan.warmup.time);
                    screen.say(&format!("# Warmup Iteration {warmups:3}: {}", figure_text(figure)))?;
                }
                Event::Iteration { figure } => {
                    iterations += 1;
                    screen.advance(plan.measurement.time);
                    screen.say(&format!("Iteration {iterations:3}: {}", figure_text(figure)))?;
                }
                Event::Done { objection: Some(reason), .. } => screen.say(&format!("# VOID: {reason}"))?,
                Event::Done { .. } | Event::Failed { .. } => {}
            }
            Ok(())
        })?);
    }
    Ok(raws)
}

/// What one fork of a plan takes.
fn fork_time(plan: &Plan) -> Duration {
    AROUND + plan.warmup.total() + plan.measurement.total()
}

/// What is to be measured.
fn head(plan: &Plan, subject: &Subject) -> String {
    let mut batch = String::new();
    if plan.batch > 1 {
        batch = format!(", {} calls per op", plan.batch);
    }
    let phase = |name: &str, iterations: Iterations| match iterations.count {
        0 => format!("# {name}: <none>"),
        count => format!("# {name}: {count} iterations, {} each{batch}", time_text(iterations.time)),
    };
    let (mode, pinned) = (report::mode_text(plan.mode), if plan.pin { ", one processor each" } else { "" });
    [
        phase("Warmup", plan.warmup),
        phase("Measurement", plan.measurement),
        format!("# Threads: {}{pinned}, each iteration begins on all together", threads_text(plan.threads)),
        format!("# Benchmark mode: {mode}"),
        format!("# Benchmark: {}", benchmark(subject.name)),
        format!("# Subject: {}", subject.about),
    ]
    .join("\n")
}

/// `1 thread`, `2 threads`.
pub(super) fn threads_text(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn figure_text(figure: &Figure) -> String {
    match figure {
        Figure::Rate(rate) => report::score_text(Mode::Throughput, *rate),
        Figure::Times(_) => {
            let sample = Sample::of([figure]);
            let at = [0.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0]
                .map(|level| format!("{:.0}", sample.percentile(level)));
            format!(
                "n = {}, mean = {:.0} ns/op, p{{0.00, 0.50, 0.90, 0.95, 0.99, 0.999, 0.9999, 1.00}} = {} ns/op",
                sample.count,
                sample.mean,
                at.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jmh::samples::plan;

    #[test]
    fn the_head_says_what_is_measured_and_how() {
        let subject = crate::jmh::samples::SUBJECTS[0];
        let plan = Plan { batch: 64, pin: true, ..plan("xuid/next_id", 2, Mode::Sample) };
        let head = head(&plan, &subject);
        for line in [
            "# Warmup: 1 iterations, 2 ms each, 64 calls per op",
            "# Measurement: 2 iterations, 5 ms each, 64 calls per op",
            "# Benchmark mode: Sampling time",
            "# Benchmark: xuid.bench.xuid.next_id",
        ] {
            assert!(head.lines().any(|found| found == line), "{head}");
        }
        assert!(head.contains("2 threads, one processor each"), "{head}");
    }

    #[test]
    fn an_iterations_times_are_told_by_their_percentiles() {
        let text = figure_text(&Figure::Times(vec![(10, 999), (5_000, 1)]));
        assert!(text.starts_with("n = 1000, mean = 15 ns/op"), "{text}");
        assert!(text.ends_with("= 10, 10, 10, 10, 10, 10, 5000, 5000 ns/op"), "{text}");
    }
}
