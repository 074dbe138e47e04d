//! What a fork is told and what it answers: one plan as an argument, events as lines of JSON on its output.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is measured of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Mode {
    /// Ids a second, all threads together.
    #[serde(rename = "thrpt")]
    #[value(name = "thrpt")]
    Throughput,
    /// The time of each call.
    #[serde(rename = "sample")]
    #[value(name = "sample")]
    Sample,
}

/// Some iterations of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Iterations {
    pub(crate) count: u32,
    pub(crate) time: Duration,
}

impl Iterations {
    /// How long all of them take.
    pub(crate) fn total(&self) -> Duration {
        self.time * self.count
    }
}

/// One fork's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The subject's name.
    pub(crate) subject: String,
    pub(crate) threads: usize,
    pub(crate) mode: Mode,
    /// Calls timed as one where calls are timed.
    pub(crate) batch: u64,
    pub(crate) warmup: Iterations,
    pub(crate) measurement: Iterations,
    /// Each thread stays on a processor of its own.
    pub(crate) pin: bool,
}

/// What one iteration measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Figure {
    /// Ids a second.
    Rate(f64),
    /// Of operations, in nanoseconds, ascending, and how often each came.
    Times(Vec<(u64, u64)>),
}

/// What reading the clock costs where calls are timed: the time of no call at all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClockCost {
    /// Mean, in nanoseconds.
    pub(crate) mean_ns: f64,
    /// Median, in nanoseconds.
    pub(crate) p50_ns: f64,
}

/// One line of a fork's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub(crate) enum Event {
    /// Ids were collected on all threads before anything was timed.
    Checked { ids: u64, duplicates: u64 },
    /// An iteration that does not count.
    Warmup { figure: Figure },
    /// One that does.
    Iteration { figure: Figure },
    /// Everything was measured.
    Done { objection: Option<String>, clock: Option<ClockCost> },
    /// It could not be.
    Failed { reason: String },
}
