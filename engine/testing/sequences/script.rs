//! What happens in a history, step by step.

use std::cell::{Cell, RefCell};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::node::{Node, Threads};
use super::world::{Defect, World, enter};
use super::{Mode, NODES};
use crate::clock::{Clock, SECOND};
use crate::sequence::SequenceName;
use crate::sequence::store::{Alteration, HIGHEST, NewLast, NewSequence, SequenceSettings, Store};
use crate::testing::campaigns::Tally;
use crate::testing::support::clock::{Change, SimClock, Time};
use crate::testing::support::faults::Killed;
use crate::testing::support::rng::Rng;

/// When histories begin, in Unix nanoseconds.
const BEGIN: u64 = 1_793_000_000 * SECOND;

/// Things that happen within one call of the world at most.
const DEEPEST: u32 = 2;

/// A history under way.
pub(crate) struct Script {
    pub(crate) world: World,
    pub(crate) mode: Mode,
    pub(crate) nodes: Vec<Node>,
    /// The largest step that a row ever had, and once more if it was altered.
    pub(crate) steps: Vec<Cell<u64>>,
    /// The host that is written to.
    primary: Cell<usize>,
    /// The other host may be written to as well.
    has_replica: Cell<bool>,
    depth: Cell<u32>,
    /// Files of leftovers as they once were.
    files: RefCell<Vec<Vec<u8>>>,
    /// Removed with the history.
    _folder: tempfile::TempDir,
}

/// A folder that no disk has to be waited for.
fn folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a folder")
}

/// Plays a history. What was wrong, if something was.
pub(crate) fn play(seed: u64, mode: Mode, steps: u64) -> (Tally, Result<(), String>) {
    let script = Rc::new(Script::new(seed, mode));
    enter(Some(script.clone()));
    let verdict = catch_unwind(AssertUnwindSafe(|| script.run(steps)));
    enter(None);
    let verdict = verdict
        .unwrap_or_else(|panic| Err(format!("panicked: {}", crate::testing::campaigns::said(&*panic))));
    let mut tally = script.world.tally.take();
    let oracle = script.world.oracle.borrow();
    (tally.ids, tally.duplicates, tally.digest) = (oracle.ids, oracle.duplicates, oracle.digest());
    (tally, verdict)
}

impl Script {
    fn new(seed: u64, mode: Mode) -> Self {
        let mut rng = Rng::new(seed);
        let folder = folder();
        let count = rng.within(1, 3) as usize;
        let names: Vec<_> =
            ["c", "o", "s"][..count].iter().map(|name| SequenceName::new(name).unwrap()).collect();
        let time = Time::new(BEGIN);
        let least = if mode == Mode::Hosts { 1 } else { 2 };
        let nodes = if mode == Mode::Alone { 1 } else { rng.within(least, NODES as u64) as usize };
        let shares_folder = rng.chance(15);
        let world = World::new(rng, time.clone(), names.clone());
        let records: Vec<_> = (0..nodes).map(|_| world.new_records()).collect();
        let node = |number: usize| {
            let home = if shares_folder && number == 1 { 0 } else { number };
            let store = if mode == Mode::Faithful {
                world.database.faithful_store(0)
            } else {
                world.database.store(0)
            };
            let path = folder.path().join(home.to_string());
            fs::create_dir_all(&path).expect("a node's folder");
            Node {
                clock: SimClock::new(time.clone(), (number as u64 + 1) * 1_000 * SECOND),
                folder: path,
                store,
                records: match mode {
                    Mode::Hosts => records[home].clone().described("local"),
                    _ => records[0].clone(),
                },
                life: RefCell::default(),
                threads: RefCell::default(),
                lives: Cell::new(0),
            }
        };
        let nodes = (0..nodes).map(node).collect();
        let script = Self {
            mode,
            nodes,
            steps: names.iter().map(|_| Cell::new(0)).collect(),
            primary: Cell::new(0),
            has_replica: Cell::new(true),
            depth: Cell::new(0),
            files: RefCell::default(),
            _folder: folder,
            world,
        };
        script.create(&names);
        script
    }

