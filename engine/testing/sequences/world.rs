//! What nodes share: the database, the registry's records, and true time; and how calls of them go wrong.
//!
//! A node meets the world in its calls of the store and of the records. In the middle of each, before it is made or
//! before its answer is heard, other things may happen: calls, turns of other nodes, leaps, or the end of the process.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;

use super::oracle::Oracle;
use super::script::Script;
use crate::registry::sequences::memory::{MemoryRecords, RecordFault};
use crate::registry::sequences::{SequenceChange, SequenceEntry, SequenceRecord, SequenceRecords};
use crate::registry::{ClusterId, ReadError, SwapError, Versioned};
use crate::sequence::SequenceName;
use crate::sequence::store::memory::{Dump, Fault, MemoryDatabase, MemoryStore};
use crate::sequence::store::{Alteration, Ask, Identity, NewSequence, Outcome, Row, Store, StoreError};
use crate::testing::campaigns::Tally;
use crate::testing::support::clock::Time;
use crate::testing::support::faults::Killed;
use crate::testing::support::rng::Rng;

thread_local! {
    static SCRIPT: RefCell<Option<Rc<Script>>> = const { RefCell::new(None) };
}

/// The calls of this thread's nodes are those of this history from now on.
pub(crate) fn enter(script: Option<Rc<Script>>) {
    SCRIPT.set(script);
}

/// A change of records whose process gave up before it was made.
struct Late {
    records: MemoryRecords,
    name: String,
    expected: Option<u64>,
    record: SequenceRecord,
}

/// What is shared.
pub(crate) struct World {
    pub(crate) rng: RefCell<Rng>,
    pub(crate) time: Arc<Time>,
    pub(crate) database: MemoryDatabase,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) names: Vec<SequenceName>,
    pub(crate) dumps: RefCell<Vec<Dump>>,
    /// Calls that go wrong, in a hundred: of the store, and of the records.
    pub(crate) faults: Cell<(u64, u64)>,
    pub(crate) records_away: Cell<bool>,
    /// Calls in a thousand that panic.
    pub(crate) defects: Cell<u64>,
    late: RefCell<Vec<Late>>,
    /// The process of a node dies in so many passes of its calls.
    pub(crate) fuse: Cell<Option<(usize, u64)>>,
    /// What went wrong first.
    pub(crate) flaw: RefCell<Option<String>>,
}

impl World {
    pub(crate) fn new(rng: Rng, time: Arc<Time>, names: Vec<SequenceName>) -> Self {
        Self {
            rng: RefCell::new(rng),
            time,
            database: MemoryDatabase::new(2),
            oracle: RefCell::default(),
            tally: RefCell::default(),
            names,
            dumps: RefCell::default(),
            faults: Cell::new((0, 0)),
            records_away: Cell::new(false),
            defects: Cell::new(0),
            late: RefCell::default(),
            fuse: Cell::new(None),
            flaw: RefCell::new(None),
        }
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        self.rng.borrow_mut().within(from, to)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.rng.borrow_mut().chance(percent)
    }

    pub(crate) fn trouble(&self, what: &'static str) {
        self.tally.borrow_mut().trouble(what, 1);
    }

    pub(crate) fn wrong(&self, why: String) {
        self.flaw.borrow_mut().get_or_insert(why);
    }

    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known.as_str() == name)
    }

    /// Records of a registry that is new.
    pub(crate) fn new_records(&self) -> MemoryRecords {
        MemoryRecords::new(ClusterId::from_bytes(self.rng.borrow_mut().bytes()))
    }

    /// Changes of records that were under way are made, where they still fit.
    pub(crate) fn settle_records(&self) {
        for Late { mut records, name, expected, record } in self.late.take() {
            let mut done = Vec::new();
            records.swap(&[SequenceChange { name: &name, expected, record }], &mut done);
            if done.iter().any(Result::is_ok) {
                self.trouble("changes of records that landed late");
            }
        }
    }
}

/// The history that this thread plays.
fn script() -> Rc<Script> {
    SCRIPT.with_borrow(Clone::clone).expect("a history is played")
}

/// An adaptor panics.
pub(crate) struct Defect;

/// A node passes a point of a call: it may die here, and others go on meanwhile.
fn pass(node: usize) {
    let script = script();
    if let Some((victim, left)) = script.world.fuse.get()
        && victim == node
    {
        script.world.fuse.set((left > 0).then(|| (node, left - 1)));
        if left == 0 {
            resume_unwind(Box::new(Killed));
        }
    }
    script.meanwhile(node);
    let defects = script.world.defects.get();
    if defects > 0 && script.world.below(1_000) < defects {
        script.world.trouble("panics of adaptors");
        resume_unwind(Box::new(Defect));
    }
}

