//! The port to the records of names, on the file of a folder.

use super::LocalSequences;
use crate::registry::local::disk::Disk;
use crate::registry::local::format::{Pair, Place, Row, short_owner};
use crate::registry::local::records::{Change, Records, what};
use crate::registry::local::seat::Seat;
use crate::registry::record::{EraId, NAME_BYTES};
use crate::registry::sequences::{
    MOST_CHANGES, NewNames, SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords, check_begin,
};
use crate::registry::{ClusterId, ReadError, SwapError, Token, Versioned};

/// Who writes, and which of its writes it is.
#[derive(Clone, Copy)]
struct Writer {
    token: Token,
    operation: u64,
}

impl<D: Disk> LocalSequences<D> {
    /// Does something under the lock, when all names are learnt.
    fn locked<T>(
        &mut self,
        work: impl FnOnce(&mut Records<D>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.records.recover();
        self.records.locked(|records| {
            records.learn_names()?;
            work(records)
        })
    }

    fn writer(&mut self) -> Writer {
        self.operation += 1;
        Writer { token: self.token, operation: self.operation }
    }
}

impl<D: Disk> SequenceRecords for LocalSequences<D> {
    fn describe(&self) -> String {
        format!("local {}", self.folder.display())
    }

    fn cluster(&self) -> ClusterId {
        self.records.genesis().cluster
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        let read = |records: &mut Records<D>| {
            let era = records.sequences().era;
            Ok(names.iter().map(|name| open_record(&records.named(name)?, name, era)).collect::<Vec<_>>())
        };
        match self.locked(read) {
            Ok(found) => out.extend(found),
            Err(error) => out.extend(names.iter().map(|_| Err(error.clone()))),
        }
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        assert!(changes.len() <= MOST_CHANGES, "{} changes in one call", changes.len());
        let writer = self.writer();
        let mut outcomes = Vec::with_capacity(changes.len());
        let swapped = self.records.change(|records| {
            records.learn_names()?;
            outcomes = store(records, changes, writer);
            Ok(())
        });
        match swapped {
            Ok(()) => out.append(&mut outcomes),
            Err(error) => out.extend(changes.iter().map(|_| Err(error.clone()))),
        }
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.locked(|records| {
            let era = records.sequences().era;
            let names: Vec<String> = records
                .names_from(prefix, after)
                .take_while(|name| name.starts_with(prefix))
                .filter(|name| !name.starts_with('@'))
                .take(limit)
                .map(str::to_owned)
                .collect();
            let entry = |name: String| {
                let record = records.named(&name).and_then(|pair| open_record(&pair, &name, era));
                (name, record)
            };
            Ok(names.into_iter().map(entry).collect())
        })
    }

    fn seat(&self) -> Option<u32> {
        self.seat.as_ref().map(Seat::number)
    }

    fn closed_record(&mut self, name: &str) -> Result<SequenceRecord, ReadError> {
        self.locked(|records| {
            let era = records.sequences().era;
            let row = records.named(name)?.row;
            match row.sequence_record() {
                Some(record) if !is_of(&row, era) => Ok(record),
                _ => Err(ReadError::Absent { what: format!("a closed record of {}", what(name)) }),
            }
        })
    }

    fn reopen(&mut self, name: &str, least: u64) -> Result<(), SwapError> {
        let writer = self.writer();
        self.records.change(|records| {
            records.learn_names()?;
            let (base, found) = closed_or_lost(records, name)?;
            let record = found.opened(least);
            let row = row(&base, name, &record, records.sequences().era, (writer, records.now_ms()));
            records.store_names(&[(base, row)]).pop().unwrap_or(Ok(()))
        })
    }

    fn new_names(&mut self) -> Result<NewNames, ReadError> {
        self.locked(|records| Ok(said_of_new(records)))
    }

    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), SwapError> {
        self.records.change(|records| {
            records.learn_names()?;
            match records.lost_name() {
                Some(slot) => {
                    let came = records.pair(Place::sequence(slot)).map_or(0, |pair| pair.row.value);
                    let came = if came > 0 { format!(", which had come to {came} at least") } else { String::new() };
                    let what = format!("sequence slot {slot}{came}");
                    let why = "nothing tells which name it had: name it by `xuid sequence fence` first. If no name is missing, \
                               it had that of leftovers: then give it any that is none, with `--above 1`"
                        .into();
                    Err(ReadError::Damaged { what, why }.into())
                }
                None => match said_of_new(records) {
                    NewNames { are_closed: false, least: said } if said == least => Ok(()),
                    said if said == seen => records.open_to_new(least),
                    _ => Err(SwapError::Conflict),
                },
            }
        })
    }

