//! The registry as a store: the records of names that it keeps are the marks.
//!
//! # Invariants
//! - R1 a grant is one compare-and-set of the record that it was reckoned from; after an unknown outcome nothing is
//!   granted, and the record is read anew;
//! - R2 a record that only a witness made is no sequence: it is not granted from, and a sequence that is created over it
//!   begins above all that was seen;
//! - R3 what a fence closed, records of a witness included, is opened by [`Store::raise`] alone, which a person's command calls.

use super::{
    Alteration, Ask, HIGHEST, Identity, MOST_ASKS, MOST_STEP, NewLast, NewSequence, Outcome, Row,
    SequenceSettings, Store, StoreError, check_last,
};
use crate::clock::{SECOND, boot_ns};
use crate::registry::sequences::{
    NO_SEQUENCE, NewNames, SequenceChange, SequenceRecord, SequenceRecords, answers,
};
use crate::registry::{ReadError, SwapError, Versioned};
use crate::sequence::name::SequenceName;

/// Rounds of reading and swapping. Of those that want one record at the same moment one gets it in each round.
const ROUNDS: u32 = 16;

/// How long names that are no sequences are passed over for a list, and how many are read at once then.
const MOST_LISTING: u64 = 3 * SECOND;
const LARGE_PAGE: usize = 1_000;

/// A store on the records of a registry.
pub struct RegistryStore {
    records: Box<dyn SequenceRecords>,
    /// In the last call for grants other processes were quicker, each time.
    was_contended: bool,
}

impl std::fmt::Debug for RegistryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryStore").field("records", &self.records.describe()).finish_non_exhaustive()
    }
}

impl RegistryStore {
    /// The store on those records. The witness and the leftovers of the same process need an opening of their own.
    #[must_use]
    pub fn new(records: Box<dyn SequenceRecords>) -> Self {
        Self { records, was_contended: false }
    }

    /// The registry's own sentence says all: it is fenced as a whole, and needs no identity written into it.
    fn here(&self) -> Identity {
        let cluster = format!("registry {}", self.records.cluster());
        Identity { recorded: Some(cluster.clone()), current: cluster, fenced: None }
    }

    fn record(&mut self, name: &SequenceName) -> Result<Versioned<SequenceRecord>, ReadError> {
        let mut found = Vec::with_capacity(1);
        self.records.read(&[name.as_str()], &mut found);
        found.pop().unwrap_or_else(|| Err(ReadError::Unavailable { why: "it said nothing".into() }))
    }

    fn swap(
        &mut self,
        name: &SequenceName,
        expected: Option<u64>,
        record: SequenceRecord,
    ) -> Result<(), SwapError> {
        let mut outcome = Vec::with_capacity(1);
        self.records.swap(&[SequenceChange { name: name.as_str(), expected, record }], &mut outcome);
        outcome.pop().unwrap_or_else(|| Err(SwapError::Unknown { why: "it said nothing".into() }))
    }

    /// Changes a record, again if another process was quicker; what it says afterwards.
    fn update(
        &mut self,
        name: &SequenceName,
        change: impl Fn(Option<SequenceRecord>) -> Result<SequenceRecord, StoreError>,
    ) -> Result<Row, StoreError> {
        for _ in 0..ROUNDS {
            let (expected, found) = match self.record(name) {
                Ok(found) => (Some(found.version), Some(found.record)),
                Err(ReadError::Absent { .. }) => (None, None),
                Err(error) => return Err(of_read(error)),
            };
            let record = change(found)?;
            match self.swap(name, expected, record.clone()) {
                Ok(()) => return Ok(row(name, &record)),
                Err(SwapError::Conflict) => {}
                Err(error) => return Err(of_swap(error)),
            }
        }
        Err(StoreError::Away { why: contended() })
    }

