//! `xuid inspect`: what lies in a data folder. It reads and takes no lock, also while a server runs. Whatever it cannot
//! read is told with the rest, and makes the command fail.

mod args;
mod home;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use xuid_engine::registry::local::sequences::SequencesInspection;
use xuid_engine::registry::{local, printable};
use xuid_engine::sequence::{fence_known_in, marks_left_in};
use xuid_engine::{Id, Layout};
use xuid_spill::{Holdings, Inspection};

use crate::registries::view::View;
use crate::text::human_time::{distance, grouped, now_ns, rfc3339_ms};
use crate::text::stdout::Printer;
pub(crate) use args::Args;
use home::Home;

/// A spill file as this folder's registry sees it.
struct Spill {
    path: PathBuf,
    /// What is in it, or why that cannot be said.
    seen: Result<Seen>,
}

struct Seen {
    inspection: Inspection,
    layout: Option<Layout>,
    mark: Mark,
}

/// What the registry says of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Granted up to here.
    At(u64),
    /// Everything was granted, by a fence: nothing of it is ever read again.
    Fenced,
    /// There is no mark, so the next start sets the file aside.
    Absent,
    /// There is no registry here that could say: it is elsewhere, or gone.
    Unknown,
}

/// Looks and tells.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut out = Printer::new()?;
    let folder = &args.folder;
    let found =
        std::fs::read_dir(folder).with_context(|| format!("failed to look into {}", folder.display()))?;
    let names: Vec<PathBuf> = found.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let mut home = Home::of(folder);
    let others: Vec<PathBuf> = names.iter().filter(|path| is_read_by_servers(path)).cloned().collect();
    let (spills, refused) = spill_files(names);
    if home.is_nothing() && spills.is_empty() && refused.is_empty() {
        bail!("{} holds neither a registry nor a spill: it is no data folder", folder.display());
    }
    home.ask(args)?;
    let spills: Vec<Spill> = spills.into_iter().map(|path| look(path, home.registry.as_ref())).collect();
    let of_sequences = unread_of_sequences(folder);
    let others = unread_others(&others);
    let mut tell = || -> Result<()> {
        if args.json {
            let mut object = as_json(&home, &spills, &refused);
            object["sequences_unread"] = of_sequences.clone().into();
            object["files_unread"] = others.clone().into();
            out.line(object)?;
        } else {
            tell(&mut out, folder, &home, &spills, &refused)?;
            for why in &of_sequences {
                out.line(format_args!("sequences   {why}"))?;
            }
            for why in &others {
                out.line(why)?;
            }
        }
        out.flush()
    };
    let told = tell();
    let spills_unread = spills.iter().filter(|spill| spill.is_unread()).count();
    match home.unread() + of_sequences.len() + others.len() + spills_unread {
        0 => told,
        1 => {
            bail!("1 file or registry of {} could not be read, or not all of it, see above", folder.display())
        }
        many => bail!(
            "{many} files or registries of {} could not be read, or not all of them, see above",
            folder.display()
        ),
    }
}

/// Why files of named sequences cannot be read. What is in them `xuid sequence` tells.
fn unread_of_sequences(folder: &Path) -> Vec<String> {
    let mut unread = match local::sequences::inspect(folder) {
        Ok(found) => found.iter().flat_map(SequencesInspection::lost).map(ToString::to_string).collect(),
        Err(error) => vec![format!("could not be read: {error:#}")],
    };
    unread.extend(
        marks_left_in(folder).err().map(|error| format!("what servers left could not be read: {error}")),
    );
    unread.extend(
        fence_known_in(folder).err().map(|error| format!("sequences.store: could not be read: {error}")),
    );
    unread
}

/// Files of which nothing is told here, and that servers and other commands read.
const OTHERS: [&str; 7] = [
    "windows.log",
    "registry.known-",
    "registry.seat-",
    "registry.zookeeper-",
    "sequences.known-",
    "sequences.seat-",
    "sequences.store",
];

/// Of each so many bytes are looked at: more than any of them has, unless somebody made it so.
const MOST_LOOKED_AT: u64 = 64 << 20;

fn is_read_by_servers(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    OTHERS.iter().any(|other| if other.ends_with('-') { name.starts_with(other) } else { name == *other })
}

