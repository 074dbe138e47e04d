//! The registry in a ZooKeeper ensemble: one cluster of many hosts.
//!
//! ```text
//!   ZooKeeperRegistry   the port's adaptor
//!     |        \
//!   Tree       Seat     the data folder's: which worker this process held last
//!     |  \
//!   Link  SeenNodes     a session after another | what nodes looked like before
//! ```
//!
//! ZooKeeper is trusted for the order of writes and for nothing else: not for time, not for telling which process is
//! alive, and not for telling what became of a request. The nodes, their bytes and the protocol are specified in
//! `docs/registry.md`.
//!
//! Everything here blocks, on a thread of an asynchronous runtime, too: open it on one of its own (`spawn_blocking`), as
//! the engine uses it on one. The client has a thread besides. A forked child cannot use a registry in an ensemble if its
//! parent did: the client's reactor stays behind.
//!
//! # Invariants
//! - I1 a worker is taken in one transaction with its announcement; all else is compare-and-set of one node;
//! - I2 nothing here makes a worker's node: all exist from genesis, and only a fence makes one again;
//! - I3 an announcement (`live/N`) allows nothing and forbids nothing.

mod error;
mod fence;
#[cfg(any(test, fuzzing))]
#[path = "../../../testing/fuzz/zookeeper.rs"]
pub(crate) mod fuzzing;
mod genesis;
mod inspect;
mod link;
mod marks;
mod restore_check;
mod sequences;
mod target;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod tree;
mod znode;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use xuid_spill::SpillId;
use zookeeper_client::CreateMode;

pub use error::{LoginError, ZooKeeperError};
pub use fence::{adopt, fence};
pub use genesis::{Created, Plan, clock_ahead_ms, init};
pub use inspect::{Inspection, inspect};
pub use sequences::ZooKeeperSequences;
pub use target::{AuthScheme, Credentials, ParseUrlError, ZooKeeperOptions, ZooKeeperUrl};
pub use znode::VERSION as FORMAT_VERSION;

use self::inspect::Listing;
use self::link::{Failure, Link};
use self::restore_check::{Learnt, SeenFile};
use self::tree::{Announce, OLD_SAMPLE_NS, StoreError, Tree, Write};
use self::znode::{MARK, live_path, spill_path, worker_path};
use crate::clock::boot_ns;
use crate::registry::local::{LocalError, Seat, Taker};
use crate::registry::record::{NO_SPILL, Place, Row};
use crate::registry::{
    Connection, Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry,
    WorkerRecord,
};
use crate::sys::deferred_log;

/// How a worker is announced with its claim, try by try: it races with an old session's end at most once or twice, and
/// if it cannot be done at all the worker is taken without.
const ANNOUNCEMENTS: [Option<Announce>; 4] =
    [Some(Announce::New), Some(Announce::Instead), Some(Announce::New), None];

/// Of processes that look for a seat at the same moment, each loses to each other one at most once.
const SEAT_TRIES: u32 = 16;

/// The registry of a path in an ensemble, opened by one engine.
///
/// ```no_run
/// use xuid_engine::Engine;
/// use xuid_engine::registry::zookeeper::{ZooKeeperOptions, ZooKeeperRegistry};
/// let url = "zookeeper://zk1:2181,zk2:2181,zk3:2181/ids".parse()?;
/// let options = ZooKeeperOptions { folder: Some("data".into()), ..ZooKeeperOptions::default() };
/// let registry = ZooKeeperRegistry::open(&url, &options)?;
/// let engine = Engine::builder().data_dir("data").registry(Box::new(registry)).build()?;
/// println!("{}", engine.next_id()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ZooKeeperRegistry {
    tree: Tree,
    seat: Option<Seat>,
    /// The workers this engine holds, and the owner it announces them with.
    held: BTreeMap<u32, String>,
    /// The last write of ours whose time was not looked at yet, and when it was begun.
    written: Option<(Token, u64, u64)>,
    /// The link's sessions when everything held was announced last.
    announced_in: u64,
}

impl ZooKeeperRegistry {
    /// Opens the registry at `url`.
    ///
    /// # Errors
    /// Among others [`ZooKeeperError::Absent`] where none was made, and [`ZooKeeperError::Closed`] for one that was
    /// restored from a backup and not fenced.
    pub fn open(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let (tree, seat) = open_tree(url, options, Taker::Engine)?;
        Ok(Self { tree, seat, held: BTreeMap::new(), written: None, announced_in: 0 })
    }

    fn store(&mut self, write: &Write<'_>) -> Result<(), StoreError> {
        let begun = boot_ns();
        let outcome = self.tree.store(write);
        self.written = Some((write.row.token, write.row.operation, begun));
        outcome
    }

