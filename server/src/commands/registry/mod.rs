//! `xuid registry`: creating one, opening workers of it, and the two steps after a copy or a restore.

mod confirm;
mod open;
mod which;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;
use xuid_engine::registry::local::sequences;
use xuid_engine::registry::{Fenced, Genesis, Workers};
use xuid_engine::{Face, Floor, Id, Layout};

use crate::config::{self, OpaqueKey};
use crate::registries::ensemble::Ensemble;
use crate::registries::json as as_json;
use crate::registries::new::{New, workers_of_new};
use crate::registries::target::{Target, is_of_ensemble};
use crate::registries::view::Created;
use crate::text::exit::usage;
use crate::text::human_time::{distance, now_ns, rfc3339_ms};
use crate::text::logs;
use crate::text::stdout::Printer;
pub(super) use confirm::confirm;
use which::Which;

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
    Show(Which),
    /// Open workers that were closed while another generator had them, which has stopped for good
    Open(open::Args),
    /// After putting a registry back from a backup, or moving a data folder: raise every record above anything that was
    /// ever granted
    Fence(Fence),
    /// For a copy of a data folder or of an ensemble that lives beside its original: make it a cluster of its own
    Adopt(Dangerous),
}

#[derive(Debug, clap::Args)]
struct Dangerous {
    #[command(flatten)]
    which: Which,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct Fence {
    #[command(flatten)]
    dangerous: Dangerous,
    /// The registry is a data folder's, which was put back or moved, and whose original is used no more
    #[arg(long)]
    restored: bool,
}

#[derive(Debug, clap::Args)]
struct Init {
    #[command(flatten)]
    which: Which,
    /// now, epoch, or a time ago, as in -3h or -400d: asserts that this namespace issued nothing since [default: now;
    /// in an ensemble that seems to have had a registry at that path before, in 125 s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    floor: Option<String>,
    /// A layout by name (twitter, sonyflake, ..) or its bits of time, worker and sequence [default: 41/10/12]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,
    /// Unix milliseconds of tick 0 [default: the layout's, as 1524153600000]
    #[arg(long, value_name = "MS")]
    epoch: Option<u64>,
    /// The last id of another generator, or number of a counter: every id will be above it, as ids of this layout are
    /// read. Refused, with the latest epoch that works, where that is more than 125 s ahead of the clock
    #[arg(long, value_name = "ID", conflicts_with = "floor")]
    after_id: Option<Id>,
    /// How many workers it has, or which: 512..1024 are 512 to 1023 [default: all of the layout, at most 1024]
    #[arg(long, value_name = "N|A..B", value_parser = workers)]
    workers: Option<Workers>,
    /// Workers that another generator has for now: no server takes one before `xuid registry open`
    #[arg(long, value_name = "A..B")]
    closed: Option<Workers>,
    /// Opaque ids for ever, with the key in this file, of which every server needs a copy: one line with 32 hexadecimal
    /// digits, as `openssl rand -hex 16` prints them
    #[arg(long, value_name = "FILE")]
    opaque_key: Option<PathBuf>,
    /// Do not ask, where the epoch lies before the year 2000
    #[arg(long)]
    yes: bool,
}

/// Does what was asked.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.action {
        Action::Init(init) => create(init),
        Action::Show(which) => show(which),
        Action::Open(args) => open::run(args),
        Action::Fence(args) => fence(args),
        Action::Adopt(dangerous) => adopt(dangerous),
    }
}

fn create(init: &Init) -> Result<()> {
    let target = init.which.target()?;
    let asserted = init.floor.as_deref().map(|text| {
        config::floor(text).ok_or_else(|| {
            usage(format!("--floor is {text:?}; allowed is now, epoch, or a time ago, as in -3h or -400d"))
        })
    });
    let layout = config::layout(init.layout, init.epoch).unwrap_or_default();
    let key = OpaqueKey::load("--opaque-key", init.opaque_key.as_deref())?;
    let layout = match &key {
        Some(_) => layout.opaque().map_err(|error| usage(format!("--opaque-key: {error}")))?,
        None if layout.face() == Face::Opaque => {
            return Err(usage("--layout has opaque ids; allowed is that with --opaque-key FILE only").into());
        }
        None => layout,
    };
    if key.is_some() && (init.after_id.is_some() || init.closed.is_some()) {
        return Err(usage(
            "--after-id and --closed are for a namespace that has ids already, and opaque ones would meet those: they have no \
             order",
        )
        .into());
    }
    let now_ns = now_ns();
    let floor = match init.after_id {
        None => asserted.transpose()?,
        Some(id) => {
            let above = Floor::above(&layout, id, now_ns);
            Some(above.map_err(|error| usage(format!("--after-id: {error}")))?)
        }
    };
    let workers = init.workers.unwrap_or_else(|| Workers { from: 0, until: workers_of_new(layout) });
    let mut out = Printer::new()?;
    check_epoch(&layout, now_ns / 1_000_000, init.yes)?;
    let (closed, veil) = (init.closed.unwrap_or_default(), key.as_ref().map(|key| &key.veil));
    let created = target.create(&New { layout, floor, workers, closed, veil })?;
    tell_created(&mut out, &target, &created, init).with_context(|| format!("{target} has a new registry"))
}

