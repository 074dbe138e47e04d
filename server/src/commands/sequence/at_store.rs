//! What is done at a store of sequences itself, without a server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xuid_engine::registry::local::Finding;
use xuid_engine::registry::local::sequences::{LocalSequences, SequencesInspection};
use xuid_engine::registry::{local, printable};
use xuid_engine::sequence::store::database::{self, DatabaseOptions, DatabaseUrl, Table};
use xuid_engine::sequence::store::registry::RegistryStore;
use xuid_engine::sequence::store::{self, Identity, Store};
use xuid_engine::sequence::{SequenceName, fence_known_in, marks_left_in, unseen_in};

use crate::commands::registry::confirm;
use crate::config::{AccessArgs, RegistrySetting};
use crate::registries::ensemble::Ensemble;
use crate::registries::sequence_store;
use crate::text::exit::{Usage, usage};
use crate::text::logs;
use crate::text::shell::quoted;
use crate::text::stdout::Printer;

/// The variable of a URL that may hold a password.
const VARIABLE: &str = "XUID_SEQUENCES";

/// A database.
#[derive(Debug, clap::Args)]
pub(super) struct AtStore {
    /// The database, as in `postgres://user@host,host/database`; one with a password is said in the variable
    /// [env: `XUID_SEQUENCES`]
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// xuid, leaf or tinyid, or one of these with a table, as in `leaf:my_alloc`
    #[arg(long, value_name = "SHAPE", default_value = "xuid")]
    sequence_table: Table,
}

#[derive(Debug, clap::Args)]
pub(super) struct Fence {
    /// The database, or a registry: a data folder, or zookeeper://host:port,host:port/path [env: `XUID_SEQUENCES`]
    #[arg(value_name = "STORE")]
    store: Option<String>,
    /// Only this sequence
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The same where the store is named by the variable
    #[arg(long = "name", value_name = "NAME", conflicts_with = "store")]
    name_alone: Option<String>,
    /// Every mark ends at this number at least
    #[arg(long, value_name = "N")]
    above: Option<u64>,
    /// Where names begin that are made from now on, or where an earlier fence said; 1 says that none was made since what was put
    /// back [default: where a mark of 0, or the highest one of a missing name, is raised to]
    #[arg(long, value_name = "N", conflicts_with_all = ["name", "name_alone"])]
    new_start: Option<u64>,
    /// Let --new-start be lower than what an earlier fence of the registry said: no name is missing that one was for
    #[arg(long, requires = "new_start")]
    lower_new_start: bool,
    /// How much is added to a mark beyond all that is known [default: ten times the largest step]
    #[arg(long, value_name = "N")]
    margin: Option<u64>,
    /// Data folders of servers that used the store: what they know counts
    #[arg(long, value_name = "DIR")]
    data_dir: Vec<PathBuf>,
    /// xuid, leaf or tinyid, or one of these with a table, as in `leaf:my_alloc`; once for each table of a schema that servers use
    #[arg(long, value_name = "SHAPE", default_value = "xuid")]
    sequence_table: Vec<Table>,
    /// A table beside it that has the columns of one of sequences, and no server uses it
    #[arg(long, value_name = "TABLE")]
    unused_table: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// What was said, else the variable.
fn said(given: Option<&str>) -> Result<String, Usage> {
    if let Some(text) = given {
        if text.parse::<DatabaseUrl>().is_ok_and(|url| url.has_password()) {
            return Err(usage(format!(
                "the URL holds a password, which everybody here sees in the list of processes; allowed is the variable \
                 {VARIABLE}"
            )));
        }
        return Ok(text.to_owned());
    }
    std::env::var(VARIABLE)
        .map_err(|_| usage(format!("no store is named; needed is a URL, or the variable {VARIABLE}")))
}

fn options(table: &Table) -> DatabaseOptions {
    // What is unfit is told, and refused by a server.
    DatabaseOptions { table: table.clone(), allow_unsafe: true, ..DatabaseOptions::default() }
}

impl AtStore {
    fn url(&self) -> Result<DatabaseUrl> {
        database_of(&said(self.url.as_deref())?)
    }

