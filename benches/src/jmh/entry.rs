//! Results, in the shape of JMH's JSON result format, so that its viewers open them.
//!
//! JMH's fields about the virtual machine say what stands in its place. Viewers tell entries of one benchmark apart by
//! `params` alone, so the number of threads and the supply are repeated there. What JMH has no field for is under
//! `subject`, which viewers pass over. Of all that an entry reads back what was measured, and works out the rest again.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::host::Raw;
use super::plan::{ClockCost, Figure, Mode, Plan};
use super::stats::{SURE, Sample};
use crate::subject::{Kind, Subject, Supply};

/// The version of JMH whose format this is.
const FORMAT: &str = concat!("xuid-benches ", env!("CARGO_PKG_VERSION"), " in the format of JMH 1.37");
/// What stands before a subject's name.
const PACKAGE: &str = "xuid.bench";
/// The percentiles that JMH writes.
const LEVELS: [f64; 10] = [0.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 100.0];

/// One benchmark's result: a subject in a mode at a number of threads.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) mode: Mode,
    /// Threads that called at once.
    pub(super) threads: usize,
    /// Calls timed as one.
    pub(super) batch: u64,
    /// All iterations of all forks.
    pub(super) sample: Sample,
    pub(super) subject: Note,
}

/// What is read of an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    mode: Mode,
    threads: usize,
    measurement_batch_size: u64,
    primary_metric: Measured,
    subject: Note,
}

#[derive(Deserialize)]
struct Measured {
    #[serde(rename = "rawData", alias = "rawDataHistogram")]
    forks: Vec<Vec<Figure>>,
}

/// What JMH has no field for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// The subject's name.
    pub(super) name: String,
    /// One line about it.
    pub(super) about: String,
    pub(super) kind: Kind,
    pub(super) supply: Supply,
    pub(super) ids_per_call: u64,
    /// Ids collected before anything was timed, in all forks.
    pub(super) checked_ids: u64,
    /// How many of a fork's ids had come before in that fork.
    pub(super) duplicates: u64,
    /// What makes the figures void.
    pub(super) objections: Vec<String>,
    /// What reading the clock cost, the dearest fork's; in sample mode only.
    pub(super) clock: Option<ClockCost>,
}

/// What the forks of one plan brought, as JMH writes it.
pub(super) fn result(plan: &Plan, subject: &Subject, forks: &[Raw]) -> Value {
    let clocks = forks.iter().filter_map(|fork| fork.clock);
    let note = Note {
        name: subject.name.to_owned(),
        about: subject.about.to_owned(),
        kind: subject.kind,
        supply: subject.supply,
        ids_per_call: subject.ids_per_call,
        checked_ids: forks.iter().map(|fork| fork.checked).sum(),
        duplicates: forks.iter().map(|fork| fork.duplicates).sum(),
        objections: forks.iter().filter_map(|fork| fork.objection.clone()).collect(),
        clock: clocks.max_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns)),
    };
    let mut params = json!({"threads": plan.threads.to_string(), "supply": subject.supply});
    if plan.batch > 1 {
        params["batch"] = plan.batch.to_string().into();
    }
    let iterations: Vec<_> = forks.iter().map(|fork| &fork.iterations[..]).collect();
    let sample = Sample::of(iterations.iter().copied().flatten());
    let (raw, unit) = match plan.mode {
        Mode::Throughput => ("rawData", "ids/s"),
        Mode::Sample => ("rawDataHistogram", "ns/op"),
    };
    // Counts are summed up and have no error.
    let counts: Vec<_> = forks.iter().map(|fork| [Figure::Rate(fork.duplicates as f64)]).collect();
    let sum = note.duplicates as f64;
    let mut duplicates = metric(&Sample::of(counts.iter().flatten()), "ids", "rawData", &counts);
    duplicates["score"] = sum.into();
    duplicates["scoreError"] = "NaN".into();
    duplicates["scoreConfidence"] = json!([sum, sum]);
    json!({
        "jmhVersion": FORMAT,
        "benchmark": benchmark(subject.name),
        "mode": plan.mode,
        "threads": plan.threads,
        "forks": forks.len(),
        "jvm": "none: native code",
        "jvmArgs": if plan.pin { vec!["--pin"] } else { Vec::new() },
        "jdkVersion": concat!("rust ", env!("CARGO_PKG_RUST_VERSION"), " or newer"),
        "vmName": format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
        "vmVersion": env!("CARGO_PKG_VERSION"),
        "warmupIterations": plan.warmup.count,
        "warmupTime": time_text(plan.warmup.time),
        "warmupBatchSize": plan.batch,
        "measurementIterations": plan.measurement.count,
        "measurementTime": time_text(plan.measurement.time),
        "measurementBatchSize": plan.batch,
        "params": params,
        "primaryMetric": metric(&sample, unit, raw, &iterations),
        "secondaryMetrics": { "duplicates": duplicates },
        "subject": note,
    })
}

/// The mean of a sample, with its 99.9 % error by Student's t.
fn metric(sample: &Sample, unit: &str, raw: &str, forks: &impl Serialize) -> Value {
    // JMH writes what is no number as a text.
    let number = |value: f64| if value.is_nan() { json!("NaN") } else { json!(value) };
    let percentiles: Map<_, _> =
        LEVELS.iter().map(|&level| (format!("{level:?}"), number(sample.percentile(level)))).collect();
    json!({
        "score": sample.mean,
        "scoreError": number(sample.error(SURE)),
        "scoreConfidence": sample.interval(SURE).map(number),
        "scorePercentiles": percentiles,
        "scoreUnit": unit,
        raw: forks,
    })
}

impl Entry {
    /// Whether something makes its figures void.
    pub(super) fn is_void(&self) -> bool {
        !self.subject.objections.is_empty()
    }

    /// Whether a subject of ours repeated an id: nothing measured counts then.
    pub(super) fn is_broken(&self) -> bool {
        self.subject.kind == Kind::Ours && self.subject.duplicates > 0
    }

    pub(super) fn benchmark(&self) -> String {
        benchmark(&self.subject.name)
    }
}

impl TryFrom<&Value> for Entry {
    type Error = serde_json::Error;

    fn try_from(result: &Value) -> Result<Self, serde_json::Error> {
        let Written { mode, threads, measurement_batch_size: batch, primary_metric, subject } =
            Written::deserialize(result)?;
        let sample = Sample::of(primary_metric.forks.iter().flatten());
        Ok(Self { mode, threads, batch, sample, subject })
    }
}

/// `xuid.bench.ferroid.atomic`.
pub(super) fn benchmark(name: &str) -> String {
    format!("{PACKAGE}.{}", name.replace('/', "."))
}

/// `300 ms`, `1 s`, as JMH writes times.
pub(super) fn time_text(time: Duration) -> String {
    match time.as_micros() {
        micros if micros.is_multiple_of(1_000_000) => format!("{} s", micros / 1_000_000),
        micros if micros.is_multiple_of(1_000) => format!("{} ms", micros / 1_000),
        micros => format!("{micros} us"),
    }
}

/// Writes results: an array, one entry a line.
pub(super) fn write(path: &Path, results: &[Value]) -> anyhow::Result<()> {
    let lines: Vec<_> = results.iter().map(Value::to_string).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).with_context(|| format!("cannot write the results to {}", path.display()))
}

/// Reads results back.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries = serde_json::from_slice::<Vec<Value>>(&bytes);
    let entries = entries.and_then(|results| results.iter().map(Entry::try_from).collect());
    entries.with_context(|| format!("{} is not a result file that this program wrote", path.display()))
}

#[cfg(test)]
mod tests;
