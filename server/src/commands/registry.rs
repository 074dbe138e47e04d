//! `xuid registry`: creating one, and the two steps after a copy or a restore.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use xuid_engine::Layout;
use xuid_engine::registry::local::{self, CreateOptions, LocalError, LocalRegistry};
use xuid_engine::registry::{Genesis, Registry};

use crate::config::{self, DEFAULT_DATA_DIR, FloorSetting, RegistrySetting};
use crate::failure::usage;
use crate::stdout::Printer;
use crate::wall::{distance, now_ns, rfc3339_ms};

/// Workers of a registry that nobody said more about: what the default layout tells apart, a kilobyte each.
const WORKERS: u32 = 1024;

/// `xuid registry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a registry where there is none
    Init(Init),
    /// Show what a registry was created with, and what is not as it should be
    Show(Target),
    /// After restoring a registry from a backup: raise every record above anything that was ever granted
    Fence(Dangerous),
    /// After copying a data folder: make the copy a cluster of its own
    Adopt(Dangerous),
}

#[derive(Debug, clap::Args)]
struct Target {
    /// A data folder, or zookeeper://host:port,host:port/path
    #[arg(value_name = "REGISTRY", default_value = DEFAULT_DATA_DIR)]
    target: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Dangerous {
    #[command(flatten)]
    target: Target,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct Init {
    #[command(flatten)]
    target: Target,
    /// now, epoch, or a time ago, as in -3h: asserts that this namespace issued nothing since
    #[arg(long, value_name = "TIME", default_value = "now", allow_hyphen_values = true)]
    floor: String,
    /// Bits of time, worker and sequence [default: 41/10/12]
    #[arg(long, value_name = "T/W/S")]
    layout: Option<Layout>,
    /// Unix milliseconds of tick 0 [default: 1524153600000]
    #[arg(long, value_name = "MS")]
    epoch: Option<u64>,
    /// How many workers it has [default: all of the layout, at most 1024]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
}

/// Does what was asked.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.action {
        Action::Init(init) => create(init),
        Action::Show(target) => show(target),
        Action::Fence(dangerous) => fence(dangerous),
        Action::Adopt(dangerous) => adopt(dangerous),
    }
}

fn create(init: &Init) -> Result<()> {
    let folder = RegistrySetting::of_target(&init.target.target)?;
    let floor = config::floor(&init.floor).ok_or_else(|| {
        let found = &init.floor;
        usage(format!("--floor is {found:?}; allowed is now, epoch, or a time ago, as in -3h"))
    })?;
    let layout = config::layout(init.layout, init.epoch).unwrap_or_default();
    let now = now_ns();
    let at = match floor {
        FloorSetting::Now => now,
        FloorSetting::Before(ago) => now.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)),
        FloorSetting::Epoch => 0,
    };
    let floor = layout.tick_at_ns(at).unwrap_or(0).min(layout.last_tick());
    let workers = init.workers.unwrap_or_else(|| layout.workers().min(WORKERS));
    let options = CreateOptions { layout, floor, workers };
    let mut registry = match LocalRegistry::open_or_create(&folder, &options) {
        Err(error @ LocalError::Workers { .. }) => return Err(usage(format!("--workers: {error}")).into()),
        opened => opened?,
    };
    let genesis = *registry.genesis();
    let created = registry.created();
    registry.close();
    if !created {
        bail!("there is a registry in {} already, of cluster {}", folder.display(), genesis.cluster);
    }
    let mut out = Printer::new();
    out.line(format_args!("created a registry in {}", folder.display()))?;
    tell(&mut out, &genesis)?;
    out.flush()
}

fn show(target: &Target) -> Result<()> {
    let folder = RegistrySetting::of_target(&target.target)?;
    let found = local::inspect(&folder)?;
    let mut out = Printer::new();
    out.line(format_args!("{}", found.path.display()))?;
    tell(&mut out, &found.genesis)?;
    let live = found.workers.iter().filter(|entry| entry.live.is_some()).count();
    out.line(format_args!("  live      {live}, see `xuid workers --data-dir {}`", folder.display()))?;
    out.line(format_args!("  spills    {} have a mark", found.marks.len()))?;
    for finding in &found.findings {
        out.line(format_args!("  damage    {finding}"))?;
    }
    out.flush()
}

fn tell(out: &mut Printer, genesis: &Genesis) -> Result<()> {
    out.line(format_args!("  cluster   {}", genesis.cluster))?;
    out.line(format_args!("  layout    {}", genesis.layout))?;
    out.line(format_args!("  floor     {}", rfc3339_ms(genesis.layout.tick_to_ms(genesis.floor))))?;
    out.line(format_args!("  workers   {}", genesis.workers))
}

fn fence(Dangerous { target, yes }: &Dangerous) -> Result<()> {
    let folder = RegistrySetting::of_target(&target.target)?;
    let plan = format!(
        "This fences the registry in {}: every worker is reserved until 125 s from now (or longer, where a record says \
         so), every id in its spill files is given up, and no change begun before can succeed. Needed after the \
         registry was restored from a backup. The clock of this host must be right, and no server may use the folder.",
        folder.display()
    );
    confirm(&plan, *yes)?;
    let fenced = local::fence(&folder, now_ns())?;
    let until_ms = fenced.genesis.layout.tick_to_ms(fenced.reserved_until);
    let mut out = Printer::new();
    out.line(format_args!(
        "fenced: workers serve again from {} ({}); {} spills given up, {} unreadable records made usable",
        rfc3339_ms(until_ms),
        distance(until_ms, now_ns() / 1_000_000),
        fenced.marks,
        fenced.repaired
    ))?;
    out.flush()
}

fn adopt(Dangerous { target, yes }: &Dangerous) -> Result<()> {
    let folder = RegistrySetting::of_target(&target.target)?;
    let plan = format!(
        "This makes the copied registry in {} a cluster of its own: it gets a new cluster id and is fenced, and the ids \
         in its spill files are given up. If the original goes on, the two must not be used for one namespace: nobody \
         watches that their ids differ.",
        folder.display()
    );
    confirm(&plan, *yes)?;
    let adopted = local::adopt(&folder, now_ns())?;
    let mut out = Printer::new();
    match adopted.fenced {
        None => out.line(format_args!(
            "nothing to adopt: this is the registry that was created, {}",
            adopted.cluster
        ))?,
        Some(fenced) => {
            let until_ms = fenced.genesis.layout.tick_to_ms(fenced.reserved_until);
            let until = rfc3339_ms(until_ms);
            let (before, cluster) = (adopted.before, adopted.cluster);
            out.line(format_args!(
                "adopted: cluster {cluster}, before {before}; workers serve from {until}"
            ))?;
        }
    }
    out.flush()
}

/// Says what will be done and asks. Without a person to ask, only `--yes` will do.
fn confirm(plan: &str, yes: bool) -> Result<()> {
    // Nobody needs the plan on a closed standard error.
    let _ = writeln!(io::stderr(), "{plan}");
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(usage("nobody is there to confirm that: say --yes").into());
    }
    let _ = write!(io::stderr(), "Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("failed to read the answer")?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}
