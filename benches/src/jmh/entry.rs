//! Results, in the shape of JMH's JSON result format, so that its viewers open them.
//!
//! JMH's fields about the virtual machine say what stands in its place. Viewers tell entries of one benchmark apart by
//! `params` alone, so the number of threads and the supply are repeated there. What JMH has no field for is under
//! `subject`, which viewers pass over.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::host::Raw;
use super::number::{Percentiles, nan, nan_pair};
use super::plan::{ClockCost, Counts, Figure, Mode, Plan};
use super::stats::{SURE, Summary, counted_percentile, percentile, sorted};
use crate::subject::{Kind, Subject, Supply};

/// The version of JMH whose format this is.
const FORMAT: &str = concat!("xuid-benches ", env!("CARGO_PKG_VERSION"), " in the format of JMH 1.37");
/// What stands before a subject's name.
const PACKAGE: &str = "xuid.bench";

/// One benchmark's result: a subject in a mode at a number of threads.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Whose format this is.
    pub jmh_version: String,
    /// `xuid.bench.` and the subject's name, dots for slashes.
    pub benchmark: String,
    /// What was measured.
    pub mode: Mode,
    /// Threads that called at once.
    pub threads: usize,
    /// Processes one after another.
    pub forks: usize,
    /// What stands in for a virtual machine: none.
    pub jvm: String,
    /// How the threads were kept, if not as the system likes.
    pub jvm_args: Vec<String>,
    /// The oldest compiler that builds it.
    pub jdk_version: String,
    /// The processor's architecture and the system.
    pub vm_name: String,
    /// This crate's version.
    pub vm_version: String,
    /// Iterations that do not count.
    pub warmup_iterations: u32,
    /// `300 ms`.
    pub warmup_time: String,
    /// Calls timed as one.
    pub warmup_batch_size: u64,
    /// Iterations of each fork that count.
    pub measurement_iterations: u32,
    /// `500 ms`.
    pub measurement_time: String,
    /// Calls timed as one.
    pub measurement_batch_size: u64,
    /// What tells the entries of one benchmark apart.
    pub params: BTreeMap<String, String>,
    /// The score.
    pub primary_metric: Metric,
    /// The number of duplicates.
    pub secondary_metrics: BTreeMap<String, Metric>,
    /// What JMH has no field for.
    pub subject: Note,
}

/// A measured quantity.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    /// The mean over all iterations of all forks.
    pub score: f64,
    /// Half the width of the 99.9 % interval by Student's t; not a number for fewer than three figures.
    #[serde(with = "nan")]
    pub score_error: f64,
    /// That interval.
    #[serde(with = "nan_pair")]
    pub score_confidence: [f64; 2],
    /// Of iterations, or of single times in sample mode.
    pub score_percentiles: Percentiles,
    /// `ids/s`, `ns/op`, `ids`.
    pub score_unit: String,
    /// Scores: of each fork, of each iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_data: Option<Vec<Vec<f64>>>,
    /// Of each fork, of each iteration: times in nanoseconds, and how often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_data_histogram: Option<Vec<Vec<Counts>>>,
}

/// What JMH has no field for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// The subject's name.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// What it stands for.
    #[serde(with = "KindName")]
    pub kind: Kind,
    /// Where its ids come from.
    #[serde(with = "SupplyName")]
    pub supply: Supply,
    /// Ids that one call brings.
    pub ids_per_call: u64,
    /// Ids collected before anything was timed, in all forks.
    pub checked_ids: u64,
    /// How many of a fork's ids had come before in that fork.
    pub duplicates: u64,
    /// What makes the figures void.
    pub objections: Vec<String>,
    /// What reading the clock cost, the dearest fork's; in sample mode only.
    pub clock: Option<ClockCost>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Kind", rename_all = "camelCase")]
enum KindName {
    Ours,
    Peer,
    Limit,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Supply", rename_all = "camelCase")]
enum SupplyName {
    Burst,
    Sustained,
}

impl Entry {
    /// What the forks of one plan brought.
    pub(super) fn new(plan: &Plan, subject: &Subject, forks: &[Raw]) -> Self {
        let supply = match subject.supply {
            Supply::Burst => "burst",
            Supply::Sustained => "sustained",
        };
        let mut params = vec![("threads", plan.threads.to_string()), ("supply", supply.to_owned())];
        if plan.batch > 1 {
            params.push(("batch", plan.batch.to_string()));
        }
        let duplicates = forks.iter().map(|fork| vec![fork.duplicates as f64]).collect();
        Self {
            jmh_version: FORMAT.to_owned(),
            benchmark: benchmark(subject.name),
            mode: plan.mode,
            threads: plan.threads,
            forks: forks.len(),
            jvm: "none: native code".to_owned(),
            jvm_args: if plan.pin { vec!["--pin".to_owned()] } else { Vec::new() },
            jdk_version: concat!("rust ", env!("CARGO_PKG_RUST_VERSION"), " or newer").to_owned(),
            vm_name: format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
            vm_version: env!("CARGO_PKG_VERSION").to_owned(),
            warmup_iterations: plan.warmup.count,
            warmup_time: time_text(plan.warmup.time),
            warmup_batch_size: plan.batch,
            measurement_iterations: plan.measurement.count,
            measurement_time: time_text(plan.measurement.time),
            measurement_batch_size: plan.batch,
            params: params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            primary_metric: primary(plan.mode, forks),
            secondary_metrics: [("duplicates".to_owned(), Metric::counts(duplicates))].into(),
            subject: Note {
                name: subject.name.to_owned(),
                about: subject.about.to_owned(),
                kind: subject.kind,
                supply: subject.supply,
                ids_per_call: subject.ids_per_call,
                checked_ids: forks.iter().map(|fork| fork.checked).sum(),
                duplicates: forks.iter().map(|fork| fork.duplicates).sum(),
                objections: forks.iter().filter_map(|fork| fork.objection.clone()).collect(),
                clock: forks
                    .iter()
                    .filter_map(|fork| fork.clock)
                    .max_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns)),
            },
        }
    }

    /// Whether something makes its figures void.
    #[must_use]
    pub fn is_void(&self) -> bool {
        !self.subject.objections.is_empty()
    }

    /// Whether a subject of ours repeated an id: nothing measured counts then.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.subject.kind == Kind::Ours && self.subject.duplicates > 0
    }

    /// What all its figures come to.
    pub(super) fn summary(&self) -> Summary {
        let metric = &self.primary_metric;
        match &metric.raw_data_histogram {
            Some(forks) => Summary::of_counted(&joined(forks.iter().flatten())),
            None => Summary::of(&metric.raw_data.iter().flatten().flatten().copied().collect::<Vec<_>>()),
        }
    }
}

