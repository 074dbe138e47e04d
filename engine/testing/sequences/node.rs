//! One node: its machine, its folder, and the life of the process that runs on it now.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::oracle::{Land, Promise};
use super::script::Script;
use super::world::{SimRecords, SimStore, World};
use super::{HOLD, Mode, STEP_MAX};
use crate::registry::sequences::memory::MemoryRecords;
use crate::sequence::background::keeper::Keeper;
use crate::sequence::background::teller::Teller;
use crate::sequence::leftovers::format::Batch;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::named::Named;
use crate::sequence::store::memory::MemoryStore;
use crate::sequence::{
    Demand, NamePattern, Numbers, PendingNumbers, Sequence, SequenceError, SequenceErrorKind, SequenceHandle,
    Sequences,
};
use crate::testing::support::clock::SimClock;

/// Calls that wait at a node at most.
const MOST_WAITING: usize = 8;

/// A node.
pub(crate) struct Node {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) folder: PathBuf,
    /// Its connection, kept from life to life.
    pub(crate) store: MemoryStore,
    /// The registry's, or its folder's alone.
    pub(crate) records: MemoryRecords,
    pub(crate) life: RefCell<Option<Life>>,
    pub(crate) threads: RefCell<Option<Threads>>,
    pub(crate) lives: Cell<u64>,
}

/// The two threads of a process, which the script turns.
pub(crate) struct Threads {
    pub(crate) teller: Teller,
    pub(crate) keeper: Keeper,
}

/// A call that waits.
struct Waiting {
    pending: PendingNumbers,
    name: usize,
    demand: Demand,
    promise: Promise,
}

/// A process as its callers see it.
pub(crate) struct Life {
    pub(crate) sequences: Sequences,
    pub(crate) hub: Arc<Hub>,
    pub(crate) land: Land,
    /// What the files of the folder held at the start: name, first, end.
    leftovers: Vec<(usize, u64, u64)>,
    known: Vec<Option<Sequence>>,
    handles: Vec<(usize, SequenceHandle)>,
    waiting: Vec<Waiting>,
    pub(crate) issued: u64,
    last_ordered: Vec<u64>,
    books: Vec<Holding>,
    /// Its callers take ids through threads' own runs.
    has_runs: bool,
}

/// What bounds how much is held of a name.
#[derive(Debug, Default)]
struct Holding {
    /// Of which entry of the table.
    entry: Weak<Named>,
    /// Boot time, and how much was taken by then.
    taken: VecDeque<(u64, u64)>,
    granted: u64,
    /// What was held when it was looked at last, and what the name may hold for itself.
    held: u64,
    own: u64,
    /// The row's step as the node knew it then.
    step: u64,
    /// Ids that calls waited for and were not served with, or wait for still.
    unserved: u64,
}

fn rest_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (0..3).map(move |number| folder.join(format!("sequences.rest-{number}"))).take_while(|path| path.exists())
}

/// What the files of a folder hold.
fn leftovers(world: &World, folder: &Path) -> Vec<(usize, u64, u64)> {
    let batches = rest_files(folder).filter_map(|path| Batch::decode(&fs::read(path).ok()?).ok());
    let rests = batches.flat_map(|batch| batch.names);
    let spans = rests.flat_map(|rest| {
        let name = world.place(rest.name.as_str());
        rest.spans.into_iter().filter_map(move |span| Some((name?, span.first, span.end())))
    });
    spans.collect()
}

