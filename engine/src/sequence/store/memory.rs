//! A database in memory, for tests and simulations: hosts with rows of their own, of which one may follow another late,
//! be promoted, or be put back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::{
    Alteration, Ask, HIGHEST, Identity, MOST_ASKS, MOST_STEP, NewLast, NewSequence, Outcome, Row, Store,
    StoreError, check_last,
};
use crate::registry::sequences::NewNames;
use crate::sequence::name::SequenceName;
use crate::sys::atomics::lock;

/// What becomes of a call of [`Store::grant`]. One fault serves one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The change is stored, and the reply is lost.
    LandsUnseen,
    /// The change is stored when [`MemoryDatabase::settle`] is called, long after the caller gave up.
    LandsLate,
    /// The request is lost, and whether it is is not known.
    LostUnseen,
    /// The host is not reached.
    Away,
}

#[derive(Clone, Debug, Default)]
struct Host {
    rows: BTreeMap<SequenceName, Row>,
    current: String,
    recorded: Option<String>,
    fenced: Option<String>,
    /// Where a fence said that new names begin.
    least: u64,
    away: bool,
}

#[derive(Default)]
struct Hosts {
    all: Vec<Host>,
    faults: VecDeque<Fault>,
    late: Vec<(usize, Vec<Ask>)>,
    /// What the clock by which fences are told showed last.
    fences: u64,
    /// Calls of `grant` that reached it.
    grants: u64,
    /// How many asks each of them had, the last of them last.
    batches: Vec<usize>,
}

/// A host's rows as they were, and what was written of its identity.
#[derive(Clone, Debug)]
pub struct Dump {
    rows: BTreeMap<SequenceName, Row>,
    recorded: Option<String>,
    fenced: Option<String>,
    least: u64,
}

impl Dump {
    /// The mark of a name in it.
    #[must_use]
    pub fn mark(&self, name: &SequenceName) -> Option<u64> {
        self.rows.get(name).map(|row| row.next)
    }
}

/// The database. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryDatabase(Arc<Mutex<Hosts>>);

impl std::fmt::Debug for MemoryDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDatabase").finish_non_exhaustive()
    }
}

impl MemoryDatabase {
    /// So many hosts without rows; host 0 is written to.
    ///
    /// # Panics
    /// If there is to be no host.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        assert!(hosts > 0, "a database has a host");
        let host = |number| Host { current: format!("host {number}"), ..Host::default() };
        Self(Arc::new(Mutex::new(Hosts { all: (0..hosts).map(host).collect(), ..Hosts::default() })))
    }

    /// A connection to a host that may lose what it committed.
    #[must_use]
    pub fn store(&self, host: usize) -> MemoryStore {
        MemoryStore { database: self.clone(), host: Arc::new(Mutex::new(host)), may_go_back: true }
    }

    /// A connection to a host of which it is known that it never goes back.
    #[must_use]
    pub fn faithful_store(&self, host: usize) -> MemoryStore {
        MemoryStore { may_go_back: false, ..self.store(host) }
    }

    /// The next calls of `grant` meet these faults, one each.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.0).faults.extend(faults);
    }

    /// Whether every call finds a host away.
    pub fn set_away(&self, host: usize, away: bool) {
        lock(&self.0).all[host].away = away;
    }

    /// Stores what is under way since its caller gave up.
    pub fn settle(&self) {
        let hosts = &mut *lock(&self.0);
        for (host, asks) in std::mem::take(&mut hosts.late) {
            for ask in &asks {
                let _ = hosts.all[host].grant(ask);
            }
        }
    }

    /// A host gets all rows of another, as a replica that has caught up.
    pub fn replicate(&self, from: usize, to: usize) {
        let dump = self.dump(from);
        self.restore(to, &dump);
    }

    /// What a host says now.
    #[must_use]
    pub fn dump(&self, host: usize) -> Dump {
        let Host { rows, recorded, fenced, least, .. } = lock(&self.0).all[host].clone();
        Dump { rows, recorded, fenced, least }
    }

    /// A host says again what it once said. Its identity stays: a dump does not carry it.
    pub fn restore(&self, host: usize, dump: &Dump) {
        let Dump { rows, recorded, fenced, least } = dump.clone();
        let host = &mut lock(&self.0).all[host];
        (host.rows, host.recorded, host.fenced, host.least) = (rows, recorded, fenced, least);
    }

    /// A host has another identity from now on.
    pub fn set_identity(&self, host: usize, identity: &str) {
        identity.clone_into(&mut lock(&self.0).all[host].current);
    }

    /// The clock by which fences are told shows that from now on: it was set.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn set_clock(&self, at: u64) {
        lock(&self.0).fences = at;
    }

    /// The mark of a name on a host.
    #[must_use]
    pub fn mark(&self, host: usize, name: &str) -> Option<u64> {
        lock(&self.0).all[host].rows.get(name).map(|row| row.next)
    }

    /// Removes a row, as no program does.
    pub fn remove(&self, host: usize, name: &str) {
        lock(&self.0).all[host].rows.remove(name);
    }

    /// How many calls of `grant` reached it.
    #[must_use]
    pub fn grants(&self) -> u64 {
        lock(&self.0).grants
    }

    /// How many asks each call of `grant` had.
    #[must_use]
    pub fn batches(&self) -> Vec<usize> {
        lock(&self.0).batches.clone()
    }
}