/// 2000-01-01 00:00 UTC. Unix seconds of this century, taken for milliseconds, lie before it.
const YEAR_2000_MS: u64 = 946_684_800_000;

/// Refuses an epoch that is yet to come, and asks about one that was hardly meant.
fn check_epoch(layout: &Layout, now_ms: u64, yes: bool) -> Result<()> {
    let epoch_ms = layout.epoch_ms();
    let begins = rfc3339_ms(epoch_ms);
    if epoch_ms > now_ms {
        let now = rfc3339_ms(now_ms);
        return Err(usage(format!(
            "--epoch is {epoch_ms}, which is {begins}; allowed are Unix milliseconds up to now, {now} by this host's clock: \
             before its epoch a layout has no ids"
        ))
        .into());
    }
    if epoch_ms >= YEAR_2000_MS {
        return Ok(());
    }
    let (ends, left) = end_of(layout, now_ms);
    let mut plan = format!(
        "The epoch {epoch_ms} is {begins}, before the year 2000: ids of the layout {layout} end at {ends} ({left})."
    );
    let as_seconds = epoch_ms.saturating_mul(1_000);
    if (YEAR_2000_MS..=now_ms).contains(&as_seconds) {
        let meant = rfc3339_ms(as_seconds);
        // Writing into a string does not fail.
        let _ = write!(plan, "\nIf Unix seconds were meant: {meant} is --epoch {as_seconds}.");
    }
    confirm(&plan, yes)
}

/// Until when a layout has ids, and how long that is from now.
fn end_of(layout: &Layout, now_ms: u64) -> (String, String) {
    let last_ms = layout.tick_to_ms(layout.last_tick());
    (rfc3339_ms(last_ms), distance(last_ms, now_ms))
}

fn tell_created(out: &mut Printer, target: &Target, created: &Created, init: &Init) -> Result<()> {
    let todo = format!("run `xuid registry fence {target}` before a server is started");
    if let Some(warning) = apart_warning(created.ensemble_ahead_ms, now_ns() / 1_000_000, &todo) {
        logs::warning(&warning);
    }
    let first_id = init.after_id.map(|_| first_id(&created.genesis, now_ns()));
    if init.which.json {
        let mut object = as_json::created(&target.to_string(), created);
        if let Some(id) = first_id {
            object["first_id"] = id.to_string().into();
        }
        out.line(object)?;
        return out.flush();
    }
    out.line(format_args!("created a registry in {target}"))?;
    tell(out, &created.genesis)?;
    if let Some(id) = first_id {
        out.line(format_args!("  first id  {id}, or above: that is of a server that starts at once"))?;
    }
    let closed = created.genesis.closed;
    if !closed.is_empty() {
        out.line(format_args!(
            "  closed    {closed}, until `xuid registry open {target} --workers {closed} --after-id ID`"
        ))?;
    }
    if created.again {
        out.line(
            "It serves from its floor on: there are signs that a registry was here before, whose servers may still hold \
             what comes until then. (`--floor now` is for a namespace where nothing of an old one is in use any more.)",
        )?;
    }
    out.flush()
}

/// The lowest id that a server can give which starts now, or at the floor if that is later. Where all workers are closed,
/// the lowest once they are open.
fn first_id(genesis: &Genesis, now_ns: u64) -> Id {
    let Genesis { layout, floor, closed, .. } = genesis;
    let now = layout.tick_at_ns(now_ns).unwrap_or(0).min(layout.last_tick());
    let workers = genesis.worker_range();
    let first = workers.numbers().find(|worker| !closed.contains(*worker)).unwrap_or(workers.from);
    layout.encode(now.max(*floor), first, 0)
}

/// `512` are workers 0 to 511, and so are `0..512`.
fn workers(text: &str) -> Result<Workers, String> {
    match text.parse() {
        Ok(until) => Ok(Workers { from: 0, until }),
        Err(_) => text.parse().map_err(|_| {
            format!(
                "{text:?} is no number of workers and no range: allowed is N, or A..B, which ends before B"
            )
        }),
    }
}