impl Node {
    /// Starts a process, unless one runs.
    pub(crate) fn start(&self, script: &Script, number: usize) {
        if self.life.borrow().is_some() {
            return;
        }
        let (world, mode) = (&script.world, script.mode);
        self.lives.set(self.lives.get() + 1);
        let leftovers = leftovers(world, &self.folder);
        let store = SimStore { node: number, inner: self.store.clone() };
        let records = SimRecords { node: number, inner: self.records.clone() };
        let mut builder = Sequences::builder(Box::new(store));
        if matches!(mode, Mode::Identity | Mode::Faithful) && world.chance(15) {
            world.trouble("lives without records");
        } else {
            builder = builder.records(Box::new(records));
        }
        let is_alone = mode == Mode::Alone;
        builder = builder
            .witness(!matches!(mode, Mode::Identity | Mode::Lossless | Mode::Alone))
            .lossless_failover(mode == Mode::Lossless)
            .data_dir(&self.folder)
            .clock(self.clock.clone())
            .wait(Duration::ZERO)
            .hold(HOLD)
            .idle(Duration::from_secs(world.within(1, if is_alone { 5 } else { 60 })))
            .step(world.within(1, 40))
            .step_max(STEP_MAX);
        // A row that was lost, and that no witness of all knows, must not be made again.
        if !mode.is_closed_by_loss() {
            builder = builder.create([NamePattern::new("c*")]);
        }
        if world.chance(if is_alone { 60 } else { 25 }) {
            builder = builder.limit(1);
        }
        let jitter = world.below(u64::MAX);
        let (sequences, hub, teller, keeper) = match builder.parts_for_test(jitter) {
            Ok(parts) => parts,
            Err(error) => return world.wrong(format!("node {number} does not start: {error:#}")),
        };
        let names = world.names.len();
        let life = Life {
            sequences,
            hub,
            land: Land::new(names),
            leftovers,
            known: vec![None; names],
            handles: Vec::new(),
            waiting: Vec::new(),
            issued: 0,
            last_ordered: vec![0; names],
            books: (0..names).map(|_| Holding::default()).collect(),
            has_runs: world.chance(60),
        };
        *self.life.borrow_mut() = Some(life);
        *self.threads.borrow_mut() = Some(Threads { teller, keeper });
        world.trouble("lives");
    }

    /// The process is gone, without a word.
    pub(crate) fn kill(&self) {
        if let Ok(mut threads) = self.threads.try_borrow_mut() {
            *threads = None;
            *self.life.borrow_mut() = None;
        }
    }

    /// One of its callers does something.
    pub(crate) fn call(&self, script: &Script) {
        let Ok(mut life) = self.life.try_borrow_mut() else { return };
        let Some(life) = &mut *life else { return };
        if let Err(why) = life.call(script) {
            script.world.wrong(why);
        }
    }

    /// What is held keeps to its bound. Asked after a turn of the teller, which began at that boot time.
    pub(crate) fn check_held(&self, script: &Script, number: usize, began: u64) {
        let mut life = self.life.borrow_mut();
        let Some(life) = &mut *life else { return };
        if let Err(why) = life.check_held(script, began) {
            script.world.wrong(format!("node {number}: {why}"));
        }
    }
}

impl Life {
    /// No caller has a name at hand any more.
    pub(crate) fn let_go(&mut self) {
        self.known.fill(None);
        self.handles.clear();
    }

    fn sequence(&mut self, world: &World, name: usize) -> Result<Sequence, SequenceError> {
        if let Some(known) = &self.known[name] {
            return Ok(known.clone());
        }
        let found = self.sequences.sequence(&world.names[name])?;
        self.known[name] = Some(found.clone());
        Ok(found)
    }

