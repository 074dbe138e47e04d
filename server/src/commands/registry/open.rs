//! `xuid registry open`: workers that another generator had.

use anyhow::{Context, Result};
use serde_json::json;
use xuid_engine::registry::Workers;
use xuid_engine::{Face, Id};

use super::confirm::confirm;
use super::which::Which;
use crate::text;
use crate::text::exit::usage;
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::stdout::Printer;

/// `xuid registry open`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Which: 0..512 are 0 to 511
    #[arg(long, value_name = "A..B")]
    workers: Workers,
    /// The highest id that their generator ever issued
    #[arg(long, value_name = "ID")]
    after_id: Id,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Servers reserve no further ahead, and what differs between clocks is less.
const CLEAR_MS: u64 = 125_000;

pub(super) fn run(Args { which, workers, after_id, yes }: &Args) -> Result<()> {
    let target = which.target()?;
    let mut out = Printer::new()?;
    let layout = target.look()?.genesis.layout;
    if layout.face() == Face::Opaque || *after_id > layout.last_id() {
        return Err(usage(format!(
            "--after-id is {after_id}, which no generator of the layout {layout} gives"
        ))
        .into());
    }
    let (after, now_ms) = (layout.decode(*after_id), now_ns() / 1_000_000);
    let from_ms = after.unix_ms.max(now_ms + CLEAR_MS);
    confirm(
        &format!(
            "This opens the workers {workers} of the registry in {target}, which another generator had until now:\n\
             - that generator has stopped for good, and issued no id above {after_id}, which is of {}\n\
             - servers take these workers from {} on ({})\n\
             If it issues one more id with them, ids can come twice, and nobody notices.",
            rfc3339_ms(after.unix_ms),
            rfc3339_ms(from_ms),
            distance(from_ms, now_ms),
        ),
        *yes,
    )?;
    let opened = target.open(*workers, after.tick)?;
    let told = if which.json {
        let mut object = json!({ "registry": target.to_string(), "workers": workers.to_string() });
        text::json::tick(&mut object, "reserved_until", &layout, opened.from);
        out.line(object)
    } else {
        let from_ms = layout.tick_to_ms(opened.from);
        let (from, distance) = (rfc3339_ms(from_ms), distance(from_ms, now_ms));
        out.line(format_args!("opened: servers take the workers {workers} from {from} on ({distance})"))
    };
    told.and_then(|()| out.flush()).with_context(|| format!("the workers {workers} of {target} are open"))
}
