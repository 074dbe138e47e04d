//! What is known of nodes from before, by which a registry that was restored from a backup is told.
//!
//! A node's version only rises, and a node that is deleted and made again has another birth (`czxid`). So a lower
//! version of the same birth was never this ensemble's present since: the ensemble's data was put back. So it was if an
//! era is found that was over before the known one began.
//!
//! The file outlives the process in `registry.zookeeper-K` of the data folder, K being the seat's number: a checksum of
//! eight hexadecimal digits, and behind it JSON. It is a hint, and it is not synced.
//!
//! # Invariants
//! - I1 what cannot be read, or has another checksum, is as if it were not there;
//! - I2 what was read from a file refuses this process alone. For others the registry is closed only by what this
//!   process saw itself.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zookeeper_client::Stat;

use super::inspect::Era;
use super::znode::wall_ms;
use crate::registry::ClusterId;
use crate::sys::checksum::{split_checksum, with_checksum};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

const PREFIX: &str = "registry.zookeeper-";

/// Of the form of a seen file.
const VERSION: u32 = 3;

/// So far a host's clock and the ensemble's may be apart for an era's time to count. Two fences are further apart.
const AGREED_MS: u64 = 2_000;

/// Nodes remembered in a folder: those that this process wrote last. A process writes to its workers and its spill's
/// mark, and changes a worker rarely.
const MOST: usize = 64;

/// A seen file never comes near this; what is longer is none.
const MOST_BYTES: usize = 1 << 20;

/// A node as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeVersion {
    birth: i64,
    version: i32,
}

impl NodeVersion {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { birth: stat.czxid, version: stat.version }
    }

    /// The same node after our own write at `version`.
    pub(super) fn at(self, version: u64) -> Self {
        Self { version: i32::try_from(version).unwrap_or(i32::MAX), ..self }
    }

    /// How what was found looks beside this, which was known.
    pub(super) fn compare(self, found: Self) -> Comparison {
        if self.birth != found.birth {
            Comparison::Remade
        } else if self.version > found.version {
            Comparison::Older
        } else {
            Comparison::Fine
        }
    }
}

/// How a node looks beside what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// As it was, or later.
    Fine,
    /// Deleted and made again.
    Remade,
    /// Older than it was: the ensemble's data was put back.
    Older,
}

/// What this process saw, and what others of its folder did.
#[derive(Debug, Default)]
pub(super) struct SeenNodes {
    /// Each node, and whether this process saw it so itself (I2).
    seen: HashMap<String, (NodeVersion, bool)>,
}

impl SeenNodes {
    pub(super) fn compare(&self, path: &str, found: NodeVersion) -> Comparison {
        self.node_version(path).map_or(Comparison::Fine, |known| known.compare(found))
    }

    /// This process saw the node itself.
    pub(super) fn note(&mut self, path: &str, node_version: NodeVersion) {
        match self.seen.get_mut(path) {
            Some(known) => *known = (node_version, true),
            None => _ = self.seen.insert(path.to_owned(), (node_version, true)),
        }
    }

    /// A file says how the node was.
    pub(super) fn inherit(&mut self, path: &str, node_version: NodeVersion) {
        self.seen.insert(path.to_owned(), (node_version, false));
    }

    pub(super) fn node_version(&self, path: &str) -> Option<NodeVersion> {
        self.seen.get(path).map(|(node_version, _)| *node_version)
    }

    /// Whether this process saw the node itself.
    pub(super) fn is_own(&self, path: &str) -> bool {
        self.seen.get(path).is_some_and(|(_, own)| *own)
    }

    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }
}

/// Eras remembered that are over: there is one more with each fence. So many take 36 KiB of a file.
const MOST_ENDED: usize = 1_024;

/// An era, and when a process learnt of it, by the clock of its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Learnt {
    pub(super) era: Era,
    learnt_ms: u64,
}

impl Learnt {
    /// Learnt just now.
    pub(super) fn now(era: Era) -> Self {
        Self { era, learnt_ms: wall_ms() }
    }

    /// How an era that is found stands to this one, where no name says it. It is believed to be later if it was born
    /// later and made later. Where the data was put back births are counted anew: there it is told by its time alone.
    /// An era that was begun after this one was begun and learnt of is none of before it, whatever the ensemble's clock
    /// said of this one. The time of the host that began it counts only where the ensemble's clock said the same.
    fn relation(&self, found: &Era) -> Relation {
        if found.name == self.era.name && found.birth != self.era.birth {
            // No fence uses a name again: it was made again by hand.
            return Relation::Before;
        }
        let is_younger = found.birth >= self.era.birth && found.made_ms >= self.era.made_ms;
        let agreed = found.begun_ms.abs_diff(u64::try_from(found.made_ms).unwrap_or(0)) <= AGREED_MS;
        let is_later = agreed && found.begun_ms > self.learnt_ms.max(self.era.begun_ms);
        if is_younger || is_later { Relation::After } else { Relation::Before }
    }
}

