//! What is known of nodes from before, by which a registry that was restored from a backup is told.
//!
//! A node's version only rises, and a node that is deleted and made again has another birth (`czxid`). So a lower version
//! of the same birth was never this ensemble's present since: the ensemble's data was put back. So it was if an era is found
//! that was over before the known one began.
//!
//! The memory outlives the process in `registry.zookeeper-K` of the data folder, K being the seat's number. It is a
//! hint: what cannot be read is as if it were not there, and it is not synced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zookeeper_client::Stat;

use super::inspect::Era;
use crate::later;
use crate::registry::ClusterId;

const PREFIX: &str = "registry.zookeeper-";

/// Of a memory's form.
const VERSION: u32 = 2;

/// Nodes remembered in a folder: those that this process wrote last. A process writes to its workers and its spill's
/// mark, and changes a worker rarely.
const MOST: usize = 64;

/// A memory never comes near this; what does is none.
const MOST_BYTES: usize = 1 << 20;

/// A node as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sight {
    birth: i64,
    version: i32,
}

impl Sight {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { birth: stat.czxid, version: stat.version }
    }

    /// The same node after our own write at `version`.
    pub(super) fn at(self, version: u64) -> Self {
        Self { version: i32::try_from(version).unwrap_or(i32::MAX), ..self }
    }

    /// How what was found looks beside this, which was known.
    pub(super) fn look(self, found: Self) -> Look {
        if self.birth != found.birth {
            Look::Remade
        } else if self.version > found.version {
            Look::Older
        } else {
            Look::Fine
        }
    }
}

/// How a node looks beside what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// As it was, or later.
    Fine,
    /// Deleted and made again.
    Remade,
    /// Older than it was: the ensemble's data was put back.
    Older,
}

/// What this process saw.
#[derive(Debug, Default)]
pub(super) struct Past {
    seen: HashMap<String, Sight>,
}

impl Past {
    pub(super) fn look(&self, path: &str, found: Sight) -> Look {
        self.sight(path).map_or(Look::Fine, |known| known.look(found))
    }

    pub(super) fn note(&mut self, path: &str, sight: Sight) {
        match self.seen.get_mut(path) {
            Some(known) => *known = sight,
            None => _ = self.seen.insert(path.to_owned(), sight),
        }
    }

    pub(super) fn sight(&self, path: &str) -> Option<Sight> {
        self.seen.get(path).copied()
    }

    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }
}

/// Eras remembered that are over: there is one more with each fence.
const MOST_ENDED: usize = 64;

/// What one process wrote last: in its file, where it has a folder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    /// `None` without a data folder: it ends with the process.
    #[serde(skip)]
    path: Option<PathBuf>,
    version: u32,
    cluster: String,
    era: Era,
    /// The names of those that a fence had ended, the latest last: whatever a clock says, none of them is the present.
    #[serde(default)]
    ended: Vec<String>,
    /// The latest written first.
    nodes: Vec<(String, Sight)>,
}

impl Memory {
    /// A memory that ends with the process.
    pub(super) fn new(cluster: ClusterId, era: &Era) -> Self {
        let (cluster, era) = (cluster.to_string(), era.clone());
        Self { path: None, version: VERSION, cluster, era, ended: Vec::new(), nodes: Vec::new() }
    }

    /// The memory of the process in that seat; what an earlier one knew is kept while the registry is the same. It is written
    /// down at once: the process may write nothing to the registry for minutes, and end.
    pub(super) fn of_seat(folder: &Path, seat: u32, cluster: ClusterId, era: &Era) -> Self {
        let path = folder.join(format!("{PREFIX}{seat}"));
        let known = read(&path).filter(|known| known.is_of(cluster));
        let mut memory = Self { path: Some(path), ..known.unwrap_or_else(|| Self::new(cluster, era)) };
        if memory.era.name == era.name {
            memory.keep();
        } else {
            memory.begin(era);
        }
        memory
    }

    /// What it knows.
    pub(super) fn nodes(&self) -> &[(String, Sight)] {
        &self.nodes
    }

    /// What the processes of a folder knew of a cluster.
    pub(super) fn of_folder(folder: &Path, cluster: ClusterId) -> Vec<Self> {
        let ours = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(PREFIX);
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| ours(&entry.file_name()));
        files.filter_map(|entry| read(&entry.path())).filter(|known| known.is_of(cluster)).collect()
    }

    /// Every node that any of these knew in this era.
    pub(super) fn all(known: Vec<Self>, era: &Era) -> Vec<(String, Sight)> {
        known.into_iter().filter(|known| known.era.name == era.name).flat_map(|known| known.nodes).collect()
    }

    /// The era that was found, or one after it that one of these knew.
    pub(super) fn latest(known: &[Self], found: Era) -> Era {
        let later =
            |latest: Era, known: &Self| if known.is_after(&latest) { known.era.clone() } else { latest };
        known.iter().fold(found, later)
    }

    /// Whether that era was over before the one that is remembered.
    pub(super) fn is_after(&self, era: &Era) -> bool {
        self.ended.contains(&era.name) || era.is_before(&self.era)
    }

    fn is_of(&self, cluster: ClusterId) -> bool {
        self.version == VERSION && self.cluster == cluster.to_string()
    }

    /// The registry was fenced: of what was before, only that it is over is of use.
    pub(super) fn begin(&mut self, era: &Era) {
        let before = std::mem::replace(&mut self.era, era.clone());
        self.ended.retain(|name| *name != before.name && *name != era.name);
        self.ended.push(before.name);
        let surplus = self.ended.len().saturating_sub(MOST_ENDED);
        self.ended.drain(..surplus);
        self.nodes.clear();
        self.keep();
    }

    /// Remembers a node that was written just now.
    pub(super) fn note(&mut self, path: &str, sight: Sight) {
        self.nodes.retain(|(known, _)| known != path);
        self.nodes.insert(0, (path.to_owned(), sight));
        self.nodes.truncate(MOST);
        self.keep();
    }

    /// Writes it down, where it has a file.
    fn keep(&self) {
        let Some(path) = &self.path else { return };
        let write = || {
            let beside = path.with_added_extension("new");
            std::fs::write(&beside, serde_json::to_vec(self)?)?;
            std::fs::rename(&beside, path)
        };
        if let Err(error) = write() {
            let path = path.clone();
            later::log(move || {
                let path = path.display();
                tracing::warn!(%path, %error, "what was written to the registry could not be remembered");
            });
        }
    }
}