/// The first number from `from` on that fits; `None` past the highest.
fn first_from(from: u64, increment: u32, remainder: u32) -> Option<u64> {
    let (increment, remainder) = (u64::from(increment), u64::from(remainder));
    let ahead = (remainder + increment - from % increment) % increment;
    from.checked_add(ahead)
}

impl Host {
    fn identity(&self) -> Identity {
        let Self { current, recorded, fenced, .. } = self.clone();
        Identity { current, recorded, fenced }
    }

    fn grant(&mut self, ask: &Ask) -> Outcome {
        let Some(row) = self.rows.get_mut(&ask.name) else { return Outcome::Absent };
        let settings = row.settings;
        if row.next < ask.floor {
            return Outcome::Behind { next: row.next };
        }
        let fits = first_from(row.next, settings.increment, settings.remainder);
        if fits.is_none_or(|first| first > settings.last) {
            return Outcome::Exhausted { settings };
        }
        let count = if settings.strict { ask.least } else { ask.count.max(settings.step.min(MOST_STEP)) };
        let first = row.next;
        // At most 2^32 x 2^32.
        let width = u128::from(count) * u128::from(settings.increment);
        let end = (u128::from(first) + width).min(u128::from(settings.last) + 1);
        row.next = end as u64;
        Outcome::Granted { first, end: row.next, settings }
    }
}

/// A connection to a host.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    database: MemoryDatabase,
    host: Arc<Mutex<usize>>,
    may_go_back: bool,
}

impl MemoryStore {
    /// Connects this and its clones to another host.
    pub fn connect_to(&self, host: usize) {
        *lock(&self.host) = host;
    }

    fn with_host<T>(&self, work: impl FnOnce(&mut Host) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let host = *lock(&self.host);
        let host = &mut lock(&self.database.0).all[host];
        if host.away { Err(StoreError::Away { why: "it is away".into() }) } else { work(host) }
    }

    fn with_row<T>(
        &self,
        name: &SequenceName,
        work: impl FnOnce(&mut Row) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.with_host(|host| match host.rows.get_mut(name) {
            Some(row) => work(row),
            None => Err(StoreError::Absent { similar: None }),
        })
    }
}

