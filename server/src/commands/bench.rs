//! `xuid bench`: load on servers, or on an engine in this process.
//!
//! ```text
//!   Args ── Plan ──┬── network    connect ── turn ── link     a thread drives many connections
//!                  └── embedded   engine calls                a thread is a caller
//!                           │
//!                         drive ── progress (bar, Ctrl-C)
//!                           │
//!             harvest (figures) + census (duplicates) ── report
//! ```
//!
//! # Invariants
//! - I1 closed loop (no `--rate`): a request is sent when another was answered, so latency is service time at that depth;
//! - I2 open loop (`--rate`): each request has an intended start by [`schedule`], fixed before the load begins, and latency
//!   runs from there; a request that was due and never sent, or never answered, counts with its age at the end;
//! - I3 throughput counts what was answered within the measured time, latency what was started within it;
//! - I4 the census sees every id that came, those of the warm-up and of the last replies too;
//! - I5 a load thread shares nothing that it writes, allocates nothing for a request once warm, and reads the clock once or
//!   twice for all replies of one read.

mod census;
mod drive;
mod embedded;
mod harvest;
mod memory;
mod network;
mod plan;
mod progress;
mod report;
mod schedule;

use anyhow::Result;

use super::OrderArg;
use crate::stdout::Printer;
use plan::{Plan, Target};
use report::Report;

/// `xuid bench`.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The servers; connections are dealt to them in turn [env: `XUID_SERVER`] [default: 127.0.0.1:7654]
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',')]
    server: Vec<String>,
    /// No server: threads on an engine in this process, in a temporary folder, on land declared unused since the epoch
    #[arg(long, conflicts_with_all = ["server", "connections", "pipeline"])]
    embedded: bool,
    /// Threads of the load [default: 1 against a server, one a core embedded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Connections [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,
    /// Requests in flight on each [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pipeline: Option<u32>,
    /// Ids a request: 1 asks by NEXT, more by ARRAY [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Ask by RUNS
    #[arg(long)]
    runs: bool,
    /// What they must be like
    #[arg(long, value_enum, default_value_t)]
    order: OrderArg,
    /// How long ARRAY and RUNS may wait for ids, in milliseconds; embedded, any call [default: 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    wait: Option<u32>,
    /// Requests a second in all, by a timetable (open loop): latency is measured from the intended start, so a stall counts
    /// for every request that was due during it. Without it a request is sent when another is answered (closed loop)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,
    /// How long, after the warm-up [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Load that is not counted, before the rest [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warmup: Option<u64>,
    /// Prove that no id came twice, over the whole run; keeps 16 bytes a run of ids, neighbours joined
    #[arg(long)]
    verify: bool,
    /// Memory that --verify may use, as in 512MiB or 4GiB; the load ends early before it would need more [default: 4GiB,
    /// or three quarters of what is free]
    #[arg(long, value_name = "SIZE", requires = "verify")]
    verify_memory: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the load and reports.
pub(crate) fn run(args: &Args) -> Result<()> {
    let plan = Plan::new(args)?;
    let out = Printer::new()?;
    let (source, outcome) = match &plan.target {
        Target::Embedded => (None, embedded::run(&plan)?),
        Target::Network(net) => {
            let (source, outcome) = network::run(&plan, net)?;
            (Some(source), outcome)
        }
    };
    Report::new(&plan, source, outcome).finish(out, args.json)
}
