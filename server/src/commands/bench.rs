//! `xuid bench`: load on a server, or on an engine in this process.

mod census;
mod embedded;
mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::time::Instant;

use census::Census;

use super::OrderArg;
use crate::config::DEFAULT_LISTEN;
use crate::stdout::Printer;
use crate::wall::grouped;

/// `xuid bench`.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The server
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN, env = "XUID_SERVER", hide_env_values = true)]
    server: String,
    /// No server: threads on an engine in this process, in a temporary folder, on land declared unused since the epoch
    #[arg(long)]
    embedded: bool,
    /// Threads of the load [default: 1 against a server, one a core embedded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Requests in flight on each
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pipeline: u32,
    /// Ids a request: 1 asks by NEXT, more by ARRAY
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Ask by RUNS
    #[arg(long)]
    runs: bool,
    /// What they must be like
    #[arg(long, value_enum, default_value_t)]
    order: OrderArg,
    /// How long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Keep every id (16 bytes a run) and prove at the end that none came twice
    #[arg(long)]
    verify: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What one thread or connection got.
struct Harvest {
    ids: u64,
    requests: u64,
    refused: u64,
    last_refusal: Option<String>,
    /// The server told it to leave before the time was over.
    cut_short: bool,
    /// Nanoseconds a request.
    latency: Histogram<u64>,
    census: Option<Census>,
}

/// What all loads watch.
#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    ids: AtomicU64,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

impl Harvest {
    fn new(verify: bool) -> Result<Self> {
        // 1 ns to 2 min at three digits: some 200 KB a load.
        let latency = Histogram::new_with_bounds(1, 120_000_000_000, 3)?;
        let census = verify.then(Census::default);
        Ok(Self { ids: 0, requests: 0, refused: 0, last_refusal: None, cut_short: false, latency, census })
    }

    /// A request that brought `ids` ids after `took`.
    fn served(&mut self, ids: u64, took: Duration) {
        self.ids += ids;
        self.requests += 1;
        self.latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn see(&mut self, first: u64, count: u32) {
        if let Some(census) = &mut self.census {
            census.add(first, count);
        }
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        self.ids += other.ids;
        self.requests += other.requests;
        self.refused += other.refused;
        self.cut_short |= other.cut_short;
        self.last_refusal = other.last_refusal.or(self.last_refusal.take());
        self.latency.add(other.latency)?;
        if let (Some(ours), Some(theirs)) = (&mut self.census, other.census) {
            ours.merge(theirs);
        }
        Ok(())
    }
}

/// Runs the load and reports.
pub(crate) fn run(args: &Args) -> Result<()> {
    let progress = Arc::new(Progress::default());
    let (total, took) =
        if args.embedded { embedded::run(args, &progress) } else { network::run(args, &progress) }?;
    report(args, total, took)
}

/// Shows a bar for as long as the load takes, or until it ends by itself, then stops it. The bar goes to standard error, and only to a terminal.
fn watch(seconds: u64, progress: &Progress, pause: impl Fn(Duration)) -> Duration {
    let bar = ProgressBar::new(seconds * 10);
    if let Ok(style) = ProgressStyle::with_template("[{elapsed}] {bar:30} {msg}") {
        bar.set_style(style);
    }
    let begin = Instant::now();
    let (mut last, mut last_ids) = (begin, 0);
    while begin.elapsed() < Duration::from_secs(seconds) && !progress.is_over() {
        pause(Duration::from_millis(100).min(Duration::from_secs(seconds).saturating_sub(begin.elapsed())));
        let (now, ids) = (Instant::now(), progress.ids.load(Relaxed));
        bar.set_position((begin.elapsed().as_millis() / 100) as u64);
        bar.set_message(format!("{} ids/s", grouped(per_second(ids - last_ids, now - last))));
        (last, last_ids) = (now, ids);
    }
    progress.stop.store(true, Relaxed);
    let took = begin.elapsed();
    bar.finish_and_clear();
    took
}

fn report(args: &Args, total: Harvest, took: Duration) -> Result<()> {
    let verdict = total.census.map(Census::count);
    let last = total.last_refusal.as_deref().unwrap_or("nothing was answered");
    let seconds = took.as_secs_f64();
    let (ids, requests) = (per_second(total.ids, took), per_second(total.requests, took));
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| total.latency.value_at_quantile(quantile));
    let mut out = Printer::new();
    if args.json {
        out.line(json!({
            "ids": total.ids,
            "requests": total.requests,
            "refused": total.refused,
            "seconds": seconds,
            "ids_per_second": ids,
            "requests_per_second": requests,
            "p50_us": micros(p50),
            "p99_us": micros(p99),
            "p999_us": micros(p999),
            "duplicates": verdict.map(|verdict| verdict.duplicates),
        }))?;
    } else {
        out.line(format_args!("{:>16} ids/s", grouped(ids)))?;
        out.line(format_args!("{:>16} requests/s", grouped(requests)))?;
        out.line(format_args!("{:>16} p50, {} p99, {} p99.9", latency(p50), latency(p99), latency(p999)))?;
        if total.refused > 0 {
            out.line(format_args!("{:>16} refused, the last one: {last}", grouped(total.refused)))?;
        }
        if let Some(verdict) = verdict {
            out.line(format_args!(
                "{:>16} duplicates among {} ids",
                verdict.duplicates,
                grouped(verdict.ids)
            ))?;
        }
    }
    out.flush()?;
    if let Some(duplicates) = verdict.map(|verdict| verdict.duplicates).filter(|count| *count > 0) {
        bail!("{duplicates} ids came twice");
    }
    if total.ids == 0 {
        bail!("no id came: {last}");
    }
    if total.cut_short {
        bail!("the server went away before the time was over");
    }
    Ok(())
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

/// Three digits or so, in the unit they have.
fn latency(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", micros(ns)),
        _ => format!("{:.1} ms", micros(ns) / 1_000.0),
    }
}

fn per_second(count: u64, took: Duration) -> u64 {
    (u128::from(count) * 1_000_000_000 / took.as_nanos().max(1)) as u64
}
