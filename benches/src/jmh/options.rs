//! The command line: JMH's options where JMH has them.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use super::plan::{Iterations, Mode, Plan};
use crate::subject::Subject;

/// JMH's options of several letters behind one dash, and what they are called here. A longer one stands before
/// the one it begins with.
const JMH_NAMES: [(&str, &str); 5] = [
    ("-rff", "--result-file"),
    ("-rf", "--result-format"),
    ("-wi", "--warmup-iterations"),
    ("-bm", "--mode"),
    ("-bs", "--batch"),
];
/// Where results go when only their format is named: JMH's default.
const RESULT_FILE: &str = "jmh-result.json";

/// Measure ways to get ids, each in processes of its own, and compare them.
///
/// JMH's short forms are understood: -wi, -bm, -bs, -rf, -rff.
#[derive(Debug, Parser)]
#[command(name = "throughput")]
pub(crate) struct Options {
    /// What to measure: a name, or a part of names; all if none is given
    pub(crate) filters: Vec<String>,
    /// List what can be measured
    #[arg(short = 'l', long)]
    pub(crate) list: bool,
    /// Processes one after another for each benchmark
    #[arg(short = 'f', long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) forks: u32,
    /// Iterations of each fork before those that count (-wi)
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) warmup_iterations: u32,
    /// Time of one of them
    #[arg(short = 'w', long, default_value = "300ms", value_parser = parse_time)]
    pub(crate) warmup_time: Duration,
    /// Iterations of each fork that count
    #[arg(short = 'i', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) iterations: u32,
    /// Time of one of them
    #[arg(short = 'r', long, default_value = "500ms", value_parser = parse_time)]
    pub(crate) time: Duration,
    /// Numbers of threads, each measured on its own; `max`: as many as there are processors
    #[arg(short = 't', long, default_value = "1,2", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) threads: Vec<usize>,
    /// What to measure of a call (-bm)
    #[arg(long, default_value = "thrpt", value_delimiter = ',')]
    pub(crate) mode: Vec<Mode>,
    /// Calls timed as one in sample mode (-bs)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) batch: u64,
    /// Keep each thread on a processor of its own
    #[arg(long)]
    pub(crate) pin: bool,
    /// Format of the result file (-rf)
    #[arg(long)]
    pub(crate) result_format: Option<Format>,
    /// Write the results there (-rff)
    #[arg(long)]
    pub(crate) result_file: Option<PathBuf>,
    /// Write the text there instead of to the standard output
    #[arg(short = 'o', long)]
    pub(crate) output: Option<PathBuf>,
    /// Draw a chart of the results
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) chart: Option<PathBuf>,
    /// Measure nothing: table and chart of results written earlier
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["filters", "list"])]
    pub(crate) from: Vec<PathBuf>,
    /// What cargo passes
    #[arg(long, hide = true)]
    bench: bool,
    /// A fork's plan, passed by the process that starts it
    #[arg(long, hide = true)]
    pub(crate) fork_plan: Option<String>,
}

/// A format of the result file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// What JMH writes with `-rf json`.
    Json,
}

/// Nothing by that name.
#[derive(Debug, thiserror::Error)]
#[error("nothing here is called '{filter}'; there is:\n{}", .known.join("\n"))]
pub(crate) struct UnknownFilter {
    filter: String,
    known: Vec<&'static str>,
}

impl Options {
    /// From a command line, the program's name first. A wrong one is clap's error.
    pub(crate) fn from_line(line: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let options = Self::try_parse_from(line.into_iter().map(translated))?;
        if options.batch > 1 && options.mode != [Mode::Sample] {
            return Err(clap::Error::raw(
                clap::error::ErrorKind::ArgumentConflict,
                "--batch says how many calls are timed as one: it goes with -bm sample only\n",
            ));
        }
        Ok(options)
    }

    /// Where the results are to be written.
    pub(crate) fn result_path(&self) -> Option<PathBuf> {
        let Format::Json = self.result_format.unwrap_or(Format::Json);
        let unnamed = self.result_format.is_some().then(|| PathBuf::from(RESULT_FILE));
        self.result_file.clone().or(unnamed)
    }

    /// The subjects asked for, in the order they are listed.
    pub(crate) fn select<'a>(&self, subjects: &'a [Subject]) -> Result<Vec<&'a Subject>, UnknownFilter> {
        let exact = |filter: &str| subjects.iter().any(|subject| subject.name == filter);
        let matches = |filter: &str, subject: &Subject| {
            if exact(filter) { subject.name == filter } else { subject.name.contains(filter) }
        };
        let lost =
            self.filters.iter().find(|filter| !subjects.iter().any(|subject| matches(filter, subject)));
        if let Some(filter) = lost {
            let known = subjects.iter().map(|subject| subject.name).collect();
            return Err(UnknownFilter { filter: filter.clone(), known });
        }
        let wanted = |subject: &&Subject| {
            self.filters.is_empty() || self.filters.iter().any(|filter| matches(filter, subject))
        };
        Ok(subjects.iter().filter(wanted).collect())
    }

    /// What is to be measured: each subject in each mode at each number of threads.
    pub(crate) fn plans(&self, subjects: &[&Subject]) -> Vec<Plan> {
        let plan = |subject: &Subject, mode, threads| Plan {
            subject: subject.name.to_owned(),
            threads,
            mode,
            batch: self.batch,
            warmup: Iterations { count: self.warmup_iterations, time: self.warmup_time },
            measurement: Iterations { count: self.iterations, time: self.time },
            pin: self.pin,
        };
        let mut plans = Vec::new();
        for subject in subjects {
            for &mode in &self.mode {
                plans.extend(self.threads.iter().map(|&threads| plan(subject, mode, threads)));
            }
        }
        plans
    }
}

