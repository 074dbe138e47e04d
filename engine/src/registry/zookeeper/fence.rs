//! After a restore, and after damage: raising every record above what may have been granted.
//!
//! # Invariants
//! - I1 the era's node is deleted before anything is read, and another one is made when all is raised: in between
//!   no other process can write, and a fence that is cut off leaves the registry closed;
//! - I2 the new era's name was never used, so no write begun before the fence can succeed after it;
//! - I3 every mark that there was is at its maximum: no extent of any spill can be granted again.

use xuid_spill::SpillId;
use zookeeper_client::{Client, CreateMode, Error, MultiReadResult, Stat};

use super::error::ZooKeeperError;
use super::genesis::{ahead_ms, draw_cluster, draw_era, ensemble_ns, hold, make};
use super::inspect::{broken, children, connected, read_all, read_genesis};
use super::link::{Failure, Link};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::tree::names_of;
use super::znode::{
    self, AT_ONCE, CLOCK, ENDED, ERA, FENCE, FOLDERS, GENESIS, KNOWN, LIVE, MARK, SEQUENCES, SPILLS,
    ended_path, era_path, known_path, spill_path, wall_ms, worker_path,
};
use crate::registry::limits::beyond;
use crate::registry::record::{Kind, NO_SPILL, Place, Row, SECTOR};
use crate::registry::{Adopted, ClusterId, Fenced, Genesis, Token, Workers};

/// A node that moves while it is raised is one of another fence, or of a hand.
const TRIES: u32 = 4;

