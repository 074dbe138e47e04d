//! What one opening of a registry has seen of it: records never go back, and if they do, somebody restored or
//! edited the file under us.

use std::collections::HashMap;

use xuid_spill::SpillId;

use super::format::{Kind, NO_SPILL, Place, Row};
use crate::registry::Token;

/// What went back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Back {
    #[error(
        "its version went back from {from} to {to}: the registry was restored or edited; stop the servers and run `xuid registry fence --restored`"
    )]
    Version { from: u64, to: u64 },
    #[error(
        "it changed without a new version ({version}): the registry was restored or edited; stop the servers and run `xuid registry fence --restored`"
    )]
    Content { version: u64 },
    #[error(
        "its mark went back from {from} to {to}: the registry was restored or edited; stop the servers and run `xuid registry fence --restored`"
    )]
    Mark { from: u64, to: u64 },
}

impl Back {
    /// A record that was known is not even there.
    pub(super) fn absent(known: &Row) -> Self {
        Self::Version { from: known.version, to: 0 }
    }

    /// What was found, beside what was known.
    pub(super) fn found(self) -> String {
        match self {
            Self::Version { from, to } => format!("was at version {from} and is at {to}"),
            Self::Content { version } => format!("says something else at version {version}"),
            Self::Mark { from, to } => format!("was at {from} and is at {to}"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u64,
    value: u64,
    token: [u8; 16],
    operation: u64,
    /// The newest version that was durable when this opening read or stored it; 0 if none was.
    settled: u64,
}

/// Whether a record that was found says less than one that was known before.
pub(super) fn compare(found: &Row, known: &Row) -> Result<(), Back> {
    Seen::of(found).compare(known)
}

/// The newest of each record that was seen.
#[derive(Debug, Default)]
pub(super) struct HighWater {
    seen: HashMap<Place, Seen>,
    granted: HashMap<SpillId, u64>,
    /// Where a mark was last found.
    pub(super) slots: HashMap<SpillId, u32>,
}

impl HighWater {
    /// Takes note of a record that was read.
    pub(super) fn see(&mut self, row: &Row) -> Result<(), Back> {
        if let Some(seen) = self.seen.get(&row.place) {
            if row.version < seen.version {
                return Err(Back::Version { from: seen.version, to: row.version });
            }
            if row.version == seen.version {
                return if seen.is(row) { Ok(()) } else { Err(Back::Content { version: row.version }) };
            }
        }
        if row.place.kind == Kind::Mark && row.spill != NO_SPILL {
            let granted = self.granted.entry(row.spill).or_default();
            if row.value < *granted {
                return Err(Back::Mark { from: *granted, to: row.value });
            }
            *granted = row.value;
        }
        let settled = self.seen.get(&row.place).map_or(0, |seen| seen.settled);
        self.seen.insert(row.place, Seen { settled, ..Seen::of(row) });
        Ok(())
    }

    /// Whether a record says less than what was durable once. Then the file was written over or edited, or the disk loses
    /// what it confirmed: no crash takes it back.
    pub(super) fn was_put_back(&self, row: &Row) -> bool {
        let is_less =
            |seen: &Seen| row.version < seen.settled || (row.version == seen.settled && !seen.may_be(row));
        self.seen.get(&row.place).is_some_and(is_less)
    }

    /// Whether what was seen says less than a record that was known before. Of a record that could not be read: no.
    pub(super) fn compare(&self, known: &Row) -> Result<(), Back> {
        self.seen.get(&known.place).map_or(Ok(()), |seen| seen.compare(known))
    }

    /// Takes note of a record of which both copies are durable.
    pub(super) fn settle(&mut self, row: &Row) {
        if row.place.kind == Kind::Mark && row.spill != NO_SPILL {
            let granted = self.granted.entry(row.spill).or_default();
            *granted = row.value.max(*granted);
        }
        self.seen.insert(row.place, Seen { settled: row.version, ..Seen::of(row) });
    }

    /// What tells each record of a kind that was seen.
    pub(super) fn rows(&self, kind: Kind) -> impl Iterator<Item = Row> {
        let of_kind = self.seen.iter().filter(move |(place, _)| place.kind == kind);
        of_kind.map(|(place, seen)| Row {
            version: seen.version,
            value: seen.value,
            token: Token(seen.token),
            operation: seen.operation,
            ..Row::genesis(*place, 0)
        })
    }

    /// Whether both copies of this very version are durable.
    pub(super) fn is_settled(&self, row: &Row) -> bool {
        let is_durable = |seen: &Seen| seen.settled == row.version && seen.version == row.version;
        self.seen.get(&row.place).is_some_and(is_durable)
    }
}

impl Seen {
    fn of(row: &Row) -> Self {
        let Row { version, value, token, operation, .. } = *row;
        Self { version, value, token: token.0, operation, settled: 0 }
    }

    /// Whether this row may be what was seen of its version: nothing is known of an earlier one.
    fn may_be(&self, row: &Row) -> bool {
        row.version != self.version || self.is(row)
    }

    fn compare(&self, known: &Row) -> Result<(), Back> {
        if self.version < known.version {
            return Err(Back::Version { from: known.version, to: self.version });
        }
        if self.version == known.version && !self.is(known) {
            return Err(Back::Content { version: known.version });
        }
        Ok(())
    }

    /// Whether this row of the same version is what was seen.
    fn is(&self, row: &Row) -> bool {
        (row.value, row.token.0, row.operation) == (self.value, self.token, self.operation)
    }
}
