//! The records of names: which slot belongs to which, which slot a new one gets, and a file that grows.
//!
//! # Invariants
//! - N1 a slot is given to a name once and for good;
//! - N2 a name is made only where every used slot tells whose it is: else it may be the one that was lost;
//! - N3 new slots are laid out and durable before the header says that they are there, and no slot is used before that
//!   is durable in both headers.

use super::Records;
use super::name_index::Found;
use super::store::Change;
use crate::registry::local::disk::Disk;
use crate::registry::local::format::{GROWTH_SLOTS, MOST_SEQUENCES, Pair, Place, Row, SECTOR, Side};
use crate::registry::local::header::{Header, HeaderPair, SequencesHeader};
use crate::registry::local::hints;
use crate::registry::{ReadError, SwapError};

/// For people.
pub(in crate::registry::local) fn what(name: &str) -> String {
    format!("the sequence '{name}'")
}

impl<D: Disk> Records<D> {
    /// What the header says of the file of sequences.
    pub(in crate::registry::local) fn sequences(&self) -> SequencesHeader {
        let Some(sequences) = self.header.sequences else {
            unreachable!("names are in the file of sequences")
        };
        sequences
    }

    /// Learns of names that other processes made. Called under the lock.
    pub(in crate::registry::local) fn learn_names(&mut self) -> Result<(), ReadError> {
        while self.names.next() < self.geometry().sequences {
            if !self.learn_name(self.names.next())? {
                break;
            }
        }
        // A person may have said whose they were.
        for slot in self.names.lost().collect::<Vec<_>>() {
            self.learn_name(slot)?;
        }
        Ok(())
    }

    /// Whether a slot is used.
    fn learn_name(&mut self, slot: u32) -> Result<bool, ReadError> {
        let place = Place::sequence(slot);
        let found = match self.pair(place) {
            Ok(pair) => Some(pair.row),
            Err(ReadError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        self.names.learn(place, found.as_ref());
        Ok(found.is_none_or(|row| row.named.is_some()))
    }

    /// The record of a name. Called under the lock, when all names are learnt.
    pub(in crate::registry::local) fn named(&mut self, name: &str) -> Result<Pair, ReadError> {
        let damaged = |why: String| ReadError::Damaged { what: what(name), why };
        match self.names.find(name) {
            Found::At(slot) => {
                let pair = self.pair(Place::sequence(slot)).map_err(|error| match error {
                    ReadError::Damaged { why, .. } => damaged(why),
                    other => other,
                })?;
                let is_its = pair.row.named.as_ref().is_some_and(|named| named.name == name);
                if is_its { Ok(pair) } else { Err(damaged(format!("slot {slot} has another name now"))) }
            }
            Found::Doubled => Err(damaged("two slots claim to be its record".into())),
            Found::PerhapsLost(slot) => Err(damaged(format!(
                "no readable slot has it, and nothing tells what slot {slot} had: run `xuid registry fence --restored`, and \
                 then `xuid sequence fence` for each name that is missing"
            ))),
            Found::Never => Err(ReadError::Absent { what: what(name) }),
        }
    }

    /// An unused slot that none of these changes takes. Called under the lock, when all names are learnt.
    pub(in crate::registry::local) fn unused(&mut self, changes: &[Change]) -> Result<Pair, SwapError> {
        let mut slot = self.names.next();
        loop {
            if slot == self.geometry().sequences {
                self.grow()?;
            }
            let place = Place::sequence(slot);
            if !changes.iter().any(|(_, row)| row.place == place) {
                let pair = self.pair(place)?;
                if pair.row.named.is_none() {
                    return Ok(pair);
                }
            }
            slot += 1;
        }
    }

    /// Stores each row over what it was read as, under the lock. Where not all have the same copy to be written first,
    /// those that have go together.
    pub(in crate::registry::local) fn store_names(
        &mut self,
        changes: &[Change],
    ) -> Vec<Result<(), SwapError>> {
        let mut outcomes = vec![Ok(()); changes.len()];
        for side in Side::BOTH {
            let those: Vec<usize> = (0..changes.len()).filter(|n| changes[*n].0.spare() == side).collect();
            let together: Vec<Change> = those.iter().map(|n| changes[*n].clone()).collect();
            let outcome = self.store_of_side(&together);
            for n in those {
                outcomes[n].clone_from(&outcome);
            }
        }
        outcomes
    }

    fn store_of_side(&mut self, changes: &[Change]) -> Result<(), SwapError> {
        // The other half of the call met it.
        if let Some(poison) = &self.poison {
            return Err(SwapError::Unavailable { why: poison.why.clone() });
        }
        for (base, _) in changes {
            self.compare_place(&base.row)?;
        }
        self.store_all(changes)?;
        for (_, row) in changes {
            self.names.learn(row.place, Some(row));
        }
        Ok(())
    }

    /// Names after one and not before the first with a prefix, in order.
    pub(in crate::registry::local) fn names_from<'a>(
        &'a self,
        prefix: &str,
        after: &str,
    ) -> impl Iterator<Item = &'a str> {
        self.names.from(prefix, after)
    }

