//! The records of named sequences in an ensemble: `PATH/q/HH/NAME`, shared by many hosts.
//!
//! Called by one thread, and blocks, as [`ZooKeeperRegistry`](super::ZooKeeperRegistry) does; it has a session of its own.

use super::ZooKeeperError;
use super::open_tree;
use super::target::{ZooKeeperOptions, ZooKeeperUrl};
use super::tree::{NameWrite, Tree, place, what};
use crate::registry::local::{Seat, Taker};
use crate::registry::record::{EraId, NAME_BYTES, Row};
use crate::registry::sequences::{
    MOST_CHANGES, NewNames, SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords,
};
use crate::registry::{ClusterId, Genesis, ReadError, SwapError, Token, Versioned};

/// How often a person's change is tried of which others were quicker each time: they change a strict name all the time.
const REOPEN_TRIES: u32 = 100;

/// The records of names of a registry in an ensemble, opened by one user of them.
///
/// ```no_run
/// use xuid_engine::registry::sequences::SequenceRecords;
/// use xuid_engine::registry::zookeeper::{ZooKeeperOptions, ZooKeeperSequences};
/// let url = "zookeeper://zk1:2181,zk2:2181,zk3:2181/ids".parse()?;
/// let mut sequences = ZooKeeperSequences::open(&url, &ZooKeeperOptions::default())?;
/// println!("{:?}", sequences.list("", "", 10)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ZooKeeperSequences {
    tree: Tree,
    seat: Option<Seat>,
    /// Tells the writes of this opening from those of others.
    token: Token,
    operation: u64,
}

impl ZooKeeperSequences {
    /// Opens the records of the registry at `url`.
    ///
    /// # Errors
    /// As [`ZooKeeperRegistry::open`](super::ZooKeeperRegistry::open).
    pub fn open(url: &ZooKeeperUrl, options: &ZooKeeperOptions) -> Result<Self, ZooKeeperError> {
        let (tree, seat) = open_tree(url, options, Taker::Sequences)?;
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| ZooKeeperError::System {
            action: "draw random bytes",
            source: std::io::Error::other(error),
        })?;
        Ok(Self { tree, seat, token: Token(token), operation: 0 })
    }

    /// What the registry was created with.
    #[must_use]
    pub fn genesis(&self) -> &Genesis {
        &self.tree.genesis
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn write(&self, name: &str, expected: Option<u64>, record: &SequenceRecord) -> NameWrite {
        let row = Row {
            token: self.token,
            operation: self.operation,
            // The write knows the era.
            ..Row::of_sequence(place(), (name, [0; 16]), record)
        };
        NameWrite { name: name.to_owned(), row, expected }
    }

    fn row(&mut self, name: &str) -> Result<Row, ReadError> {
        self.tree.named(&[name])?.pop().unwrap_or_else(|| Err(ReadError::Absent { what: what(name) }))
    }
}

impl SequenceRecords for ZooKeeperSequences {
    fn describe(&self) -> String {
        self.tree.link.url().to_string()
    }

    fn cluster(&self) -> ClusterId {
        self.tree.genesis.cluster
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        match self.tree.named(names) {
            Ok(rows) => {
                let (tree, era) = (&self.tree, self.tree.era_id());
                out.extend(names.iter().zip(rows).map(|(name, row)| open_record(tree, name, &row?, era)));
            }
            Err(error) => out.extend(names.iter().map(|_| Err(error.clone()))),
        }
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        assert!(changes.len() <= MOST_CHANGES, "{} changes in one call", changes.len());
        self.operation += 1;
        let is_name = |name: &str| !name.is_empty() && name.len() <= NAME_BYTES;
        let fitting = changes.iter().filter(|change| is_name(change.name));
        let writes: Vec<_> =
            fitting.map(|change| self.write(change.name, change.expected, &change.record)).collect();
        let mut outcomes = self.tree.store_names(&writes).into_iter();
        out.extend(changes.iter().map(|change| {
            if is_name(change.name) {
                return outcomes.next().unwrap_or(Err(SwapError::Conflict));
            }
            let why = format!("a name has 1 to {NAME_BYTES} bytes");
            Err(ReadError::Damaged { what: what(change.name), why }.into())
        }));
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        let mut names = self.tree.all_names()?;
        names.retain(|name| name.as_str() > after && name.starts_with(prefix) && !name.starts_with('@'));
        names.sort_unstable();
        names.truncate(limit);
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut found = Vec::with_capacity(names.len());
        self.read(&asked, &mut found);
        // Of the whole registry, not of these records.
        if let Some(Err(error @ (ReadError::Unavailable { .. } | ReadError::Foreign { .. }))) = found.first()
        {
            return Err(error.clone());
        }
        Ok(names.into_iter().zip(found).collect())
    }

    fn seat(&self) -> Option<u32> {
        self.seat.as_ref().map(Seat::number)
    }

    fn closed_record(&mut self, name: &str) -> Result<SequenceRecord, ReadError> {
        let row = self.row(name)?;
        match row.sequence_record() {
            Some(record) if !is_of(&row, self.tree.era_id()) => Ok(record),
            _ => Err(ReadError::Absent { what: format!("a closed record of {}", what(name)) }),
        }
    }

    /// Beside servers that are granted numbers of it: again where one of them was quicker.
    fn reopen(&mut self, name: &str, least: u64) -> Result<(), SwapError> {
        let mut tries = (0..REOPEN_TRIES).map(|_| self.reopen_once(name, least));
        tries.find(|done| !matches!(done, Err(SwapError::Conflict))).unwrap_or(Err(SwapError::Conflict))
    }

    fn new_names(&mut self) -> Result<NewNames, ReadError> {
        self.tree.new_names()
    }

    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), SwapError> {
        self.tree.open_to_new(seen, least)
    }

    fn maintain(&mut self) {
        // What it finds says so itself.
        let _ = self.tree.client();
    }

    fn close(&mut self) {
        self.seat = None;
        self.tree.link.leave();
    }
}

impl ZooKeeperSequences {
    fn reopen_once(&mut self, name: &str, least: u64) -> Result<(), SwapError> {
        self.operation += 1;
        let (found, expected) = match self.row(name) {
            Ok(row) => {
                let version = self.tree.tagged(row.version);
                (row.sequence_record().unwrap_or_default(), Some(version))
            }
            Err(ReadError::Absent { .. }) => (SequenceRecord::default(), None),
            Err(error) => return Err(error.into()),
        };
        let write = self.write(name, expected, &found.opened(least));
        match expected {
            Some(_) => self.tree.store_names(&[write]).pop().unwrap_or(Err(SwapError::Conflict)),
            None => self.tree.store_missing(&write),
        }
    }
}

fn is_of(row: &Row, era: EraId) -> bool {
    row.named.as_ref().is_some_and(|named| named.era == era)
}

/// What the record of a name says, if it is open.
fn open_record(
    tree: &Tree,
    name: &str,
    row: &Row,
    era: EraId,
) -> Result<Versioned<SequenceRecord>, ReadError> {
    let Some(record) = row.sequence_record() else { return Err(ReadError::Absent { what: what(name) }) };
    if !is_of(row, era) {
        return Err(ReadError::Closed { what: what(name), value: record.value });
    }
    Ok(Versioned { record, version: tree.tagged(row.version) })
}