    /// Makes the names, but for one that its first use may make.
    fn create(&self, names: &[SequenceName]) {
        let world = &self.world;
        let mut store = world.database.store(0);
        for (place, name) in names.iter().enumerate() {
            let increment = [1, 1, 1, 2, 3][world.below(5) as usize];
            let mut settings = SequenceSettings {
                step: world.within(1, 40),
                increment,
                remainder: world.below(u64::from(increment)) as u32,
                last: if world.chance(15) { world.within(50, 3_000) } else { HIGHEST },
                strict: name.as_str() == "s" || world.chance(10),
            };
            let mut start = if world.chance(50) { 1 } else { world.within(0, 500) };
            let is_made = self.mode.is_closed_by_loss() || name.as_str() != "c" || world.chance(70);
            if is_made {
                store.create(name, &NewSequence { start, settings, description: None }).unwrap();
            } else {
                (settings, start) = (SequenceSettings { step: 40, ..SequenceSettings::default() }, 1);
            }
            self.steps[place].set(settings.step);
            world.oracle.borrow_mut().know(settings, start);
        }
        store.record_identity().unwrap();
        world.database.replicate(0, 1);
    }

    fn run(&self, steps: u64) -> Result<(), String> {
        for step in 0..steps {
            // Troubles come and go.
            if step % 50 == 0 {
                let rates = [0, 0, 5, 20];
                let world = &self.world;
                world.defects.set([0, 0, 10, 60][world.below(4) as usize]);
                world.faults.set((rates[world.below(4) as usize], rates[world.below(4) as usize]));
            }
            self.step();
            self.verdict()?;
        }
        self.recover()
    }

    fn verdict(&self) -> Result<(), String> {
        self.world.flaw.take().map_or(Ok(()), Err)
    }

    fn some_node(&self) -> usize {
        self.world.below(self.nodes.len() as u64) as usize
    }

    fn step(&self) {
        let (world, number) = (&self.world, self.some_node());
        let node = &self.nodes[number];
        let what = world.below(100);
        // Nothing ends its one life.
        if self.mode == Mode::Alone && matches!(what, 88..=91 | 98) {
            return;
        }
        match what {
            0..=44 => node.call(self),
            45..=69 => self.turn(number),
            70..=81 => world.time.pass(world.rng.borrow_mut().magnitude(1_000_000, 20 * SECOND)),
            82 => self.lull(number),
            83..=87 => self.happens(number),
            88 => self.kill_later(number),
            89 => {
                if node.life.borrow().is_some() {
                    world.trouble("kills");
                    node.kill();
                }
            }
            90..=91 => self.stop(number),
            92..=97 => node.start(self, number),
            98 => self.files(number),
            _ => self.people(),
        }
    }

    /// Nobody has a name at hand for a while: names leave the table.
    fn lull(&self, number: usize) {
        if let Ok(mut life) = self.nodes[number].life.try_borrow_mut()
            && let Some(life) = &mut *life
        {
            life.let_go();
        }
        for _ in 0..6 {
            self.world.time.pass(self.world.within(2, 11) * SECOND);
            self.turn(number);
        }
    }

    /// Something that needs nobody to stand still.
    fn happens(&self, number: usize) {
        let world = &self.world;
        match world.below(12) {
            0 => self.leap(number),
            1 => world.settle_records(),
            2 => world.database.settle(),
            3 => world.records_away.set(world.chance(40)),
            4 => world.time.pass(world.within(1, 5) * 60 * SECOND),
            5 if !matches!(self.mode, Mode::Faithful | Mode::Alone) => self.replicate(),
            _ => self.database(number),
        }
    }