    /// One round of those rows that are not made yet, none below `least`.
    fn create_round(
        &mut self,
        rows: &[(SequenceName, NewSequence)],
        least: &mut u64,
        made: &mut [Option<Result<Row, StoreError>>],
    ) {
        let open: Vec<usize> = (0..rows.len()).filter(|n| made[*n].is_none()).collect();
        let names: Vec<&str> = open.iter().map(|n| rows[*n].0.as_str()).collect();
        let mut found = Vec::with_capacity(open.len());
        self.records.read(&names, &mut found);
        let (mut changes, mut whose) = (Vec::new(), Vec::new());
        for (n, found) in open.into_iter().zip(found) {
            match creation(&rows[n], *least, found) {
                Ok(change) => {
                    changes.push(change);
                    whose.push(n);
                }
                Err(error) => made[n] = Some(Err(error)),
            }
        }
        let mut swapped = Vec::with_capacity(changes.len());
        if !changes.is_empty() {
            self.records.swap(&changes, &mut swapped);
        }
        let mut raised = *least;
        for ((n, change), swapped) in whose.into_iter().zip(changes).zip(swapped) {
            made[n] = match swapped {
                Ok(()) => Some(Ok(row(&rows[n].0, &change.record))),
                Err(SwapError::Conflict) => None,
                Err(SwapError::TooLow { least: said }) if said > *least => {
                    raised = raised.max(said);
                    None
                }
                Err(error) => Some(Err(of_swap(error))),
            };
        }
        *least = raised;
    }

    /// One round of those asks that have no outcome yet.
    fn grant_round(&mut self, asks: &[Ask], outcomes: &mut [Option<Outcome>]) {
        let open: Vec<usize> = (0..asks.len()).filter(|n| outcomes[*n].is_none()).collect();
        let names: Vec<&str> = open.iter().map(|n| asks[*n].name.as_str()).collect();
        let mut found = Vec::with_capacity(open.len());
        self.records.read(&names, &mut found);
        let (mut changes, mut granted) = (Vec::new(), Vec::new());
        for (n, found) in open.into_iter().zip(found) {
            match found.map_err(outcome_of_read).and_then(|found| grant_of(&asks[n], found)) {
                Ok((change, outcome)) => {
                    changes.push(change);
                    granted.push((n, outcome));
                }
                Err(outcome) => outcomes[n] = Some(outcome),
            }
        }
        let mut swapped = Vec::with_capacity(changes.len());
        if !changes.is_empty() {
            self.records.swap(&changes, &mut swapped);
        }
        for ((n, outcome), swapped) in granted.into_iter().zip(swapped) {
            outcomes[n] = match swapped {
                Ok(()) => Some(outcome),
                Err(SwapError::Conflict) => None,
                Err(SwapError::Unknown { why }) => Some(Outcome::Unknown { why }),
                Err(SwapError::Unavailable { why } | SwapError::Full { why }) => Some(Outcome::Away { why }),
                // Of names that are made, and none is by a grant.
                Err(error @ SwapError::TooLow { .. }) => Some(Outcome::Refused { why: error.to_string() }),
                Err(SwapError::Read(error)) => Some(outcome_of_read(error)),
            };
        }
    }
}

/// The change that makes a row over what was found of it, and not below `least`; or why it cannot be made.
fn creation(
    (name, new): &(SequenceName, NewSequence),
    least: u64,
    found: Result<Versioned<SequenceRecord>, ReadError>,
) -> Result<SequenceChange<'_>, StoreError> {
    let found = match found {
        Ok(found) => Some(found),
        Err(ReadError::Absent { .. }) => None,
        Err(error) => return Err(of_read(error)),
    };
    let seen = found.as_ref().map(|found| &found.record);
    if let Some(record) = seen.filter(|record| settings(record).is_some()) {
        return Err(StoreError::Exists(Box::new(row(name, record))));
    }
    let mut record = begun(new, seen);
    record.value = record.value.max(least);
    check_last(&new.settings, least)?;
    Ok(SequenceChange { name: name.as_str(), expected: found.map(|found| found.version), record })
}

fn contended() -> String {
    "other processes changed the record again and again".into()
}

/// The change that an ask makes of a record, and what it is granted by that; or why it is granted nothing.
fn grant_of(ask: &Ask, found: Versioned<SequenceRecord>) -> Result<(SequenceChange<'_>, Outcome), Outcome> {
    let Versioned { mut record, version } = found;
    let Some(settings) = settings(&record) else { return Err(Outcome::Absent) };
    let first = record.value;
    if first_fit(first, &settings).is_none_or(|fit| fit > settings.last) {
        return Err(Outcome::Exhausted { settings });
    }
    let count = if settings.strict { ask.least } else { ask.count.max(settings.step) };
    let span = count.min(MOST_STEP).saturating_mul(u64::from(settings.increment));
    let end = first.saturating_add(span).min(settings.last.saturating_add(1));
    record.value = end;
    let change = SequenceChange { name: ask.name.as_str(), expected: Some(version), record };
    Ok((change, Outcome::Granted { first, end, settings }))
}