    /// Makes what is missing.
    pub(super) fn init(&self) -> Result<()> {
        let mut out = Printer::new()?;
        let url = self.url()?;
        let done = database::init(&url, &options(&self.sequence_table))?;
        let mut tell = || -> Result<()> {
            if done.made.is_empty() {
                out.line(format_args!("{url} has its tables already"))?;
            } else {
                out.line(format_args!("made in {url}: {}", done.made.join(", ")))?;
            }
            let Identity { current, recorded, .. } = &done.identity;
            out.line(format_args!("identity    {}", printable(current)))?;
            if let Some(recorded) = recorded.as_ref().filter(|recorded| *recorded != current) {
                out.line(format_args!(
                    "written     {}: it may lack commits of that one, so run `xuid sequence fence` before servers use it",
                    printable(recorded)
                ))?;
            }
            out.flush()
        };
        tell().with_context(|| format!("{url} has its tables"))
    }

    /// Shows what a server would find.
    pub(super) fn check(&self) -> Result<()> {
        let mut out = Printer::new()?;
        let report = database::check(&self.url()?, &options(&self.sequence_table))?;
        let mut tell = || -> Result<()> {
            out.line(format_args!("host        {}", report.host))?;
            out.line(format_args!("version     {}", printable(&report.version)))?;
            out.line(format_args!("table       {}", report.table))?;
            out.line(format_args!("identity    {}", printable(&report.identity.current)))?;
            for check in &report.checks {
                out.line(format_args!("{}  {check}", if check.is_fit { "fit  " } else { "UNFIT" }))?;
            }
            out.flush()
        };
        let told = tell();
        // The verdict is the command's, whether or not somebody read it all.
        report.problem().map_or(told, |why| bail!("{why}"))
    }
}

impl Fence {
    /// Raises marks, after asking.
    pub(super) fn run(&self) -> Result<()> {
        let mut out = Printer::new()?;
        let place = said(self.store.as_deref())?;
        let name = self.name.as_deref().or(self.name_alone.as_deref()).map(SequenceName::new).transpose();
        let name = name.map_err(|error| usage(format!("that is no name of a sequence: {error}")))?;
        let is_database = DatabaseUrl::has_scheme(&place);
        if is_database && self.lower_new_start {
            bail!(usage(
                "--lower-new-start is for a registry; in a database, remove the row '@new' of the table behind the fence"
            ));
        }
        let mut known = Known::default();
        for folder in &self.data_dir {
            // How far sequences came of which that folder does not tell, nobody knows.
            match (known.read_folder(folder, is_database)?, self.above) {
                (Some(unknown), None) => bail!("{}: {unknown}", folder.display()),
                (Some(unknown), Some(above)) => {
                    logs::warning(&format!(
                        "{}: {above} is taken for beyond that: {unknown}",
                        folder.display()
                    ));
                }
                (None, _) => {}
            }
        }
        let is_whole = name.is_none();
        let on = self.look_beside(&place, is_whole)?;
        let mut stores = self.open(&place)?;
        let shown = stores.iter().map(|store| store.describe()).collect::<Vec<_>>().join(" and ");
        let which =
            name.as_ref().map_or("every sequence".to_owned(), |name| format!("the sequence {name:?}"));
        let margin = self.margin.map_or("ten times the largest step".to_owned(), |margin| margin.to_string());
        let new_names = match self.new_start {
            _ if !is_whole => String::new(),
            Some(start) => format!(
                "\n- names that are made later begin at {start}, or higher where an earlier fence or a data folder says so"
            ),
            None => {
                "\n- names that are made later begin up there too, if the store may have gone back".to_owned()
            }
        };
        confirm(
            &format!(
                "This raises the mark of {which} in {shown}:\n\
                 - beyond what {} names of data folders, --above and the store itself say, by {margin}\n\
                 - numbers between are never issued; servers go on with the store from the new marks{new_names}\n\
                 Numbers can repeat if a server was granted more than that, also those that one that runs still holds: stop it, and give \
                 its data folder, or --above.",
                known.marks.len()
            ),
            self.yes,
        )?;
        let Known { marks: known, fence: after, .. } = known;
        let (above, new_start, margin) = (self.above, self.new_start, self.margin);
        let lowers_new_start = self.lower_new_start;
        let plan = store::Fence { name, above, known, on, after, new_start, lowers_new_start, margin };
        let mut stores: Vec<&mut dyn Store> =
            stores.iter_mut().map(|store| -> &mut dyn Store { &mut **store }).collect();
        let done = store::fence_all(&mut stores, &plan)?;
        // Before the rows, of which a reader may want the first ones only.
        if let Some(warning) = of_new_names(&done, is_whole && above.is_some(), is_database) {
            logs::warning(&warning);
        }
        let mut tell = || -> Result<()> {
            for (name, before, after) in &done.raised {
                out.line(format_args!("{name}  {before} -> {after}"))?;
            }
            if done.raised.is_empty() {
                out.line("no sequence is there, so nothing was raised")?;
            }
            for (name, start) in &done.absent {
                out.line(format_args!(
                    "{name}  known to a data folder, and not in the store: before it is used, xuid sequence create --start {start} \
                     -- {}, with the --step, --increment, --remainder, --last and --strict that it had",
                    quoted(name.as_str())
                ))?;
            }
            out.flush()
        };
        tell().with_context(|| format!("{shown} is fenced"))
    }

