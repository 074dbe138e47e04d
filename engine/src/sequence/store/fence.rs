//! The fence: raises a store's marks beyond what could have been granted, after it went back or may have.

use std::collections::BTreeMap;

use crate::registry::sequences::NewNames;
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Identity, Row, SequenceSettings, Store, StoreError};

/// Rows that are read at once. More than any client asks for: a store that passes over much for a client gives up.
const PAGE: usize = 2_000;

/// How many of the largest step a fence goes above what is known, unless the operator says otherwise.
const STEPS_ABOVE: u64 = 10;

/// How high a fence goes.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// This name only; all names without.
    pub name: Option<SequenceName>,
    /// Every mark ends at this number at least.
    pub above: Option<u64>,
    /// Marks as nodes, folders or a witness know them; each ends at what is known at least.
    pub known: BTreeMap<SequenceName, u64>,
    /// The identity of the store that is meant; another one is refused. Any without.
    pub on: Option<String>,
    /// The latest fence that nodes remember ([`fence_known_in`](crate::sequence::fence_known_in)): this one is told of as later,
    /// whatever the store's clock says.
    pub after: Option<String>,
    /// Where names begin that are made from now on; not below what an earlier fence said. Defaults to where a mark
    /// of 0 is raised to, or of the highest name that is known and missing, or of what an earlier fence said: one may have been
    /// made since what was put back was copied. In a registry only if a fence of it closed it to new names, or did once.
    pub new_start: Option<u64>,
    /// In a registry `new_start` may be below what an earlier fence said, for a person who knows that none of the names is
    /// missing that one was for. A database's only rises.
    pub lowers_new_start: bool,
    /// How much is added to a mark beyond all that. Defaults to ten times the largest step of the store.
    pub margin: Option<u64>,
}

/// What a fence did.
#[derive(Clone, Debug)]
pub struct Fenced {
    /// Each name with its mark before and after.
    pub raised: Vec<(SequenceName, u64, u64)>,
    /// Names that are known and have no row, each with the number that it begins at when it is made.
    pub absent: Vec<(SequenceName, u64)>,
    /// What stands in the store as its identity now; `None` where only one name was fenced.
    pub identity: Option<Identity>,
    /// Where names begin that are made from now on, if a fence of their registry says so.
    pub new_start: Option<u64>,
}

/// Raises marks beyond what could have been granted, and then writes the store's identity, after which nodes without a
/// witness go on with it. Where several tables share the place that it is written in, as those of one schema of a database do,
/// nodes go on with each of them: [`fence_all`].
///
/// # Errors
/// [`StoreError`]. After one, some marks may have been raised, and the identity may have been written or not: fence again.
pub fn fence(store: &mut dyn Store, fence: &Fence) -> Result<Fenced, StoreError> {
    fence_all(&mut [store], fence)
}

