//! Runs campaigns and joins what they found; `tests/campaign` builds what they need and starts this.
//!
//! Exit codes: 0 clean (also when parts are left, but not when none is recorded), 1 something failed, an id came twice,
//! or there is nothing to tell, 2 a mistake in the arguments.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use xuid_tests::campaigns::{
    self, Campaign, Ending, Need, Record, Revision, Runner, SIZES, Size, grouped, table, table::Table,
};

/// Attacks the program many thousand times, and counts ids that came twice.
#[derive(Debug, Parser)]
#[command(name = "tests/campaign", after_help = AFTER)]
struct Args {
    /// A campaign, `all` of them, `list` them, or the `table` of what is recorded of this revision.
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: String,
    /// Minutes for everything, or the whole of it, over hours and sittings.
    #[arg(value_parser = PossibleValuesParser::new(Size::ALL.map(Size::name)))]
    size: Option<String>,
    /// Record of finished parts [default: target/campaigns/REVISION/NAME-SIZE.jsonl]; `table` joins several.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    record: Vec<PathBuf>,
    /// Begins no part that would end after so many minutes.
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Forgets what is recorded of these campaigns at this revision.
    #[arg(long)]
    again: bool,
    /// Plays these trials of one campaign, `FROM..TO`, and records nothing.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with_all = ["record", "minutes", "again"])]
    trials: Option<Range<u64>>,
    /// Prints what has to be built and installed first, for `tests/campaign`.
    #[arg(long, hide = true)]
    needs: bool,
}

const AFTER: &str =
    "A run goes on with the first part that is not recorded. Ctrl-C loses the part under way.";

fn names() -> Vec<&'static str> {
    SIZES.iter().map(|(name, ..)| *name).chain(["all", "list", "table"]).collect()
}

