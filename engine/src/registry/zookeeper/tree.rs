//! A registry's nodes over one link: reads that are believed, writes that are compared, and whether the registry is still
//! the one that was opened.
//!
//! # Invariants
//! - I1 every write names the era's node and the version of what it replaces, in one transaction: it succeeds only in the
//!   era it was begun in, so that a fence ends every right that was there before it;
//! - I2 a registry that this process sees restored from a backup, be it to before a fence, is closed for everybody, by
//!   deleting the era's node, and stays closed until it is fenced. What only a file remembers refuses this process alone;
//! - I3 after each reconnection the nodes that are relied upon are looked at before anything is believed: an ensemble
//!   is restored only while it is stopped.

use std::collections::BTreeSet;

use xuid_spill::SpillId;
use zookeeper_client::{Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriter, Stat};

use super::error::ZooKeeperError;
use super::inspect::{Era, children, read_all, read_era};
use super::link::{Failure, Link};
use super::restore_check::{Comparison, Learnt, NodeVersion, Relation, SeenFile, SeenNodes};
use super::znode::{self, CLOCK, ENDED, GENESIS, ended_path, era_path, known_path};
use crate::clock::boot_ns;
use crate::registry::connection::News;
use crate::registry::record::{Kind, NO_SPILL, Place, Row, SECTOR};
use crate::registry::{Genesis, ReadError, SwapError};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// A sample of the ensemble's clock is of use only if it took less than this to get.
const SAMPLE_NS: u64 = 500_000_000;

/// A sample older than this is taken anew before it bounds a window or corrects our clock. A window is renewed every half
/// minute, and its renewal is a sample too.
pub(super) const OLD_SAMPLE_NS: u64 = 10_000_000_000;

/// Bits of a node's version, which is not negative, in the port's: the era's number is above them.
const VERSION_BITS: u32 = 32;

/// Whether it may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Open,
    /// Nobody may write to it, for this reason.
    Closed(String),
    /// It is another registry now.
    Foreign(String),
}

/// The nodes.
pub(super) struct Tree {
    pub(super) link: Link,
    pub(super) genesis: Genesis,
    era: Era,
    /// Whether this process saw the registry open in that era itself.
    witnessed: bool,
    /// What was refused last for this process alone: it is looked at again and again, and said once.
    refused: Option<String>,
    standing: Standing,
    /// The link's sessions and disconnections as of the last look.
    looked: Option<(u64, u64)>,
    seen_nodes: SeenNodes,
    seen_file: SeenFile,
    /// The nodes that other processes of the folder wrote before this one began.
    inherited: Vec<String>,
    /// The ensemble's wall clock in Unix ns, and boot time then, as well as it is known.
    sample: Option<(u64, u64)>,
    /// The same, from an answer however slow: the ensemble's clock has reached that.
    reached: Option<(u64, u64)>,
    /// Counts up when a fence begins another era.
    eras: u64,
}

/// Something to be stored.
pub(super) struct Write<'a> {
    pub(super) path: &'a str,
    pub(super) row: Row,
    pub(super) expected: u64,
    /// Also announces that this worker is live.
    pub(super) announce: Option<(String, Announce)>,
}

/// How a worker is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announce {
    /// Nobody does.
    New,
    /// In the place of somebody who does.
    Instead,
}

/// A sample of a clock, carried on by our boot clock.
fn since((unix_ns, at): (u64, u64)) -> u64 {
    unix_ns + boot_ns().saturating_sub(at)
}

fn unavailable(failure: &Failure) -> ReadError {
    ReadError::Unavailable { why: failure.why() }
}

impl Tree {
    /// The nodes of the registry of `genesis`, which was read over `link`, in the era that is known.
    pub(super) fn new(link: Link, genesis: Genesis, era: Era, seen_file: SeenFile) -> Self {
        let mut seen_nodes = SeenNodes::default();
        for (path, node_version) in seen_file.nodes() {
            seen_nodes.inherit(path, *node_version);
        }
        Self {
            link,
            genesis,
            era,
            witnessed: false,
            refused: None,
            standing: Standing::Open,
            looked: None,
            seen_nodes,
            seen_file,
            inherited: Vec::new(),
            sample: None,
            reached: None,
            eras: 0,
        }
    }