    /// In the middle of a call of a node.
    pub(crate) fn meanwhile(&self, caller: usize) {
        if self.depth.get() >= DEEPEST || !self.world.chance(15) {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        let number = self.some_node();
        match self.world.below(10) {
            0..=5 => self.nodes[number].call(self),
            6..=7 if number != caller => self.turn(number),
            8 => self.happens(number),
            _ => self.leap(caller),
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn leap(&self, number: usize) {
        // Half of them would be too many.
        if !self.world.chance(30) {
            return;
        }
        let node = &self.nodes[number];
        node.clock.change(Change::Step((self.world.within(60, 7_200) * SECOND).cast_signed()));
        self.world.trouble("leaps");
        if let Ok(mut life) = node.life.try_borrow_mut()
            && let Some(life) = &mut *life
        {
            let seen = life.hub.leaps();
            life.land.leapt(seen);
        }
    }

    /// Both threads of a node do what there is to do.
    pub(crate) fn turn(&self, number: usize) {
        let node = &self.nodes[number];
        let Ok(mut threads) = node.threads.try_borrow_mut() else { return };
        let Some(Threads { teller, keeper }) = &mut *threads else { return };
        let depth = self.depth.get();
        let began = node.clock.read().boot;
        let turned = catch_unwind(AssertUnwindSafe(|| {
            keeper.turn();
            teller.turn();
        }));
        self.depth.set(depth);
        if let Err(payload) = turned {
            if payload.is::<Defect>() {
                teller.after_panic();
                drop(threads);
                // What was granted before the panic is held to what was taken by now, and not by the next turn.
                return node.check_held(self, number, began);
            }
            if !payload.is::<Killed>() {
                resume_unwind(payload);
            }
            self.world.trouble("kills in a turn");
            *threads = None;
            drop(threads);
            *node.life.borrow_mut() = None;
            return;
        }
        drop(threads);
        node.check_held(self, number, began);
    }

    /// The process dies in the middle of one of its next calls of the world.
    fn kill_later(&self, number: usize) {
        if self.world.fuse.get().is_none() && self.nodes[number].life.borrow().is_some() {
            self.world.fuse.set(Some((number, self.world.below(12))));
        }
    }

    /// A clean stop.
    fn stop(&self, number: usize) {
        let (node, world) = (&self.nodes[number], &self.world);
        let Ok(mut threads) = node.threads.try_borrow_mut() else { return };
        let Some(mut stopping) = threads.take() else { return };
        drop(threads);
        let before = world.chance(15).then(|| self.rest(number));
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            if let Some(life) = &*node.life.borrow() {
                life.hub.close();
            }
            stopping.teller.stop();
        }));
        drop(stopping);
        let Some(life) = node.life.take() else { return };
        if let Err(payload) = stopped
            && !payload.is::<Defect>()
        {
            if !payload.is::<Killed>() {
                resume_unwind(payload);
            }
            world.trouble("kills in a stop");
            return;
        }
        if let Err(why) = life.check_books(self) {
            world.wrong(format!("node {number}: {why}"));
        }
        match before {
            // As where it died before the new file had its name.
            Some(before) => {
                let _ = fs::write(node.folder.join("sequences.rest-0"), before);
                world.trouble("files that were not put in place");
            }
            None => self.files.borrow_mut().push(self.rest(number)),
        }
    }

    fn rest(&self, number: usize) -> Vec<u8> {
        fs::read(self.nodes[number].folder.join("sequences.rest-0")).unwrap_or_default()
    }

    /// Files are copied, or put back.
    fn files(&self, number: usize) {
        let (world, folder) = (&self.world, &self.nodes[number].folder);
        let files = self.files.borrow();
        if !files.is_empty() && world.chance(70) {
            // A running process has read its file, and puts another one in its place.
            let file = &files[world.below(files.len() as u64) as usize];
            fs::write(folder.join("sequences.rest-0"), file).expect("a file of leftovers");
            world.trouble("files of leftovers put back");
            return;
        }
        let from = &self.nodes[self.some_node()].folder;
        if from == folder || self.nodes[number].life.borrow().is_some() {
            return;
        }
        for name in ["sequences.rest-0", "sequences.store"] {
            if let Ok(file) = fs::read(from.join(name)) {
                fs::write(folder.join(name), file).expect("a copy of a file");
            }
        }
        world.trouble("folders copied");
    }