/// Which of them cannot be read, and why. One that is gone meanwhile was a process's that has ended.
fn unread_others(paths: &[PathBuf]) -> Vec<String> {
    let read = |path: &Path| {
        let mut file = xuid_spill::open_regular(path)?.take(MOST_LOOKED_AT);
        io::copy(&mut file, &mut io::sink())
    };
    let why = |path: &PathBuf| {
        let error = read(path).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
        Some(format!("{}: could not be read: {error}", printable(&path.display().to_string())))
    };
    let mut unread: Vec<String> = paths.iter().filter_map(why).collect();
    unread.sort();
    unread
}

/// The spill files in the order of their numbers, and those that were set aside.
fn spill_files(names: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut numbered, mut refused) = (BTreeMap::new(), Vec::new());
    for path in names {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("spill-") else { continue };
        // As a server writes it: 00 and +0 are no spill, and must not hide the one that is.
        if let Some(number) = rest.parse::<u32>().ok().filter(|number| number.to_string() == rest) {
            numbered.insert(number, path);
        } else if rest.ends_with(".refused") {
            refused.push(path);
        }
    }
    refused.sort();
    (numbered.into_values().collect(), refused)
}

type Registry<'a> = Option<&'a Result<View>>;

fn look(path: PathBuf, registry: Registry<'_>) -> Spill {
    let seen = xuid_spill::inspect(&path).map_err(anyhow::Error::from).map(|inspection| {
        let spill = inspection.identity.spill;
        let mark = match registry {
            Some(Ok(registry)) if registry.genesis.cluster.bytes() != inspection.identity.cluster => {
                Mark::Absent
            }
            Some(Ok(registry)) => match registry.marks.iter().find(|(id, _)| *id == spill) {
                Some((_, mark)) if mark.granted_upto == u64::MAX => Mark::Fenced,
                Some((_, mark)) => Mark::At(mark.granted_upto),
                None => Mark::Absent,
            },
            _ => Mark::Unknown,
        };
        let layout = Layout::from_bytes(inspection.identity.layout).ok();
        Seen { inspection, layout, mark }
    });
    Spill { path, seen }
}

impl Spill {
    /// Whether something of it could not be read. Damage that was read is no such thing.
    fn is_unread(&self) -> bool {
        self.seen.as_ref().map_or(true, |seen| seen.inspection.unreadable > 0)
    }
}

impl Seen {
    /// What can still be granted.
    fn left(&self) -> Holdings {
        match self.mark {
            Mark::At(mark) => self.inspection.above(mark),
            Mark::Fenced | Mark::Absent => Holdings::default(),
            Mark::Unknown => self.inspection.all(),
        }
    }

    /// The Unix milliseconds of an id in the file.
    fn ms(&self, id: Option<u64>) -> Option<u64> {
        Some(self.layout?.decode(Id::from_raw(id?)?).unix_ms)
    }

    fn damage(&self) -> u64 {
        self.inspection.damaged + u64::from(self.inspection.header_damaged)
    }
}

fn tell(out: &mut Printer, folder: &Path, home: &Home, spills: &[Spill], refused: &[PathBuf]) -> Result<()> {
    home.tell(out, folder)?;
    for spill in spills {
        tell_spill(out, spill)?;
    }
    for path in refused {
        // A stranger may have put it there.
        let path = printable(&path.display().to_string());
        out.line(format_args!("{path}: set aside, because it could not be trusted; never read again"))?;
    }
    Ok(())
}

fn tell_spill(out: &mut Printer, spill: &Spill) -> Result<()> {
    let path = spill.path.display();
    let seen = match &spill.seen {
        Ok(seen) => seen,
        Err(error) => return out.line(format_args!("{path}: {error:#}")),
    };
    let (inspection, left) = (&seen.inspection, seen.left());
    out.line(format_args!("{path}: spill {}", inspection.identity.spill))?;
    out.line(format_args!("  ids left     {} in {} extents", grouped(left.ids), grouped(left.extents)))?;
    let mark = match seen.mark {
        Mark::At(mark) => format!("{} of {} extents ever written", grouped(mark), grouped(inspection.head)),
        Mark::Fenced => "all: the registry was fenced, and nothing of it is read again".to_owned(),
        Mark::Absent => "the registry has no mark for it: the next start sets it aside".to_owned(),
        Mark::Unknown => "unknown without the registry; this is what could be read".to_owned(),
    };
    out.line(format_args!("  granted      {mark}"))?;
    let now_ms = now_ns() / 1_000_000;
    for (name, id) in [("oldest", left.oldest_first), ("newest", left.newest_first)] {
        if let Some(ms) = seen.ms(id) {
            out.line(format_args!("  {name}       {} ({})", rfc3339_ms(ms), distance(ms, now_ms)))?;
        }
    }
    if seen.damage() > 0 {
        let (records, header) = (inspection.damaged, inspection.header_damaged);
        let header = if header { ", and one copy of the header (the next start makes it good)" } else { "" };
        out.line(format_args!("  damage       {} records{header}; they are skipped", grouped(records)))?;
    }
    if inspection.unreadable > 0 {
        let records = grouped(inspection.unreadable);
        out.line(format_args!(
            "  unreadable   {records} records, which the disk does not give; they are skipped"
        ))?;
    }
    if left.missing > 0 {
        out.line(format_args!("  missing      {} records that should be there", grouped(left.missing)))?;
    }
    Ok(())
}