/// The same of several tables of one database: the marks of all are raised before the identity is written, on one host.
///
/// # Errors
/// As of [`fence`]; one without a row of the name that is to be fenced is one, and two hosts that answer are.
pub fn fence_all(stores: &mut [&mut dyn Store], fence: &Fence) -> Result<Fenced, StoreError> {
    let is_whole = fence.name.is_none();
    let mut before = fence.on.clone();
    let mut found = Vec::new();
    for store in stores.iter_mut() {
        if is_whole {
            // Each has a connection of its own, which a host may have turned away.
            let found = store.identity()?;
            let before = before.get_or_insert_with(|| found.current.clone());
            check_host(&found, before)?;
            // Its mark could not be raised, and it may be put right behind the fence.
            if let Some((name, why)) = store.unusable()? {
                let why = format!(
                    "the row of '{name}' cannot be used, so its mark can't be raised: {why}; mend it, or remove it, and fence again"
                );
                return Err(StoreError::Refused { why });
            }
        }
        found.push(match &fence.name {
            Some(name) => vec![row_of(*store, name, fence.above)?],
            None => all_rows(*store)?,
        });
    }
    // Where none is left of what there was, its steps are not known either.
    let usual = SequenceSettings::default().step;
    let largest = found.iter().flatten().map(|row| row.settings.step).max().unwrap_or(usual);
    let margin = fence.margin.unwrap_or(STEPS_ABOVE.saturating_mul(largest));
    let begin = |known: u64| known.max(fence.above.unwrap_or(0)).saturating_add(margin);
    let mut absent = fence.known.clone();
    for row in found.iter().flatten() {
        absent.remove(&row.name);
    }
    let mut starts = Vec::new();
    if is_whole {
        // Of several tables one may lack what another one has.
        let known = if stores.len() > 1 { &fence.known } else { &absent };
        let missing = known.values().copied().max().unwrap_or_default();
        for (store, rows) in stores.iter_mut().zip(&mut found) {
            let before = store.new_names()?;
            // Where no registry was ever fenced none is missing.
            let has_gone_back = before.are_closed || before.least > 0;
            let default = if has_gone_back { begin(before.least.max(missing)) } else { 0 };
            // What a folder knows of a missing name is not talked away, nor is what another one may have had.
            let floor = if fence.lowers_new_start { missing } else { missing.max(before.least) };
            let start = fence.new_start.map_or(default, |said| said.max(floor));
            let mut seen = before;
            if !before.are_closed && start > before.least {
                store.allow_new(before, start)?;
                seen = NewNames { are_closed: false, least: start };
                // What was made meanwhile began lower.
                *rows = all_rows(*store)?;
            }
            starts.push((seen, start));
        }
    }
    let mut raised = Vec::new();
    for (store, rows) in stores.iter_mut().zip(found) {
        for row in rows {
            absent.remove(&row.name);
            let seen = fence.known.get(&row.name).copied().into_iter().chain(fence.above);
            let least = seen.fold(row.next, u64::max).saturating_add(margin);
            let after = store.raise(&row.name, least)?;
            raised.push((row.name, row.next, after.next));
        }
    }
    if !is_whole {
        return Ok(Fenced { raised, absent: Vec::new(), identity: None, new_start: None });
    }
    let before = before.unwrap_or_default();
    for store in stores.iter_mut() {
        check_host(&store.identity()?, &before)?;
    }
    let mut identity = None;
    let mut new_start = None;
    for (store, (seen, start)) in stores.iter_mut().zip(starts) {
        store.allow_new(seen, start)?;
        // At 1 they begin anyhow.
        new_start = new_start.max(Some(store.new_names()?.least).filter(|least| *least > 1));
        let recorded = match &fence.after {
            Some(after) => store.record_identity_after(after)?,
            None => store.record_identity()?,
        };
        check_host(&recorded, &before)?;
        identity = Some(recorded);
    }
    // No lower than they begin anyhow.
    let start = |known| begin(known).max(new_start.unwrap_or_default());
    let absent = absent.into_iter().map(|(name, known)| (name, start(known))).collect();
    Ok(Fenced { raised, absent, identity, new_start })
}

/// Refuses a host on which other marks were raised, or none.
fn check_host(found: &Identity, before: &str) -> Result<(), StoreError> {
    let now = &found.current;
    if now == before {
        return Ok(());
    }
    let why = format!("marks were raised, or looked at, on {before}, and {now} answers now: fence it again");
    Err(StoreError::Refused { why })
}

fn all_rows(store: &mut dyn Store) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::new();
    loop {
        let after = rows.last().map_or(String::new(), |row: &Row| row.name.to_string());
        let page = store.list("", &after, PAGE)?;
        let is_last = page.len() < PAGE;
        rows.extend(page);
        if is_last {
            return Ok(rows);
        }
    }
}