fn refused<T>(why: &str) -> Result<T, StoreError> {
    Err(StoreError::Refused { why: why.to_owned() })
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        format!("memory host {}", *lock(&self.host))
    }

    fn may_go_back(&self) -> bool {
        self.may_go_back
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        self.with_host(|host| Ok(host.identity()))
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        assert!(asks.len() <= MOST_ASKS, "{} asks in one call", asks.len());
        let number = *lock(&self.host);
        let hosts = &mut *lock(&self.database.0);
        let fault = if hosts.all[number].away { Some(Fault::Away) } else { hosts.faults.pop_front() };
        if fault != Some(Fault::Away) {
            hosts.grants += 1;
            hosts.batches.push(asks.len());
        }
        let host = &mut hosts.all[number];
        let why = || "the answer did not come".to_owned();
        match fault {
            None => out.extend(asks.iter().map(|ask| host.grant(ask))),
            Some(Fault::Away) => out.extend(asks.iter().map(|_| Outcome::Away { why: why() })),
            Some(fault) => {
                match fault {
                    Fault::LandsUnseen => asks.iter().for_each(|ask| drop(host.grant(ask))),
                    Fault::LandsLate => hosts.late.push((number, asks.to_vec())),
                    Fault::LostUnseen | Fault::Away => {}
                }
                out.extend(asks.iter().map(|_| Outcome::Unknown { why: why() }));
            }
        }
        fault.is_none().then(|| hosts.all[number].identity())
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        self.with_row(name, |row| Ok(row.clone()))
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.with_host(|host| {
            let rows = host.rows.values();
            let listed =
                rows.filter(|row| row.name.as_str() > after && row.name.as_str().starts_with(prefix));
            Ok(listed.take(limit).cloned().collect())
        })
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        self.with_host(|host| {
            if let Some(row) = host.rows.get(name) {
                return Err(StoreError::Exists(Box::new(row.clone())));
            }
            check_last(&new.settings, host.least)?;
            let (settings, description) = (new.settings, new.description.clone());
            let row = Row { name: name.clone(), next: new.start.max(host.least), settings, description };
            host.rows.insert(name.clone(), row.clone());
            Ok(row)
        })
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.with_row(name, |row| {
            let last = match alteration.last {
                None => row.settings.last,
                Some(NewLast::At(last)) if last < row.settings.last => {
                    return refused("the last number only rises, but to retire a sequence");
                }
                Some(NewLast::At(last)) => last.min(HIGHEST),
                Some(NewLast::Retired) => row.next.saturating_sub(1),
            };
            row.settings.last = last;
            row.settings.step = alteration.step.unwrap_or(row.settings.step);
            if alteration.description.is_some() {
                row.description.clone_from(&alteration.description);
            }
            Ok(row.clone())
        })
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.with_row(name, |row| {
            row.next = row.next.max(least);
            Ok(row.clone())
        })
    }

    fn new_names(&mut self) -> Result<NewNames, StoreError> {
        self.with_host(|host| Ok(NewNames { are_closed: false, least: host.least.max(1) }))
    }

    fn allow_new(&mut self, _: NewNames, least: u64) -> Result<(), StoreError> {
        self.with_host(|host| {
            host.least = host.least.max(least);
            Ok(())
        })
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        self.record_identity_after("")
    }

    fn record_identity_after(&mut self, fenced: &str) -> Result<Identity, StoreError> {
        let now = {
            let hosts = &mut *lock(&self.database.0);
            hosts.fences += 1;
            hosts.fences
        };
        self.with_host(|host| {
            // As databases tell it: later than the last one also where the clock was ahead then.
            let known = [host.fenced.as_deref(), Some(fenced)].into_iter().flatten();
            let fenced = known
                .filter_map(|known| known.parse::<u64>().ok())
                .fold(now, |now, known| now.max(known + 1));
            (host.recorded, host.fenced) = (Some(host.current.clone()), Some(fenced.to_string()));
            Ok(host.identity())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::store::SequenceSettings;

    fn name() -> SequenceName {
        SequenceName::new("orders").unwrap()
    }

    fn grant(store: &mut MemoryStore, count: u64, least: u64) -> Outcome {
        let mut out = Vec::new();
        store.grant(&[Ask { name: name(), count, least, floor: 0 }], &mut out);
        out.remove(0)
    }

    #[test]
    fn a_grant_is_the_row_s_step_at_least_and_ends_at_the_last_number() {
        let mut store = MemoryDatabase::new(1).store(0);
        let settings = SequenceSettings { step: 100, last: 350, ..SequenceSettings::default() };
        store.create(&name(), &NewSequence { settings, ..NewSequence::default() }).unwrap();
        for (count, first, end) in [(1, 1, 101), (150, 101, 251), (1, 251, 351)] {
            assert_eq!(grant(&mut store, count, 1), Outcome::Granted { first, end, settings });
        }
        assert_eq!(grant(&mut store, 1, 1), Outcome::Exhausted { settings });
    }

    #[test]
    fn a_strict_row_is_granted_what_callers_wait_for() {
        let mut store = MemoryDatabase::new(1).store(0);
        let settings = SequenceSettings { strict: true, increment: 3, remainder: 1, ..Default::default() };
        store.create(&name(), &NewSequence { settings, ..NewSequence::default() }).unwrap();
        assert_eq!(grant(&mut store, 1_000, 7), Outcome::Granted { first: 1, end: 22, settings });
    }

    #[test]
    fn a_late_change_lands_when_it_is_settled_and_a_dump_brings_a_mark_back() {
        let database = MemoryDatabase::new(2);
        let mut store = database.store(0);
        store.create(&name(), &NewSequence::default()).unwrap();
        database.replicate(0, 1);
        database.fail([Fault::LandsLate, Fault::LostUnseen, Fault::LandsUnseen]);
        for mark in [1, 1, 1_001] {
            assert!(matches!(grant(&mut store, 1, 1), Outcome::Unknown { .. }));
            assert_eq!(database.mark(0, "orders"), Some(mark));
        }
        database.settle();
        assert_eq!((database.mark(0, "orders"), database.mark(1, "orders")), (Some(2_001), Some(1)));
        store.connect_to(1);
        assert!(matches!(grant(&mut store, 1, 1), Outcome::Granted { first: 1, end: 1_001, .. }));
    }
}
