//! After a restore, and after damage: raising every record above what may have been granted.
//!
//! # Invariants
//! - I1 the era's node is deleted before anything is read, and another one is made when all is raised: in between nobody
//!   else can write, and a fence that is cut off leaves the registry closed;
//! - I2 the new era's name was never used, so no write begun before the fence can succeed after it;
//! - I3 every mark that there was is at its maximum: no extent of any spill can be granted again.

use std::ops::ControlFlow;

use zookeeper_client::{Client, CreateMode, Error, Stat};

use super::error::ZooKeeperError;
use super::genesis::{draw_cluster, draw_era, ensemble_ns, make};
use super::inspect::{broken, children, connected, read_genesis};
use super::link::{Failure, Link};
use super::node::{
    self, CLOCK, ERA, FENCE, FOLDERS, GENESIS, LIVE, MARK, SPILLS, era_path, spill_path, worker_path,
};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use crate::registry::reach::beyond;
use crate::registry::record::{NO_SPILL, Place, Row};
use crate::registry::{ClusterId, Genesis, Token};

/// A node that moves while it is raised is one of another fence, or of a hand.
const TRIES: u32 = 4;

/// What a fence did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced {
    /// What the registry is.
    pub genesis: Genesis,
    /// Up to which tick every worker is reserved now.
    pub reserved_until: u64,
    /// Spills that can never be read again.
    pub marks: u32,
    /// Records that were unreadable and are not any more.
    pub repaired: u32,
    /// Records that were absent and were made again.
    pub remade: u32,
}

/// What an adoption did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// The cluster that the registry belonged to.
    pub before: ClusterId,
    /// The cluster that it is now.
    pub cluster: ClusterId,
    /// The fence that came with it.
    pub fenced: Fenced,
}

/// Raises every worker's record to 125 s past the ensemble's time, or to the highest of them, whichever is later, and every
/// mark to its maximum, and begins another era. Unreadable and absent records become usable again. Servers may run: what
/// they hold stays theirs, and they go on in the new era by themselves.
///
/// For a registry that was restored from a backup, and after damage. It needs a right clock of the ensemble: if that was
/// once further ahead than it is now and no record shows it, what was granted then is not covered.
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
    Ok(Adopted { before, cluster, fenced: fence.run(Some(cluster))? })
}

struct Fence {
    // Before the link: a session ends with the last of its clients.
    client: Client,
    link: Link,
    /// As it was found.
    genesis: Genesis,
    genesis_stat: Stat,
}

/// What is to stand in every record.
struct Raised {
    genesis: Genesis,
    until: u64,
}

impl Fence {
    /// Shuts everybody out (I1).
    fn begin(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let mut link = Link::new(url, options)?;
        let client = connected(&mut link)?;
        read_genesis(&link, &client)?;
        let fail = |failure: Failure| broken(&link, "fence the registry", &failure);
        let ephemeral = CreateMode::Ephemeral.with_acls(link.acls());
        match link.ask(client.create(FENCE, b"", &ephemeral)) {
            Ok(_) => {}
            Err(Failure::Said(Error::NodeExists)) => return Err(ZooKeeperError::Busy { url: url.clone() }),
            Err(failure) => return Err(fail(failure)),
        }
        for folder in FOLDERS {
            let dirs = CreateMode::Persistent.with_acls(link.acls());
            make(&link, &client, folder, &[], &dirs).map_err(fail)?;
        }
        // Only now: after our own write the server that we ask cannot lag behind.
        let (genesis, genesis_stat) = read_genesis(&link, &client)?;
        for era in children(&link, &client, ERA).map_err(fail)? {
            remove(&link, &client, &era_path(&era)).map_err(fail)?;
        }
        Ok(Self { client, link, genesis, genesis_stat })
    }

    fn run(self, adopted: Option<ClusterId>) -> Result<Fenced, ZooKeeperError> {
        let action = if adopted.is_some() { "adopt the registry" } else { "fence the registry" };
        let fenced = self.raise_all(adopted).map_err(|failure| broken(&self.link, action, &failure))?;
        let era = era_path(&draw_era()?);
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        // Last, so that it is younger than every node that was made again.
        let opened =
            self.link.ask(self.client.create(&era, &node::encode_era(self.genesis_stat.czxid), &options));
        opened.map_err(|failure| broken(&self.link, action, &failure))?;
        let _ = remove(&self.link, &self.client, FENCE);
        // A session ends with the last of its clients.
        let Self { mut link, client, .. } = self;
        drop(client);
        link.leave();
        Ok(fenced)
    }