fn read(path: &Path) -> Option<Memory> {
    serde_json::from_slice(&xuid_spill::read_regular(path, MOST_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_went_back_is_seen_and_one_that_rose_is_fine() {
        let mut past = Past::default();
        let sight = Sight { birth: 1, version: 5 };
        assert_eq!(past.look("/w/1", sight), Look::Fine, "nothing is known yet");
        past.note("/w/1", sight);
        assert_eq!(past.look("/w/1", Sight { version: 6, ..sight }), Look::Fine);
        assert_eq!(past.look("/w/1", Sight { version: 4, ..sight }), Look::Older);
        assert_eq!(past.look("/w/1", Sight { birth: 2, version: 9 }), Look::Remade);
    }

    #[test]
    fn a_folder_remembers_the_nodes_of_its_cluster_and_era_only() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (ClusterId::from_bytes([1; 16]), ClusterId::from_bytes([2; 16]));
        let sight = Sight { birth: 1, version: 5 };
        let (era, later) = (era("a", 7, 100), era("b", 9, 200));
        let mut memory = Memory::of_seat(folder.path(), 0, ours, &era);
        (0..100).for_each(|worker| memory.note(&format!("/w/{worker}"), sight));
        memory.note("/w/99", sight.at(7));
        let known = Memory::all(Memory::of_folder(folder.path(), ours), &era);
        assert_eq!((known.len(), known[0].clone()), (MOST, ("/w/99".to_owned(), sight.at(7))));
        assert!(Memory::all(Memory::of_folder(folder.path(), other), &era).is_empty());
        assert!(Memory::all(Memory::of_folder(folder.path(), ours), &later).is_empty());
        std::fs::write(folder.path().join("registry.zookeeper-1"), b"{").unwrap();
        assert_eq!(
            Memory::all(Memory::of_folder(folder.path(), ours), &era).len(),
            MOST,
            "a damaged memory is none"
        );
        assert_eq!(Memory::of_seat(folder.path(), 0, ours, &later).nodes.len(), 0);
    }

    fn era(name: &str, birth: i64, made_ms: i64) -> Era {
        Era { name: name.into(), birth, made_ms }
    }

    #[test]
    fn an_era_of_before_the_one_a_folder_knew_is_told_from_one_that_a_fence_began_since() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (ClusterId::from_bytes([1; 16]), ClusterId::from_bytes([2; 16]));
        let known = era("b", 9, 200);
        let mut memory = Memory::of_seat(folder.path(), 0, ours, &known);
        memory.note("/w/1", Sight { birth: 1, version: 5 });
        let latest =
            |cluster, found: &Era| Memory::latest(&Memory::of_folder(folder.path(), cluster), found.clone());
        assert_eq!(latest(ours, &era("a", 7, 100)), known, "put back to before the fence");
        for found in [era("c", 12, 300), era("c", 12, 150), era("c", 8, 300), known.clone()] {
            assert_eq!(latest(ours, &found), found, "fenced since then");
        }
        assert_eq!(latest(other, &era("a", 7, 100)).name, "a", "the memory is of another cluster");
    }

    #[test]
    fn an_era_that_was_seen_to_end_is_not_the_present_again_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ClusterId::from_bytes([1; 16]);
        // It was begun while the ensemble's clock was an hour fast.
        let (first, second) = (era("a", 7, 3_600_000), era("b", 9, 200));
        let mut memory = Memory::of_seat(folder.path(), 0, cluster, &first);
        memory.begin(&second);
        assert!(!first.is_before(&second) && memory.is_after(&first));
        assert_eq!(
            Memory::latest(&Memory::of_folder(folder.path(), cluster), first.clone()),
            second,
            "at once, and in the file"
        );

        // Fenced while nobody ran: the next process learns it from the file of the one before.
        let third = era("c", 11, 100);
        drop(Memory::of_seat(folder.path(), 0, cluster, &third));
        for ended in [&first, &second] {
            assert_eq!(Memory::latest(&Memory::of_folder(folder.path(), cluster), ended.clone()), third);
        }
        assert_eq!(
            Memory::latest(&Memory::of_folder(folder.path(), cluster), era("d", 13, 50)).name,
            "d",
            "fenced once more"
        );
    }
}