impl Metric {
    fn rates(forks: Vec<Vec<f64>>) -> Self {
        let all: Vec<f64> = forks.iter().flatten().copied().collect();
        let ascending = sorted(&all);
        let percentiles = Percentiles::of(|level| percentile(&ascending, level));
        Self { raw_data: Some(forks), ..Self::scored(&Summary::of(&all), percentiles, "ids/s") }
    }

    fn times(forks: Vec<Vec<Counts>>) -> Self {
        let all = joined(forks.iter().flatten());
        let percentiles = Percentiles::of(|level| counted_percentile(&all, level));
        Self {
            raw_data_histogram: Some(forks),
            ..Self::scored(&Summary::of_counted(&all), percentiles, "ns/op")
        }
    }

    fn scored(summary: &Summary, score_percentiles: Percentiles, unit: &str) -> Self {
        Self {
            score: summary.mean,
            score_error: summary.error(SURE),
            score_confidence: summary.interval(SURE),
            score_percentiles,
            score_unit: unit.to_owned(),
            raw_data: None,
            raw_data_histogram: None,
        }
    }

    /// Counts are summed up and have no error.
    fn counts(forks: Vec<Vec<f64>>) -> Self {
        let sum = forks.iter().flatten().sum();
        let ascending = sorted(&forks.concat());
        Self {
            score: sum,
            score_error: f64::NAN,
            score_confidence: [sum, sum],
            score_percentiles: Percentiles::of(|level| percentile(&ascending, level)),
            score_unit: "ids".to_owned(),
            raw_data: Some(forks),
            raw_data_histogram: None,
        }
    }
}

/// All iterations of all forks.
fn primary(mode: Mode, forks: &[Raw]) -> Metric {
    let rate = |figure: &Figure| match figure {
        Figure::Rate(rate) => Some(*rate),
        Figure::Times(_) => None,
    };
    let times = |figure: &Figure| match figure {
        Figure::Times(times) => Some(times.clone()),
        Figure::Rate(_) => None,
    };
    match mode {
        Mode::Throughput => Metric::rates(
            forks.iter().map(|fork| fork.iterations.iter().filter_map(rate).collect()).collect(),
        ),
        Mode::Sample => Metric::times(
            forks.iter().map(|fork| fork.iterations.iter().filter_map(times).collect()).collect(),
        ),
    }
}

fn joined<'a>(iterations: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut all = BTreeMap::new();
    for &(value, times) in iterations.flatten() {
        *all.entry(value).or_insert(0) += times;
    }
    all.into_iter().collect()
}

/// `xuid.bench.ferroid.atomic`.
pub(super) fn benchmark(name: &str) -> String {
    format!("{PACKAGE}.{}", name.replace('/', "."))
}

/// `300 ms`, `1 s`, as JMH writes times.
pub(super) fn time_text(time: Duration) -> String {
    let micros = time.as_micros();
    if micros.is_multiple_of(1_000_000) {
        format!("{} s", micros / 1_000_000)
    } else if micros.is_multiple_of(1_000) {
        format!("{} ms", micros / 1_000)
    } else {
        format!("{micros} us")
    }
}

/// Writes results: an array, one entry a line.
///
/// # Errors
/// Why the file could not be written.
pub fn write(path: &Path, entries: &[Entry]) -> anyhow::Result<()> {
    let lines: Result<Vec<_>, _> = entries.iter().map(serde_json::to_string).collect();
    let text = format!("[\n{}\n]\n", lines?.join(",\n"));
    std::fs::write(path, text).with_context(|| format!("cannot write the results to {}", path.display()))
}

/// Reads results back.
///
/// # Errors
/// Why the file could not be read, or that it is not a result file of this program.
pub fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a result file that this program wrote", path.display()))
}

#[cfg(test)]
mod tests;
