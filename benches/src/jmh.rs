//! A throughput runner in the manner of JMH: forks, warm-up, iterations, a score with its error, and its result format.
//!
//! The process that was started measures nothing. For each fork it starts its own executable again with a plan; that
//! process sets one subject up, counts the duplicates among ids collected on all threads, measures, and prints events.
//!
//! ```text
//!   options -> plans -> host ==(a process a fork: plan)==> fork -> timing
//!                        |  <==(lines of JSON: events)==
//!                        v
//!      session -> entries (JMH's JSON) -> report (text), chart (SVG)
//! ```
//!
//! A score is the mean over all iterations of all forks, with the 99.9 % error of Student's t. A subject of ours that
//! repeats an id fails the whole run.

mod chart;
mod entry;
mod fork;
mod host;
mod options;
mod plan;
mod report;
#[cfg(test)]
mod samples;
mod screen;
mod section;
mod session;
mod stats;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::subject::Subject;
use entry::{Entry, read, write};
use host::Host;
use options::Options;
use plan::{Event, Plan};
use screen::Screen;

/// The runner's whole command line over these subjects. Exit codes: 0 done, 1 failed, 2 wrong usage.
#[must_use]
pub fn main(subjects: &[Subject]) -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    // Test runs of everything start benchmarks without arguments: those are not to take minutes.
    if line.len() == 1 {
        println!("Give --bench to measure everything, --help for more. There is:");
        list(subjects);
        return ExitCode::SUCCESS;
    }
    let options = match Options::from_line(line) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    match run(&options, subjects) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, subjects: &[Subject]) -> anyhow::Result<()> {
    if let Some(plan) = &options.fork_plan {
        return be_a_fork(plan, subjects);
    }
    let chosen = match options.select(subjects) {
        Ok(chosen) => chosen,
        Err(unknown) => Options::command().error(ErrorKind::InvalidValue, unknown).exit(),
    };
    if options.list {
        list(&chosen.into_iter().copied().collect::<Vec<_>>());
        return Ok(());
    }
    let mut screen = Screen::open(options.output.as_deref())?;
    if !options.from.is_empty() {
        let files: anyhow::Result<Vec<_>> = options.from.iter().map(|path| read(path)).collect();
        return conclude(options, &files?.concat(), &[], &mut screen);
    }
    screen.say(&machine())?;
    let host = Host::new(&own_executable);
    let plans = options.plans(&chosen);
    let outcome = session::measure(&plans, options.forks, subjects, &host, &mut screen)?;
    if let Some(path) = options.result_path() {
        write(&path, &outcome.results)?;
    }
    conclude(options, &outcome.entries, &outcome.failures, &mut screen)
}

/// Table, chart, and whether all of it counts.
fn conclude(
    options: &Options,
    entries: &[Entry],
    failures: &[String],
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.say(&report::table(entries))?;
    if let Some(path) = &options.chart {
        let drawn = std::fs::write(path, chart::svg(entries));
        drawn.with_context(|| format!("cannot write the chart to {}", path.display()))?;
    }
    for failure in failures {
        screen.say(&format!("FAILED {failure}"))?;
    }
    let broken: Vec<&str> =
        entries.iter().filter(|entry| entry.is_broken()).map(|entry| &*entry.subject.name).collect();
    if !broken.is_empty() {
        bail!("ids were repeated by {}: nothing measured here counts", broken.join(", "));
    }
    let void: Vec<&str> =
        entries.iter().filter(|entry| entry.is_void()).map(|entry| &*entry.subject.name).collect();
    if !void.is_empty() {
        bail!("void, as told beside each: {}", void.join(", "));
    }
    if !failures.is_empty() {
        bail!("{} benchmark(s) could not be measured", failures.len());
    }
    Ok(())
}

/// This process is a fork: what it has to say goes to the process that started it.
fn be_a_fork(plan: &str, subjects: &[Subject]) -> anyhow::Result<()> {
    let plan: Plan = serde_json::from_str(plan).context("a fork's plan")?;
    let mut out = std::io::stdout();
    if let Err(error) = fork::run(&plan, subjects, &mut out) {
        fork::emit(&mut out, &Event::Failed { reason: format!("{error:#}") })?;
    }
    Ok(())
}

/// The command of a fork.
fn own_executable(plan: &Plan) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.arg("--fork-plan").arg(serde_json::to_string(plan)?);
    Ok(command)
}

fn list(subjects: &[Subject]) {
    let width = subjects.iter().map(|subject| subject.name.len()).max().unwrap_or(0);
    for subject in subjects {
        println!("{:width$}  {}", subject.name, subject.about);
    }
}

/// What this was measured with and on.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "# xuid-benches {}, {} {}, {processors} processor(s), {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        processor_name().unwrap_or_else(|| "of an unknown model".to_owned()),
    )
}

/// As the kernel names it.
fn processor_name() -> Option<String> {
    let information = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = information.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::samples::{SUBJECTS, entry};
    use super::*;

    fn concluded(entries: &[Entry], failures: &[String]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let [text, chart] = ["text", "chart.svg"].map(|name| folder.path().join(name));
        let line = ["throughput".into(), "--chart".into(), chart.clone().into_os_string()];
        let options = Options::from_line(line).unwrap();
        let mut screen = Screen::open(Some(&text)).unwrap();
        let ended = conclude(&options, entries, failures, &mut screen);
        assert!(std::fs::read_to_string(chart).unwrap().starts_with("<svg"));
        ended.map(|()| std::fs::read_to_string(text).unwrap()).map_err(|error| error.to_string())
    }

    fn results() -> [Entry; 3] {
        let rates = || vec![plan::Figure::Rate(1e6), plan::Figure::Rate(2e6)];
        [0, 2, 3].map(|index| entry(&SUBJECTS[index], 2, [rates(), rates()]))
    }

    #[test]
    fn a_peer_may_repeat_ids_but_one_of_ours_fails_the_run() {
        let [mut fine, mut ours, mut peer] = results();
        peer.subject.duplicates = 7;
        let table = concluded(&[fine.clone(), ours.clone(), peer.clone()], &[]).unwrap();
        assert!(table.contains("7 of 2,000"), "{table}");
        ours.subject.duplicates = 1;
        let error = concluded(&[fine.clone(), ours, peer.clone()], &[]).unwrap_err();
        assert!(error.contains("xuid/repeats") && !error.contains("next_id"), "{error}");
        fine.subject.duplicates = 1;
        assert!(concluded(&[peer, fine], &[]).unwrap_err().contains("xuid/next_id"));
    }

    #[test]
    fn what_is_void_fails_the_run() {
        let mut results = results();
        results[1].subject.objections.push("the land ran out".to_owned());
        assert!(concluded(&results, &[]).unwrap_err().contains(&results[1].subject.name));
    }

    #[test]
    fn a_benchmark_that_could_not_be_measured_fails_the_run_but_keeps_the_rest() {
        let error = concluded(&results(), &["peer/x: no".to_owned()]).unwrap_err();
        assert_eq!(error, "1 benchmark(s) could not be measured");
    }
}