    /// Reads a record; if it is the last one that we wrote, its time is the ensemble's clock.
    fn read(&mut self, path: &str, place: Place, spill: SpillId) -> Result<Row, ReadError> {
        let (row, stat) = self.tree.row(path, place, spill)?;
        if let Some((token, operation, begun)) = self.written
            && (row.token, row.operation) == (token, operation)
        {
            // Found to be ours long after, it says what time it was then.
            if boot_ns().saturating_sub(begun) < OLD_SAMPLE_NS {
                self.tree.take_sample(&stat, begun);
            }
            self.written = None;
        }
        Ok(row)
    }

    fn check_worker(&self, worker: u32) -> Result<(), ReadError> {
        if self.tree.genesis.worker_range().contains(worker) {
            return Ok(());
        }
        Err(ReadError::Absent { what: Place::worker(worker).to_string() })
    }

    /// Announces everything that is held, after a new session: the old one's announcements end with it.
    fn announce(&mut self) -> Result<(), ReadError> {
        let client = self.tree.client()?;
        let session = client.session_id().0;
        let acls = self.tree.link.acls();
        let mut all = true;
        for (worker, owner) in &self.held {
            let path = live_path(*worker);
            let found = self.tree.link.ask(client.check_stat(&path));
            let ours = CreateMode::Ephemeral.with_acls(acls);
            match found {
                Ok(Some(stat)) if stat.ephemeral_owner == session => continue,
                Ok(None) => {}
                // Of our last session, or of a process that took the worker since: the one ends soon, the other is
                // right.
                Ok(Some(_)) => {
                    all = false;
                    continue;
                }
                Err(_) => return Ok(()),
            }
            let made = self.tree.link.ask(client.create(&path, owner.as_bytes(), &ours));
            if let Err(failure) = made {
                let (worker, why) = (*worker, failure.why().clone());
                deferred_log::log(move || tracing::debug!(worker, why, "a worker was not announced"));
                return Ok(());
            }
        }
        if all {
            self.announced_in = self.tree.link.connection().sessions();
        }
        Ok(())
    }
}

impl Registry for ZooKeeperRegistry {
    fn genesis(&self) -> &Genesis {
        &self.tree.genesis
    }

    fn describe(&self) -> String {
        self.tree.link.url().to_string()
    }

    fn last_worker(&self) -> Option<u32> {
        self.seat.as_ref()?.last()
    }

    fn time(&mut self) -> Option<u64> {
        self.tree.time()
    }

    fn reached(&mut self) -> Option<u64> {
        self.tree.reached()
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        Some(self.tree.link.connection().clone())
    }

    fn maintain(&mut self) {
        let announced = self.announced_in == self.tree.link.connection().sessions();
        let looked = self.tree.client();
        if looked.is_ok() && !announced && !self.held.is_empty() {
            // Tried again until it is done; what goes wrong says so itself.
            let _ = self.announce();
        }
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        let client = self.tree.client()?;
        let unavailable = |failure: Failure| ReadError::Unavailable { why: failure.why() };
        let tree = &mut self.tree;
        let listing = Listing::read(&tree.link, &client, tree.genesis.worker_range()).map_err(unavailable)?;
        tree.still_connected()?;
        let entries = listing.entries(|place, data, stat| {
            let row = tree.believe(&client, &worker_path(place.slot), (data, stat), place, NO_SPILL)?;
            Ok(Versioned { version: tree.tagged(row.version), record: row.worker_record() })
        });
        let whole = entries.map(|entry| match entry.record {
            // Of the whole registry, not of this one record.
            Err(error @ (ReadError::Unavailable { .. } | ReadError::Foreign { .. })) => Err(error),
            _ => Ok(entry),
        });
        whole.collect()
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        self.check_worker(worker)?;
        let row = self.read(&worker_path(worker), Place::worker(worker), NO_SPILL)?;
        Ok(Versioned { version: self.tree.tagged(row.version), record: row.worker_record() })
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.check_worker(worker)?;
        let path = worker_path(worker);
        let row = worker_row(worker, record);
        let sessions = self.tree.link.connection().sessions();
        let others_are = self.held.is_empty() || self.announced_in == sessions;
        for announce in ANNOUNCEMENTS {
            let announce = announce.map(|how| (live_path(worker), how));
            let is_announced = announce.is_some();
            let outcome = self.store(&Write { path: &path, row: row.clone(), expected, announce });
            // Remembered for an unknown outcome too: it may be found to have been ours.
            if matches!(outcome, Ok(()) | Err(StoreError::Swap(SwapError::Unknown { .. }))) {
                self.held.insert(worker, record.owner.clone());
            }
            match outcome {
                Ok(()) => {
                    if others_are && is_announced {
                        self.announced_in = sessions;
                    }
                    if let Some(seat) = &mut self.seat {
                        seat.hold(worker);
                    }
                    return Ok(());
                }
                Err(StoreError::Swap(error)) => return Err(error),
                Err(StoreError::Announced) => {}
            }
        }
        Err(SwapError::Unavailable {
            why: format!("worker {worker} is announced and unannounced again and again"),
        })
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        self.check_worker(worker)?;
        let path = worker_path(worker);
        let write = Write { path: &path, row: worker_row(worker, record), expected, announce: None };
        swapped(self.store(&write))
    }

