//! Reads that are believed, and writes that are compared.

use xuid_spill::SpillId;
use zookeeper_client::{Client, CreateMode, Error, MultiWriteError, MultiWriter, Stat};

use super::{Tree, VERSION_BITS, unavailable};
use crate::registry::record::{Kind, NO_SPILL, Place, Row, SECTOR};
use crate::registry::zookeeper::link::Failure;
use crate::registry::zookeeper::restore_check::{Comparison, NodeVersion};
use crate::registry::zookeeper::znode::{self, GENESIS, era_path};
use crate::registry::{ReadError, SwapError};
use crate::sys::guards::Guard;

/// Something to be stored.
pub(in crate::registry::zookeeper) struct Write<'a> {
    pub(in crate::registry::zookeeper) path: &'a str,
    pub(in crate::registry::zookeeper) row: Row,
    pub(in crate::registry::zookeeper) expected: u64,
    /// Also announces that this worker is live.
    pub(in crate::registry::zookeeper) announce: Option<(String, Announce)>,
}

/// How a worker is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry::zookeeper) enum Announce {
    /// Nobody does.
    New,
    /// In the place of somebody who does.
    Instead,
}

impl Tree {
    /// Reads a record.
    pub(in crate::registry::zookeeper) fn row(
        &mut self,
        path: &str,
        place: Place,
        spill: SpillId,
    ) -> Result<(Row, Stat), ReadError> {
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
    pub(in crate::registry::zookeeper) fn believe(
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
    pub(in crate::registry::zookeeper) fn store(&mut self, write: &Write<'_>) -> Result<(), StoreError> {
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
    pub(in crate::registry::zookeeper) fn create(&mut self, path: &str, row: &Row) -> Result<(), SwapError> {
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
pub(super) fn unanswered(failure: Failure) -> SwapError {
    match failure {
        Failure::Lost(why) => SwapError::Unknown { why },
        failure @ (Failure::Away(_) | Failure::Said(_) | Failure::Refused(_)) => {
            SwapError::Unavailable { why: failure.why() }
        }
    }
}

/// Why a write was not stored.
#[derive(Debug)]
pub(in crate::registry::zookeeper) enum StoreError {
    /// Nothing was stored, because a worker was to be announced and is already (`New`), or was not any more
    /// (`Instead`).
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
