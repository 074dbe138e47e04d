//! The records of names: several read at once, and several compared and set in one transaction.
//!
//! # Invariants
//! - N1 a record is open only in the era that it names, so a fence closes all of them without a look at any;
//! - N2 a name is made only while the node above all of them names the era, and no lower than it says, in the very version that was
//!   read: a fence closes that, too;
//! - N3 the mark of a name never goes back, whatever became of its node: a node that was made again is believed only if it
//!   says as much as this process saw.

use xuid_id::ClusterId;
use zookeeper_client::{Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriter, Stat};

use super::rows::unanswered;
use super::{Tree, VERSION_BITS, unavailable};
use crate::registry::record::{EraId, NO_SPILL, Place, Row};
use crate::registry::sequences::{NewNames, check_begin};
use crate::registry::zookeeper::inspect::{children, children_of_all, read_all};
use crate::registry::zookeeper::link::Failure;
use crate::registry::zookeeper::restore_check::{Comparison, NodeVersion};
use crate::registry::zookeeper::znode::{
    self, SEQUENCES, era_path, sequence_folder, sequence_name, sequence_path,
};
use crate::registry::{ReadError, SwapError};

/// The checksum of a name's record in an ensemble covers no cluster: its era says whose it is, so that an adoption need not
/// write all of them again.
pub(in crate::registry::zookeeper) const NO_CLUSTER: ClusterId = ClusterId::from_bytes([0; 16]);

/// The place of every name: its path has it.
const PLACE: u32 = 0;

/// A record that takes the place of what was read, or of nothing.
#[derive(Debug, Clone)]
pub(in crate::registry::zookeeper) struct NameWrite {
    pub(in crate::registry::zookeeper) name: String,
    /// Its version is set by the write, and its era.
    pub(in crate::registry::zookeeper) row: Row,
    pub(in crate::registry::zookeeper) expected: Option<u64>,
}

pub(in crate::registry::zookeeper) fn what(name: &str) -> String {
    format!("the sequence '{name}'")
}

pub(in crate::registry::zookeeper) fn place() -> Place {
    Place::sequence(PLACE)
}

impl Tree {
    /// The present era as records have it.
    pub(in crate::registry::zookeeper) fn era_id(&self) -> EraId {
        self.era.name.parse::<ClusterId>().map_or([0; 16], ClusterId::bytes)
    }

    /// In another era a person may have made good what was damaged.
    pub(super) fn forget_names(&mut self) {
        self.names.marks.clear();
    }

