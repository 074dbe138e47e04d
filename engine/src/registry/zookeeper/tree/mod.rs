//! A registry's nodes over one link: reads that are believed, writes that are compared, and whether the registry is
//! still the one that was opened.
//!
//! # Invariants
//! - I1 every write names the era's node and the version of what it replaces, in one transaction: it succeeds only in
//!   the era it was begun in, so that a fence ends every right that was there before it;
//! - I2 a registry that this process sees restored from a backup, be it to before a fence, is closed for everybody, by
//!   deleting the era's node, and stays closed until it is fenced. What only a file remembers refuses this process
//!   alone;
//! - I3 after each reconnection the nodes that are relied upon are looked at before anything is believed: an ensemble
//!   is restored only while it is stopped.

mod names;
mod rows;
mod standing;

use std::collections::BTreeMap;

use zookeeper_client::{Client, Stat};

#[cfg(test)]
#[cfg(not(loom))]
pub(super) use self::names::MEANWHILE;
pub(super) use self::names::{NameWrite, names_of, place, what};
pub(super) use self::rows::{Announce, StoreError, Write};

use crate::clock::boot_ns;
use crate::registry::zookeeper::error::ZooKeeperError;
use crate::registry::zookeeper::inspect::Era;
use crate::registry::zookeeper::link::{Failure, Link};
use crate::registry::zookeeper::restore_check::{Comparison, NodeVersion, SeenFile, SeenNodes};
use crate::registry::zookeeper::znode::CLOCK;
use crate::registry::{Genesis, ReadError};
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

/// A sample of the ensemble's clock is of use only if it took less than this to get.
const SAMPLE_NS: u64 = 500_000_000;

/// A sample older than this is taken anew before it bounds a window or corrects our clock. A window is renewed every
/// half minute, and its renewal is a sample too.
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

/// A node of this version is made anew with its next change, as the next ones are below zero.
const LAST_VERSION: i32 = i32::MAX - 1;

/// What is known of the records of names.
#[derive(Debug)]
struct Names {
    /// The highest mark that was seen at each path (N3 of `names`).
    marks: BTreeMap<String, u64>,
    /// After which version a node is made anew.
    last_version: i32,
}

impl Default for Names {
    fn default() -> Self {
        Self { marks: BTreeMap::new(), last_version: LAST_VERSION }
    }
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
    /// That it could not be read was told.
    has_no_clock: bool,
    /// Counts up when a fence begins another era.
    eras: u64,
    names: Names,
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
            has_no_clock: false,
            eras: 0,
            names: Names::default(),
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
            if Guard::LookToItsEnd.holds() {
                self.looked = None;
            }
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

    /// After an answer: whether it came over the connection that was looked around in (I3). What was asked while the
    /// client had not noticed a disconnection is answered over the next one.
    pub(super) fn still_connected(&self) -> Result<(), ReadError> {
        if self.looked == Some(self.connection()) || !Guard::SameConnection.holds() {
            return Ok(());
        }
        Err(ReadError::Unavailable { why: "the answer came over another connection".into() })
    }

    fn sample_clock(&mut self, client: &Client) {
        let sent = boot_ns();
        match self.link.ask(client.set_data(CLOCK, b"", None)) {
            Ok(stat) => {
                self.has_no_clock = false;
                self.take_sample(&stat, sent);
            }
            // Without it no window is bound by the ensemble's time, and this host's clock has no second one.
            Err(Failure::Said(error)) if !self.has_no_clock => {
                self.has_no_clock = true;
                let url = self.link.url().to_string();
                deferred_log::log(move || {
                    tracing::error!(
                        url, %error,
                        "the node `clock` of the registry can't be written: nothing holds the clock of this host against the \
                         ensemble's; where it is gone, `xuid registry fence` makes it again"
                    );
                });
            }
            Err(_) => {}
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
}