    fn call(&mut self, script: &Script) -> Result<(), String> {
        let world = &script.world;
        let name = world.below(world.names.len() as u64) as usize;
        if self.hub.names.was_forgotten(&world.names[name]) && self.known[name].is_none() {
            world.trouble("calls of forgotten names");
        }
        let Ok(sequence) = self.sequence(world, name) else { return Ok(()) };
        let count = world.rng.borrow_mut().magnitude(1, 60) as u32;
        let contiguous = |demand: Demand, yes: bool| if yes { demand.contiguous() } else { demand };
        match world.below(16) {
            0..=2 if self.has_runs => {
                for _ in 0..count {
                    let Ok(id) = sequence.next_id() else { break };
                    self.issue(script, name, Promise::default(), vec![Numbers::new(id, 1, 1)])?;
                }
            }
            3..=5 => {
                for _ in 0..count {
                    let promise = self.promise(script, name, Demand::ordered(1));
                    let Ok(id) = sequence.try_next_ordered() else { break };
                    self.issue(script, name, promise, vec![Numbers::new(id, 1, 1)])?;
                }
            }
            6..=8 => {
                let is_ordered = world.chance(60);
                let demand = if is_ordered { Demand::ordered(count) } else { Demand::any(count) };
                let demand = contiguous(demand, world.chance(30));
                let promise = self.promise(script, name, demand);
                let mut got = Vec::new();
                if sequence.try_runs(demand, &mut got).is_ok() {
                    check_count(demand, &got)?;
                    self.issue(script, name, promise, got)?;
                }
            }
            9..=11 if self.waiting.len() < MOST_WAITING => {
                let is_ordered = world.chance(60);
                let demand = if is_ordered { Demand::ordered(count) } else { Demand::any(count) };
                let demand = contiguous(demand, world.chance(30));
                let promise = self.promise(script, name, demand);
                let wait = Duration::from_millis(world.rng.borrow_mut().magnitude(1, 10_000));
                let pending = sequence.request(demand, wait);
                self.books[name].unserved += u64::from(count);
                self.waiting.push(Waiting { pending, name, demand, promise });
                let last = self.waiting.len() - 1;
                self.poll(script, last)?;
            }
            12 if self.has_runs => {
                if self.handles.len() < 4 {
                    self.handles.push((name, sequence.handle()));
                } else {
                    drop(self.handles.swap_remove(world.below(4) as usize));
                }
            }
            13 => {
                for place in 0..self.handles.len() {
                    for _ in 0..count {
                        let (name, handle) = &mut self.handles[place];
                        let name = *name;
                        let Ok(id) = handle.next_id() else { break };
                        self.issue(script, name, Promise::default(), vec![Numbers::new(id, 1, 1)])?;
                    }
                }
            }
            14 => {
                // A caller goes away, or nobody has the name at hand any more.
                if world.chance(50) && !self.waiting.is_empty() {
                    let left = world.below(self.waiting.len() as u64) as usize;
                    drop(self.waiting.swap_remove(left));
                } else {
                    self.known[name] = None;
                }
            }
            _ => {
                for place in (0..self.waiting.len()).rev() {
                    self.poll(script, place)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a name is served, or used up for good.
    pub(crate) fn is_served(&mut self, script: &Script, name: usize) -> Result<bool, String> {
        let (world, before) = (&script.world, self.issued);
        for place in (0..self.waiting.len()).rev() {
            let is_of_it = self.waiting[place].name == name;
            self.poll(script, place)?;
            if is_of_it && self.issued > before {
                return Ok(true);
            }
        }
        if self.waiting.iter().any(|waiting| waiting.name == name) {
            return Ok(false);
        }
        let Ok(sequence) = self.sequence(world, name) else { return Ok(false) };
        let demand = Demand::ordered(1);
        let promise = self.promise(script, name, demand);
        let mut pending = sequence.request(demand, Duration::from_secs(30));
        match Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(got)) => {
                self.issue(script, name, promise, got)?;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Ok(error.kind() == SequenceErrorKind::Exhausted),
            Poll::Pending => {
                self.books[name].unserved += 1;
                self.waiting.push(Waiting { pending, name, demand, promise });
                Ok(false)
            }
        }
    }

    fn promise(&self, script: &Script, name: usize, demand: Demand) -> Promise {
        Promise {
            above: demand.ordered.then(|| self.last_ordered[name]),
            strictly_above: script.world.oracle.borrow().highest(name),
            is_contiguous: demand.contiguous,
        }
    }

    /// Looks whether a waiting call is over.
    fn poll(&mut self, script: &Script, place: usize) -> Result<(), String> {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(result) = Pin::new(&mut self.waiting[place].pending).poll(&mut context) else {
            return Ok(());
        };
        let Waiting { name, demand, promise, .. } = self.waiting.swap_remove(place);
        if let Ok(got) = result {
            script.world.trouble("calls that waited and were served");
            self.books[name].unserved -= u64::from(demand.count);
            check_count(demand, &got)?;
            self.issue(script, name, promise, got)?;
        }
        Ok(())
    }

    fn issue(
        &mut self,
        script: &Script,
        name: usize,
        promise: Promise,
        got: Vec<Numbers>,
    ) -> Result<(), String> {
        self.land.settle(self.hub.leaps());
        let issued = script.world.oracle.borrow_mut().issue(name, &self.land, promise, got);
        let issued = issued.map_err(|why| format!("{}: {why}", script.world.names[name]))?;
        self.issued += issued.count;
        if promise.above.is_some() {
            self.last_ordered[name] = self.last_ordered[name].max(issued.highest);
        }
        Ok(())
    }

    /// What the folder's files held is this life's, as far as it claimed it.
    pub(crate) fn claimed(&mut self) {
        for (name, first, end) in std::mem::take(&mut self.leftovers) {
            self.land.add(name, first, end);
        }
    }

    fn check_held(&mut self, script: &Script, began: u64) -> Result<(), String> {
        let world = &script.world;
        for (name, holding) in self.books.iter_mut().enumerate() {
            let Some(named) = self.hub.names.find(&world.names[name]) else { continue };
            // What came back from threads counts as taken.
            let (taken, held, figures, step) = {
                let state = named.lock();
                let step = state.settings.map_or(0, |settings| settings.step);
                (state.taken(), state.chain.in_segments(), named.books(&state), step)
            };
            // Another entry of the table, made since.
            if !std::ptr::eq(holding.entry.as_ptr(), Arc::as_ptr(&named)) {
                let (entry, unserved) = (Arc::downgrade(&named), holding.unserved);
                *holding = Holding { entry, unserved, ..Holding::default() };
            }
            let boot = self.hub.clock.read().boot;
            // Time may have passed since the name was asked for.
            let since = began.saturating_sub(HOLD.as_nanos() as u64);
            while holding.taken.get(1).is_some_and(|(at, _)| *at <= since) {
                holding.taken.pop_front();
            }
            holding.taken.push_back((boot, taken));
            let grew = figures.granted > holding.granted;
            holding.granted = figures.granted;
            let before =
                holding.taken.front().filter(|(at, _)| *at <= since).map_or(0, |(_, before)| *before);
            let recent = taken - before;
            if grew {
                // The store grants the row's step. Where that is another one by now, since an operator raised it or the row
                // was lost and made again, the node learns it by the grant.
                let learnt = if step > holding.step { step } else { 0 };
                let most = (2 * script.steps[name].get()).max(4 * recent + learnt);
                // What it held before stays, when a grant comes for those who wait alone.
                holding.own = most.max(holding.own.min(holding.held));
                let bound = holding.own + figures.reclaimed + holding.unserved;
                if held > bound {
                    let name = &world.names[name];
                    return Err(format!("{name}: it holds {held} and may hold {bound}: {recent} taken"));
                }
            }
            (holding.held, holding.step) = (held, step);
        }
        Ok(())
    }

    /// After the clean stop: what callers got is what was counted, and nothing is left anywhere.
    pub(crate) fn check_books(mut self, script: &Script) -> Result<(), String> {
        for place in (0..self.waiting.len()).rev() {
            self.poll(script, place)?;
        }
        if !self.waiting.is_empty() {
            return Err(format!("{} calls wait after the stop", self.waiting.len()));
        }
        self.handles.clear();
        self.sequences.publish();
        let stats = self.sequences.stats();
        let figures = stats.figures;
        let is_exact = figures.moving() == 0 && figures.issued == self.issued && figures.held == 0;
        let mut tally = script.world.tally.borrow_mut();
        tally.trouble("clean stops", 1);
        tally.trouble("ids of earlier lives", figures.reclaimed);
        tally.trouble("ids saved", figures.saved);
        tally.trouble("grants that were seen before", stats.grants.seen);
        tally.trouble("grants of an unknown witness", stats.grants.unwitnessed);
        tally.trouble("grants of a store that went back", stats.grants.behind);
        tally.trouble("grants under a leap", stats.grants.leapt);
        for (cause, ids) in [
            ("contiguous", figures.wasted.contiguous),
            ("thread", figures.wasted.thread),
            ("leap", figures.wasted.leap),
            ("strict", figures.wasted.strict),
            ("dropped", figures.wasted.dropped),
        ] {
            tally.waste(cause, ids);
        }
        if is_exact {
            Ok(())
        } else {
            Err(format!("the books are wrong: {} issued, {figures:?}", self.issued))
        }
    }
}

fn check_count(demand: Demand, got: &[Numbers]) -> Result<(), String> {
    let count: u32 = got.iter().map(Numbers::len).sum();
    if count == demand.count { Ok(()) } else { Err(format!("{count} numbers for {demand:?}")) }
}