fn show(which: &Which) -> Result<()> {
    let target = which.target()?;
    let mut out = Printer::new()?;
    let found = target.look()?;
    if which.json {
        out.line(as_json::view(&found))?;
        return out.flush();
    }
    out.line(&found.place)?;
    tell(&mut out, &found.genesis)?;
    let live = found.live();
    if found.closed() > 0 {
        let (closed, flag) = (found.closed(), target.flag());
        out.line(format_args!(
            "  closed    {closed}: another generator has them, see `xuid workers --all {flag} {target}`"
        ))?;
    }
    out.line(format_args!("  live      {live}, see `xuid workers {} {target}`", target.flag()))?;
    out.line(format_args!("  spills    {} have a mark", found.marks.len()))?;
    for finding in &found.findings {
        out.line(format_args!("  damage    {finding}"))?;
    }
    out.flush()
}

fn tell(out: &mut Printer, genesis: &Genesis) -> Result<()> {
    let floor_ms = genesis.layout.tick_to_ms(genesis.floor);
    let now_ms = now_ns() / 1_000_000;
    let (ends, left) = end_of(&genesis.layout, now_ms);
    out.line(format_args!("  cluster   {}", genesis.cluster))?;
    out.line(format_args!("  layout    {}", genesis.layout))?;
    out.line(format_args!("  lasts     until {ends} ({left})"))?;
    out.line(format_args!("  floor     {} ({})", rfc3339_ms(floor_ms), distance(floor_ms, now_ms)))?;
    let (workers, count) = (genesis.worker_range(), genesis.workers);
    if workers.from > 0 {
        return out.line(format_args!("  workers   {count}: {workers}"));
    }
    out.line(format_args!("  workers   {count}"))
}

fn fence(Fence { dangerous: Dangerous { which, yes }, restored }: &Fence) -> Result<()> {
    let target = which.target()?;
    if let Target::Folder(folder) = &target
        && *restored
        && is_of_ensemble(folder)
        && sequences::are_alone(folder)
    {
        return fence_sequences(folder, which.json, *yes);
    }
    let plan = match (&target, restored) {
        (Target::Folder(_), true) => plan_for_folder(&target),
        (Target::Ensemble(ensemble), false) => plan_for_ensemble(&target, warn_of_apart(ensemble)?),
        (Target::Folder(_), false) => {
            let todo = "for one that was put back from a backup, or moved here, and whose original is used no more, run";
            return Err(usage(format!(
                "{target} is a local registry: {todo} `xuid registry fence --restored {target}`"
            ))
            .into());
        }
        (Target::Ensemble(_), true) => {
            return Err(usage(format!(
                "--restored is for the registry of a data folder; for an ensemble, run `xuid registry fence {target}`"
            ))
            .into());
        }
    };
    let mut out = Printer::new()?;
    confirm(&plan, *yes)?;
    let fenced = target.fence()?;
    warn_of_clock(&fenced);
    let told = if which.json {
        out.line(as_json::fenced(&target.to_string(), &fenced)).and_then(|()| out.flush())
    } else {
        tell_fenced(&mut out, &fenced)
    };
    told.with_context(|| format!("{target} is fenced"))
}

/// The records of sequences of a folder whose registry is in an ensemble: those of a witness.
fn fence_sequences(folder: &Path, json: bool, yes: bool) -> Result<()> {
    let shown = folder.display();
    let plan = format!(
        "This fences the records of sequences in {shown}, whose registry is elsewhere, as is needed after they were put back \
         from a backup or moved here:\n\
         - no other copy of this folder may ever be used again, its original included\n\
         - every sequence is closed until `xuid sequence fence {shown}` has said how far it came\n\
         No server may use the folder meanwhile."
    );
    let mut out = Printer::new()?;
    confirm(&plan, yes)?;
    let fenced = sequences::fence_sequences(folder)?;
    let mut tell = || {
        if json {
            out.line(as_json::sequences_fenced(&shown.to_string(), fenced))?;
        } else {
            out.line(format_args!("fenced{}", closed(fenced.names, fenced.lost)))?;
        }
        out.flush()
    };
    tell().with_context(|| format!("the records of sequences in {shown} are fenced"))
}