/// `-wi` and `-wi5` as clap knows them.
fn translated(argument: OsString) -> OsString {
    let Some(text) = argument.to_str() else { return argument };
    for (short, long) in JMH_NAMES {
        match text.strip_prefix(short) {
            Some("") => return long.into(),
            Some(value) => return format!("{long}={}", value.trim_start_matches('=')).into(),
            None => {}
        }
    }
    argument
}

/// `500ms`, `1.5s`, `10 s`, `250us`; a bare number is seconds, as in JMH.
fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        other => return Err(format!("'{other}' is no unit of time: us, ms, s or m")),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number and a unit: 500ms, 1s".to_owned())?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    let (least, most) = (Duration::from_millis(1), Duration::from_hours(1));
    if time < least || time > most {
        return Err("an iteration lasts 1 ms to 1 hour".to_owned());
    }
    Ok(time)
}

/// A number of threads, or `max`.
fn parse_threads(text: &str) -> Result<usize, String> {
    if text == "max" {
        return Ok(std::thread::available_parallelism().map_or(1, NonZero::get));
    }
    match text.parse() {
        Ok(threads @ 1..=1_024) => Ok(threads),
        _ => Err("1 to 1024 threads, or max".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::jmh::samples::SUBJECTS;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::from_line(["throughput"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_options_of_jmh_are_understood() {
        let line = "next_id -f 3 -wi 4 -w 100ms -i5 -r 1s -t 1,2,max -bm thrpt,sample -rf json -rff out.json \
                    -o text --bench";
        let options = parse(line).unwrap();
        assert_eq!((options.forks, options.warmup_iterations, options.iterations), (3, 4, 5));
        assert_eq!(options.warmup_time, Duration::from_millis(100));
        assert_eq!(options.time, Duration::from_secs(1));
        assert_eq!(options.threads[..2], [1, 2]);
        assert_eq!(options.threads.len(), 3);
        assert_eq!(options.mode, [Mode::Throughput, Mode::Sample]);
        assert_eq!(options.result_path().unwrap(), PathBuf::from("out.json"));
        assert_eq!(options.filters, ["next_id"]);
        assert_eq!(parse("-wi7").unwrap().warmup_iterations, 7);
        assert_eq!(parse("-rf json").unwrap().result_path().unwrap(), PathBuf::from(RESULT_FILE));
        assert!(parse("").unwrap().result_path().is_none());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            "-f 0",
            "-i 0",
            "-t 0",
            "-t none",
            "-w 5h",
            "-r fast",
            "-r 0ms",
            "-bm avgt",
            "-rf csv",
            "--batch 64",
            "-bm sample --batch 0",
            "--from a.json next_id",
            "--nonsense",
        ] {
            assert!(parse(line).is_err(), "{line} was taken");
        }
    }

    #[test]
    fn a_batch_goes_with_timed_calls() {
        assert_eq!(parse("-bm sample --batch 64").unwrap().batch, 64);
    }

    #[test]
    fn an_exact_name_selects_only_itself_and_a_part_all_that_have_it() {
        let names = |line| {
            let options = parse(line).unwrap();
            options.select(&SUBJECTS).unwrap().iter().map(|subject| subject.name).collect::<Vec<_>>()
        };
        assert_eq!(names("xuid/next_id"), ["xuid/next_id"]);
        assert_eq!(names("next_id"), ["xuid/next_id", "xuid/next_id_paced"]);
        assert_eq!(names("").len(), SUBJECTS.len());
    }

    #[test]
    fn an_unknown_filter_is_answered_with_what_there_is() {
        let error = parse("flake").unwrap().select(&SUBJECTS).unwrap_err().to_string();
        assert!(error.contains("'flake'"), "{error}");
        assert!(SUBJECTS.iter().all(|subject| error.contains(subject.name)), "{error}");
    }

    #[test]
    fn each_subject_is_planned_in_each_mode_at_each_number_of_threads() {
        let options = parse("-bm thrpt,sample -t 1,3").unwrap();
        let plans = options.plans(&options.select(&SUBJECTS).unwrap());
        assert_eq!(plans.len(), SUBJECTS.len() * 4);
    }
}