    /// For tests: after this version a node is made anew.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(in crate::registry::zookeeper) fn set_last_version(&mut self, version: i32) {
        self.names.last_version = version;
    }

    /// For tests: as if this process had seen, and written, that version of a node.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(in crate::registry::zookeeper) fn pretend_seen(&mut self, path: &str, version: u64) {
        if let Some(found) = self.seen_nodes.node_version(path) {
            self.seen_nodes.note(path, found.at(version));
            self.seen_file.note(path, found.at(version));
        }
    }

    /// For tests: as if a process before this one had written that version of a node in the same folder.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(in crate::registry::zookeeper) fn pretend_inherited(&mut self, path: &str, version: u64) {
        if let Some(found) = self.seen_nodes.node_version(path) {
            self.seen_nodes.inherit(path, found.at(version));
            self.seen_file.note(path, found.at(version));
        }
    }

    /// Reads records, whatever era they are of.
    pub(in crate::registry::zookeeper) fn named(
        &mut self,
        names: &[&str],
    ) -> Result<Vec<Result<Row, ReadError>>, ReadError> {
        let client = self.client()?;
        let paths: Vec<String> = names.iter().map(|name| sequence_path(name)).collect();
        let results = read_all(&self.link, &client, &paths).map_err(|failure| unavailable(&failure))?;
        self.still_connected()?;
        let rows = names.iter().zip(&paths).zip(results);
        Ok(rows.map(|((name, path), result)| self.believe_name(&client, name, path, result)).collect())
    }

    fn believe_name(
        &mut self,
        client: &Client,
        name: &str,
        path: &str,
        result: MultiReadResult,
    ) -> Result<Row, ReadError> {
        let damaged = |why| ReadError::Damaged { what: what(name), why };
        let (data, stat): (Vec<u8>, Stat) = match result {
            MultiReadResult::Data { data, stat } => (data, stat),
            MultiReadResult::Error { err: Error::NoNode } => {
                return match self.names.marks.get(path) {
                    None => Err(ReadError::Absent { what: what(name) }),
                    Some(_) => Err(damaged("its node was there, and was deleted".into())),
                };
            }
            MultiReadResult::Error { err: Error::NoAuth } => {
                return Err(ReadError::Unavailable { why: "no right to read it".into() });
            }
            other => return Err(damaged(format!("it cannot be read: {other:?}"))),
        };
        let found = NodeVersion::of(&stat);
        if self.seen_nodes.compare(path, found) == Comparison::Older {
            let known = self.seen_nodes.node_version(path).unwrap_or(found);
            self.close_if_restored(client, path, known)?;
            return Err(ReadError::Unavailable { why: "the server that answered lags behind".into() });
        }
        let row = znode::decode_row(&data, &stat, NO_CLUSTER, place(), NO_SPILL).map_err(damaged)?;
        if row.named.as_ref().is_none_or(|named| named.name != name) {
            return Err(damaged("it is the record of another name".into()));
        }
        if self.names.marks.get(path).is_some_and(|known| row.value < *known) {
            return Err(damaged("its mark went back: its node was deleted and made again".into()));
        }
        self.seen_nodes.note(path, found);
        self.names.marks.insert(path.to_owned(), row.value);
        Ok(row)
    }

    /// Compare-and-set of several records, each for itself: those that fit are stored together.
    pub(in crate::registry::zookeeper) fn store_names(
        &mut self,
        writes: &[NameWrite],
    ) -> Vec<Result<(), SwapError>> {
        let mut outcomes: Vec<Option<Result<(), SwapError>>> = vec![None; writes.len()];
        // In each round one that does not fit is told by its place.
        for _ in 0..=writes.len() {
            let open: Vec<usize> = (0..writes.len()).filter(|n| outcomes[*n].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let some: Vec<&NameWrite> = open.iter().map(|n| &writes[*n]).collect();
            match self.store_some(&some) {
                Round::All(outcome) => open.iter().for_each(|n| outcomes[*n] = Some(outcome.clone())),
                Round::One(which, outcome) => outcomes[open[which]] = Some(Err(outcome)),
                Round::Again => {}
            }
        }
        let unsettled = || Err(SwapError::Unavailable { why: "it changes again and again".into() });
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unsettled)).collect()
    }

    fn store_some(&mut self, writes: &[&NameWrite]) -> Round {
        // After this, so that a fence is known of: what was read before it fits nothing any more.
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return Round::All(Err(error.into())),
        };
        let mut versions = Vec::with_capacity(writes.len());
        for (n, write) in writes.iter().enumerate() {
            match self.untagged(write.expected) {
                Ok(version) => versions.push(version),
                Err(error) => return Round::One(n, error),
            }
        }
        let new = writes.iter().position(|write| write.expected.is_none());
        let of_new = match new.map(|which| self.check_new(&client, writes, which)) {
            None => None,
            Some(Ok(version)) => Some(version),
            Some(Err(round)) => return round,
        };
        meanwhile();
        self.commit_names(&client, writes, &versions, of_new)
    }

    /// The version of the node above all names in which it lets these be made (N2), of which the one at `first` is the first; or
    /// why they cannot be made.
    fn check_new(&mut self, client: &Client, writes: &[&NameWrite], first: usize) -> Result<i32, Round> {
        let (least, version) = match self.least_new(client) {
            Ok(Some(found)) => found,
            Ok(None) => return Err(Round::Again),
            Err(SwapError::Read(ReadError::Closed { .. })) => {
                // Or it was fenced and opened, in an era that this process does not know of yet.
                let known = self.eras;
                self.looked = None;
                if self.client().is_ok() && self.eras != known {
                    return Err(Round::Again);
                }
                let what = what(&writes[first].name);
                return Err(Round::One(first, ReadError::Closed { what, value: 0 }.into()));
            }
            Err(error) => return Err(Round::All(Err(error))),
        };
        let begins = |write: &NameWrite| write.row.sequence_record().unwrap_or_default();
        let mut new = writes.iter().enumerate().filter(|(_, write)| write.expected.is_none());
        let too_low =
            new.find_map(|(n, write)| check_begin(&begins(write), least).err().map(|error| (n, error)));
        too_low.map_or(Ok(version), |(n, error)| Err(Round::One(n, error)))
    }

    /// Commits writes, if the node above all names has the version `of_new`, where one is said.
    fn commit_names(
        &mut self,
        client: &Client,
        writes: &[&NameWrite],
        versions: &[Option<i32>],
        of_new: Option<i32>,
    ) -> Round {
        let mut multi = client.new_multi_writer();
        let (rows, whose) = match self.build_names(&mut multi, writes, versions, of_new) {
            Ok(built) => built,
            Err(error) => return Round::All(Err(SwapError::Unavailable { why: error.to_string() })),
        };
        let commit = multi.commit();
        crash_point!(MultiUnsent);
        let answer = self.link.ask(async { Ok(commit.await) });
        crash_point!(MultiAnswered);
        match answer {
            Ok(Ok(_)) => match self.still_connected() {
                Ok(()) => {
                    self.names_stored(writes, &rows);
                    Round::All(Ok(()))
                }
                // Stored, and perhaps in a registry that was put back: the next look tells, and the next reading.
                Err(error) => Round::All(Err(SwapError::Unknown { why: error.to_string() })),
            },
            // Answered: a transaction of which one part fails does nothing.
            Ok(Err(MultiWriteError::OperationFailed { index, source })) => {
                let checks = 1 + usize::from(of_new.is_some());
                if index == 1 && of_new.is_some() && source == Error::BadVersion {
                    return Round::Again;
                }
                let Some(which) = index.checked_sub(checks).and_then(|index| whose.get(index)).copied()
                else {
                    // Whether it was closed or fenced is looked at by the next call.
                    self.looked = None;
                    let why = "the registry was closed, or fenced".into();
                    return Round::All(Err(SwapError::Unavailable { why }));
                };
                let write = writes[which];
                Round::One(
                    which,
                    match (source, write.expected) {
                        (Error::BadVersion | Error::NodeExists, _) => SwapError::Conflict,
                        (Error::NoNode, Some(_)) => ReadError::Absent { what: what(&write.name) }.into(),
                        // Of this name alone: others are there already.
                        (Error::QuotaExceeded, _) => {
                            SwapError::Full { why: "the ensemble's quota is used up".into() }
                        }
                        (error, _) => SwapError::Unavailable { why: error.to_string() },
                    },
                )
            }
            Ok(Err(MultiWriteError::RequestFailed { source })) => {
                Round::All(Err(unanswered(self.link.failure(source))))
            }
            Err(failure) => Round::All(Err(unanswered(failure))),
        }
    }

    /// The node's version of the port's, where there is one. One of an earlier era fits nothing any more.
    fn untagged(&self, expected: Option<u64>) -> Result<Option<i32>, SwapError> {
        let Some(expected) = expected else { return Ok(None) };
        let version = expected & ((1 << VERSION_BITS) - 1);
        let fits = self.tagged(version) == expected;
        i32::try_from(version).ok().filter(|_| fits).map(Some).ok_or(SwapError::Conflict)
    }

    /// Adds all writes behind the looks at the era and at the node above all names, and says what each stores and which write each
    /// operation is of.
    fn build_names(
        &self,
        multi: &mut MultiWriter<'_>,
        writes: &[&NameWrite],
        versions: &[Option<i32>],
        of_new: Option<i32>,
    ) -> Result<(Vec<Row>, Vec<usize>), Error> {
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        let (era, mut rows, mut whose) = (self.era_id(), Vec::new(), Vec::new());
        multi.add_check_version(&era_path(&self.era.name), -1)?;
        if let Some(version) = of_new {
            multi.add_check_version(SEQUENCES, version)?;
        }
        for (n, (write, version)) in writes.iter().zip(versions).enumerate() {
            let path = sequence_path(&write.name);
            let mut row = write.row.clone();
            if let Some(named) = &mut row.named {
                named.era = era;
            }
            let is_new = version.is_none_or(|version| version >= self.names.last_version);
            row.version =
                version.filter(|_| !is_new).map_or(0, |version| u64::from(version.unsigned_abs()) + 1);
            let data = row.encode(NO_CLUSTER);
            match version {
                Some(version) if is_new => {
                    multi.add_delete(&path, Some(*version))?;
                    whose.push(n);
                    multi.add_create(&path, &data, &options)?;
                }
                None => multi.add_create(&path, &data, &options)?,
                Some(version) => multi.add_set_data(&path, &data, Some(*version))?,
            }
            whose.push(n);
            rows.push(row);
        }
        Ok((rows, whose))
    }

    fn names_stored(&mut self, writes: &[&NameWrite], rows: &[Row]) {
        let mut latest = None;
        for (write, row) in writes.iter().zip(rows) {
            let path = sequence_path(&write.name);
            // Of a node that was made just now the birth is not known before it is read.
            if row.version > 0
                && let Some(node_version) = self.seen_nodes.node_version(&path)
            {
                let node_version = node_version.at(row.version);
                self.seen_nodes.note(&path, node_version);
                latest = Some((path.clone(), node_version));
            }
            self.names.marks.insert(path, row.value);
        }
        // A restored ensemble is older as a whole, so the last node that was written tells it.
        if let Some((path, node_version)) = latest {
            self.seen_file.note(&path, node_version);
        }
    }

    /// Makes the record of a name that a fence's registry does not have, for a person who says how far it came.
    pub(in crate::registry::zookeeper) fn store_missing(
        &mut self,
        write: &NameWrite,
    ) -> Result<(), SwapError> {
        let client = self.client()?;
        match self.least_new(&client) {
            // Nothing is missing: it never was.
            Ok(_) => return Err(ReadError::Absent { what: what(&write.name) }.into()),
            Err(SwapError::Read(ReadError::Closed { .. })) => {}
            Err(error) => return Err(error),
        }
        self.make_missing_folders(&client)?;
        match self.commit_names(&client, &[write], &[None], None) {
            Round::All(outcome) => outcome,
            Round::One(_, error) => Err(error),
            Round::Again => Err(SwapError::Conflict),
        }
    }

    /// Where new names can begin (N2), and in which version; `None` if it could not be told and may be tried again.
    fn least_new(&mut self, client: &Client) -> Result<Option<(u64, i32)>, SwapError> {
        match self.said_of_new(client)? {
            Some((NewNames { are_closed: false, least }, version)) => Ok(Some((least, version))),
            Some(_) => Err(ReadError::Closed { what: "new names".into(), value: 0 }.into()),
            None => self.make_folders(client, 0).map(|()| None),
        }
    }

    /// What the node above all names says, in which version; `None` where there is none, and never was a name or a fence.
    fn said_of_new(&mut self, client: &Client) -> Result<Option<(NewNames, i32)>, ReadError> {
        match self.link.ask(client.get_data(SEQUENCES)) {
            Ok((data, stat)) => {
                self.still_connected()?;
                let (era, least) = split_new(&data);
                let said = NewNames { are_closed: era != self.era.name.as_bytes(), least };
                Ok(Some((said, stat.version)))
            }
            Err(Failure::Said(Error::NoNode)) => self.still_connected().map(|()| None),
            Err(failure) => Err(ReadError::Unavailable { why: failure.why() }),
        }
    }

    /// What a fence left of making names.
    pub(in crate::registry::zookeeper) fn new_names(&mut self) -> Result<NewNames, ReadError> {
        let client = self.client()?;
        Ok(self.said_of_new(&client)?.unwrap_or_default().0)
    }

    /// Makes the node above all names, which begin at `least`, and the folders, in one transaction of this era.
    fn make_folders(&mut self, client: &Client, least: u64) -> Result<(), SwapError> {
        let data = said_of_era(&self.era.name, least);
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        let mut multi = client.new_multi_writer();
        let mut built = multi
            .add_check_version(&era_path(&self.era.name), -1)
            .and_then(|()| multi.add_create(SEQUENCES, data.as_bytes(), &options));
        for folder in 0..=u8::MAX {
            built = built.and_then(|()| multi.add_create(&sequence_folder(folder), b"", &options));
        }
        built.map_err(|error| SwapError::Unavailable { why: error.to_string() })?;
        let commit = multi.commit();
        match self.link.ask(async { Ok(commit.await) }) {
            // In the second case another process made them.
            Ok(Ok(_) | Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. })) => Ok(()),
            Ok(Err(MultiWriteError::OperationFailed { source, .. })) => {
                self.looked = None;
                Err(SwapError::Unavailable { why: source.to_string() })
            }
            // The folders allow nothing by themselves: that they may be there is no doubt about a record.
            Ok(Err(MultiWriteError::RequestFailed { source })) => {
                Err(SwapError::Unavailable { why: self.link.failure(source).why() })
            }
            Err(failure) => Err(SwapError::Unavailable { why: failure.why() }),
        }
    }

    /// Lets names be made in this era, from `least` on, if the node above all names says what was `seen`, or this already.
    pub(in crate::registry::zookeeper) fn open_to_new(
        &mut self,
        seen: NewNames,
        least: u64,
    ) -> Result<(), SwapError> {
        let client = self.client()?;
        let mut found = self.said_of_new(&client)?;
        if found.is_none() {
            // There never was a name, and none of the era's fence.
            if least == 0 {
                return Ok(());
            }
            self.make_folders(&client, least)?;
            found = self.said_of_new(&client)?;
        }
        let version = match found {
            Some((NewNames { are_closed: false, least: said }, _)) if said == least => {
                return self.make_missing_folders(&client);
            }
            Some((said, version)) if said == seen => version,
            _ => return Err(SwapError::Conflict),
        };
        let era = &self.era.name;
        let data = said_of_era(era, least);
        let mut multi = client.new_multi_writer();
        let built = multi
            .add_check_version(&era_path(era), -1)
            .and_then(|()| multi.add_set_data(SEQUENCES, data.as_bytes(), Some(version)));
        built.map_err(|error| SwapError::Unavailable { why: error.to_string() })?;
        let commit = multi.commit();
        match self.link.ask(async { Ok(commit.await) }) {
            Ok(Ok(_)) => self.make_missing_folders(&client),
            Ok(Err(MultiWriteError::OperationFailed { index: 1, .. })) => Err(SwapError::Conflict),
            Ok(Err(MultiWriteError::OperationFailed { source, .. })) => {
                self.looked = None;
                Err(SwapError::Unavailable { why: source.to_string() })
            }
            Ok(Err(MultiWriteError::RequestFailed { source })) => Err(unanswered(self.link.failure(source))),
            Err(failure) => Err(unanswered(failure)),
        }
    }

    /// A fence of a registry that had no names makes the node above them alone.
    pub(in crate::registry::zookeeper) fn make_missing_folders(
        &self,
        client: &Client,
    ) -> Result<(), SwapError> {
        let away = |failure: Failure| SwapError::Unavailable { why: failure.why() };
        let there = children(&self.link, client, SEQUENCES).map_err(away)?;
        let options = CreateMode::Persistent.with_acls(self.link.acls());
        for folder in (0..=u8::MAX).map(sequence_folder) {
            if !there.iter().any(|name| folder.ends_with(&format!("/{name}"))) {
                match self.link.ask(client.create(&folder, b"", &options)) {
                    Ok(_) | Err(Failure::Said(Error::NodeExists)) => {}
                    Err(failure) => return Err(away(failure)),
                }
            }
        }
        Ok(())
    }

    /// All names that there are.
    pub(in crate::registry::zookeeper) fn all_names(&mut self) -> Result<Vec<String>, ReadError> {
        let client = self.client()?;
        let names = names_of(&self.link, &client).map_err(|failure| unavailable(&failure))?;
        self.still_connected()?;
        Ok(names)
    }
}