fn plan_for_folder(target: &Target) -> String {
    format!(
        "This fences the registry in {target}, as is needed after it was put back from a backup or moved here:\n\
         - its cluster stays the same, so no other copy of this folder may ever be used again, its original included (for \
         a copy beside its original there is `xuid registry adopt`)\n\
         - every worker is reserved until 125 s from now, or longer where a record or this folder knows so: no window is \
         granted before\n\
         - every id in its spill files is given up\n\
         - no change that was begun before can succeed any more\n\
         No server may use the folder meanwhile, and the clock of this host must be right. It says {}.",
        rfc3339_ms(now_ns() / 1_000_000)
    )
}

fn plan_for_ensemble(target: &Target, now_ms: Option<u64>) -> String {
    let says = now_ms.map_or_else(String::new, |now_ms| format!(" It says {}.", rfc3339_ms(now_ms)));
    format!(
        "This fences the registry in {target}, as is needed after it was restored from a backup:\n\
         - every worker is reserved until 125 s from now, or longer where a record says so: no window is granted before\n\
         - every id in the spill files of its servers is given up\n\
         - no change that was begun before can succeed any more\n\
         Servers may go on running, and use up what they hold. The clock of the ensemble must be right.{says}"
    )
}

fn tell_fenced(out: &mut Printer, fenced: &Fenced) -> Result<()> {
    out.line(format_args!("fenced: {}", told(fenced)))?;
    let now_ms = now_ns() / 1_000_000;
    if let Some(newest_ms) = fenced.newest_change_ms.filter(|ms| *ms > 0) {
        let (at, distance) = (rfc3339_ms(newest_ms), distance(newest_ms, now_ms));
        out.line(format_args!("the newest change that it shows was made at {at} ({distance})"))?;
    }
    out.flush()
}

/// On standard error, so that whoever reads JSON has it, too, whatever the log's filter is.
fn warn_of_clock(fenced: &Fenced) {
    let (newest_ms, now_ms) = (fenced.newest_change_ms.unwrap_or_default(), now_ns() / 1_000_000);
    if let Some(warning) = clock_warning(newest_ms, now_ms, fenced.ensemble_ahead_ms) {
        logs::warning(&warning);
    }
}

/// Before a fence, behind which servers go by that clock at once. What the ensemble's clock says.
fn warn_of_apart(ensemble: &Ensemble) -> Result<Option<u64>> {
    let Some(ahead_ms) = ensemble.clock_ahead_ms()? else { return Ok(None) };
    let now_ms = now_ns() / 1_000_000;
    if let Some(warning) = apart_warning(Some(ahead_ms), now_ms, "fence it again before a server is started")
    {
        logs::warning(&warning);
    }
    Ok(Some(now_ms.saturating_add_signed(ahead_ms)))
}

/// Of what was changed later than it is now by the clock that fences: the ensemble's, where that is so much ahead of the host's.
fn clock_warning(newest_ms: u64, now_ms: u64, ahead_ms: Option<i64>) -> Option<String> {
    let (whose, now_ms) = match ahead_ms {
        None => ("clock of this host", now_ms),
        Some(ahead) => ("clock of the ensemble", now_ms.saturating_add_signed(ahead)),
    };
    (newest_ms > now_ms + CLOCK_SLACK_MS).then(|| {
        format!(
            "the newest change that it shows was made at {}, later than the {whose} says it is. If that is behind, \
             set it right and run this again before a server is started: otherwise ids that were issued meanwhile can come again",
            rfc3339_ms(newest_ms)
        )
    })
}

/// Of an ensemble whose clock says something else than this host's, and what then helps.
fn apart_warning(ahead_ms: Option<i64>, now_ms: u64, todo: &str) -> Option<String> {
    let ahead_ms = ahead_ms.filter(|ahead| ahead.unsigned_abs() > CLOCKS_APART_MS)?;
    Some(format!(
        "the clock of the ensemble says {}, and that of this host {}. If the ensemble's is behind, set it right (that of each of its \
         servers) and {todo}: otherwise ids that were issued before can come again",
        rfc3339_ms(now_ms.saturating_add_signed(ahead_ms)),
        rfc3339_ms(now_ms)
    ))
}

/// An ensemble's clock and that of another host differ by less, or one of them is wrong.
const CLOCKS_APART_MS: u64 = 10_000;

/// Clocks that are right differ by less.
const CLOCK_SLACK_MS: u64 = 2_000;

fn told(fenced: &Fenced) -> String {
    let Fenced {
        genesis,
        reserved_until,
        marks,
        repaired,
        remade,
        newest_change_ms: _,
        ensemble_ahead_ms: _,
        sequences,
        lost_sequences,
    } = fenced;
    let until_ms = genesis.layout.tick_to_ms(*reserved_until);
    let (until, distance) = (rfc3339_ms(until_ms), distance(until_ms, now_ns() / 1_000_000));
    let remade = if *remade > 0 { format!(", {remade} missing ones made again") } else { String::new() };
    let named = closed(*sequences, *lost_sequences);
    format!(
        "workers serve again from {until} ({distance}); {marks} spills given up, {repaired} unreadable records made \
         usable{remade}{named}"
    )
}