/// How an era that is found stands to the one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// A fence began it since.
    After,
    /// It is known to have ended: the ensemble's data was put back to before a fence.
    Over,
    /// It was over, or nothing shows that it was not.
    Before,
}

/// What one process wrote last: in its file, where it has a folder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SeenFile {
    /// `None` without a data folder: it ends with the process.
    #[serde(skip)]
    path: Option<PathBuf>,
    version: u32,
    cluster: String,
    known: Learnt,
    /// The names of those that a fence had ended, the latest last: whatever a clock says, none of them is the present.
    #[serde(default)]
    ended: Vec<String>,
    /// The latest written first.
    nodes: Vec<(String, NodeVersion)>,
}

impl SeenFile {
    /// One that ends with the process: nothing is written.
    pub(super) fn new(cluster: ClusterId, known: &Learnt) -> Self {
        let (cluster, known) = (cluster.to_string(), known.clone());
        Self { path: None, version: VERSION, cluster, known, ended: Vec::new(), nodes: Vec::new() }
    }

    /// The file of the process in that seat; what an earlier one knew is kept while the registry is the same. It is
    /// written down at once: the process may write nothing to the registry for minutes, and end. What any process of
    /// the folder saw end has ended for this one, too.
    pub(super) fn of_seat(
        folder: &Path,
        seat: &str,
        cluster: ClusterId,
        known: &Learnt,
        ended: Vec<String>,
    ) -> Self {
        let path = folder.join(format!("{PREFIX}{seat}"));
        let before = read(&path).filter(|before| before.is_of(cluster));
        let mut seen_file = Self { path: Some(path), ..before.unwrap_or_else(|| Self::new(cluster, known)) };
        if seen_file.known.era.name == known.era.name {
            seen_file.keep();
        } else {
            seen_file.begin(known.clone());
        }
        seen_file.learn_of_ended(ended);
        seen_file
    }

    /// Others know that those eras are over; the known one is none of them.
    pub(super) fn learn_of_ended(&mut self, names: Vec<String>) {
        if !Guard::EndedLearnt.holds() {
            return;
        }
        let news = names.into_iter().filter(|name| *name != self.known.era.name);
        let news: Vec<_> = news.filter(|name| !self.ended.contains(name)).collect();
        if news.is_empty() {
            return;
        }
        // The latest last: its own are of the seat's last life.
        self.ended.splice(..0, news);
        self.forget_surplus();
        self.keep();
    }

    /// Where it is kept, for people.
    pub(super) fn place(&self) -> Option<String> {
        self.path.as_ref()?.parent().map(|folder| format!("{}/{PREFIX}*", folder.display()))
    }

    /// What it knows.
    pub(super) fn nodes(&self) -> &[(String, NodeVersion)] {
        &self.nodes
    }