    /// Takes over what other processes of the folder knew.
    pub(super) fn know(&mut self, nodes: Vec<(String, NodeVersion)>) {
        // As with our own: a node that was made again since is told, too.
        for (path, node_version) in &nodes {
            if self.seen_nodes.compare(path, *node_version) == Comparison::Fine {
                self.seen_nodes.inherit(path, *node_version);
            }
        }
        self.inherited = nodes.into_iter().map(|(path, _)| path).collect();
    }

    /// The ensemble's wall clock now, as far as our boot clock tells from its last sample.
    pub(super) fn time(&mut self) -> Option<u64> {
        self.refresh_clock();
        self.sample.map(since)
    }

    /// What the ensemble's wall clock has reached for certain.
    pub(super) fn reached(&mut self) -> Option<u64> {
        self.refresh_clock();
        self.reached.map(since)
    }

    /// Reads the ensemble's clock again if the last sample is old: it may have been set since.
    fn refresh_clock(&mut self) {
        let is_old = |(_, at): (u64, u64)| boot_ns().saturating_sub(at) > OLD_SAMPLE_NS;
        if self.reached.is_none_or(is_old)
            && self.standing == Standing::Open
            && let Some(client) = self.link.connected()
        {
            self.sample_clock(&client);
        }
    }

    /// The version of a record as the port has it: one that was read in an earlier era fits nothing in this one.
    pub(super) fn tagged(&self, version: u64) -> u64 {
        let eras = if Guard::EraTagged.holds() { self.eras } else { 0 };
        eras << VERSION_BITS | version
    }

    /// Why a registry that was found cannot be opened.
    pub(super) fn not_opened(&self, error: ReadError) -> ZooKeeperError {
        let url = self.link.url().clone();
        match (&self.standing, error) {
            (Standing::Closed(why) | Standing::Foreign(why), _) => {
                ZooKeeperError::Refused { why: why.clone() }
            }
            (Standing::Open, ReadError::Unavailable { why }) => {
                ZooKeeperError::Broken { action: "open the registry", why }
            }
            (Standing::Open, other) => ZooKeeperError::Damaged { url, why: other.to_string() },
        }
    }

    /// A client that is connected to a registry that may be used (I3).
    pub(super) fn client(&mut self) -> Result<Client, ReadError> {
        let client = self.link.client().map_err(|failure| unavailable(&failure))?;
        let now = self.connection();
        if self.looked != Some(now) || self.standing != Standing::Open {
            // A look that does not come to its end has shown nothing, even if it began with one that found it open.
            self.looked = None;
            self.look_around(&client)?;
            self.looked = Some(now);
        }
        match &self.standing {
            Standing::Open => Ok(client),
            Standing::Closed(why) => Err(ReadError::Unavailable { why: why.clone() }),
            Standing::Foreign(why) => Err(ReadError::Foreign { why: why.clone() }),
        }
    }

    /// The link's sessions and disconnections.
    fn connection(&self) -> (u64, u64) {
        let connection = self.link.connection();
        (connection.sessions(), connection.disconnects())
    }

    /// After an answer: whether it came over the connection that was looked around in (I3). What was asked while the client
    /// had not noticed a disconnection is answered over the next one.
    pub(super) fn still_connected(&self) -> Result<(), ReadError> {
        if self.looked == Some(self.connection()) || !Guard::SameConnection.holds() {
            return Ok(());
        }
        Err(ReadError::Unavailable { why: "the answer came over another connection".into() })
    }

    /// Looks whether the registry is still the one it was, open, and not older than it was.
    fn look_around(&mut self, client: &Client) -> Result<(), ReadError> {
        // A server that lags behind would look like a restored one.
        if Guard::SyncFirst.holds() {
            self.link.ask(client.sync("/")).map_err(|failure| unavailable(&failure))?;
        }
        self.look_at_genesis(client)?;
        if self.standing == Standing::Open {
            self.look_at_what_is_known(client)?;
        }
        match &self.standing {
            Standing::Open => {
                self.sample_clock(client);
                self.link.connection().told(&News::Accepted);
            }
            Standing::Closed(why) | Standing::Foreign(why) => {
                self.link.connection().told(&News::Refused(why));
            }
        }
        Ok(())
    }

