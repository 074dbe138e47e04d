//! `xuid decode`: offline, by the arithmetic of the layout alone.

use anyhow::Result;
use serde_json::json;
use xuid_engine::{Id, Layout, Parts};

use crate::config;
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::stdout::Printer;

/// `xuid decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids, as decimal numbers
    #[arg(value_name = "ID", required = true)]
    ids: Vec<Id>,
    /// One JSON object an id, a line each
    #[arg(long)]
    json: bool,
    /// Bits of time, worker and sequence [default: 41/10/12]
    #[arg(long, value_name = "T/W/S", env = "XUID_LAYOUT", hide_env_values = true)]
    layout: Option<Layout>,
    /// Unix milliseconds of tick 0 [default: 1524153600000]
    #[arg(long, value_name = "MS", env = "XUID_EPOCH", hide_env_values = true)]
    epoch: Option<u64>,
}

/// Takes the ids apart.
pub(crate) fn run(args: &Args) -> Result<()> {
    let layout = config::layout(args.layout, args.epoch).unwrap_or_default();
    let now_ms = now_ns() / 1_000_000;
    let mut out = Printer::new()?;
    for id in &args.ids {
        let Parts { unix_ms, worker, sequence, .. } = layout.decode(*id);
        let time = rfc3339_ms(unix_ms);
        if args.json {
            let id = id.to_string();
            out.line(
                json!({ "id": id, "unix_ms": unix_ms, "worker": worker, "sequence": sequence, "time": time }),
            )?;
        } else {
            let ago = distance(unix_ms, now_ms);
            out.line(format_args!("{id:<19}  {time}  worker {worker}  sequence {sequence}  ({ago})"))?;
        }
    }
    out.flush()
}