/// The row of one name. A row that an earlier fence closed is in the list, as the first whose name begins so. Of a name that
/// a registry lost nothing is known but what the operator says: raising the mark makes its record.
fn row_of(store: &mut dyn Store, name: &SequenceName, above: Option<u64>) -> Result<Row, StoreError> {
    let error = match store.read(name) {
        Err(StoreError::Closed { .. }) => {
            let row = store.list(name.as_str(), "", 1)?.pop().filter(|row| row.name == *name);
            return row.ok_or(StoreError::Absent { similar: None });
        }
        Err(error @ (StoreError::Absent { .. } | StoreError::Refused { .. })) => error,
        found => return found,
    };
    let next = above.ok_or(error)?;
    let settings = SequenceSettings { step: 0, ..SequenceSettings::default() };
    Ok(Row { name: name.clone(), next, settings, description: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::store::memory::{MemoryDatabase, MemoryStore};
    use crate::sequence::store::{Alteration, Ask, NewSequence, Outcome};

    #[test]
    fn a_fence_raises_every_mark_above_what_is_known_and_then_writes_the_identity() {
        let database = MemoryDatabase::new(1);
        let mut store = database.store(0);
        let name = |text: &str| SequenceName::new(text).unwrap();
        for text in ["a", "b"] {
            store.create(&name(text), &NewSequence::default()).unwrap();
        }
        let known = BTreeMap::from([(name("a"), 5_000), (name("gone"), 7)]);
        let done = fence(&mut store, &Fence { known, ..Fence::default() }).unwrap();
        assert_eq!(done.raised, [(name("a"), 1, 15_000), (name("b"), 1, 10_001)]);
        assert_eq!(done.absent, [(name("gone"), 10_007)]);
        assert_eq!(done.identity.unwrap().recorded.as_deref(), Some("host 0"));
        assert_eq!(done.new_start, Some(10_007), "the one that is gone begins there at least");
        let one = Fence { name: Some(name("b")), above: Some(20_000), margin: Some(0), ..Fence::default() };
        let done = fence(&mut store, &one).unwrap();
        assert_eq!((done.raised, done.identity), (vec![(name("b"), 10_001, 20_000)], None));
    }

    /// A table lacks what another one has: which of them a folder's mark is of is not known.
    #[test]
    fn new_names_of_each_table_begin_above_all_that_is_known_and_not_lower_than_a_fence_said() {
        let tables = [MemoryDatabase::new(1), MemoryDatabase::new(1)];
        let mut stores = tables.each_ref().map(|table| table.store(0));
        let name = |text: &str| SequenceName::new(text).unwrap();
        stores[0].create(&name("a"), &NewSequence::default()).unwrap();
        let mut fenced = |plan: Fence| {
            let [one, other] = &mut stores;
            fence_all(&mut [one, other], &plan).map(|done| (done.new_start, done.absent))
        };
        let known = BTreeMap::from([(name("a"), 70_000)]);
        let begins = |start| (Some(start), Vec::new());
        assert_eq!(fenced(Fence { known, ..Fence::default() }).unwrap(), begins(80_000));
        // Of a second fence that knows less, and of a word that is lower than what a folder knows.
        assert_eq!(fenced(Fence { margin: Some(0), ..Fence::default() }).unwrap(), begins(80_000));
        let known = BTreeMap::from([(name("gone"), 90_000), (name("long gone"), 5)]);
        let (start, absent) =
            fenced(Fence { known, new_start: Some(1), margin: Some(7), ..Fence::default() }).unwrap();
        // What is told of a name is what it begins at.
        let told = [(name("gone"), 90_007), (name("long gone"), 90_000)];
        assert_eq!((start, &absent[..]), (Some(90_000), &told[..]));
        for store in &mut stores {
            assert_eq!(store.create(&name("b"), &NewSequence::default()).unwrap().next, 90_000);
        }
    }

    /// Names are made while servers go on.
    #[test]
    fn what_is_made_beside_a_fence_is_raised_by_it() {
        let database = MemoryDatabase::new(1);
        let mut store = Meddled { store: database.store(0), is_told: false };
        let done =
            fence(&mut store, &Fence { above: Some(500), margin: Some(0), ..Fence::default() }).unwrap();
        let late = SequenceName::new("late").unwrap();
        assert_eq!((done.raised, done.new_start), (vec![(late, 1, 500)], Some(500)));
    }

    /// A store in which a name is made right before it is told where new ones begin.
    struct Meddled {
        store: MemoryStore,
        is_told: bool,
    }

    impl Store for Meddled {
        fn describe(&self) -> String {
            self.store.describe()
        }

        fn may_go_back(&self) -> bool {
            true
        }

        fn identity(&mut self) -> Result<Identity, StoreError> {
            self.store.identity()
        }

        fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
            self.store.grant(asks, out)
        }

        fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
            self.store.read(name)
        }

        fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
            self.store.list(prefix, after, limit)
        }

        fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
            self.store.create(name, new)
        }

        fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
            self.store.alter(name, alteration)
        }

        fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
            self.store.raise(name, least)
        }

        fn new_names(&mut self) -> Result<NewNames, StoreError> {
            self.store.new_names()
        }

        fn allow_new(&mut self, seen: NewNames, least: u64) -> Result<(), StoreError> {
            if !std::mem::replace(&mut self.is_told, true) {
                let late = SequenceName::new("late")
                    .map_err(|error| StoreError::Refused { why: error.to_string() })?;
                self.store.create(&late, &NewSequence::default())?;
            }
            self.store.allow_new(seen, least)
        }

        fn record_identity(&mut self) -> Result<Identity, StoreError> {
            self.store.record_identity()
        }
    }
}