    fn close(&mut self) {
        self.records.sync_hints();
        self.seat = None;
    }
}

fn said_of_new<D: Disk>(records: &Records<D>) -> NewNames {
    let header = records.sequences();
    NewNames { are_closed: header.is_closed, least: header.least }
}

/// Stores those of the changes that fit what is there, together.
fn store<D: Disk>(
    records: &mut Records<D>,
    changes: &[SequenceChange<'_>],
    writer: Writer,
) -> Vec<Result<(), SwapError>> {
    let (mut staged, mut whose) = (Vec::<Change>::new(), Vec::new());
    let mut outcomes: Vec<Result<(), SwapError>> = Vec::with_capacity(changes.len());
    for (n, change) in changes.iter().enumerate() {
        let base = base_of(records, change, &staged);
        if let Ok(base) = &base {
            let stamp = (writer, records.now_ms());
            let row = row(base, change.name, &change.record, records.sequences().era, stamp);
            staged.push((base.clone(), row));
            whose.push(n);
        }
        outcomes.push(base.map(drop));
    }
    for (n, outcome) in whose.into_iter().zip(records.store_names(&staged)) {
        outcomes[n] = outcome;
    }
    outcomes
}

/// What a change replaces, if it is what the change expects.
fn base_of<D: Disk>(
    records: &mut Records<D>,
    change: &SequenceChange<'_>,
    staged: &[Change],
) -> Result<Pair, SwapError> {
    let SequenceChange { name, expected, ref record } = *change;
    if name.is_empty() || name.len() > NAME_BYTES {
        let why = format!("a name has 1 to {NAME_BYTES} bytes");
        return Err(ReadError::Damaged { what: what(name), why }.into());
    }
    let era = records.sequences().era;
    match (records.named(name), expected) {
        (Ok(pair), Some(expected)) => {
            let found = open_record(&pair, name, era)?;
            if found.version != expected {
                return Err(SwapError::Conflict);
            }
            assert!(record.value >= found.record.value, "the value of '{name}' only rises");
            Ok(pair)
        }
        (Ok(pair), None) => {
            open_record(&pair, name, era)?;
            Err(SwapError::Conflict)
        }
        (Err(ReadError::Absent { .. }), None) => {
            if records.sequences().is_closed {
                return Err(closed_to_new(name).into());
            }
            check_begin(record, records.sequences().least)?;
            records.unused(staged)
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// A name that a fence found nothing of may have been there.
fn closed_to_new(name: &str) -> ReadError {
    ReadError::Closed { what: what(name), value: 0 }
}

fn is_of(row: &Row, era: EraId) -> bool {
    row.named.as_ref().is_some_and(|named| named.era == era)
}

/// What the record of a name says, if it is open.
fn open_record(pair: &Pair, name: &str, era: EraId) -> Result<Versioned<SequenceRecord>, ReadError> {
    let Some(record) = pair.row.sequence_record() else {
        return Err(ReadError::Absent { what: what(name) });
    };
    if !is_of(&pair.row, era) {
        return Err(ReadError::Closed { what: what(name), value: record.value });
    }
    Ok(Versioned { record, version: pair.row.version })
}

/// The slot of a name, to be raised; for a name that is missing the slot of one that is lost, or an unused one where a
/// fence closed the file.
fn closed_or_lost<D: Disk>(
    records: &mut Records<D>,
    name: &str,
) -> Result<(Pair, SequenceRecord), SwapError> {
    match records.named(name) {
        Ok(pair) => {
            let record = pair.row.sequence_record().unwrap_or_default();
            Ok((pair, record))
        }
        Err(ReadError::Damaged { why, .. }) if !records.has_slot(name) => match records.lost_name() {
            // Where a fence went over it. What cannot be read is none to be written.
            Some(slot) => {
                let pair = records.pair(Place::sequence(slot))?;
                // As far as the folder knew it came.
                let value = pair.row.value;
                Ok((pair, SequenceRecord { value, ..SequenceRecord::default() }))
            }
            None => Err(ReadError::Damaged { what: what(name), why }.into()),
        },
        Err(ReadError::Absent { .. }) if records.sequences().is_closed => {
            Ok((records.unused(&[])?, SequenceRecord::default()))
        }
        Err(error) => Err(error.into()),
    }
}

fn row(base: &Pair, name: &str, record: &SequenceRecord, era: EraId, stamp: (Writer, u64)) -> Row {
    let (Writer { token, operation }, updated_ms) = stamp;
    Row {
        version: base.row.version + 1,
        token,
        operation,
        updated_ms,
        owner: short_owner(&base.row.owner).to_owned(),
        ..Row::of_sequence(base.row.place, (name, era), record)
    }
}
