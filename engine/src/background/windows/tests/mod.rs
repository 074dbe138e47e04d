//! An engine driven by hand: its clocks stand unless a test moves them, and its producer turns and its registry thread
//! works when a test says so.

#![expect(clippy::cast_possible_wrap, reason = "a step is signed, and short")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_id::Layout;
use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::api::builder::{Assembly, assemble};
use crate::api::engine::Engine;
use crate::background::registry_thread::Job;
use crate::clock::{Clock, Reading};
use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::{Identity, Ownership};
use crate::registry::{ClusterId, Genesis, Registry, Token, Versioned, WorkerRecord};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::testing::simulation::process::open_spill;
use crate::tiers::reserve::open::{self, OpenedSpill};

mod ages;
mod away;
mod ordered;
mod readiness;
mod sharing;
mod switches;
mod verdicts;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// 2026, some day.
const START: u64 = 1_793_000_000 * SECOND;

#[derive(Debug)]
struct Manual(Mutex<Reading>);

impl Clock for Manual {
    fn read(&self) -> Reading {
        *self.0.lock().unwrap()
    }
}

/// The engine, its world, and what was asked of the registry thread so far.
struct Driven {
    clock: Arc<Manual>,
    registry: MemoryRegistry,
    assembly: Assembly,
    engine: Engine,
    /// Boot time that each job takes.
    cost: u64,
    jobs: Vec<(u64, Job)>,
    turns: u64,
}

impl Driven {
    fn new(settings: Settings) -> Self {
        Self::starting_at(START, Layout::default(), settings)
    }

    fn starting_at(wall: u64, layout: Layout, settings: Settings) -> Self {
        Self::over(wall, layout, settings, |_| ())
    }

    /// Over a registry that was prepared.
    fn over(wall: u64, layout: Layout, settings: Settings, prepare: impl FnOnce(&MemoryRegistry)) -> Self {
        Self::made(wall, layout, settings, prepare, |_, _| open::none("a test"))
    }

    /// With a spill.
    fn spilling(settings: Settings) -> Self {
        let open = |genesis: &Genesis, ownership: &mut Ownership| {
            let wire = |storage: &MemoryStorage| -> Box<dyn Storage> { Box::new(storage.clone()) };
            let spill = SpillId::from_bytes([2; 16]);
            open_spill(&mut Some(MemoryStorage::new()), wire, spill, genesis, ownership)
        };
        Self::made(START, Layout::default(), settings, |_| (), open)
    }

    fn made(
        wall: u64,
        layout: Layout,
        mut settings: Settings,
        prepare: impl FnOnce(&MemoryRegistry),
        open: impl FnOnce(&Genesis, &mut Ownership) -> OpenedSpill,
    ) -> Self {
        settings.slots = 64;
        let clock = Arc::new(Manual(Mutex::new(Reading { wall, boot: 77 * SECOND })));
        let cluster = ClusterId::from_bytes([3; 16]);
        // A day ago, so that a clock that goes back finds workers.
        let floor = layout.tick_at_ns(START - 86_400 * SECOND).unwrap();
        let registry = MemoryRegistry::new(Genesis::new(cluster, layout, floor, 16));
        prepare(&registry);
        let assembly = assemble(
            Box::new(registry.clone()),
            Identity::new(Token([5; 16]), "by hand".into()),
            open,
            settings,
            clock.clone(),
            |_| (),
        )
        .unwrap();
        let engine = Engine::new(assembly.shared.clone(), Vec::new());
        Self { clock, registry, assembly, engine, cost: 0, jobs: Vec::new(), turns: 0 }
    }

    fn boot(&self) -> u64 {
        self.clock.read().boot
    }

    /// Steps the wall alone.
    fn step(&self, by: i64) {
        let mut at = self.clock.0.lock().unwrap();
        at.wall = at.wall.checked_add_signed(by).unwrap();
    }

    /// Time goes by on both clocks.
    fn pass(&self, ns: u64) {
        let mut at = self.clock.0.lock().unwrap();
        (at.wall, at.boot) = (at.wall + ns, at.boot + ns);
    }

    /// One turn of the producer, and everything it asked of the registry thread; returns how long nothing is due then.
    fn turn(&mut self) -> Duration {
        self.turns += 1;
        let mut pause = self.assembly.producer.turn();
        while let Ok(job) = self.assembly.jobs.try_recv() {
            self.jobs.push((self.boot(), copy(&job)));
            self.pass(self.cost);
            self.assembly.done.send(self.assembly.registry_thread.run(job)).unwrap();
            // As the registry thread does, which wakes the producer.
            pause = Duration::ZERO;
        }
        pause
    }

    /// Turns as the producer's thread would, until so much time went by.
    fn run(&mut self, ns: u64) {
        let end = self.boot() + ns;
        loop {
            let pause = self.turn();
            let left = end.saturating_sub(self.boot());
            if left == 0 {
                return;
            }
            self.pass((pause.as_nanos() as u64).min(left));
        }
    }

    /// Takes all that calls of any age can have now.
    fn spend(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            idle += 1;
            while self.engine.try_runs(64, crate::Order::Any, &mut Vec::new()).is_ok() {
                idle = 0;
            }
            while self.engine.try_next_id().is_ok() {
                idle = 0;
            }
            // The producer brings what lies where calls do not look.
            self.turn();
        }
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The one worker that is held.
    fn worker(&self) -> u32 {
        let workers = self.engine.workers();
        assert_eq!(workers.len(), 1, "{workers:?}");
        workers[0]
    }

    fn tamper(&self, worker: u32, change: impl FnOnce(&mut Versioned<WorkerRecord>)) {
        tamper(&self.registry, worker, change);
    }

    /// Whether one of the notes says all this.
    fn notes(&self, words: &[&str]) -> bool {
        self.engine.status().notes.iter().any(|note| words.iter().all(|word| note.contains(word)))
    }
}

/// The record of a worker as somebody else leaves it.
fn tamper(registry: &MemoryRegistry, worker: u32, change: impl FnOnce(&mut Versioned<WorkerRecord>)) {
    let mut found = registry.clone().worker(worker).unwrap();
    found.version += 1;
    change(&mut found);
    registry.tamper_worker(worker, Some(found));
}

fn copy(job: &Job) -> Job {
    match *job {
        Job::Take { ref request, reach, cause } => Job::Take { request: request.clone(), reach, cause },
        Job::Extend { worker, start, end, reach } => Job::Extend { worker, start, end, reach },
        Job::Grant(request) => Job::Grant(request),
        Job::GiveUp { request, heard } => Job::GiveUp { request, heard },
        Job::Release { worker, from } => Job::Release { worker, from },
        Job::Forget { worker } => Job::Forget { worker },
        Job::ResetIdentity => Job::ResetIdentity,
        Job::Look => Job::Look,
    }
}