    fn look_at_genesis(&mut self, client: &Client) -> Result<(), ReadError> {
        let url = self.link.url();
        let gone = format!(
            "there is no registry at {url} any more: if it was deleted, restore it and run `xuid registry fence {url}`, or make a new one with `xuid registry init {url}` and give it new data folders"
        );
        self.standing = match self.link.ask(client.get_data(GENESIS)) {
            Ok((data, stat)) => match znode::decode_genesis(&data) {
                Ok(genesis) if genesis == self.genesis => self.look_at_era(client, stat.czxid)?,
                Ok(other) if other.cluster != self.genesis.cluster => Standing::Foreign(format!(
                    "the registry at {url} is cluster {} now, and was {}: stop, and start with a data folder of its own",
                    other.cluster, self.genesis.cluster
                )),
                Ok(_) => Standing::Foreign(format!("the genesis of {url} was changed")),
                Err(why) => Standing::Closed(format!("the registry at {url} is damaged: {why}")),
            },
            Err(Failure::Said(Error::NoNode)) => Standing::Closed(gone),
            Err(failure) => return Err(unavailable(&failure)),
        };
        Ok(())
    }

    fn look_at_era(&mut self, client: &Client, genesis_birth: i64) -> Result<Standing, ReadError> {
        let found = read_era(&self.link, client, genesis_birth).map_err(|failure| unavailable(&failure))?;
        let url = self.link.url();
        match found {
            Ok(era) if era == self.era => {
                if !self.witnessed {
                    self.seen_file.learn_of_ended(self.ended(client)?);
                }
                self.witnessed = true;
                self.refused = None;
                Ok(Standing::Open)
            }
            Ok(era) if era.name == self.era.name => Ok(Standing::Closed(format!(
                "the era of the registry at {url} was deleted and made again by hand: run `xuid registry fence {url}`"
            ))),
            Ok(era) if self.is_past(client, &era)? => {
                // By its name: were it only a server that lags behind, the ensemble would have nothing of that name to delete.
                let what = "it is in an era that a fence had ended";
                Ok(if self.witnessed {
                    self.close(client, &era.name, what)
                } else {
                    self.refuse(client, what)
                })
            }
            Ok(era) => {
                let ended = self.ended(client)?;
                let (url, name) = (url.to_string(), era.name.clone());
                deferred_log::log(move || {
                    tracing::warn!(
                        url,
                        era = name,
                        "the registry was fenced: windows of before are left at their ends"
                    );
                });
                self.eras += 1;
                self.seen_nodes.clear();
                self.seen_file.begin(Learnt::now(era.clone()));
                self.seen_file.learn_of_ended(ended);
                self.inherited.clear();
                self.era = era;
                self.witnessed = true;
                Ok(Standing::Open)
            }
            Err(why) => Ok(Standing::Closed(format!(
                "the registry at {url} is closed, because {why}: unless a fence is at work, run `xuid registry fence {url}`"
            ))),
        }
    }

    /// The eras that the registry names as over. What had ended when an era began is among them once that era was read.
    fn ended(&self, client: &Client) -> Result<Vec<String>, ReadError> {
        children(&self.link, client, ENDED).map_err(|failure| unavailable(&failure))
    }

    /// Whether an era was over before the known one began. Where only clocks say so, the registry may know better: that the
    /// known one was over before the last fence.
    fn is_past(&self, client: &Client, era: &Era) -> Result<bool, ReadError> {
        match self.seen_file.relation(era) {
            Relation::After => Ok(false),
            Relation::Over => Ok(true),
            Relation::Before => {
                let told = self.link.ask(client.check_stat(&ended_path(&self.era.name)));
                Ok(told.map_err(|failure| unavailable(&failure))?.is_none())
            }
        }
    }

