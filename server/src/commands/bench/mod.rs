//! `xuid bench`: load on servers, or on an engine or a named sequence in this process.
//!
//! ```text
//!   Args ── Plan ──┬── network    connect ── xuid_load::Turns   a thread drives many connections
//!                  └── embedded   calls of a Source             a thread is a caller
//!                           │
//!                         drive ── progress bar, Ctrl-C
//!                           │
//!             figures and duplicates ── report
//! ```
//!
//! What a figure means stands at the top of the crate `xuid_load`.

mod args;
mod drive;
mod embedded;
mod memory;
mod network;
mod plan;
mod report;

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
