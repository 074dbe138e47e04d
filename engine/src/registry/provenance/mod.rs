//! Where an id came from: what a registry, the spills and notes of data folders, and a running server say of it together.
//!
//! Nobody writes down each id that is issued, so the answer is never yes.
//!
//! # Invariants
//! - P1 an id that was issued before the evidence was read is never said not to be: each verdict of that kind rests on a
//!   record of the registry, or on what a server holds, and on nothing in `windows.log`;
//! - P2 what cannot be read says nothing, and is named by [`Evidence::unread`].

mod extents;
mod history;
pub(crate) mod note;
pub(crate) mod windows_log;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use xuid_id::Id;
use xuid_spill::{Inspection, SpillId};

use self::extents::{Extents, Found};
use self::history::History;
use crate::registry::{Genesis, MarkRecord, WorkerEntry, WorkerRecord};

/// What became of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// No server of this registry can give it: its bits, its worker, or its time is outside.
    Impossible,
    /// Its tick was granted to no process.
    NotGranted,
    /// A process that runs holds its tick, and has not come so far.
    NotCut,
    /// It lies in a spill, and waits there.
    PutAside,
    /// It lay in a spill, and was granted from there.
    Replayed,
    /// Its tick was granted.
    Granted,
}

impl Verdict {
    /// Whether it may have been issued. Else it was not.
    #[must_use]
    pub const fn may_be_issued(self) -> bool {
        matches!(self, Self::Replayed | Self::Granted)
    }

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Impossible => "impossible",
            Self::NotGranted => "not granted",
            Self::NotCut => "not cut",
            Self::PutAside => "put aside",
            Self::Replayed => "replayed",
            Self::Granted => "granted",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Provenance {
    /// What became of it.
    pub verdict: Verdict,
    /// Its worker and tick; `None` where the layout has no such id.
    pub place: Option<(u32, u64)>,
    /// The ticks that were granted together with its own, as far as they were not handed back; `None` where no note says it,
    /// or nothing was granted.
    pub window: Option<Range<u64>>,
    /// To which process: of a replayed one to that which got it from the spill.
    pub holder: Option<String>,
    /// When, in Unix milliseconds.
    pub when_ms: Option<u64>,
    /// What the verdict rests on.
    pub sources: Vec<String>,
}

/// What ids are judged by. Read it after the ids were issued that are asked about (P1).
///
/// ```
/// use xuid_engine::registry::local;
/// use xuid_engine::registry::provenance::{Evidence, Verdict};
/// use xuid_engine::{Engine, Order};
/// let folder = tempfile::tempdir()?;
/// let engine = Engine::builder().data_dir(folder.path()).build()?;
/// let id = engine.runs(1, Order::Fresh)?[0].first();
/// let registry = local::inspect(folder.path())?;
/// let mut evidence = Evidence::new(registry.genesis);
/// evidence.add_registry("the registry", &registry.workers, &registry.marks);
/// evidence.add_folder("the folder", folder.path());
/// let found = evidence.judge(id, None);
/// assert_eq!(found.verdict, Verdict::Granted);
/// assert!(found.holder.is_some() && found.window.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Evidence {
    genesis: Genesis,
    /// The first tick of each worker that was not granted, as far as that can be read.
    reserved_until: HashMap<u32, u64>,
    marks: HashMap<SpillId, u64>,
    registry: Option<String>,
    histories: Vec<(String, History)>,
    spills: Vec<(String, Extents)>,
    unread: Vec<String>,
}

impl Evidence {
    /// What the genesis alone says.
    #[must_use]
    pub fn new(genesis: Genesis) -> Self {
        Self {
            genesis,
            reserved_until: HashMap::new(),
            marks: HashMap::new(),
            registry: None,
            histories: Vec::new(),
            spills: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// What the registry's records say, called `source`. Not of a registry that was restored and not fenced since, nor of one
    /// that is closed: that would say less than was granted.
    pub fn add_registry(&mut self, source: &str, workers: &[WorkerEntry], marks: &[(SpillId, MarkRecord)]) {
        let until = |entry: &WorkerEntry| {
            let found = entry.record.as_ref().ok()?;
            Some((entry.worker, first_not_granted(&found.record)?))
        };
        self.reserved_until.extend(workers.iter().filter_map(until));
        self.marks.extend(marks.iter().map(|(spill, mark)| (*spill, mark.granted_upto)));
        self.registry = Some(source.to_owned());
    }

    /// What lies in a data folder, called `source`: its notes, and its spills, of those that
    /// [`add_registry`](Self::add_registry) gave a mark for. It writes nothing, and takes no lock.
    pub fn add_folder(&mut self, source: &str, folder: &Path) {
        let notes = format!("windows.log in {source}");
        match History::read(folder, self.genesis.cluster) {
            Ok(history) => self.histories.push((notes, history)),
            Err(error) => self.unread.push(format!("{notes}: {error}")),
        }
        let found = match std::fs::read_dir(folder) {
            Ok(found) => found,
            Err(error) => return self.unread.push(format!("{source}: {error}")),
        };
        let is_spill =
            |name: &str| name.strip_prefix("spill-").is_some_and(|rest| rest.parse::<u32>().is_ok());
        for entry in found.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_spill)) {
            let spill = format!("{} in {source}", entry.file_name().to_string_lossy());
            match xuid_spill::inspect(&entry.path()) {
                Ok(inspection) => self.add_spill(spill, &inspection),
                Err(error) => self.unread.push(format!("{spill}: {error}")),
            }
        }
    }