    /// Looks at every node that was written by this process, or by one before it in the same folder.
    fn look_at_what_is_known(&mut self, client: &Client) -> Result<(), ReadError> {
        // In one request: after many crashes a folder knows many nodes, and one after the other they would be as many ways to
        // the ensemble and back before a first id.
        let (paths, sights): (Vec<String>, Vec<NodeVersion>) = self.relied_upon().into_iter().unzip();
        let results = read_all(&self.link, client, &paths).map_err(|failure| unavailable(&failure))?;
        for ((path, known), result) in paths.into_iter().zip(sights).zip(results) {
            let found = match result {
                MultiReadResult::Data { stat, .. } => stat,
                MultiReadResult::Error { err: Error::NoNode } => continue,
                // Its age is told even to those who may not read it.
                _ => {
                    let found = self.link.ask(client.check_stat(&path));
                    let Some(stat) = found.map_err(|failure| unavailable(&failure))? else { continue };
                    stat
                }
            };
            if known.compare(NodeVersion::of(&found)) == Comparison::Older {
                self.close_if_restored(client, &path, known)?;
                if !matches!(self.standing, Standing::Open) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The nodes that this process and those of its folder wrote, as they were seen last: the past has all of them.
    fn relied_upon(&self) -> Vec<(String, NodeVersion)> {
        let written = self.seen_file.nodes().iter().map(|(path, _)| path);
        let paths: BTreeSet<&String> = written.chain(&self.inherited).collect();
        paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), self.seen_nodes.node_version(path)?)))
            .collect()
    }

    /// A node looks older than it was. If that stays so after a write that a quorum has taken, the data was put back (I2).
    pub(super) fn close_if_restored(
        &mut self,
        client: &Client,
        path: &str,
        known: NodeVersion,
    ) -> Result<(), ReadError> {
        self.link.ask(client.set_data(CLOCK, b"", None)).map_err(|failure| unavailable(&failure))?;
        let found = self.link.ask(client.check_stat(path)).map_err(|failure| unavailable(&failure))?;
        if found.is_none_or(|found| known.compare(NodeVersion::of(&found)) != Comparison::Older) {
            return Ok(());
        }
        let what = format!("its node {path} is older than it was");
        self.standing = if self.seen_nodes.is_own(path) {
            self.close(client, &self.era.name, &what)
        } else {
            self.refuse(client, &what)
        };
        Ok(())
    }

    /// Closes the registry for everybody, by what this process saw itself.
    fn close(&self, client: &Client, era: &str, what: &str) -> Standing {
        let url = self.link.url();
        let why = format!(
            "the registry at {url} was restored from a backup ({what}): what was granted since is not in it, so nobody may use \
             it until `xuid registry fence {url}`; if it was fenced since the restore, the fence was made by a clock that \
             was behind: fence it once more"
        );
        let reason = why.clone();
        deferred_log::log(move || tracing::error!(why = %reason, "the registry is closed"));
        if let Err(failure) = self.end(client, era) {
            let why = failure.why().clone();
            deferred_log::log(move || tracing::error!(why, "it could not be closed for others"));
        }
        self.link.connection().told(&News::Refused(&why));
        Standing::Closed(why)
    }

    /// Ends an era, and says which one is known instead.
    fn end(&self, client: &Client, era: &str) -> Result<(), Failure> {
        match self.link.ask(client.delete(&era_path(era), None)) {
            // The latter: another process closed it, or it was a server that lags behind.
            Ok(()) | Err(Failure::Said(Error::NoNode)) => self.tell_known(client),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Leaves the name of the known era for the next fence: an era of that fence is after it, whatever the clocks say. By itself
    /// the name allows nothing.
    fn tell_known(&self, client: &Client) {
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        // There already, or no place for it in a registry of an earlier program: then a person has to help.
        let _ = self.link.ask(client.create(&known_path(&self.era.name), b"", &options));
    }

    /// Refuses the registry for this process alone: others may know better.
    fn refuse(&mut self, client: &Client, what: &str) -> Standing {
        let url = self.link.url();
        let forget = self
            .seen_file
            .place()
            .map_or_else(String::new, |files| format!(", or stop this process and remove {files}"));
        let why = format!(
            "the registry at {url} was restored from a backup ({what}, as this process remembers it): what was granted since is \
             not in it, so this process does not use it until `xuid registry fence {url}`; if it was fenced since the \
             restore, fence it once more: that fence knows of this{forget}"
        );
        if self.refused.as_ref() != Some(&why) {
            self.refused = Some(why.clone());
            self.tell_known(client);
            let reason = why.clone();
            deferred_log::log(
                move || tracing::error!(why = %reason, "the registry is refused by this process"),
            );
        }
        self.link.connection().told(&News::Refused(&why));
        Standing::Closed(why)
    }

    fn sample_clock(&mut self, client: &Client) {
        let sent = boot_ns();
        if let Ok(stat) = self.link.ask(client.set_data(CLOCK, b"", None)) {
            self.take_sample(&stat, sent);
        }
    }

    /// `stat` is of a write of ours that was begun at `sent`.
    pub(super) fn take_sample(&mut self, stat: &Stat, sent: u64) {
        let (now, Ok(ms)) = (boot_ns(), u64::try_from(stat.mtime)) else { return };
        // The change was made between the two instants. Reckoned from the later one the ensemble's clock seems to be
        // behind, which is safe for a bound; from the earlier one ahead, which corrects no clock wrongly.
        self.reached = Some((ms * 1_000_000, now));
        if now.saturating_sub(sent) < SAMPLE_NS {
            self.sample = Some((ms * 1_000_000, sent));
        }
    }

    /// Reads a record.
    pub(super) fn row(&mut self, path: &str, place: Place, spill: SpillId) -> Result<(Row, Stat), ReadError> {
        let client = self.client()?;
        let what = || name(place, spill);
        match self.link.ask(client.get_data(path)) {
            Ok((data, stat)) => {
                self.still_connected()?;
                self.believe(&client, path, (&data, &stat), place, spill).map(|row| (row, stat))
            }
            Err(Failure::Said(Error::NoNode)) => Err(ReadError::Absent { what: what() }),
            Err(Failure::Said(Error::NoAuth)) => {
                Err(ReadError::Unavailable { why: "no right to read it".into() })
            }
            Err(failure) => Err(unavailable(&failure)),
        }
    }

    /// Decides whether what was read of a record can be believed.
    pub(super) fn believe(
        &mut self,
        client: &Client,
        path: &str,
        (data, stat): (&[u8], &Stat),
        place: Place,
        spill: SpillId,
    ) -> Result<Row, ReadError> {
        // Perhaps all of them were made again, or by another cluster: after any damage the next call looks around.
        let damaged = |why| ReadError::Damaged { what: name(place, spill), why };
        let node_version = NodeVersion::of(stat);
        match self.seen_nodes.compare(path, node_version) {
            Comparison::Fine => {}
            Comparison::Remade => {
                self.looked = None;
                return Err(damaged(znode::MADE_AGAIN.into()));
            }
            Comparison::Older => {
                let known = self.seen_nodes.node_version(path).unwrap_or(node_version);
                self.close_if_restored(client, path, known)?;
                return Err(ReadError::Unavailable { why: "the server that answered lags behind".into() });
            }
        }
        if place.kind == Kind::Worker && znode::is_made_again(stat, self.era.birth) {
            self.looked = None;
            return Err(damaged(znode::MADE_AGAIN.into()));
        }
        let row = znode::decode_row(data, stat, self.genesis.cluster, place, spill).map_err(|why| {
            self.looked = None;
            damaged(why)
        })?;
        self.seen_nodes.note(path, node_version);
        Ok(row)
    }

    /// Compare-and-set (I1).
    pub(super) fn store(&mut self, write: &Write<'_>) -> Result<(), StoreError> {
        // After this, so that a fence is known of: what was read before it fits nothing any more.
        let client = self.client()?;
        let version = write.expected & ((1 << VERSION_BITS) - 1);
        let Ok(expected) = i32::try_from(version) else { return Err(SwapError::Conflict.into()) };
        if self.tagged(version) != write.expected {
            return Err(SwapError::Conflict.into());
        }
        let row = Row { version: znode::next_version(version), ..write.row.clone() };
        let mut writer = client.new_multi_writer();
        let built = self.build(&mut writer, write, &row.encode(self.genesis.cluster), expected);
        built.map_err(|error| SwapError::Unavailable { why: error.to_string() })?;
        let commit = writer.commit();
        crash_point!(MultiUnsent);
        let answer = self.link.ask(async { Ok(commit.await) });
        crash_point!(MultiAnswered);
        match answer {
            Ok(Ok(_)) => match self.still_connected() {
                Ok(()) => {
                    self.stored(write.path, row.version);
                    Ok(())
                }
                // Stored, and perhaps in a registry that was put back: the next look tells, and the next reading.
                Err(error) => Err(SwapError::Unknown { why: error.to_string() }.into()),
            },
            // Answered: a transaction of which one part fails does nothing.
            Ok(Err(MultiWriteError::OperationFailed { index, source })) => {
                Err(self.refused(write, index, source))
            }
            Ok(Err(MultiWriteError::RequestFailed { source })) => {
                Err(unanswered(self.link.failure(source)).into())
            }
            Err(failure) => Err(unanswered(failure).into()),
        }
    }

    /// Makes a node that must not exist yet, in this era.
    pub(super) fn create(&mut self, path: &str, row: &Row) -> Result<(), SwapError> {
        let client = self.client()?;
        let mut writer = client.new_multi_writer();
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        let built = writer
            .add_check_version(&era_path(&self.era.name), -1)
            .and_then(|()| writer.add_create(path, &row.encode(self.genesis.cluster), &options));
        built.map_err(|error| SwapError::Unavailable { why: error.to_string() })?;
        let commit = writer.commit();
        match self.link.ask(async { Ok(commit.await) }) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(MultiWriteError::OperationFailed { index: 1, source: Error::NodeExists })) => {
                Err(SwapError::Conflict)
            }
            Ok(Err(MultiWriteError::OperationFailed { source, .. })) => {
                self.looked = None;
                Err(SwapError::Unavailable { why: source.to_string() })
            }
            Ok(Err(MultiWriteError::RequestFailed { source })) => Err(unanswered(self.link.failure(source))),
            Err(failure) => Err(unanswered(failure)),
        }
    }

    fn build(
        &self,
        writer: &mut MultiWriter<'_>,
        write: &Write<'_>,
        data: &[u8; SECTOR],
        expected: i32,
    ) -> Result<(), Error> {
        // Any version of it: its name is what counts.
        if Guard::EraNamed.holds() {
            writer.add_check_version(&era_path(&self.era.name), -1)?;
        } else {
            writer.add_check_version(GENESIS, -1)?;
        }
        writer.add_set_data(write.path, data, Some(expected))?;
        if let Some((live, announce)) = &write.announce {
            if *announce == Announce::Instead {
                writer.add_delete(live, None)?;
            }
            let options = CreateMode::Ephemeral.with_acls(self.link.acls());
            writer.add_create(live, write.row.owner.as_bytes(), &options)?;
        }
        Ok(())
    }

    fn stored(&mut self, path: &str, version: u64) {
        let Some(node_version) = self.seen_nodes.node_version(path) else { return };
        let node_version = node_version.at(version);
        self.seen_nodes.note(path, node_version);
        self.seen_file.note(path, node_version);
    }

    fn refused(&mut self, write: &Write<'_>, index: usize, error: Error) -> StoreError {
        let absent = || ReadError::Absent { what: name(write.row.place, write.row.spill) };
        match (index, error) {
            (0, Error::NoNode) => {
                // Whether it was closed or fenced is looked at by the next call.
                self.looked = None;
                SwapError::Unavailable { why: "the registry was closed, or fenced".into() }.into()
            }
            (1, Error::BadVersion) => SwapError::Conflict.into(),
            (1, Error::NoNode) => absent().into(),
            (2.., Error::NodeExists | Error::NoNode) => StoreError::Announced,
            (_, error) => SwapError::Unavailable { why: error.to_string() }.into(),
        }
    }
}

/// A request that got no answer of its own.
fn unanswered(failure: Failure) -> SwapError {
    match failure {
        Failure::Away(why) => SwapError::Unavailable { why },
        Failure::Said(error) => SwapError::Unavailable { why: error.to_string() },
        Failure::Lost(why) => SwapError::Unknown { why },
    }
}

/// Why a write was not stored.
#[derive(Debug)]
pub(super) enum StoreError {
    /// Nothing was stored, because a worker was to be announced and is already (`New`), or was not any more (`Instead`).
    Announced,
    /// As the port says it.
    Swap(SwapError),
}

impl From<SwapError> for StoreError {
    fn from(error: SwapError) -> Self {
        Self::Swap(error)
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> Self {
        Self::Swap(error.into())
    }
}

/// For people: `worker 7`, `spill 1f...`.
fn name(place: Place, spill: SpillId) -> String {
    if spill == NO_SPILL { place.to_string() } else { format!("spill {spill}") }
}