fn range(text: &str) -> Result<Range<u64>> {
    let (from, to) = text.split_once("..").context("two numbers and .. between them, 17..18")?;
    let range = from.parse()?..to.parse()?;
    ensure!(range.start < range.end, "an empty range");
    Ok(range)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tests/campaign: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything is clean.
fn run(args: &Args) -> Result<bool> {
    let campaigns = campaigns::all();
    let all: Vec<&dyn Campaign> = campaigns.iter().map(AsRef::as_ref).collect();
    let name = args.name.as_str();
    let chosen: Vec<&dyn Campaign> =
        all.iter().copied().filter(|campaign| name == "all" || campaign.name() == name).collect();
    check(args, &chosen);
    let size = args.size.as_deref().and_then(Size::named);
    if args.needs {
        let needs: BTreeSet<Need> = chosen.iter().flat_map(|campaign| campaign.needs()).copied().collect();
        needs.iter().rev().for_each(|need| println!("{need}"));
        return Ok(true);
    }
    match (size, &args.trials) {
        _ if name == "list" => {
            list(&all);
            Ok(true)
        }
        _ if name == "table" => joined(&args.record, &all, size),
        (_, Some(trials)) => play(&chosen, trials),
        (Some(size), None) => attack(args, &chosen, size),
        (None, None) => usage("how much? quick or night"),
    }
}

/// Ends the program if the arguments make no sense together.
fn check(args: &Args, chosen: &[&dyn Campaign]) {
    let name = args.name.as_str();
    if name == "list" || name == "table" {
        if args.trials.is_some() || args.again || args.minutes.is_some() {
            usage(&format!("`{name}` runs nothing; it takes no --trials, --again or --minutes"));
        }
    } else if chosen.is_empty() {
        usage(&format!("the campaign `{name}` is not part of this build"));
    } else if args.trials.is_some() && chosen.len() > 1 {
        usage("--trials plays those of one campaign; which?");
    } else if args.trials.is_none() && args.size.is_none() {
        usage(&format!("how much of `{name}`? quick or night"));
    } else if args.record.len() > 1 {
        usage("a run writes one --record; `table` joins several");
    }
}

fn usage(what: &str) -> ! {
    Args::command().error(ErrorKind::MissingRequiredArgument, what).exit()
}

fn list(campaigns: &[&dyn Campaign]) {
    for campaign in campaigns {
        println!("{:<16} {}", campaign.name(), campaign.what());
        for size in Size::ALL {
            let (trials, part) = (campaign.trials(size), campaign.part(size).min(campaign.trials(size)));
            println!("{:<16}   {size}: {} trials, {} a part", "", grouped(trials), grouped(part));
        }
    }
}

/// The code that is attacked, and a loud word if no commit has it.
fn revision() -> Result<Revision> {
    let revision = Revision::of(&campaigns::root())?;
    if revision.dirty {
        eprintln!("NOT COMMITTED: what is recorded as {} belongs to no commit", revision.name);
    }
    Ok(revision)
}

/// Where records of this revision are kept if nobody names a file.
fn folder(revision: &Revision) -> PathBuf {
    let root = campaigns::root();
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    target.join("campaigns").join(&revision.name)
}

fn attack(args: &Args, chosen: &[&dyn Campaign], size: Size) -> Result<bool> {
    let revision = revision()?;
    let folder = folder(&revision);
    let path = |campaign: &dyn Campaign| match args.record.first() {
        Some(path) => path.clone(),
        None => folder.join(format!("{}-{size}.jsonl", campaign.name())),
    };
    let runner = Runner::new(revision.clone(), args.again, args.minutes.map(Duration::from_mins));
    let mut files = Vec::new();
    let mut clean = true;
    for campaign in chosen {
        let path = path(*campaign);
        match runner.run(*campaign, size, &path)? {
            Ending::Complete => {}
            Ending::OutOfTime(left) => {
                eprintln!("{} {size}: no time for the next part; {left} are left", campaign.name());
            }
            Ending::Broken(error) => {
                eprintln!("{error:#}");
                clean = false;
            }
        }
        if !files.contains(&path) {
            files.push(path);
        }
    }
    let record = Record::read(&files, &revision.name)?;
    Ok(show(chosen, &[size], &record, &revision) && clean)
}

/// Prints the tables of these sizes; whether they are clean. That nothing ran is no good news.
fn show(campaigns: &[&dyn Campaign], sizes: &[Size], record: &Record, revision: &Revision) -> bool {
    let of = |size: &Size| table::of(campaigns, *size, record, &revision.name);
    let tables: Vec<Option<Table>> = sizes.iter().map(of).collect();
    for table in tables.iter().flatten() {
        println!("\n{}", table.text);
    }
    if tables.iter().all(Option::is_none) {
        eprintln!("nothing is recorded of revision {}: tests/campaign NAME quick|night", revision.name);
    }
    table::are_clean(&tables)
}

fn joined(named: &[PathBuf], campaigns: &[&dyn Campaign], size: Option<Size>) -> Result<bool> {
    let revision = revision()?;
    let files = if named.is_empty() { recorded(&folder(&revision))? } else { named.to_vec() };
    for path in named {
        ensure!(path.exists(), "there is no {}", path.display());
    }
    let record = Record::read(&files, &revision.name)?;
    if record.foreign > 0 {
        eprintln!("{} parts are of other revisions than {}: left out", record.foreign, revision.name);
    }
    let sizes = size.map_or_else(|| Size::ALL.to_vec(), |size| vec![size]);
    Ok(show(campaigns, &sizes, &record, &revision))
}

/// The records in a folder, in order of their names; none if there is no such folder.
fn recorded(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> =
        entries.into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")).collect();
    files.sort_unstable();
    Ok(files)
}

/// Plays some trials again; nothing is recorded.
fn play(chosen: &[&dyn Campaign], trials: &Range<u64>) -> Result<bool> {
    let mut clean = true;
    for campaign in chosen {
        let tally = campaigns::attempt(*campaign, trials)?;
        println!("{}", serde_json::to_string_pretty(&tally)?);
        clean &= tally.is_clean();
    }
    Ok(clean)
}