    /// What lies in the folders and could not be read, and why: more may be known than is told.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    fn add_spill(&mut self, source: String, inspection: &Inspection) {
        if inspection.unreadable > 0 {
            self.unread
                .push(format!("{source}: the disk does not give {} of its slots", inspection.unreadable));
        }
        let Genesis { cluster, layout, .. } = &self.genesis;
        let is_ours =
            inspection.identity.cluster == cluster.bytes() && inspection.identity.stride == layout.stride();
        // Without a mark nobody knows what was granted.
        let mark = self.marks.get(&inspection.identity.spill).filter(|_| is_ours);
        self.spills.extend(mark.map(|mark| (source, Extents::of(inspection, *mark, layout))));
    }

    /// What is known of an id; with an opaque face of one that was opened. `uncut` names a running process that holds its tick and has not come so far, if there is one:
    /// [`Engine::is_uncut`](crate::Engine::is_uncut).
    #[must_use]
    pub fn judge(&self, id: Id, uncut: Option<&str>) -> Provenance {
        let Genesis { layout, floor, .. } = &self.genesis;
        if id > layout.last_id() {
            return of(Verdict::Impossible, None, vec!["the layout".to_owned()]);
        }
        let parts = layout.decode(id);
        let (worker, tick) = (parts.worker, parts.tick);
        let place = Some((worker, tick));
        if !self.has_worker(worker) || tick < *floor {
            return of(Verdict::Impossible, place, vec!["the registry's genesis".to_owned()]);
        }
        let registry = || self.registry.clone();
        if self.reserved_until.get(&worker).is_some_and(|until| tick >= *until) {
            return of(Verdict::NotGranted, place, registry().into_iter().collect());
        }
        if let Some(server) = uncut {
            return of(Verdict::NotCut, place, vec![server.to_owned()]);
        }
        let (mut found, plot) = (None, layout.plot_of(id));
        for (source, extents) in &self.spills {
            match extents.find(worker, tick, plot) {
                None => {}
                Some(Found::Aside) => {
                    let sources = registry().into_iter().chain([source.clone()]).collect();
                    return of(Verdict::PutAside, place, sources);
                }
                Some(Found::Granted(index)) => found = Some((source, extents.spill, index)),
            }
        }
        let granted = self.granted(worker, tick);
        match found {
            None => granted,
            Some((source, spill, index)) => self.replayed(granted, source, spill, index),
        }
    }

    /// Whether the registry has that worker.
    fn has_worker(&self, worker: u32) -> bool {
        self.genesis.worker_range().contains(worker)
    }

    fn granted(&self, worker: u32, tick: u64) -> Provenance {
        let mut sources: Vec<_> = self.registry.iter().cloned().collect();
        let held = self.histories.iter().filter_map(|(source, history)| {
            let held = history.window(worker, tick)?;
            Some((source, history, held))
        });
        // Of several folders that of the process which had it last.
        let Some((source, history, held)) = held.max_by_key(|(_, _, held)| held.at_ms) else {
            return of(Verdict::Granted, Some((worker, tick)), sources);
        };
        sources.push(source.clone());
        Provenance {
            window: Some(held.ticks.clone()),
            holder: history.holder(held),
            when_ms: Some(held.at_ms),
            ..of(Verdict::Granted, Some((worker, tick)), sources)
        }
    }

    /// The same id, once it was granted from a spill.
    fn replayed(&self, granted: Provenance, source: &str, spill: SpillId, index: u64) -> Provenance {
        let mut sources: Vec<_> = self.registry.iter().cloned().chain([source.to_owned()]).collect();
        let grant = self.histories.iter().find_map(|(source, history)| {
            let grant = history.grant(spill, index)?;
            Some((source, history.grantee(grant), grant.at_ms))
        });
        sources.extend(grant.iter().map(|(source, ..)| (*source).clone()));
        let (holder, when_ms) = grant.map_or((None, None), |(_, holder, at_ms)| (holder, Some(at_ms)));
        Provenance { verdict: Verdict::Replayed, holder, when_ms, sources, ..granted }
    }
}

/// The first tick of a worker that this registry granted to nobody. Of a closed worker all ticks, if no fence has been: one
/// that was put back to a time when the worker was closed may have granted some before.
fn first_not_granted(record: &WorkerRecord) -> Option<u64> {
    if record.is_closed() {
        return (record.operation == 0).then_some(0);
    }
    Some(record.reserved_until)
}

fn of(verdict: Verdict, place: Option<(u32, u64)>, sources: Vec<String>) -> Provenance {
    Provenance { verdict, place, window: None, holder: None, when_ms: None, sources }
}

#[cfg(test)]
mod tests;