/// What the node above all names has.
fn said_of_era(era: &str, least: u64) -> String {
    if least == 0 { era.to_owned() } else { format!("{era} {least}") }
}

/// The era and the least of the node above all names. What is no number is above all: it was said by nobody.
fn split_new(data: &[u8]) -> (&[u8], u64) {
    let Some(at) = data.iter().position(|byte| *byte == b' ') else { return (data, 0) };
    let least = std::str::from_utf8(&data[at + 1..]).ok().and_then(|least| least.parse().ok());
    (&data[..at], least.unwrap_or(u64::MAX))
}

/// Between the look at where new names begin and the commit of one: in tests others do something there.
fn meanwhile() {
    #[cfg(test)]
    #[cfg(not(loom))]
    if let Some(work) = MEANWHILE.take() {
        work();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
thread_local! {
    /// What others do on this occasion, once.
    pub(in crate::registry::zookeeper) static MEANWHILE: std::cell::Cell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::Cell::new(None) };
}

/// All names that there are, in no order.
pub(in crate::registry::zookeeper) fn names_of(
    link: &crate::registry::zookeeper::link::Link,
    client: &Client,
) -> Result<Vec<String>, Failure> {
    let folders = children(link, client, SEQUENCES)?;
    let paths: Vec<String> = folders.iter().map(|folder| format!("{SEQUENCES}/{folder}")).collect();
    let nodes = children_of_all(link, client, &paths)?;
    Ok(nodes.iter().flatten().filter_map(|node| sequence_name(node)).collect())
}

/// What became of one transaction.
enum Round {
    /// This of all of them.
    All(Result<(), SwapError>),
    /// This one did not fit, and nothing was stored.
    One(usize, SwapError),
    /// Nothing was stored, and it may be tried again at once.
    Again,
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn where_new_names_begin_is_above_all_if_nobody_said_it() {
        assert_eq!(split_new(said_of_era("ERA", 0).as_bytes()), (&b"ERA"[..], 0));
        assert_eq!(split_new(said_of_era("ERA", 500).as_bytes()), (&b"ERA"[..], 500));
        for said in ["ERA ", "ERA x", "ERA 1 2", "ERA -1", "ERA 99999999999999999999"] {
            assert_eq!(split_new(said.as_bytes()), (&b"ERA"[..], u64::MAX), "{said}");
        }
        assert_eq!(split_new(b"ERA \xff"), (&b"ERA"[..], u64::MAX));
    }
}