    /// Whether a slot is known to be a name's.
    pub(in crate::registry::local) fn has_slot(&self, name: &str) -> bool {
        matches!(self.names.find(name), Found::At(_) | Found::Doubled)
    }

    /// The first slot of which nothing tells whose it was.
    pub(in crate::registry::local) fn lost_name(&self) -> Option<u32> {
        self.names.lost().next()
    }

    /// Gives the file more slots (N3). Called under the lock.
    fn grow(&mut self) -> Result<(), SwapError> {
        let (old, now) = (self.header, self.sequences());
        if now.slots >= MOST_SEQUENCES {
            let why = format!(
                "its file has {MOST_SEQUENCES} names, and room for no more: more belong in a database"
            );
            return Err(SwapError::Full { why });
        }
        let sequences = SequencesHeader { slots: now.slots + GROWTH_SLOTS, ..now };
        let new = Header { sequences: Some(sequences), generation: old.generation + 1, ..old };
        self.make_room(&new).map_err(|error| SwapError::Full {
            why: format!("its file cannot grow ({error}): free some megabytes"),
        })?;
        let written = self.lay_out(&new).and_then(|()| self.replace_header(&new));
        written
            .map_err(|error| SwapError::Unavailable { why: self.doubt(Place::sequence(now.slots), &error) })
    }

    fn make_room(&mut self, new: &Header) -> std::io::Result<()> {
        if let Some(hints) = &mut self.hints {
            hints.extend(hints::image_bytes(new.table()))?;
        }
        self.disk.extend(new.geometry().bytes())
    }

    /// Writes unused slots behind the present ones, and makes them durable.
    fn lay_out(&mut self, new: &Header) -> std::io::Result<()> {
        let (table, first) = (new.table(), self.geometry().sequences);
        let unused = |slot| Row::genesis(Place::sequence(slot), 0).encode(table.cluster);
        let rows: Vec<[u8; SECTOR]> = (first..table.geometry.sequences).map(unused).collect();
        for copy in Side::BOTH {
            self.disk.write_at(rows.as_flattened(), table.geometry.offset(Place::sequence(first), copy))?;
        }
        self.disk.sync()
    }

    /// Writes both headers.
    fn replace_header(&mut self, new: &Header) -> std::io::Result<()> {
        HeaderPair { header: self.header, sound: [true, true] }.replace(&mut self.disk, new)?;
        self.header = *new;
        Ok(())
    }

    /// Lets names be made again that are not there, from `least` on. Called under the lock.
    pub(in crate::registry::local) fn open_to_new(&mut self, least: u64) -> Result<(), SwapError> {
        let (old, now) = (self.header, self.sequences());
        let sequences = SequencesHeader { is_closed: false, least, ..now };
        let new = Header { sequences: Some(sequences), generation: old.generation + 1, ..old };
        let written = self.replace_header(&new);
        written.map_err(|error| SwapError::Unknown { why: self.doubt(Place::sequence(0), &error) })
    }
}
