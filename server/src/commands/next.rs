//! `xuid next`.

use anyhow::Result;

use super::{OrderArg, runtime};
use crate::config::DEFAULT_LISTEN;
use crate::stdout::Printer;
use crate::wire::Wire;

/// Ids of one request: some ten milliseconds of one worker's land, so that a long list comes steadily.
const PIECE: u32 = 32_768;

/// `xuid next`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 1)]
    count: u64,
    /// The server
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_LISTEN, env = "XUID_SERVER", hide_env_values = true)]
    server: String,
    /// What they must be like
    #[arg(long, value_enum, default_value_t)]
    order: OrderArg,
    /// A JSON array of strings: a number of 64 bits does not survive JavaScript
    #[arg(long)]
    json: bool,
}

/// Gets the ids and prints them as they come.
pub(crate) fn run(args: &Args) -> Result<()> {
    runtime(1)?.block_on(next(args))
}

async fn next(args: &Args) -> Result<()> {
    let mut wire = Wire::connect(&args.server).await?;
    let mut out = Printer::new();
    let (mut left, mut first) = (args.count, true);
    if args.json {
        out.part("[")?;
    }
    while left > 0 {
        let piece = left.min(u64::from(PIECE)) as u32;
        for id in wire.ids(piece, args.order.into()).await? {
            if args.json {
                out.part(format_args!("{}\"{id}\"", if first { "" } else { ", " }))?;
                first = false;
            } else {
                out.line(id)?;
            }
        }
        left -= u64::from(piece);
    }
    if args.json {
        out.line("]")?;
    }
    out.flush()
}