/// The first number from there on that the sequence can issue.
fn first_fit(from: u64, settings: &SequenceSettings) -> Option<u64> {
    let (increment, remainder) = (u64::from(settings.increment), u64::from(settings.remainder));
    from.checked_add((remainder + increment - from % increment) % increment)
}

/// What a record says of its sequence; `None` if only a witness made it (R2).
fn settings(record: &SequenceRecord) -> Option<SequenceSettings> {
    let SequenceRecord { last, step, increment, remainder, strict, .. } = *record;
    (step > 0).then(|| SequenceSettings {
        step: step.min(MOST_STEP),
        increment: increment.max(1),
        remainder: remainder % increment.max(1),
        last: last.min(HIGHEST),
        strict,
    })
}

/// The record of a sequence, if that is what was found.
fn sequence_of(found: Option<SequenceRecord>) -> Result<SequenceRecord, StoreError> {
    found.filter(|record| settings(record).is_some()).ok_or(StoreError::Absent { similar: None })
}

fn row(name: &SequenceName, record: &SequenceRecord) -> Row {
    let settings = settings(record).unwrap_or_default();
    Row { name: name.clone(), next: record.value, settings, description: None }
}

fn outcome_of_read(error: ReadError) -> Outcome {
    match error {
        ReadError::Absent { .. } => Outcome::Absent,
        ReadError::Unavailable { why } => Outcome::Away { why },
        refused => Outcome::Refused { why: refused.to_string() },
    }
}

fn of_read(error: ReadError) -> StoreError {
    match error {
        ReadError::Absent { .. } => StoreError::Absent { similar: None },
        ReadError::Unavailable { why } => StoreError::Away { why },
        closed @ ReadError::Closed { .. } => StoreError::Closed { why: closed.to_string() },
        refused => StoreError::Refused { why: refused.to_string() },
    }
}

fn of_swap(error: SwapError) -> StoreError {
    match error {
        SwapError::Conflict => StoreError::Away { why: contended() },
        SwapError::Unknown { why } => StoreError::Unknown { why },
        SwapError::Unavailable { why } | SwapError::Full { why } => StoreError::Away { why },
        SwapError::TooLow { .. } => StoreError::Refused { why: error.to_string() },
        SwapError::Read(error) => of_read(error),
    }
}

/// The record of a new sequence, over what a witness may have seen.
fn begun(new: &NewSequence, seen: Option<&SequenceRecord>) -> SequenceRecord {
    let SequenceSettings { step, increment, remainder, last, strict } = new.settings;
    let value = seen.map_or(new.start, |seen| seen.value.max(new.start));
    SequenceRecord { value, gaps: Vec::new(), last, step, increment, remainder, strict }
}

impl Store for RegistryStore {
    fn describe(&self) -> String {
        format!("registry {}", self.records.describe())
    }

