//! Looking at a registry without using it: nothing is written.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use xuid_spill::SpillId;
use zookeeper_client::{Client, Error, MultiReadResult, Stat};

use super::error::ZooKeeperError;
use super::link::{Failure, Link};
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::znode::{self, AT_ONCE, ERA, GENESIS, LIVE, MARK, SPILLS, era_path, spill_path, worker_path};
use crate::registry::record::{NO_SPILL, Place};
use crate::registry::{
    Genesis, MarkRecord, ReadError, Versioned, WorkerEntry, WorkerRecord, Workers, printable,
};

/// What a registry says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// What it was created with.
    pub genesis: Genesis,
    /// Whether it may be used: not while it is fenced, nor after it was found restored.
    pub open: bool,
    /// All workers, in order.
    pub workers: Vec<WorkerEntry>,
    /// The marks that can be read.
    pub marks: Vec<(SpillId, MarkRecord)>,
    /// Whatever is not as it should be, each a sentence.
    pub findings: Vec<String>,
    /// Workers and marks among the findings that cannot be believed; of a closed registry none, since nobody can say
    /// which.
    pub unreadable: usize,
}

/// Looks at the registry at `url`.
///
/// # Errors
/// If there is none, the ensemble does not answer, or genesis cannot be believed.
pub fn inspect(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Inspection, ZooKeeperError> {
    let mut link = Link::new(url, options)?;
    let client = connected(&mut link)?;
    // A server that lags behind would say less than was granted.
    let synced = link.ask(client.sync("/"));
    synced.map_err(|failure| broken(&link, "talk to ZooKeeper", &failure))?;
    let (genesis, stat) = read_genesis(&link, &client)?;
    let broken = |failure: Failure| broken(&link, "look at the registry", &failure);
    let era = read_era(&link, &client, stat.czxid).map_err(broken)?;
    let mut findings = Vec::new();
    if let Err(why) = &era {
        findings
            .push(format!("it is closed: {why}; unless a fence is at work, run `xuid registry fence {url}`"));
    }
    // Of a closed registry nobody can say which nodes are older than its era.
    let era_birth = era.as_ref().map_or(i64::MAX, |era| era.birth);
    let listing = Listing::read(&link, &client, genesis.worker_range()).map_err(broken)?;
    let believe = |place: Place, data: &[u8], stat: &Stat| {
        let damaged = |why| ReadError::Damaged { what: place.to_string(), why };
        if znode::is_made_again(stat, era_birth) {
            return Err(damaged(znode::MADE_AGAIN.into()));
        }
        let row = znode::decode_row(data, stat, genesis.cluster, place, NO_SPILL).map_err(damaged)?;
        Ok(Versioned { version: row.version, record: row.worker_record() })
    };
    let workers: Vec<_> = listing.entries(believe).collect();
    findings.extend(workers.iter().filter_map(|entry| entry.record.as_ref().err().map(ToString::to_string)));
    let unbelieved = workers.iter().filter(|entry| entry.record.is_err()).count();
    let (marks, damaged) = read_marks(&link, &client, &genesis, &mut findings).map_err(broken)?;
    let unreadable = if era.is_ok() { unbelieved + damaged } else { 0 };
    Ok(Inspection { genesis, open: era.is_ok(), workers, marks, findings, unreadable })
}

/// The marks, and how many cannot be believed.
fn read_marks(
    link: &Link,
    client: &Client,
    genesis: &Genesis,
    findings: &mut Vec<String>,
) -> Result<(Vec<(SpillId, MarkRecord)>, usize), Failure> {
    let (mut marks, mut damaged) = (Vec::new(), 0);
    for name in children(link, client, SPILLS)? {
        let Ok(spill) = name.parse::<SpillId>() else {
            findings.push(format!("{SPILLS}/{} is no spill's mark", printable(&name)));
            continue;
        };
        let (data, stat) = match link.ask(client.get_data(&spill_path(spill))) {
            Ok(found) => found,
            Err(Failure::Said(Error::NoNode)) => continue,
            Err(failure) => return Err(failure),
        };
        match znode::decode_row(&data, &stat, genesis.cluster, Place::mark(MARK), spill) {
            Ok(row) => marks.push((spill, row.mark_record())),
            Err(why) => {
                damaged += 1;
                findings.push(format!("the mark of spill {spill} is unreadable ({why}); it stays refused"));
            }
        }
    }
    Ok((marks, damaged))
}

/// Every worker's node as it was read, and which workers are announced.
pub(super) struct Listing {
    workers: Workers,
    nodes: Vec<MultiReadResult>,
    live: HashSet<u32>,
}

impl Listing {
    pub(super) fn read(link: &Link, client: &Client, workers: Workers) -> Result<Self, Failure> {
        let live = children(link, client, LIVE)?.iter().filter_map(|name| name.parse().ok()).collect();
        let paths: Vec<_> = workers.numbers().map(worker_path).collect();
        Ok(Self { workers, nodes: read_all(link, client, &paths)?, live })
    }

    /// A row for each worker. `believe` says what the data of its node is worth.
    pub(super) fn entries(
        self,
        mut believe: impl FnMut(Place, &[u8], &Stat) -> Result<Versioned<WorkerRecord>, ReadError>,
    ) -> impl Iterator<Item = WorkerEntry> {
        self.workers.numbers().zip(self.nodes).map(move |(worker, node)| {
            let place = Place::worker(worker);
            let what = || place.to_string();
            let record = match node {
                MultiReadResult::Data { data, stat } => believe(place, &data, &stat),
                MultiReadResult::Error { err: Error::NoNode } => Err(ReadError::Absent { what: what() }),
                other => {
                    let why = format!("it cannot be read: {other:?}");
                    Err(ReadError::Damaged { what: what(), why })
                }
            };
            let owner = |found: &Versioned<WorkerRecord>| found.record.owner.clone();
            let live = self.live.contains(&worker).then(|| record.as_ref().map(owner).unwrap_or_default());
            WorkerEntry { worker, record, live }
        })
    }
}

/// The nodes at those paths, some in each request.
pub(super) fn read_all(
    link: &Link,
    client: &Client,
    paths: &[String],
) -> Result<Vec<MultiReadResult>, Failure> {
    let mut nodes = Vec::with_capacity(paths.len());
    for paths in paths.chunks(AT_ONCE) {
        let mut reader = client.new_multi_reader();
        for path in paths {
            reader.add_get_data(path).map_err(Failure::of)?;
        }
        let results = link.ask(reader.commit())?;
        if results.len() != paths.len() {
            return Err(Failure::Lost(format!("{} answers to {} reads", results.len(), paths.len())));
        }
        nodes.extend(results);
    }
    Ok(nodes)
}

/// The names below a node; none where the node is absent.
pub(super) fn children(link: &Link, client: &Client, path: &str) -> Result<Vec<String>, Failure> {
    match link.ask(client.list_children(path)) {
        Err(Failure::Said(Error::NoNode)) => Ok(Vec::new()),
        found => found,
    }
}

/// Lists that are asked for together: each may have many names.
const LISTS_AT_ONCE: usize = 32;

/// The same of several nodes, which are asked for together: one by one each would cost a way to the ensemble and back.
pub(super) fn children_of_all(
    link: &Link,
    client: &Client,
    paths: &[String],
) -> Result<Vec<Vec<String>>, Failure> {
    let mut all = Vec::with_capacity(paths.len());
    for paths in paths.chunks(LISTS_AT_ONCE) {
        // Each is on its way from here on.
        let asked: Vec<_> = paths.iter().map(|path| client.list_children(path)).collect();
        let answers = async {
            let mut found = Vec::with_capacity(asked.len());
            for answer in asked {
                found.push(match answer.await {
                    Err(Error::NoNode) => Vec::new(),
                    answer => answer?,
                });
            }
            Ok(found)
        };
        all.extend(link.ask(answers)?);
    }
    Ok(all)
}

/// A client, or why there is none.
pub(super) fn connected(link: &mut Link) -> Result<Client, ZooKeeperError> {
    let hosts = link.url().hosts().to_owned();
    link.client().map_err(|failure| match failure {
        Failure::Refused(why) => ZooKeeperError::Login { hosts, why },
        failure => ZooKeeperError::Unreachable { hosts, why: failure.why() },
    })
}

/// What the registry was created with, and the birth of that node.
pub(super) fn read_genesis(link: &Link, client: &Client) -> Result<(Genesis, Stat), ZooKeeperError> {
    let url = || link.url().clone();
    match link.ask(client.get_data(GENESIS)) {
        Ok((data, stat)) => match znode::decode_genesis(&data) {
            Ok(genesis) => Ok((genesis, stat)),
            Err(why) => Err(ZooKeeperError::Damaged { url: url(), why }),
        },
        Err(Failure::Said(Error::NoNode)) => Err(ZooKeeperError::Absent { url: url() }),
        Err(Failure::Said(Error::NoAuth)) => Err(rights(link, "reading")),
        Err(failure) => Err(broken(link, "read the registry's genesis", &failure)),
    }
}

/// While it is there, the registry is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Era {
    pub(super) name: String,
    /// Of its node: every worker's is older.
    pub(super) birth: i64,
    /// When that was, by the ensemble's clock, in Unix milliseconds.
    pub(super) made_ms: i64,
    /// The same by the clock of the process that made it.
    pub(super) begun_ms: u64,
}