/// Raises every worker's record to 125 s past the ensemble's time, or to the highest of them, whichever is later, and
/// every mark to its maximum, and begins another era. Unreadable and absent records become usable again. Servers may
/// run: what they hold stays theirs, and they go on in the new era by themselves.
///
/// For a registry that was restored from a backup, and after damage. It needs a right clock of the ensemble: if that
/// was once further ahead than it is now and no record shows it, what was granted then is not covered.
///
/// # Errors
/// [`ZooKeeperError::Broken`] if the connection broke: run it again, the registry stays closed until then.
pub fn fence(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Fenced, ZooKeeperError> {
    Fence::begin(url, options)?.run(None)
}

/// Makes the registry of a copied ensemble a cluster of its own: a fence, and a new cluster id. Data folders of the old
/// cluster are refused from then on.
///
/// # Errors
/// As [`fence`].
pub fn adopt(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Adopted, ZooKeeperError> {
    let fence = Fence::begin(url, options)?;
    let (before, cluster) = (fence.genesis.cluster, draw_cluster()?);
    Ok(Adopted { before, cluster, fenced: Some(fence.run(Some(cluster))?) })
}

struct Fence {
    // Before the link: a session ends with the last of its clients.
    client: Client,
    link: Link,
    /// As it was found.
    genesis: Genesis,
    genesis_stat: Stat,
}

impl Fence {
    /// Shuts everybody out (I1).
    fn begin(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let mut link = Link::new(url, options)?;
        let client = connected(&mut link)?;
        read_genesis(&link, &client)?;
        let fail = |failure: Failure| broken(&link, "fence the registry", &failure);
        hold(&link, &client)?;
        for folder in FOLDERS {
            let dirs = CreateMode::Persistent.with_acls(link.acls());
            make(&link, &client, folder, &[], &dirs).map_err(fail)?;
        }
        // Only now: after our own write the server that we ask cannot lag behind.
        let (genesis, genesis_stat) = read_genesis(&link, &client)?;
        for era in children(&link, &client, ERA).map_err(fail)? {
            // Its name goes first: the fence that begins the next era, this one or a later one, says that this era is
            // over.
            let persistent = CreateMode::Persistent.with_acls(link.acls());
            make(&link, &client, &known_path(&era), &[], &persistent).map_err(fail)?;
            remove(&link, &client, &era_path(&era)).map_err(fail)?;
        }
        Ok(Self { client, link, genesis, genesis_stat })
    }

    fn run(self, adopted: Option<ClusterId>) -> Result<Fenced, ZooKeeperError> {
        let action = if adopted.is_some() { "adopt the registry" } else { "fence the registry" };
        let fenced = self.raise_all(adopted).map_err(|failure| broken(&self.link, action, &failure))?;
        self.open(&era_path(&draw_era()?)).map_err(|failure| broken(&self.link, action, &failure))?;
        let _ = remove(&self.link, &self.client, FENCE);
        // A session ends with the last of its clients.
        let Self { mut link, client, .. } = self;
        drop(client);
        link.leave();
        Ok(fenced)
    }

    /// Begins the new era. Last, so that it is younger than every node that was made again. In the same transaction
    /// each era that this fence ended, or that a process knew and did not find, is named as over: only an era of after
    /// this fence has such a name beside it.
    fn open(&self, era: &str) -> Result<(), Failure> {
        let Self { link, client, .. } = self;
        let options = CreateMode::Persistent.with_acls(link.acls());
        let ended = children(link, client, ENDED)?;
        let mut known = children(link, client, KNOWN)?;
        known.retain(|name| !ended.contains(name));
        known.truncate(AT_ONCE);
        let data = znode::encode_era(self.genesis_stat.czxid, wall_ms());
        let mut writer = client.new_multi_writer();
        for name in &known {
            writer.add_create(&ended_path(name), b"", &options).map_err(Failure::of)?;
        }
        writer.add_create(era, &data, &options).map_err(Failure::of)?;
        let commit = writer.commit();
        link.ask(async { commit.await.map_err(Error::from) }).map(drop)
    }

    fn raise_all(&self, adopted: Option<ClusterId>) -> Result<Fenced, Failure> {
        let Self { link, client, genesis, .. } = self;
        let stat = link.ask(client.set_data(CLOCK, b"", None))?;
        let ahead_ms = ahead_ms(&stat);
        let workers: Vec<_> = genesis.worker_range().numbers().map(Node::worker).collect();
        let found = self.read(&workers)?;
        let known =
            found.iter().flatten().filter_map(|found| Some(found.row.as_ref()?.worker_record().reach()));
        let highest = known.fold(genesis.floor, u64::max);
        let until = beyond(&genesis.layout, ensemble_ns(&stat)).unwrap_or(0).max(highest);
        let mut raised = *genesis;
        if let Some(cluster) = adopted {
            // The floor too: if this is cut off, the next one cannot read what the records of the old cluster say.
            raised = Genesis { cluster, floor: until, ..*genesis };
            let data = znode::encode_genesis(&raised);
            link.ask(client.set_data(GENESIS, &data, Some(self.genesis_stat.version)))?;
        }
        let workers = self.raise(&workers, raised.cluster, until)?;
        let spills = children(link, client, SPILLS)?;
        let marks: Vec<_> = spills.iter().filter_map(|name| name.parse().ok()).map(Node::mark).collect();
        let marks = self.raise(&marks, raised.cluster, u64::MAX)?;
        // The new era closes all names (it is named by none of them), and this node new ones: where it is not there, those
        // that were may be gone with it.
        let persistent = CreateMode::Persistent.with_acls(link.acls());
        make(link, client, SEQUENCES, b"", &persistent)?;
        // What is announced was announced in the era that ended.
        for name in children(link, client, LIVE)? {
            remove(link, client, &format!("{LIVE}/{name}"))?;
        }
        Ok(Fenced {
            genesis: raised,
            reserved_until: until,
            marks: marks.iter().flatten().count() as u32,
            repaired: workers.iter().flatten().filter(|found| found.row.is_none()).count() as u32,
            remade: workers.iter().filter(|found| found.is_none()).count() as u32,
            newest_change_ms: workers.iter().chain(&marks).flatten().map(|found| found.changed_ms).max(),
            ensemble_ahead_ms: Some(ahead_ms),
            sequences: names_of(link, client)?.len() as u32,
            lost_sequences: 0,
        })
    }

    /// What is in those nodes; `None` for one that is absent.
    fn read(&self, nodes: &[Node]) -> Result<Vec<Option<Found>>, Failure> {
        let paths: Vec<_> = nodes.iter().map(|node| node.path.clone()).collect();
        let results = read_all(&self.link, &self.client, &paths)?;
        let found = nodes.iter().zip(results).map(|(node, result)| match result {
            MultiReadResult::Data { data, stat } => {
                let row = znode::decode_row(&data, &stat, self.genesis.cluster, node.place, node.spill).ok();
                let changed_ms = u64::try_from(stat.mtime).unwrap_or(0);
                Ok(Some(Found { row, version: stat.version, changed_ms }))
            }
            MultiReadResult::Error { err: Error::NoNode } => Ok(None),
            MultiReadResult::Error { err } => Err(Failure::of(err)),
            other => Err(Failure::Lost(format!("{} cannot be read: {other:?}", node.path))),
        });
        found.collect()
    }

    /// Puts `value` into those nodes, whatever is there, and says what it was.
    fn raise(&self, nodes: &[Node], cluster: ClusterId, value: u64) -> Result<Vec<Option<Found>>, Failure> {
        let mut before = Vec::with_capacity(nodes.len());
        let closed = self.genesis.closed;
        for nodes in nodes.chunks(AT_ONCE) {
            let row = |node: &Node, found: Option<&Found>, version| {
                raised_row(node, found, version, value, closed).encode(cluster)
            };
            before.extend(self.raise_some(nodes, &row)?);
        }
        Ok(before)
    }

    /// As many as one transaction takes. A node that moved since it was read fails all of it.
    fn raise_some(&self, nodes: &[Node], row: &RaisedRow<'_>) -> Result<Vec<Option<Found>>, Failure> {
        for _ in 0..TRIES {
            let found = self.read(nodes)?;
            let is_unnamable = |found: &Option<Found>| found.as_ref().is_some_and(|found| found.version < 0);
            if found.iter().any(is_unnamable) {
                // A version that is below zero cannot be named: those nodes are made again.
                for (node, _) in nodes.iter().zip(&found).filter(|(_, found)| is_unnamable(found)) {
                    remove(&self.link, &self.client, &node.path)?;
                }
                continue;
            }
            if self.write(nodes, &found, row)? {
                return Ok(found);
            }
        }
        let first = nodes.first().map_or("", |node| &node.path);
        Err(Failure::Lost(format!("{first} or one after it is changed by somebody else again and again")))
    }

    /// Whether all of it was written, each node at the version that was found.
    fn write(&self, nodes: &[Node], found: &[Option<Found>], row: &RaisedRow<'_>) -> Result<bool, Failure> {
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        let mut writer = self.client.new_multi_writer();
        for (node, found) in nodes.iter().zip(found) {
            let added = match found {
                None => writer.add_create(&node.path, &row(node, None, 0), &options),
                Some(found @ Found { version, .. }) => {
                    let next = u64::try_from(*version).map_or(0, znode::next_version);
                    writer.add_set_data(&node.path, &row(node, Some(found), next), Some(*version))
                }
            };
            added.map_err(Failure::of)?;
        }
        let commit = writer.commit();
        match self.link.ask(async { commit.await.map_err(Error::from) }) {
            Ok(_) => Ok(true),
            Err(Failure::Said(Error::BadVersion | Error::NodeExists | Error::NoNode)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// A record's node.
struct Node {
    path: String,
    place: Place,
    spill: SpillId,
}

impl Node {
    fn worker(worker: u32) -> Self {
        Self { path: worker_path(worker), place: Place::worker(worker), spill: NO_SPILL }
    }

    fn mark(spill: SpillId) -> Self {
        Self { path: spill_path(spill), place: Place::mark(MARK), spill }
    }
}

/// A record as it was found.
struct Found {
    /// `None` if it cannot be believed.
    row: Option<Row>,
    version: i32,
    /// By the ensemble's clock of then.
    changed_ms: u64,
}

/// The bytes that a fence puts into a node in which it found that, as that version.
type RaisedRow<'a> = dyn Fn(&Node, Option<&Found>, u64) -> [u8; SECTOR] + 'a;

/// A worker stays closed if its record says so; where that cannot be read, if it was closed when the registry was made.
/// One that was opened since is opened once more then, by a person.
fn raised_row(node: &Node, found: Option<&Found>, version: u64, value: u64, closed: Workers) -> Row {
    let is_worker = node.place.kind == Kind::Worker;
    let row = found.and_then(|found| found.row.as_ref());
    if is_worker && row.map_or_else(|| closed.contains(node.place.slot), Row::is_closed) {
        return Row { version, ..Row::closed(node.place, value) };
    }
    let owner = if is_worker { "fence" } else { "" };
    Row {
        place: node.place,
        spill: node.spill,
        version,
        value,
        token: Token::default(),
        operation: 0,
        updated_ms: 0,
        owner: owner.to_owned(),
        named: None,
    }
}

/// Deletes a node, or finds it deleted.
fn remove(link: &Link, client: &Client, path: &str) -> Result<(), Failure> {
    match link.ask(client.delete(path, None)) {
        Ok(()) | Err(Failure::Said(Error::NoNode)) => Ok(()),
        Err(failure) => Err(failure),
    }
}