    /// Somebody alters a row.
    fn people(&self) {
        let world = &self.world;
        let place = world.below(world.names.len() as u64) as usize;
        let mut store = world.database.store(self.primary.get());
        if world.chance(50) {
            let step = world.within(1, 60);
            let alteration = Alteration { step: Some(step), ..Alteration::default() };
            if store.alter(&world.names[place], &alteration).is_ok() {
                let before = self.steps[place].get();
                self.steps[place].set(before.max(step) + before.min(step));
            }
        } else {
            let last = world.oracle.borrow().settings(place).last;
            if last < HIGHEST {
                let alteration = Alteration { last: Some(NewLast::At(last + 500)), ..Alteration::default() };
                if store.alter(&world.names[place], &alteration).is_ok() {
                    world.oracle.borrow_mut().alter(place, last + 500);
                }
            }
        }
    }

    /// The replica catches up.
    fn replicate(&self) {
        let primary = self.primary.get();
        if self.has_replica.get() {
            self.world.database.replicate(primary, 1 - primary);
        }
    }

    /// Something happens to the database.
    fn database(&self, number: usize) {
        let world = &self.world;
        match self.mode {
            Mode::Faithful => world.database.set_away(0, world.chance(30)),
            Mode::Identity => self.fail_over_and_fence(),
            Mode::Alone => match world.below(5) {
                0 => world.database.set_away(0, world.chance(30)),
                1 => world.dumps.borrow_mut().push(world.database.dump(0)),
                2 => {
                    let dumps = world.dumps.borrow();
                    if !dumps.is_empty() {
                        world.database.restore(0, &dumps[world.below(dumps.len() as u64) as usize]);
                        world.trouble("dumps restored alone");
                    }
                }
                _ if world.chance(50) => self.fence(),
                _ => {}
            },
            Mode::Hosts => match world.below(8) {
                0 => self.fail_over_and_fence(),
                1 => world.database.set_away(self.primary.get(), world.chance(30)),
                2..=3 => world.dumps.borrow_mut().push(world.database.dump(self.primary.get())),
                4..=5 => self.put_back(),
                _ => self.fence(),
            },
            Mode::Witness | Mode::Lossless => match world.below(6) {
                0 => world.database.set_away(world.below(2) as usize, world.chance(30)),
                // Nodes learn one after the other which host is written to, so there are two for a while.
                1..=2 => {
                    self.nodes[number].store.connect_to(world.below(2) as usize);
                    world.trouble("nodes on another host");
                }
                3 => {
                    let primary = 1 - self.primary.get();
                    self.primary.set(primary);
                    self.nodes.iter().for_each(|node| node.store.connect_to(primary));
                    world.trouble("fail-overs");
                }
                4 => world.dumps.borrow_mut().push(world.database.dump(world.below(2) as usize)),
                _ => {
                    let dumps = world.dumps.borrow();
                    if !dumps.is_empty() {
                        let dump = &dumps[world.below(dumps.len() as u64) as usize];
                        world.database.restore(world.below(2) as usize, dump);
                        world.trouble("dumps restored");
                    }
                }
            },
        }
    }

    /// Without a witness: the primary dies for good, the replica takes its place, and waits for a fence. Then the other
    /// one follows it.
    fn fail_over_and_fence(&self) {
        let (world, primary) = (&self.world, self.primary.get());
        if self.has_replica.get() {
            world.database.set_away(primary, true);
            self.primary.set(1 - primary);
            self.has_replica.set(false);
            self.nodes.iter().for_each(|node| node.store.connect_to(1 - primary));
            world.trouble("fail-overs");
        } else {
            self.fence();
        }
    }