/// The era of a registry whose genesis has that birth, or why it is closed.
pub(super) fn read_era(
    link: &Link,
    client: &Client,
    genesis_birth: i64,
) -> Result<Result<Era, String>, Failure> {
    let names = children(link, client, ERA)?;
    let [name] = &names[..] else {
        return Ok(Err(match names.len() {
            0 => "it is being fenced or was found restored from a backup, or its making was cut off".into(),
            several => format!("it has {several} eras and should have one"),
        }));
    };
    match link.ask(client.get_data(&era_path(name))) {
        Ok((data, stat)) => Ok(match znode::decode_era(&data, &stat) {
            Some((birth, begun_ms)) if birth == genesis_birth => {
                Ok(Era { name: name.clone(), birth: stat.czxid, made_ms: stat.ctime, begun_ms })
            }
            _ => Err("its nodes were deleted and made again, with what they held at some time".into()),
        }),
        Err(Failure::Said(Error::NoNode)) => Ok(Err("it is being fenced".into())),
        Err(failure) => Err(failure),
    }
}

/// Genesis and era of a registry that is to be used.
pub(super) fn opened(link: &mut Link) -> Result<(Genesis, Era), ZooKeeperError> {
    let client = connected(link)?;
    // A server that lags behind may not have it yet.
    let synced = link.ask(client.sync("/"));
    synced.map_err(|failure| broken(link, "talk to ZooKeeper", &failure))?;
    let (genesis, stat) = read_genesis(link, &client)?;
    let era = read_era(link, &client, stat.czxid);
    match era.map_err(|failure| broken(link, "read the registry's era", &failure))? {
        Ok(era) => Ok((genesis, era)),
        Err(why) => Err(ZooKeeperError::Closed { url: link.url().clone(), why }),
    }
}

pub(super) fn rights(link: &Link, action: &'static str) -> ZooKeeperError {
    ZooKeeperError::Rights { hosts: link.url().hosts().to_owned(), action }
}

pub(super) fn broken(link: &Link, action: &'static str, failure: &Failure) -> ZooKeeperError {
    match failure {
        Failure::Said(Error::NoAuth) => rights(link, "changes"),
        failure => ZooKeeperError::Broken { action, why: failure.why() },
    }
}