/// A node's store.
pub(crate) struct SimStore {
    pub(crate) node: usize,
    pub(crate) inner: MemoryStore,
}

impl SimStore {
    /// Another call than for a grant.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        pass(self.node);
        let world = &script().world;
        if world.chance(world.faults.get().0) {
            return Err(StoreError::Away { why: "the call failed".into() });
        }
        let result = call(&mut self.inner);
        pass(self.node);
        if result.is_ok() && world.chance(world.faults.get().0) {
            return Err(StoreError::Unknown { why: "the answer did not come".into() });
        }
        result
    }
}

impl Store for SimStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn may_go_back(&self) -> bool {
        self.inner.may_go_back()
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        pass(self.node);
        self.inner.identity()
    }

    fn grant(&mut self, asks: &[Ask], out: &mut Vec<Outcome>) -> Option<Identity> {
        pass(self.node);
        let script = script();
        let world = &script.world;
        if world.chance(world.faults.get().0) {
            let faults = [Fault::LandsUnseen, Fault::LandsLate, Fault::LostUnseen, Fault::Away];
            world.database.fail([faults[world.below(4) as usize]]);
            world.trouble("grants that failed");
        }
        let identity = self.inner.grant(asks, out);
        for (ask, outcome) in asks.iter().zip(&*out) {
            match outcome {
                Outcome::Granted { first, end, .. } => {
                    script.came(self.node, ask.name.as_str(), *first, *end);
                }
                Outcome::Unknown { .. } => world.trouble("unknown outcomes of grants"),
                _ => {}
            }
        }
        pass(self.node);
        identity
    }

    fn read(&mut self, name: &SequenceName) -> Result<Row, StoreError> {
        self.call(|store| store.read(name))
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.call(|store| store.list(prefix, after, limit))
    }

    fn create(&mut self, name: &SequenceName, new: &NewSequence) -> Result<Row, StoreError> {
        self.call(|store| store.create(name, new))
    }

    fn alter(&mut self, name: &SequenceName, alteration: &Alteration) -> Result<Row, StoreError> {
        self.call(|store| store.alter(name, alteration))
    }

    fn raise(&mut self, name: &SequenceName, least: u64) -> Result<Row, StoreError> {
        self.call(|store| store.raise(name, least))
    }

    fn record_identity(&mut self) -> Result<Identity, StoreError> {
        self.call(Store::record_identity)
    }
}

/// A node's way to the records.
pub(crate) struct SimRecords {
    pub(crate) node: usize,
    pub(crate) inner: MemoryRecords,
}

impl SimRecords {
    /// Whether they are away, and whether this call is to fail.
    fn trouble(world: &World) -> (bool, bool) {
        (world.records_away.get(), world.chance(world.faults.get().1))
    }
}

impl SequenceRecords for SimRecords {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn cluster(&self) -> ClusterId {
        self.inner.cluster()
    }

    fn read(&mut self, names: &[&str], out: &mut Vec<Result<Versioned<SequenceRecord>, ReadError>>) {
        pass(self.node);
        let world = &script().world;
        let (is_away, fails) = Self::trouble(world);
        if is_away || fails {
            world.trouble("reads of records that failed");
            self.inner.fail([RecordFault::Away]);
        }
        self.inner.read(names, out);
    }

    fn swap(&mut self, changes: &[SequenceChange<'_>], out: &mut Vec<Result<(), SwapError>>) {
        pass(self.node);
        let script = script();
        let world = &script.world;
        let (is_away, fails) = Self::trouble(world);
        match if is_away {
            3
        } else if fails {
            world.below(4)
        } else {
            4
        } {
            0 => self.inner.fail([RecordFault::LandsUnseen]),
            1 => self.inner.fail([RecordFault::LostUnseen]),
            2 => {
                let late = |change: &SequenceChange<'_>| Late {
                    records: self.inner.clone(),
                    name: change.name.to_owned(),
                    expected: change.expected,
                    record: change.record.clone(),
                };
                world.late.borrow_mut().extend(changes.iter().map(late));
                self.inner.fail([RecordFault::LostUnseen]);
            }
            3 => self.inner.fail([RecordFault::Away]),
            _ => {}
        }
        if is_away || fails {
            world.trouble("changes of records that failed");
        }
        self.inner.swap(changes, out);
        for (change, done) in changes.iter().zip(&*out) {
            match done {
                Ok(()) if change.name.starts_with('@') && change.expected.is_some() => {
                    script.claimed(self.node);
                }
                Err(SwapError::Conflict) => world.trouble("conflicts of records"),
                _ => {}
            }
        }
        pass(self.node);
    }

    fn list(&mut self, prefix: &str, after: &str, limit: usize) -> Result<Vec<SequenceEntry>, ReadError> {
        self.inner.list(prefix, after, limit)
    }
}