    /// An old dump is put back of which each host's witness can tell that it is one: others grant what they do not know of.
    fn put_back(&self) {
        let (world, dumps) = (&self.world, self.world.dumps.borrow());
        if dumps.is_empty() {
            return;
        }
        let dump = &dumps[world.below(dumps.len() as u64) as usize];
        let is_told = |node: &Node, name: &SequenceName| {
            let seen = node.records.record(name.as_str()).map_or(0, |record| record.value);
            dump.mark(name).is_some_and(|mark| mark < seen)
        };
        let is_told_by = |node: &Node| world.names.iter().all(|name| is_told(node, name));
        if self.nodes.len() > 1 && !self.nodes.iter().all(is_told_by) {
            return;
        }
        world.database.restore(self.primary.get(), dump);
        world.trouble("dumps restored under hosts");
    }

    fn fence(&self) {
        let (world, primary) = (&self.world, self.primary.get());
        if self.mode.is_put_back() {
            world.database.set_away(primary, false);
        }
        let mut store = world.database.store(primary);
        for (place, name) in world.names.iter().enumerate() {
            let beyond = world.oracle.borrow().beyond(place);
            let _ = store.raise(name, beyond);
        }
        let _ = store.record_identity();
        world.database.replicate(primary, 1 - primary);
        world.database.set_away(1 - primary, false);
        self.has_replica.set(true);
        world.trouble("fences");
    }

    /// A node was granted a range.
    pub(crate) fn came(&self, number: usize, name: &str, first: u64, end: u64) {
        let Some(place) = self.world.place(name) else { return };
        self.world.oracle.borrow_mut().granted(place, end);
        if let Some(life) = &mut *self.nodes[number].life.borrow_mut() {
            life.land.add(place, first, end);
        }
    }

    /// A node claimed its leftovers.
    pub(crate) fn claimed(&self, number: usize) {
        if let Some(life) = &mut *self.nodes[number].life.borrow_mut() {
            life.claimed();
        }
    }

    /// Faults end, and within a minute each node serves each name.
    fn recover(&self) -> Result<(), String> {
        let world = &self.world;
        world.faults.set((0, 0));
        world.records_away.set(false);
        world.defects.set(0);
        world.fuse.set(None);
        world.settle_records();
        world.database.settle();
        if self.mode.is_put_back() || self.mode == Mode::Identity && !self.has_replica.get() {
            self.fence();
        }
        for host in 0..2 {
            world.database.set_away(host, false);
            // A process that knew a row which is gone does not make it again: people do.
            for (place, name) in world.names.iter().enumerate() {
                let settings = world.oracle.borrow().settings(place);
                let new = NewSequence { settings, ..NewSequence::default() };
                let _ = world.database.store(host).create(name, &new);
            }
        }
        // No more happens in the middle of calls.
        self.depth.set(DEEPEST);
        for (number, node) in self.nodes.iter().enumerate() {
            node.start(self, number);
            self.verdict()?;
            for place in 0..world.names.len() {
                self.serves(number, place)?;
            }
        }
        for number in 0..self.nodes.len() {
            self.stop(number);
            self.verdict()?;
        }
        Ok(())
    }

    fn serves(&self, number: usize, place: usize) -> Result<(), String> {
        let node = &self.nodes[number];
        for _ in 0..300 {
            let served = node.life.borrow_mut().as_mut().map(|life| life.is_served(self, place));
            match served {
                Some(Ok(true)) => return Ok(()),
                Some(Ok(false)) => {}
                Some(Err(why)) => return Err(why),
                None => return Err(format!("node {number} is not there")),
            }
            self.turn(number);
            self.verdict()?;
            self.world.time.pass(SECOND / 5);
        }
        let status = node.life.borrow().as_ref().map(|life| life.sequences.status());
        Err(format!("not recovered: node {number} does not serve {}: {status:?}", self.world.names[place]))
    }
}