    /// What the processes of a folder knew of a cluster.
    pub(super) fn of_folder(folder: &Path, cluster: ClusterId) -> Vec<Self> {
        let ours = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(PREFIX);
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| ours(&entry.file_name()));
        files.filter_map(|entry| read(&entry.path())).filter(|known| known.is_of(cluster)).collect()
    }

    /// The eras that any of these saw end.
    pub(super) fn all_ended(known: &[Self]) -> Vec<String> {
        let mut ended: Vec<_> = known.iter().flat_map(|known| known.ended.iter().cloned()).collect();
        ended.sort_unstable();
        ended.dedup();
        ended
    }

    /// Every node that any of these knew in this era.
    pub(super) fn all(known: Vec<Self>, era: &Era) -> Vec<(String, NodeVersion)> {
        let of_era = known.into_iter().filter(|known| known.known.era.name == era.name);
        of_era.flat_map(|known| known.nodes).collect()
    }

    /// The era that was found, or one after it that one of these knew; when that was learnt of first.
    pub(super) fn latest(known: &[Self], found: Era) -> Learnt {
        // What one of them saw end is not the present because another one, of a seat that no process took since, knew
        // it last.
        let ended = Self::all_ended(known);
        let is_over = |era: &Era| ended.contains(&era.name);
        let none_is_left = known.iter().all(|seen_file| is_over(&seen_file.known.era));
        let told = known.iter().filter(|seen_file| none_is_left || !is_over(&seen_file.known.era));
        told.fold(Learnt::now(found), |latest, seen_file| {
            let is_known = seen_file.known.era == latest.era && seen_file.known.learnt_ms < latest.learnt_ms;
            let is_later = || is_over(&latest.era) || seen_file.relation(&latest.era) != Relation::After;
            if is_known || is_later() { seen_file.known.clone() } else { latest }
        })
    }

    /// How an era stands to the one that is remembered.
    pub(super) fn relation(&self, era: &Era) -> Relation {
        if self.ended.contains(&era.name) { Relation::Over } else { self.known.relation(era) }
    }

    fn is_of(&self, cluster: ClusterId) -> bool {
        self.version == VERSION && self.cluster == cluster.to_string()
    }

    /// The registry was fenced: of what was before, only that it is over is of use.
    pub(super) fn begin(&mut self, known: Learnt) {
        let before = std::mem::replace(&mut self.known, known).era.name;
        self.ended.retain(|name| *name != before && *name != self.known.era.name);
        self.ended.push(before);
        self.forget_surplus();
        self.nodes.clear();
        self.keep();
    }

    fn forget_surplus(&mut self) {
        let surplus = self.ended.len().saturating_sub(MOST_ENDED);
        self.ended.drain(..surplus);
    }

    /// Remembers a node that was written just now.
    pub(super) fn note(&mut self, path: &str, node_version: NodeVersion) {
        self.nodes.retain(|(known, _)| known != path);
        self.nodes.insert(0, (path.to_owned(), node_version));
        self.nodes.truncate(MOST);
        self.keep();
    }

    /// Writes it down, where it has a file.
    fn keep(&self) {
        let Some(path) = &self.path else { return };
        let write = || {
            let beside = path.with_added_extension("new");
            let json = serde_json::to_vec(self)?;
            let mut file = xuid_spill::file_options(&beside).create(true).truncate(true).open(&beside)?;
            file.write_all(&with_checksum(json))?;
            std::fs::rename(&beside, path)
        };
        if let Err(error) = write() {
            let path = path.clone();
            deferred_log::log(move || {
                let path = path.display();
                tracing::warn!(%path, %error, "what was written to the registry could not be remembered");
            });
        }
    }
}