    fn raise_all(&self, adopted: Option<ClusterId>) -> Result<Fenced, Failure> {
        let Self { link, client, genesis, .. } = self;
        let stat = link.ask(client.set_data(CLOCK, b"", None))?;
        let mut highest = genesis.floor;
        for worker in 0..genesis.workers {
            let found = self.read(&worker_path(worker), Place::worker(worker))?;
            if let Some(Found { row: Some(row), .. }) = found {
                highest = highest.max(row.value);
            }
        }
        let until = beyond(&genesis.layout, ensemble_ns(&stat)).unwrap_or(0).max(highest);
        let mut raised = Raised { genesis: *genesis, until };
        if let Some(cluster) = adopted {
            // The floor too: if this is cut off, the next one cannot read what the records of the old cluster say.
            raised.genesis = Genesis { cluster, floor: until, ..*genesis };
            let data = node::encode_genesis(&raised.genesis);
            link.ask(client.set_data(GENESIS, &data, Some(self.genesis_stat.version)))?;
        }
        let (mut repaired, mut remade, mut marks) = (0, 0, 0);
        for worker in 0..genesis.workers {
            let row = raised_row(Place::worker(worker), raised.until, "fence");
            match self.raise(&worker_path(worker), &row, &raised)? {
                Before::Readable => {}
                Before::Unreadable => repaired += 1,
                Before::Absent => remade += 1,
            }
        }
        for name in children(link, client, SPILLS)? {
            let Ok(spill) = name.parse() else { continue };
            let row = Row { spill, ..raised_row(Place::mark(MARK), u64::MAX, "") };
            marks += u32::from(self.raise(&spill_path(spill), &row, &raised)? != Before::Absent);
        }
        // What is announced was announced in the era that ended.
        for name in children(link, client, LIVE)? {
            remove(link, client, &format!("{LIVE}/{name}"))?;
        }
        Ok(Fenced { genesis: raised.genesis, reserved_until: raised.until, marks, repaired, remade })
    }

    fn read(&self, path: &str, place: Place) -> Result<Option<Found>, Failure> {
        match self.link.ask(self.client.get_data(path)) {
            Ok((data, stat)) => {
                let row = node::decode_row(&data, &stat, self.genesis.cluster, place).ok();
                Ok(Some(Found { row, version: stat.version }))
            }
            Err(Failure::Said(Error::NoNode)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Puts `row` into a node, whatever is there.
    fn raise(&self, path: &str, row: &Row, raised: &Raised) -> Result<Before, Failure> {
        for _ in 0..TRIES {
            match self.raise_once(path, row, raised)? {
                ControlFlow::Break(before) => return Ok(before),
                ControlFlow::Continue(()) => {}
            }
        }
        Err(Failure::Lost(format!("{path} is changed by somebody else again and again")))
    }

    fn raise_once(&self, path: &str, row: &Row, raised: &Raised) -> Result<ControlFlow<Before>, Failure> {
        let found = self.read(path, row.place)?;
        let version =
            found.as_ref().map_or(0, |found| u64::try_from(found.version).map_or(0, node::next_version));
        let data = Row { version, ..row.clone() }.encode(raised.genesis.cluster);
        let (before, outcome) = match &found {
            None => {
                let options = CreateMode::Persistent.with_acls(self.link.acls());
                (Before::Absent, self.link.ask(self.client.create(path, &data, &options)).map(drop))
            }
            // A version that is below zero cannot be named: the node is made again.
            Some(found) if found.version < 0 => {
                remove(&self.link, &self.client, path)?;
                return Ok(ControlFlow::Continue(()));
            }
            Some(Found { row, version }) => {
                let before = if row.is_some() { Before::Readable } else { Before::Unreadable };
                (before, self.link.ask(self.client.set_data(path, &data, Some(*version))).map(drop))
            }
        };
        match outcome {
            Ok(()) => Ok(ControlFlow::Break(before)),
            Err(Failure::Said(Error::BadVersion | Error::NodeExists | Error::NoNode)) => {
                Ok(ControlFlow::Continue(()))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// A record as it was found.
struct Found {
    /// `None` if it cannot be believed.
    row: Option<Row>,
    version: i32,
}

/// What a record was before it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Readable,
    Unreadable,
    Absent,
}

fn raised_row(place: Place, value: u64, owner: &str) -> Row {
    Row {
        place,
        spill: NO_SPILL,
        version: 0,
        value,
        token: Token::default(),
        operation: 0,
        updated_ms: 0,
        owner: owner.to_owned(),
    }
}

/// Deletes a node, or finds it deleted.
fn remove(link: &Link, client: &Client, path: &str) -> Result<(), Failure> {
    match link.ask(client.delete(path, None)) {
        Ok(()) | Err(Failure::Said(Error::NoNode)) => Ok(()),
        Err(failure) => Err(failure),
    }
}