    /// The tables of a database, or the one store of a registry.
    fn open(&self, place: &str) -> Result<Vec<Box<dyn Store>>> {
        if DatabaseUrl::has_scheme(place) {
            let url = database_of(place)?;
            let open = |table| sequence_store::in_database(&url, &options(table));
            return self.sequence_table.iter().map(open).collect();
        }
        let records = match RegistrySetting::parse(place) {
            Ok(RegistrySetting::ZooKeeper(url)) => {
                Ensemble::new(&url, &self.access.load()?, None)?.open_sequences()?
            }
            Ok(RegistrySetting::Local) => {
                bail!(usage("local is no folder; allowed is the data folder's path"))
            }
            Err(why) if place.contains("://") => return Err(usage(format!("the store {why}")).into()),
            Err(_) => match sequence_store::in_folder(Path::new(place), None)? {
                Some(records) => records,
                // A registry that takes the place of one that is lost.
                None if self.new_start.is_some() => {
                    Box::new(LocalSequences::open_or_create(Path::new(place), None)?)
                }
                None => bail!("{place} has no sequences: none was ever created there"),
            },
        };
        Ok(vec![Box::new(RegistryStore::new(records))])
    }

    /// Tables of one schema share the place where a fence is written: one whose marks it did not raise would be opened by it.
    /// Returns the identity of the host where that was looked at.
    fn look_beside(&self, place: &str, is_whole: bool) -> Result<Option<String>> {
        if !is_whole && self.sequence_table.len() > 1 {
            bail!(usage("one name is fenced in one table: say --sequence-table once"));
        }
        if !is_whole || !DatabaseUrl::has_scheme(place) {
            return Ok(None);
        }
        let url = database_of(place)?;
        let beside = |table| database::tables_beside(&url, &options(table));
        let found = self.sequence_table.iter().map(beside).collect::<Result<Vec<_>, _>>()?;
        if let Some([one, other]) = found.array_windows().find(|[one, other]| one.identity != other.identity)
        {
            bail!("{} answered, and then {}: fence again when one host does", one.identity, other.identity);
        }
        let is_unused = |table: &Table| {
            let name = table.name();
            let bare = name.rsplit_once('.').map_or(name, |(_, bare)| bare);
            self.unused_table.iter().any(|said| said == name || said == bare)
        };
        let is_fenced = |table: &Table| found.iter().any(|found| found.table.name() == table.name());
        let left_out =
            found.iter().flat_map(|found| &found.others).find(|table| !is_fenced(table) && !is_unused(table));
        match left_out {
            None => Ok(found.into_iter().next().map(|found| found.identity)),
            Some(table) => bail!(usage(format!(
                "{name} is a table of sequences in the same schema, and its servers would go on behind this fence, too, though \
                 none of its marks was raised; allowed is --sequence-table once for each table that servers use (with \
                 --sequence-table {table}), or --unused-table {name} if none uses it",
                name = table.name()
            ))),
        }
    }
}

/// What its person has to know of names that are made behind a fence.
fn of_new_names(done: &store::Fenced, is_above_said: bool, is_database: bool) -> Option<String> {
    let Some(start) = done.new_start else {
        return is_above_said.then(|| {
            "names that are made from now on begin at 1: if this registry takes the place of one that is lost, fence again with \
             --new-start"
                .to_owned()
        });
    };
    let lower = if is_database {
        "the row '@new' of the table, which says so, may be removed"
    } else {
        "say --new-start 1 --lower-new-start"
    };
    Some(format!(
        "names that are made from now on begin at {start}, as one may have been made since what was put back, now or before an earlier \
         fence: if one of those came further, fence again with --above; if none is missing, {lower}"
    ))
}

fn database_of(place: &str) -> Result<DatabaseUrl> {
    place.parse().map_err(|error| usage(format!("{error}")).into())
}

/// Why a folder does not tell how far sequences came.
const NO_MARKS: &str =
    "no number of a sequence is recorded there, as of a server without a witness of its own";

/// The same of a folder that was put back, and whose records nobody opened since.
const CLOSED: &str =
    "its records were closed by a fence of the registry, as they may say less than was granted";

/// What is said of one that is not where it was, or whose files were put back.
const COPIED: &str = "it is a copy of a folder. Where that was put back, or its server ran on since, it says less than was granted: then fence \
                      again with --above";

/// The same of one in which a person opened them, for a margin above what they said.
const OPENED: &str = "its records were opened by `xuid sequence fence`, and of some no grant was seen since";

/// The same where the store is a registry.
const OF_ANOTHER: &str = "servers have no witness of what a registry grants, so what is recorded there is of another store, which they had before";

/// What helps.
const BEYOND: &str = "the folder does not tell how far its numbers came. If none of them is above those of the other folders and of the \
                      store, leave it out; else say --above, beyond everything that was granted: stop the servers before, as they go on \
                      with what they hold";

/// What servers knew, by their data folders.
#[derive(Default)]
struct Known {
    marks: BTreeMap<SequenceName, u64>,
    /// The latest fence that one of them knows of.
    fence: Option<String>,
}

impl Known {
    /// Adds what the records in a data folder tell, and what servers left there. Returns why a sequence may have come further,
    /// if that can be.
    fn read_folder(&mut self, folder: &Path, is_database: bool) -> Result<Option<String>> {
        let shown = folder.display();
        let found = local::sequences::inspect(folder)?;
        let left = marks_left_in(folder).with_context(|| {
            format!(
                "what servers left of sequences in {shown} can't be read: remove that file if --above says more"
            )
        })?;
        let of_store = |found: io::Result<Option<String>>| {
            found.with_context(|| format!("sequences.store in {shown} can't be read"))
        };
        let (fence, unseen) = (of_store(fence_known_in(folder))?, of_store(unseen_in(folder))?);
        if found.is_none() && left.is_empty() && fence.is_none() && unseen.is_none() {
            bail!("{shown} has no records of sequences: is it the data folder of a server?");
        }
        let mut findings = found.iter().flat_map(|found| &found.findings);
        if let Some(finding) = findings.find(|finding| matches!(finding, Finding::Restored { .. })) {
            bail!(
                "{shown} knew more of its sequences than is in it: {finding} {shown}, and fence the store after that"
            );
        }
        let is_closed = found
            .as_ref()
            .is_some_and(|found| found.is_closed || found.records.iter().any(|row| row.is_closed));
        let was_opened = found.iter().flat_map(|found| &found.records).any(|row| row.was_opened);
        let mut findings = found.iter().flat_map(|found| &found.findings);
        let is_copied = findings.any(|finding| matches!(finding, Finding::Copied { .. }));
        let lost = found.iter().flat_map(SequencesInspection::lost).map(ToString::to_string).next();
        let records = found.into_iter().flat_map(|found| found.records);
        let seen = records.filter_map(|row| Some((SequenceName::new(&row.name).ok()?, row.record.value)));
        let seen: Vec<_> = seen.collect();
        let unseen = unseen.or_else(|| is_closed.then(|| CLOSED.to_owned()));
        let unseen = unseen.or_else(|| was_opened.then(|| OPENED.to_owned()));
        let is_of_another = !seen.is_empty() && !is_database;
        let unseen = unseen.or_else(|| is_of_another.then(|| OF_ANOTHER.to_owned()));
        if is_copied {
            logs::warning(&format!("{shown}: {COPIED}"));
        }
        // The file itself is there beside any database. What was left tells of the names that were held then.
        let has_marks = !seen.is_empty();
        let seen = if is_of_another { Vec::new() } else { seen };
        for (name, value) in seen.into_iter().chain(left) {
            let mark = self.marks.entry(name).or_default();
            *mark = value.max(*mark);
        }
        // The times of different databases' clocks are compared as numbers.
        let seconds = |fence: &Option<String>| fence.as_ref().and_then(|at| at.parse::<f64>().ok());
        if seconds(&fence) > seconds(&self.fence) {
            self.fence = fence;
        }
        let lost = lost
            .map(|lost| format!("{lost}; that sequence may have come further than is known: say --above"));
        let unseen = unseen.map(|unseen| format!("{unseen}: {BEYOND}"));
        Ok(lost.or(unseen).or_else(|| (!has_marks).then(|| format!("{NO_MARKS}: {BEYOND}"))))
    }
}