    fn place(&self) -> String {
        "registry".to_owned()
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn was_silent(&self) -> bool {
        !self.was_contended
    }

    fn was_contended(&self) -> bool {
        self.was_contended
    }

    /// It is known anyhow: what is asked is whether the registry answers.
    fn identity(&mut self) -> Result<Identity, StoreError> {
        answers(&mut *self.records, NO_SEQUENCE).map_err(|why| StoreError::Away { why })?;
        Ok(self.here())
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        assert!(asks.len() <= MOST_ASKS, "{} asks in one call", asks.len());
        let mut outcomes = vec![None; asks.len()];
        for _ in 0..ROUNDS {
            self.grant_round(asks, &mut outcomes);
            if outcomes.iter().all(Option::is_some) {
                break;
            }
        }
        self.was_contended = outcomes.iter().any(Option::is_none);
        let granted = outcomes.iter().flatten().any(|outcome| matches!(outcome, Outcome::Granted { .. }));
        out.extend(
            outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Outcome::Away { why: contended() })),
        );
        granted.then(|| self.here())
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        let found = self.record(name).map_err(of_read)?;
        if settings(&found.record).is_none() {
            return Err(StoreError::Absent { similar: None });
        }
        Ok(row(name, &found.record))
    }

    /// Names that a fence closed are in the list, with the mark that is known; those of a witness, too, as they have to be
    /// opened.
    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        let (mut rows, mut after) = (Vec::new(), after.to_owned());
        let (begun, mut most) = (boot_ns(), limit);
        while rows.len() < limit {
            // A command (a fence) asks for more at once, and waits.
            if limit <= LARGE_PAGE && boot_ns().saturating_sub(begun) >= MOST_LISTING {
                let why = format!(
                    "behind '{after}' lie more names of a witness, which are no sequences, than are passed over at once: list \
                     with a longer prefix, or behind a later name"
                );
                return Err(StoreError::Refused { why });
            }
            let page = self.records.list(prefix, &after, most).map_err(of_read)?;
            // In an ensemble each look costs hundreds of requests: none behind the last name.
            let is_last = page.len() < most;
            let Some((last, _)) = page.last() else { break };
            // Names that a witness alone made may be many, and a page of an ensemble is hundreds of requests.
            most = limit.max(LARGE_PAGE);
            after.clone_from(last);
            for (text, found) in page {
                let Ok(name) = SequenceName::new(&text) else { continue };
                let record = match found {
                    Ok(found) => Some(found.record).filter(|record| settings(record).is_some()),
                    // None where it was opened meanwhile, or is unreadable. Of one that was not had nobody knows that, and a fence
                    // would leave it closed.
                    Err(ReadError::Closed { .. }) => match self.records.closed_record(&text) {
                        Ok(record) => Some(record),
                        Err(error @ ReadError::Unavailable { .. }) => return Err(of_read(error)),
                        Err(_) => None,
                    },
                    Err(error @ ReadError::Unavailable { .. }) => return Err(of_read(error)),
                    Err(_) => None,
                };
                rows.extend(record.map(|record| row(&name, &record)));
            }
            if is_last {
                break;
            }
        }
        rows.truncate(limit);
        Ok(rows)
    }

    /// The registry keeps no description.
    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        let made = self.create_all(&[(name.clone(), new.clone())]).pop();
        made.unwrap_or_else(|| Err(StoreError::Away { why: contended() }))
    }

    /// All of them share the registry's syncs.
    fn create_all(&mut self, rows: &[(SequenceName, NewSequence)]) -> Vec<Result<Row, StoreError>> {
        assert!(rows.len() <= MOST_ASKS, "{} rows in one call", rows.len());
        let (mut made, mut least) = (vec![None; rows.len()], 0);
        for _ in 0..ROUNDS {
            self.create_round(rows, &mut least, &mut made);
            if made.iter().all(Option::is_some) {
                break;
            }
        }
        made.into_iter()
            .map(|made| made.unwrap_or_else(|| Err(StoreError::Away { why: contended() })))
            .collect()
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.update(name, |found| {
            let mut record = sequence_of(found)?;
            match alteration.last {
                Some(NewLast::At(last)) if last < record.last => {
                    let why =
                        format!("the last number is {} and cannot be lower: retire it instead", record.last);
                    return Err(StoreError::Refused { why });
                }
                Some(NewLast::At(last)) => record.last = last.min(HIGHEST),
                // Of numbers that begin at 0, and of which none was granted, the first can come still.
                Some(NewLast::Retired) => record.last = record.value.saturating_sub(1).min(record.last),
                None => {}
            }
            record.step = alteration.step.unwrap_or(record.step);
            Ok(record)
        })
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.records.reopen(name.as_str(), least).map_err(of_swap)?;
        let found = self.record(name).map_err(of_read)?;
        Ok(row(name, &found.record))
    }

    fn raise_open(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.update(name, |found| {
            let mut record = sequence_of(found)?;
            record.value = record.value.max(least);
            Ok(record)
        })
    }

    fn new_names(&mut self) -> Result<NewNames, StoreError> {
        self.records.new_names().map_err(of_read)
    }

    fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), StoreError> {
        self.records.allow_new(seen, least).map_err(|error| match error {
            SwapError::Conflict => {
                let why = "another fence said meanwhile where new names begin: fence again".into();
                StoreError::Refused { why }
            }
            other => of_swap(other),
        })
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        Ok(self.here())
    }

    fn maintain(&mut self) {
        self.records.maintain();
    }
}

#[cfg(test)]
mod tests;
