//! Making a registry: once, by a person.
//!
//! The era's node comes last, so a making that is cut off leaves a registry that is closed, which a fence completes. No fence
//! works on one that is being made, nor the other way round: both hold the same node, which ends with their session, and
//! what was begun in a session that ended is not done any more. Else the two would begin an era each.

use xuid_id::Layout;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, Stat};

use super::error::ZooKeeperError;
use super::inspect::{broken, children, connected, read_genesis, rights};
use super::link::{Failure, Link};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::znode::{
    self, AT_ONCE, CLOCK, ERA, FENCE, FOLDERS, GENESIS, WORKERS, era_path, wall_ms, worker_path,
};
use crate::registry::Floor;
use crate::registry::limits::beyond;
use crate::registry::record::{Place, Row};
use crate::registry::{ClusterId, Genesis, Workers};

/// A node takes half a kilobyte, and each process that looks for a worker reads all of them.
const MOST_WORKERS: u32 = 1 << 14;

/// Where registries leave a trace of themselves, which outlives them.
const TRACES: &str = "/xuid-registries";

/// What a registry is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The layout of every id.
    pub layout: Layout,
    /// From when on ids may be minted. `None`: from the ensemble's time now on, or 125 s later where a registry seems
    /// to have been before. A floor that is given is an assertion: of the namespace, nothing later is in use; but
    /// [`Floor::Tick`] is of another generator, and those 125 s are kept beside it.
    pub floor: Option<Floor>,
    /// How many workers it has, at most the layout's and 16,384.
    pub workers: u32,
    /// The [check](xuid_id::Veil::check) of their key, where the layout is of opaque ids.
    pub key_check: Option<u64>,
    /// The first of them.
    pub first_worker: u32,
    /// Those that another generator has for now.
    pub closed: Workers,
}

/// A registry that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// What it is.
    pub genesis: Genesis,
    /// There are signs that one was there before, so it begins later than now.
    pub again: bool,
    /// By how many ms the ensemble's clock is ahead of this host's.
    pub ahead_ms: i64,
}

/// Makes the registry at `url`.
///
/// # Errors
/// [`ZooKeeperError::Exists`] if there is one.
pub fn init(url: &ZooKeeperUrl, options: &ZooKeeperOptions, plan: &Plan) -> Result<Created, ZooKeeperError> {
    let most = plan.layout.workers().min(MOST_WORKERS);
    let (first, there) = (plan.first_worker, plan.layout.workers());
    let range = Workers { from: first, until: first.saturating_add(plan.workers) };
    if !(1..=most).contains(&plan.workers) || range.until > there || !plan.closed.are_among(&range) {
        return Err(ZooKeeperError::Workers { found: plan.workers, most });
    }
    let to_be = |cluster, floor| Genesis {
        key_check: plan.key_check,
        first_worker: plan.first_worker,
        closed: plan.closed.or_none(),
        ..Genesis::new(cluster, plan.layout, floor, plan.workers)
    };
    to_be(ClusterId::ANY, 0).check_key()?;
    let mut link = Link::new(url, options)?;
    let client = connected(&mut link)?;
    if let Ok((genesis, _)) = read_genesis(&link, &client) {
        return Err(ZooKeeperError::Exists { url: url.clone(), cluster: genesis.cluster });
    }
    let root = link
        .root()
        .ok_or_else(|| broken(&link, "talk to ZooKeeper", &Failure::Away("the session ended".into())))?;
    let fail = |failure: Failure| broken(&link, "make the registry", &failure);
    let dirs = CreateMode::Persistent.with_acls(link.acls());
    make_path(&link, &root, &dirs)?;
    let before = leaves_a_trace(&link, &root)?;
    for folder in FOLDERS {
        make(&link, &client, folder, &[], &dirs).map_err(fail)?;
    }
    for folder in [ERA, WORKERS] {
        if let Some(left) = children(&link, &client, folder).map_err(fail)?.first() {
            let why = format!(
                "there is no genesis, and {folder}/{left} is left of an earlier one: delete {}",
                url.path()
            );
            return Err(ZooKeeperError::Damaged { url: url.clone(), why });
        }
    }
    hold(&link, &client)?;
    let stat = link.ask(client.set_data(CLOCK, b"", None)).map_err(fail)?;
    let ahead_ms = ahead_ms(&stat);
    let genesis = to_be(draw_cluster()?, floor(plan, ensemble_ns(&stat), before));
    let birth = match link.ask(client.create(GENESIS, &znode::encode_genesis(&genesis), &dirs)) {
        Ok((stat, _)) => stat.czxid,
        Err(Failure::Said(Error::NodeExists)) => {
            let cluster = read_genesis(&link, &client)?.0.cluster;
            return Err(ZooKeeperError::Exists { url: url.clone(), cluster });
        }
        Err(failure) => return Err(fail(failure)),
    };
    make_workers(&link, &client, &genesis, &dirs).map_err(fail)?;
    make(&link, &client, &era_path(&draw_era()?), &znode::encode_era(birth, wall_ms()), &dirs)
        .map_err(fail)?;
    let _ = link.ask(client.delete(FENCE, None));
    // A session ends with the last of its clients.
    drop((root, client));
    link.leave();
    Ok(Created { genesis, again: before && is_raised(plan), ahead_ms })
}

