//! `xuid bench`: load on servers, or on an engine in this process.
//!
//! ```text
//!   Args ── Plan ──┬── network    connect ── turn ── link     a thread drives many connections
//!                  └── embedded   engine calls                a thread is a caller
//!                           │
//!                         drive ── progress (bar, Ctrl-C)
//!                           │
//!             results (figures) + duplicates ── report
//! ```
//!
//! # Invariants
//! - I1 closed loop (no `--rate`): a request is sent when another was answered, so latency is service time at that depth;
//! - I2 open loop (`--rate`): each request has an intended start by [`schedule`], fixed before the load begins, and latency
//!   runs from there; a request that was due and never sent, or never answered, counts with its age at the end;
//! - I3 throughput counts what was answered within the measured time, latency what was started within it;
//! - I4 the duplicate check sees every id that came, those of the warm-up and of the last replies too;
//! - I5 a load thread shares nothing that it writes, allocates nothing for a request once warm, and reads the clock once or
//!   twice for all replies of one read.

mod args;
mod drive;
mod duplicates;
mod embedded;
mod memory;
mod network;
mod plan;
mod progress;
mod report;
mod results;
mod schedule;

use anyhow::Result;

use crate::text::stdout::Printer;
pub(crate) use args::Args;
use plan::{Plan, Target};
use report::Report;

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