fn closed(sequences: u32, lost: u32) -> String {
    match (sequences, lost) {
        (0, 0) => String::new(),
        (closed, 0) => format!("; {closed} sequences closed until `xuid sequence fence`"),
        (closed, lost) => {
            format!("; {closed} sequences closed until `xuid sequence fence`, and the names of {lost} lost")
        }
    }
}

fn adopt(Dangerous { which, yes }: &Dangerous) -> Result<()> {
    let target = which.target()?;
    let servers = match &target {
        Target::Folder(_) => "",
        Target::Ensemble(_) => {
            "\n- its servers refuse the new cluster: stop them first, and start each with a new data folder"
        }
    };
    let plan = format!(
        "This makes the copied registry in {target} a cluster of its own:\n\
         - it gets a new cluster id and is fenced: no window is granted before 125 s from now\n\
         - every id in the spill files of its servers is given up{servers}\n\
         If the original goes on, the two must not be used for one namespace: nobody watches that their ids differ."
    );
    let mut out = Printer::new()?;
    if let Target::Ensemble(ensemble) = &target {
        warn_of_apart(ensemble)?;
    }
    confirm(&plan, *yes)?;
    let adopted = target.adopt()?;
    adopted.fenced.iter().for_each(warn_of_clock);
    let (before, cluster) = (adopted.before, adopted.cluster);
    let line = match &adopted.fenced {
        _ if which.json => as_json::adopted(&target.to_string(), &adopted).to_string(),
        None => format!("nothing to adopt: this is the registry that was created, {cluster}"),
        Some(fenced) => format!("adopted: cluster {cluster}, before {before}; {}", told(fenced)),
    };
    let told = out.line(&line).and_then(|()| out.flush());
    told.with_context(|| format!("{target} is of cluster {cluster}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::exit::Usage;

    /// 2026-11-21.
    const NOW_MS: u64 = 1_795_219_200_000;

    #[test]
    fn an_epoch_in_the_future_is_wrong_usage_whatever_is_confirmed() {
        let at = |epoch_ms| Layout::default().with_epoch_ms(epoch_ms);
        assert!(check_epoch(&at(NOW_MS), NOW_MS, false).is_ok());
        for yes in [false, true] {
            let error = check_epoch(&at(NOW_MS + 1), NOW_MS, yes).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains("2026-11-21T00:00:00.001Z"), "{error}");
        }
    }

    #[test]
    fn a_newest_change_later_than_the_clock_by_more_than_clocks_differ_is_warned_of() {
        assert!(
            clock_warning(0, NOW_MS, None).is_none()
                && clock_warning(NOW_MS + CLOCK_SLACK_MS, NOW_MS, None).is_none()
        );
        let warning = clock_warning(NOW_MS + 60_000, NOW_MS, None).unwrap();
        assert!(warning.contains("2026-11-21T00:01:00.000Z"), "{warning}");
        assert!(warning.contains("can come again") && warning.contains("this host"), "{warning}");
        // By the ensemble's clock where that is what counts.
        assert!(clock_warning(NOW_MS + 60_000, NOW_MS, Some(60_000)).is_none());
        let warning = clock_warning(NOW_MS - 60_000, NOW_MS, Some(-3_600_000)).unwrap();
        assert!(warning.contains("clock of the ensemble"), "{warning}");
    }

    #[test]
    fn an_ensemble_whose_clock_is_another_one_is_warned_of() {
        let most = CLOCKS_APART_MS.cast_signed();
        assert!(
            [None, Some(0), Some(most), Some(-most)]
                .iter()
                .all(|apart| apart_warning(*apart, NOW_MS, "x").is_none())
        );
        let warning = apart_warning(Some(-3_600_000), NOW_MS, "fence it").unwrap();
        let told = ["says 2026-11-20T23:00:00.000Z", "this host 2026-11-21T00:00:00.000Z", "and fence it"];
        assert!(told.iter().all(|part| warning.contains(part)), "{warning}");
        assert!(apart_warning(Some(most + 1), NOW_MS, "x").is_some());
    }

    #[test]
    fn a_layout_ends_with_its_last_tick() {
        let (ends, left) = end_of(&Layout::default(), NOW_MS);
        assert_eq!((ends.as_str(), left.as_str()), ("2087-12-25T07:47:35.551Z", "in 22314 days"));
    }
}