fn as_json(home: &Home, spills: &[Spill], refused: &[PathBuf]) -> Value {
    let spills: Vec<Value> = spills.iter().map(spill_json).collect();
    let node = home.node_error();
    let refused: Vec<_> = refused.iter().map(|path| path.to_string_lossy()).collect();
    json!({ "cluster": home.cluster(), "node_error": node, "registry": home.as_json(), "spills": spills, "refused": refused })
}

fn spill_json(spill: &Spill) -> Value {
    // Names need not be UTF-8.
    let path = spill.path.to_string_lossy();
    let seen = match &spill.seen {
        Ok(seen) => seen,
        Err(error) => {
            return json!({ "path": path, "error": format!("{error:#}"), "extents": 0, "ids": 0 });
        }
    };
    let left = seen.left();
    let time = |id| seen.ms(id).map(rfc3339_ms);
    let mark = match seen.mark {
        Mark::At(mark) => json!(mark),
        Mark::Fenced => json!("fenced"),
        Mark::Absent => json!("absent"),
        Mark::Unknown => json!("unknown"),
    };
    json!({
        "path": path,
        "spill": seen.inspection.identity.spill.to_string(),
        "extents": left.extents,
        "ids": left.ids,
        "granted_upto": mark,
        "head": seen.inspection.head,
        "capacity": seen.inspection.capacity,
        "oldest": time(left.oldest_first),
        "newest": time(left.newest_first),
        "damaged": seen.damage(),
        "unreadable": seen.inspection.unreadable,
        "missing": left.missing,
    })
}

#[cfg(test)]
mod tests {
    use xuid_engine::Engine;

    use super::*;

    #[test]
    fn a_spill_with_blocks_that_the_disk_does_not_give_is_not_all_read() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::builder().data_dir(folder.path()).build().unwrap();
        engine.shutdown();
        let mut spill = look(folder.path().join("spill-0"), None);
        assert!(!spill.is_unread());
        let seen = spill.seen.as_mut().unwrap();
        seen.inspection.damaged = 3;
        assert!(!spill.is_unread(), "damage was read");
        spill.seen.as_mut().unwrap().inspection.unreadable = 128;
        assert!(spill.is_unread());
        assert_eq!(spill_json(&spill)["unreadable"], 128);
    }

    #[test]
    fn a_file_that_servers_read_is_told_if_it_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = OTHERS.iter().map(|name| folder.path().join(name)).collect();
        assert!(paths.iter().all(|path| is_read_by_servers(path)));
        assert!(is_read_by_servers(&folder.path().join("registry.seat-12")));
        assert!(!is_read_by_servers(&folder.path().join("windows.log.mine")));
        assert!(unread_others(&paths).is_empty(), "they are gone");
        for path in &paths {
            std::fs::write(path, "x").unwrap();
        }
        assert!(unread_others(&paths).is_empty());
        for path in &paths {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
        assert_eq!(unread_others(&paths).len(), OTHERS.len());
    }

    /// No server starts beside it.
    #[test]
    fn a_folder_that_remembers_its_store_in_a_damaged_file_is_not_called_sound() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unread_of_sequences(folder.path()), [""; 0]);
        std::fs::write(folder.path().join("sequences.store"), "00000000{}").unwrap();
        let unread = unread_of_sequences(folder.path());
        assert!(
            unread.len() == 1 && unread[0].starts_with("sequences.store: could not be read"),
            "{unread:?}"
        );
    }
}