/// By how many ms the ensemble's clock is ahead of this host's; `None` where the registry has no node that tells it.
///
/// # Errors
/// Where the ensemble cannot be reached.
pub fn clock_ahead_ms(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Option<i64>, ZooKeeperError> {
    let mut link = Link::new(url, options)?;
    let client = connected(&mut link)?;
    // A path where something else is gets no write.
    read_genesis(&link, &client)?;
    let told = link.ask(client.set_data(CLOCK, b"", None));
    drop(client);
    let ahead_ms = match told {
        Ok(stat) => Ok(Some(ahead_ms(&stat))),
        Err(Failure::Said(Error::NoNode)) => Ok(None),
        Err(failure) => Err(broken(&link, "read its clock", &failure)),
    };
    link.leave();
    ahead_ms
}

fn floor(plan: &Plan, now_ns: u64, before: bool) -> u64 {
    let floor = plan.floor.unwrap_or_default().tick(&plan.layout, now_ns);
    if !before || !is_raised(plan) {
        return floor;
    }
    beyond(&plan.layout, now_ns).unwrap_or(0).min(plan.layout.last_tick()).max(floor)
}

/// Whether the floor is raised above the windows of an earlier registry: a person who names a tick knows another
/// generator's last id, and not what that registry granted.
fn is_raised(plan: &Plan) -> bool {
    matches!(plan.floor, None | Some(Floor::Tick(_)))
}

/// Leaves a trace of this registry outside of it, and says whether one was there already: then a registry was at this
/// path before and was deleted, and processes that held windows of it may hold them still, for two minutes at most.
fn leaves_a_trace(link: &Link, root: &Client) -> Result<bool, ZooKeeperError> {
    let path = link.url().path();
    let fail = |failure: Failure| broken(link, "look at the path", &failure);
    let everybody = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let trace = trace_path(path);
    let note = b"a registry of X-UID was made at this path";
    let leave = || link.ask(root.create(&trace, note, &everybody));
    let left = match leave() {
        Err(Failure::Said(Error::NoNode)) => make(link, root, TRACES, b"", &everybody).and_then(|()| leave()),
        left => left,
    };
    match left {
        Ok(_) => {
            let found = link.ask(root.check_stat(path)).map_err(fail)?;
            Ok(found.is_some_and(|found| found.cversion > 0))
        }
        // A user that may not leave a trace may not have left one before either, so it is not known.
        Err(Failure::Said(Error::NodeExists | Error::NoAuth)) => Ok(true),
        Err(failure) => Err(fail(failure)),
    }
}

/// The trace of the registry at a path: one name, so slashes become colons, which a path of ours has none of.
fn trace_path(path: &str) -> String {
    format!("{TRACES}/{}", path.trim_start_matches('/').replace('/', ":"))
}

/// Makes the path: what leads to it open to everybody, as others may use it too, its last node with the registry's
/// rights.
fn make_path(link: &Link, root: &Client, dirs: &CreateOptions<'_>) -> Result<(), ZooKeeperError> {
    let path = link.url().path();
    let everybody = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let made = match (make(link, root, path, b"", dirs), path.rsplit_once('/')) {
        (Err(Failure::Said(Error::NoNode)), Some((above, _))) => {
            link.ask(root.mkdir(above, &everybody)).and_then(|()| make(link, root, path, b"", dirs))
        }
        (made, _) => made,
    };
    match made {
        Err(Failure::Said(Error::NoAuth)) => Err(rights(link, "making nodes there")),
        made => made.map_err(|failure| broken(link, "make the registry's path", &failure)),
    }
}

/// Holds the node that only one can hold who makes or fences a registry, for as long as the session lasts.
pub(super) fn hold(link: &Link, client: &Client) -> Result<(), ZooKeeperError> {
    let ephemeral = CreateMode::Ephemeral.with_acls(link.acls());
    match link.ask(client.create(FENCE, b"", &ephemeral)) {
        Ok(_) => Ok(()),
        Err(Failure::Said(Error::NodeExists)) => Err(ZooKeeperError::Busy { url: link.url().clone() }),
        Err(failure) => Err(broken(link, "shut out other fences", &failure)),
    }
}

/// Makes a node, or finds it made.
pub(super) fn make(
    link: &Link,
    client: &Client,
    path: &str,
    data: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(), Failure> {
    match link.ask(client.create(path, data, options)) {
        Ok(_) | Err(Failure::Said(Error::NodeExists)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn make_workers(
    link: &Link,
    client: &Client,
    genesis: &Genesis,
    options: &CreateOptions<'_>,
) -> Result<(), Failure> {
    let workers = genesis.worker_range();
    for first in workers.numbers().step_by(AT_ONCE) {
        let mut writer = client.new_multi_writer();
        for worker in first..workers.until.min(first + AT_ONCE as u32) {
            let row = Row { version: 0, ..Row::at_genesis(Place::worker(worker), genesis) };
            let data = row.encode(genesis.cluster);
            writer.add_create(&worker_path(worker), &data, options).map_err(Failure::of)?;
        }
        let commit = writer.commit();
        link.ask(async { commit.await.map_err(Error::from) })?;
    }
    Ok(())
}

/// The ensemble's time of a change.
pub(super) fn ensemble_ns(stat: &Stat) -> u64 {
    u64::try_from(stat.mtime).unwrap_or(0).saturating_mul(1_000_000)
}

/// By how much the ensemble's clock, which told this a moment ago, is ahead of this host's.
pub(super) fn ahead_ms(stat: &Stat) -> i64 {
    stat.mtime.saturating_sub(wall_ms().cast_signed())
}

fn random() -> Result<[u8; 16], ZooKeeperError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ZooKeeperError::System {
        action: "draw random bytes",
        source: std::io::Error::other(error),
    })?;
    Ok(bytes)
}

pub(super) fn draw_cluster() -> Result<ClusterId, ZooKeeperError> {
    random().map(ClusterId::from_bytes)
}

/// The name of an era's node, which was never used before.
pub(super) fn draw_era() -> Result<String, ZooKeeperError> {
    Ok(ClusterId::from_bytes(random()?).to_string())
}