/// What a file says, if that is what was written (I1).
fn read(path: &Path) -> Option<SeenFile> {
    let bytes = xuid_spill::read_regular(path, MOST_BYTES).ok()?;
    let (json, sound) = split_checksum(&bytes)?;
    if sound || !Guard::HintChecked.holds() { serde_json::from_slice(json).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_went_back_is_seen_and_one_that_rose_is_fine() {
        let mut seen_nodes = SeenNodes::default();
        let node_version = NodeVersion { birth: 1, version: 5 };
        assert_eq!(seen_nodes.compare("/w/1", node_version), Comparison::Fine, "nothing is known yet");
        seen_nodes.note("/w/1", node_version);
        assert_eq!(seen_nodes.compare("/w/1", NodeVersion { version: 6, ..node_version }), Comparison::Fine);
        assert_eq!(seen_nodes.compare("/w/1", NodeVersion { version: 4, ..node_version }), Comparison::Older);
        assert_eq!(seen_nodes.compare("/w/1", NodeVersion { birth: 2, version: 9 }), Comparison::Remade);
    }

    #[test]
    fn what_a_file_says_of_a_node_is_not_this_process_s_own_until_it_sees_the_node() {
        let mut seen_nodes = SeenNodes::default();
        let node_version = NodeVersion { birth: 1, version: 5 };
        seen_nodes.inherit("/w/1", node_version);
        assert_eq!((seen_nodes.node_version("/w/1"), seen_nodes.is_own("/w/1")), (Some(node_version), false));
        seen_nodes.note("/w/1", node_version.at(6));
        assert_eq!(
            (seen_nodes.node_version("/w/1"), seen_nodes.is_own("/w/1")),
            (Some(node_version.at(6)), true)
        );
        assert!(!seen_nodes.is_own("/w/2"));
    }

    const OURS: ClusterId = ClusterId::from_bytes([1; 16]);

    /// Made by a clock of the ensemble and begun by a clock of a host, in milliseconds.
    fn era(name: &str, birth: i64, made_ms: i64, begun_ms: u64) -> Era {
        Era { name: name.into(), birth, made_ms, begun_ms }
    }

    fn learnt(era: &Era, learnt_ms: u64) -> Learnt {
        Learnt { era: era.clone(), learnt_ms }
    }

    #[test]
    fn a_folder_remembers_the_nodes_of_its_cluster_and_era_only() {
        let folder = tempfile::tempdir().unwrap();
        let other = ClusterId::from_bytes([2; 16]);
        let node_version = NodeVersion { birth: 1, version: 5 };
        let (era, later) = (era("a", 7, 100, 100), era("b", 9, 200, 200));
        let mut seen_file = SeenFile::of_seat(folder.path(), "0", OURS, &learnt(&era, 110), Vec::new());
        (0..100).for_each(|worker| seen_file.note(&format!("/w/{worker}"), node_version));
        seen_file.note("/w/99", node_version.at(7));
        let known = SeenFile::all(SeenFile::of_folder(folder.path(), OURS), &era);
        assert_eq!((known.len(), known[0].clone()), (MOST, ("/w/99".to_owned(), node_version.at(7))));
        assert!(SeenFile::all(SeenFile::of_folder(folder.path(), other), &era).is_empty());
        assert!(SeenFile::all(SeenFile::of_folder(folder.path(), OURS), &later).is_empty());
        std::fs::write(folder.path().join("registry.zookeeper-1"), b"{").unwrap();
        assert_eq!(
            SeenFile::all(SeenFile::of_folder(folder.path(), OURS), &era).len(),
            MOST,
            "a damaged memory is none"
        );
        assert_eq!(
            SeenFile::of_seat(folder.path(), "0", OURS, &learnt(&later, 210), Vec::new()).nodes.len(),
            0
        );
    }

    /// What is read of a file with a bit flipped, for every bit: nothing, or what was written.
    fn flipped_bits_that_are_believed() -> usize {
        let folder = tempfile::tempdir().unwrap();
        let known = learnt(&era("a", 7, 100, 100), 110);
        let mut seen_file = SeenFile::of_seat(folder.path(), "0", OURS, &known, Vec::new());
        seen_file.note("/w/1", NodeVersion { birth: 1, version: 18 });
        let path = folder.path().join("registry.zookeeper-0");
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(read(&path).unwrap().nodes(), seen_file.nodes());
        (0..bytes.len() * 8)
            .filter(|bit| {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, flipped).unwrap();
                read(&path).is_some_and(|read| read.nodes() != seen_file.nodes())
            })
            .count()
    }

    #[test]
    fn a_memory_with_a_flipped_bit_is_none() {
        assert_eq!(flipped_bits_that_are_believed(), 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.zookeeper-0");
        for text in ["", "00000000", "00000000\n", "00000000\n{}", "{\"version\":2}"] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).is_none(), "{text}");
        }
    }

    #[test]
    fn without_its_checksum_a_memory_with_a_flipped_bit_is_believed() {
        assert!(Guard::without(&[Guard::HintChecked], flipped_bits_that_are_believed) > 0);
    }

    #[test]
    fn an_era_of_before_the_one_a_folder_knew_is_told_from_one_that_a_fence_began_since() {
        let folder = tempfile::tempdir().unwrap();
        let other = ClusterId::from_bytes([2; 16]);
        let known = learnt(&era("b", 9, 20_000, 20_001), 20_050);
        let mut seen_file = SeenFile::of_seat(folder.path(), "0", OURS, &known, Vec::new());
        seen_file.note("/w/1", NodeVersion { birth: 1, version: 5 });
        let latest = |cluster, found: &Era| {
            SeenFile::latest(&SeenFile::of_folder(folder.path(), cluster), found.clone()).era
        };
        let before = era("a", 7, 10_000, 10_001);
        assert_eq!(latest(OURS, &before), known.era, "put back to before the fence");
        assert_eq!(seen_file.relation(&before), Relation::Before);
        let fenced = [
            (era("c", 12, 30_000, 30_001), "later by everything"),
            (era("c", 12, 25_000, 15_001), "born later, by a host whose clock was behind"),
            (era("c", 12, 19_000, 20_100), "born later, as the ensemble's clock went back a little"),
            (era("c", 8, 30_000, 30_001), "put back, and fenced since"),
        ];
        for (found, what) in fenced {
            assert_eq!(latest(OURS, &found), found, "{what}");
        }
        assert_eq!(latest(OURS, &known.era), known.era);
        assert_eq!(seen_file.relation(&era("c", 8, 30_000, 20_049)), Relation::Before, "the clocks disagree");
        let of_another_past = era("c", 12, 15_000, 15_001);
        assert_eq!(
            seen_file.relation(&of_another_past),
            Relation::Before,
            "put back to a later time of another past"
        );
        let fast = learnt(&era("b", 9, 86_400_000, 20_001), 20_050);
        assert_eq!(
            fast.relation(&era("c", 8, 30_000, 30_001)),
            Relation::After,
            "the ensemble's clock was fast"
        );
        // One clock that was wrong once must not make an era of before look like one of after.
        let slow = learnt(&known.era, 5);
        assert_eq!(
            slow.relation(&before),
            Relation::Before,
            "this host's clock was slow when it learnt of it"
        );
        let by_a_fast_host = era("a", 7, 10_000, 3_600_000);
        assert_eq!(known.relation(&by_a_fast_host), Relation::Before, "the host that began it was fast");
        assert_eq!(latest(other, &before).name, "a", "the memory is of another cluster");
        // Another seat of the folder learns of the era later: what was learnt first counts.
        let second = SeenFile::latest(&SeenFile::of_folder(folder.path(), OURS), known.era.clone());
        assert_eq!(second, known);
        let second = SeenFile::of_seat(folder.path(), "1", OURS, &second, Vec::new());
        assert_eq!(second.relation(&era("c", 8, 20_100, 20_060)), Relation::After);
    }

    #[test]
    fn an_era_that_was_seen_to_end_is_not_the_present_again_whatever_the_clocks_say() {
        let folder = tempfile::tempdir().unwrap();
        // It was begun while all clocks were an hour fast.
        let (first, second) = (era("a", 7, 3_600_000, 3_600_000), era("b", 9, 200, 200));
        let mut seen_file =
            SeenFile::of_seat(folder.path(), "0", OURS, &learnt(&first, 3_600_001), Vec::new());
        seen_file.begin(learnt(&second, 210));
        assert_eq!(learnt(&second, 210).relation(&first), Relation::After, "going by clocks alone");
        assert_eq!(seen_file.relation(&first), Relation::Over);
        let latest =
            |found: &Era| SeenFile::latest(&SeenFile::of_folder(folder.path(), OURS), found.clone()).era;
        assert_eq!(latest(&first), second, "at once, and in the file");

        // Fenced while no process ran: the next process learns it from the file of the one before.
        let third = era("c", 11, 100, 100);
        drop(SeenFile::of_seat(folder.path(), "0", OURS, &learnt(&third, 110), Vec::new()));
        for ended in [&first, &second] {
            assert_eq!(latest(ended), third);
        }
        // And so does a process in another seat.
        let known = SeenFile::of_folder(folder.path(), OURS);
        let other =
            SeenFile::of_seat(folder.path(), "1", OURS, &learnt(&third, 110), SeenFile::all_ended(&known));
        assert!([&first, &second].into_iter().all(|era| other.relation(era) == Relation::Over));
        assert_ne!(other.relation(&third), Relation::Over);
        assert_eq!(latest(&era("d", 13, 150, 50)).name, "d", "fenced once more");
    }

    /// A seat that no process took since has an era in its file that a fence ended.
    fn a_stale_seat_refuses_nothing_and_allows_nothing(first: &Era, second: &Era) {
        let folder = tempfile::tempdir().unwrap();
        let stale =
            SeenFile::of_seat(folder.path(), "1", OURS, &learnt(first, first.begun_ms + 1), Vec::new());
        let mut present =
            SeenFile::of_seat(folder.path(), "0", OURS, &learnt(first, first.begun_ms + 1), Vec::new());
        present.begin(learnt(second, second.begun_ms + 1));
        let mut known = [present, stale];
        for order in ["stale last", "stale first"] {
            // Restored to before the fence, and not fenced.
            assert_eq!(&SeenFile::latest(&known, first.clone()).era, second, "{order}: restored");
            assert_eq!(&SeenFile::latest(&known, second.clone()).era, second, "{order}: the present");
            known.reverse();
        }
    }

    #[test]
    fn an_era_that_one_seat_saw_end_is_not_chosen_because_another_seat_knew_it_last() {
        // All clocks were an hour fast when the first one began.
        let by_fast_clocks = era("a", 7, 3_600_000, 3_600_000);
        a_stale_seat_refuses_nothing_and_allows_nothing(&by_fast_clocks, &era("b", 9, 200, 200));
        // The second one was begun after a restore, so that births began anew, by a host whose clock is three seconds
        // off.
        let later = era("b", 300, 7_200_000, 7_203_000);
        a_stale_seat_refuses_nothing_and_allows_nothing(&era("a", 2_000, 3_600_000, 3_600_000), &later);
    }
}
