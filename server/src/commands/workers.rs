//! `xuid workers`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use xuid_engine::registry::{Genesis, WorkerEntry};

use crate::config::{AccessArgs, DEFAULT_DATA_DIR};
use crate::registries::target::Target;
use crate::registries::view::View;
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::logs;
use crate::text::stdout::Printer;

/// `xuid workers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of a local registry
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR, env = "XUID_DATA_DIR", hide_env_values = true)]
    data_dir: PathBuf,
    /// local, or zookeeper://host:port,host:port/path
    #[arg(long, value_name = "URL", default_value = "local", env = "XUID_REGISTRY", hide_env_values = true)]
    registry: String,
    #[command(flatten)]
    access: AccessArgs,
    /// Also those that were never used
    #[arg(long)]
    all: bool,
    /// One JSON object a worker, a line each
    #[arg(long)]
    json: bool,
}

/// Lists the workers.
pub(crate) fn run(args: &Args) -> Result<()> {
    let target = Target::named(&args.registry, &args.data_dir, &args.access)?;
    print(&target, args.all, args.json)
}

/// What is told of a registry that a fence is to open.
const CLOSED: &str = "the registry is closed: nobody can reserve before";

fn print(target: &Target, all: bool, json: bool) -> Result<()> {
    let mut out = Printer::new()?;
    let View { genesis, open, workers, .. } = target.look()?;
    let now_ms = now_ns() / 1_000_000;
    let (mut left_out, mut closed) = (0, 0);
    if !json {
        out.line(format_args!("{:<8}{:<37}{:<38}OWNER", "WORKER", "RESERVED UNTIL", "LIVE"))?;
    }
    for entry in &workers {
        let is_closed = is_closed(entry);
        closed += u32::from(is_closed);
        if !all && !was_used(entry, &genesis) {
            left_out += u32::from(!is_closed);
        } else if json {
            out.line(as_json(entry, &genesis))?;
        } else {
            out.line(as_text(entry, &genesis, now_ms).trim_end())?;
        }
    }
    if !json {
        let total = workers.len();
        let rest =
            if left_out > 0 { format!(", {left_out} never used (--all shows them)") } else { String::new() };
        let closed = if closed > 0 { format!(", {closed} closed") } else { String::new() };
        out.line(format_args!("{total} workers in cluster {}{closed}{rest}", genesis.cluster))?;
        if !open {
            out.line(format_args!("{CLOSED} `xuid registry fence {target}`"))?;
        }
    } else if !open {
        // No line of its own: each is a worker.
        logs::warning(&format!("{CLOSED} `xuid registry fence {target}`"));
    }
    out.flush()
}

fn is_closed(entry: &WorkerEntry) -> bool {
    entry.record.as_ref().is_ok_and(|found| found.record.is_closed())
}

/// Whether any process was ever granted ticks of it, or may have been.
fn was_used(entry: &WorkerEntry, genesis: &Genesis) -> bool {
    if is_closed(entry) {
        return false;
    }
    let moved = |record: &xuid_engine::registry::WorkerRecord| {
        record.reserved_until > genesis.floor || !record.owner.is_empty()
    };
    entry.live.is_some() || entry.record.as_ref().map_or(true, |found| moved(&found.record))
}

fn as_text(entry: &WorkerEntry, genesis: &Genesis, now_ms: u64) -> String {
    let WorkerEntry { worker, record, live } = entry;
    let live = live.as_deref().unwrap_or("-");
    match record {
        Err(error) => format!("{worker:<8}unusable: {error}"),
        Ok(_) if is_closed(entry) => format!("{worker:<8}closed: another generator has it"),
        Ok(found) => {
            let until_ms = genesis.layout.tick_to_ms(found.record.reserved_until);
            let until = format!("{} {}", rfc3339_ms(until_ms), distance(until_ms, now_ms));
            format!("{worker:<8}{until:<37}{live:<38}{}", found.record.owner)
        }
    }
}

fn as_json(entry: &WorkerEntry, genesis: &Genesis) -> Value {
    let WorkerEntry { worker, record, live } = entry;
    match record {
        Err(error) => json!({ "worker": worker, "live": live, "error": error.to_string() }),
        Ok(found) if is_closed(entry) => {
            json!({ "worker": worker, "live": live, "closed": true, "version": found.version })
        }
        Ok(found) => {
            let until_ms = genesis.layout.tick_to_ms(found.record.reserved_until);
            json!({
                "worker": worker,
                "owner": found.record.owner,
                "live": live,
                "reserved_until": found.record.reserved_until,
                "reserved_until_ms": until_ms,
                "reserved_until_time": rfc3339_ms(until_ms),
                "version": found.version,
            })
        }
    }
}