    fn leave(&mut self, worker: u32) {
        self.held.remove(&worker);
        if let Some(seat) = &mut self.seat {
            seat.leave(worker);
        }
        // Not worth making a session for: without one the announcement ends with the old one.
        let Some(client) = self.tree.link.connected() else { return };
        let path = live_path(worker);
        // Only what this very session announced: another's has another owner, though its version may be the same.
        if let Ok(Some(stat)) = self.tree.link.ask(client.check_stat(&path))
            && stat.ephemeral_owner == client.session_id().0
        {
            let _ = self.tree.link.ask(client.delete(&path, Some(stat.version)));
        }
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        let row = self.read(&spill_path(spill), Place::mark(MARK), spill)?;
        Ok(Versioned { version: self.tree.tagged(row.version), record: row.mark_record() })
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        let client = self.tree.client()?;
        marks::make_room(&self.tree.link, &client);
        self.tree.create(&spill_path(spill), &marks::row(spill, record))
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        let path = spill_path(spill);
        let write = Write { path: &path, row: marks::row(spill, record), expected, announce: None };
        swapped(self.store(&write))
    }

    fn close(&mut self) {
        self.held.clear();
        self.seat = None;
        self.tree.link.leave();
    }
}

fn worker_row(worker: u32, record: &WorkerRecord) -> Row {
    Row {
        place: Place::worker(worker),
        spill: NO_SPILL,
        version: 0,
        value: record.reserved_until,
        token: record.token,
        operation: record.operation,
        // The node's own time of change says it.
        updated_ms: 0,
        owner: record.owner.clone(),
        named: None,
    }
}

/// Opens the nodes of the registry at `url`, and takes a seat in the data folder, where there is one.
fn open_tree(
    url: &ZooKeeperUrl,
    options: &ZooKeeperOptions,
    taker: Taker,
) -> Result<(Tree, Option<Seat>), ZooKeeperError> {
    let mut link = Link::new(url, options)?;
    let (genesis, found) = inspect::opened(&mut link)?;
    // The process may work in another directory when it writes there.
    let absolute = |folder: &Path| std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = options.folder.as_deref().map(absolute);
    let seat = folder.as_deref().map(|folder| take_seat(folder, taker)).transpose()?;
    let mut tree = if let (Some(folder), Some(seat)) = (&folder, &seat) {
        let known = SeenFile::of_folder(folder, genesis.cluster);
        let latest = SeenFile::latest(&known, found);
        let ended = SeenFile::all_ended(&known);
        let seen_file = SeenFile::of_seat(folder, &taker.label(seat), genesis.cluster, &latest, ended);
        let others = SeenFile::all(known, &latest.era);
        let mut tree = Tree::new(link, genesis, latest.era, seen_file);
        tree.know(others);
        tree
    } else {
        let seen_file = SeenFile::new(genesis.cluster, &Learnt::now(found.clone()));
        Tree::new(link, genesis, found, seen_file)
    };
    // Looks at genesis and era once more, now beside what is known, as after every connection.
    if let Err(error) = tree.client() {
        return Err(tree.not_opened(error));
    }
    Ok((tree, seat))
}

/// A seat in the data folder. Nothing locks the whole folder here, so another process may be quicker.
fn take_seat(folder: &Path, taker: Taker) -> Result<Seat, ZooKeeperError> {
    let fail = |action: &'static str| move |source| ZooKeeperError::System { action, source };
    xuid_spill::make_folder(folder).map_err(fail("make the data folder"))?;
    let mut seat = Seat::take(folder, taker);
    for _ in 0..SEAT_TRIES {
        match seat {
            Err(LocalError::Unsettled { .. }) => seat = Seat::take(folder, taker),
            _ => break,
        }
    }
    seat.map_err(|error| fail("take a seat in the data folder")(std::io::Error::other(error)))
}

fn swapped(outcome: Result<(), StoreError>) -> Result<(), SwapError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(StoreError::Swap(error)) => Err(error),
        // Nothing was announced in it.
        Err(StoreError::Announced) => Err(SwapError::Conflict),
    }
}
