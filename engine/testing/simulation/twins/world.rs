//! One of two worlds: a process over a registry, and its machine.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use xuid_id::DEFAULT_EPOCH_MS;
use xuid_spill::{MemoryStorage, SpillId, Storage};

use super::WORKERS;
use crate::api::builder::{Assembly, assemble};
use crate::background::registry_thread::{Done, Job};
use crate::clock::nanos;
use crate::registry::memory::{Fault, MemoryRegistry};
use crate::registry::{
    ClusterId, Genesis, MarkRecord, ReadError, Registry, SwapError, Token, Versioned, WorkerEntry,
    WorkerRecord,
};
use crate::settings::Settings;
use crate::sys::atomics::lock;
use crate::testing::simulation::history::{BEGIN, MS, SECOND};
use crate::testing::simulation::process::open_spill;
use crate::testing::simulation::seeded;
use crate::testing::support::clock::{Change, SimClock, Time};
use crate::testing::support::rng::Rng;
use crate::{Engine, Handle, IdError, Layout, Order, Pending, Run};

/// A link to a registry that can be put to another one.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    genesis: Genesis,
    pub(super) to: Arc<Mutex<MemoryRegistry>>,
}

impl Link {
    pub(crate) fn new(to: &MemoryRegistry) -> Self {
        Self { genesis: *to.genesis(), to: Arc::new(Mutex::new(to.clone())) }
    }

    /// From now on it leads there, for whoever uses it.
    pub(crate) fn put_to(&self, to: &MemoryRegistry) {
        *lock(&self.to) = to.clone();
    }
}

impl Registry for Link {
    fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    fn describe(&self) -> String {
        "a twin's".into()
    }

    fn workers(&mut self) -> Result<Vec<WorkerEntry>, ReadError> {
        lock(&self.to).workers()
    }

    fn worker(&mut self, worker: u32) -> Result<Versioned<WorkerRecord>, ReadError> {
        lock(&self.to).worker(worker)
    }

    fn claim(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        lock(&self.to).claim(worker, expected, record)
    }

    fn swap_worker(&mut self, worker: u32, expected: u64, record: &WorkerRecord) -> Result<(), SwapError> {
        lock(&self.to).swap_worker(worker, expected, record)
    }

    fn leave(&mut self, worker: u32) {
        lock(&self.to).leave(worker);
    }

    fn mark(&mut self, spill: SpillId) -> Result<Versioned<MarkRecord>, ReadError> {
        lock(&self.to).mark(spill)
    }

    fn create_mark(&mut self, spill: SpillId, record: &MarkRecord) -> Result<(), SwapError> {
        lock(&self.to).create_mark(spill, record)
    }

    fn swap_mark(&mut self, spill: SpillId, expected: u64, record: &MarkRecord) -> Result<(), SwapError> {
        lock(&self.to).swap_mark(spill, expected, record)
    }

    fn close(&mut self) {}
}

/// One process and its machine. What its registry thread did is on its way until it is delivered.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) time: Arc<Time>,
    pub(super) clock: Arc<SimClock>,
    pub(super) link: Link,
    pub(super) disk: Option<MemoryStorage>,
    pub(super) assembly: Assembly,
    pub(super) engine: Engine,
    pub(super) handles: Vec<Handle>,
    /// Calls that wait, or are done and were not read.
    pub(super) waiting: Vec<Pin<Box<Pending>>>,
    pub(super) todo: VecDeque<Job>,
    pub(super) answers: VecDeque<Done>,
    pub(super) got: Vec<u64>,
    pub(super) stopped: bool,
}

pub(super) fn layout() -> Layout {
    match Layout::new(58, 2, 3, 1_000, DEFAULT_EPOCH_MS) {
        Ok(layout) => layout,
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn registry() -> MemoryRegistry {
    let layout = layout();
    // An hour ago.
    let floor = layout.tick_at_ns(BEGIN - 3_600 * SECOND).unwrap_or(0);
    MemoryRegistry::new(Genesis::new(ClusterId::from_bytes([7; 16]), layout, floor, WORKERS))
}

impl World {
    pub(super) fn begin(
        mut rng: Rng,
        registry: &MemoryRegistry,
        now: u64,
        mut disk: Option<MemoryStorage>,
        workers: u32,
    ) -> Self {
        let time = Time::new(now);
        let clock = SimClock::new(time.clone(), 77 * SECOND);
        let link = Link::new(registry);
        let (token, spill) = (Token(rng.bytes()), SpillId::from_bytes(rng.bytes()));
        let settings = Settings {
            wait: Duration::ZERO,
            slots: 16,
            window_max: Duration::from_secs(rng.pick(&[2, 10, 60])),
            workers,
            ..Settings::default()
        };
        let wire = |disk: &MemoryStorage| -> Box<dyn Storage> { Box::new(disk.clone()) };
        let assembly = assemble(
            Box::new(link.clone()),
            seeded(token, "a twin".into()),
            |genesis, ownership| open_spill(&mut disk, wire, spill, genesis, ownership),
            settings,
            clock.clone(),
            |patience| time.pass(nanos(patience)),
        );
        let assembly = match assembly {
            Ok(assembly) => assembly,
            Err(error) => panic!("{error}"),
        };
        let engine = Engine::new(assembly.shared.clone(), Vec::new());
        let handles = vec![engine.handle()];
        let (todo, answers) = (VecDeque::new(), VecDeque::new());
        Self {
            rng,
            time,
            clock,
            link,
            disk,
            assembly,
            engine,
            handles,
            waiting: Vec::new(),
            todo,
            answers,
            got: Vec::new(),
            stopped: false,
        }
    }

    pub(super) fn turn(&mut self) {
        self.assembly.producer.turn();
        self.todo.extend(self.assembly.jobs.try_iter());
    }

    pub(super) fn job(&mut self) {
        if let Some(job) = self.todo.pop_front() {
            self.answers.push_back(self.assembly.registry_thread.run(job));
        }
    }

    pub(super) fn deliver(&mut self) {
        if let Some(done) = self.answers.pop_front() {
            let _ = self.assembly.done.send(done);
        }
    }

    pub(super) fn call(&mut self) {
        let count = self.rng.magnitude(1, 256) as u32;
        let order = self.rng.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
        match self.rng.below(4) {
            0 => {
                let ids = (0..count.min(20)).map_while(|_| self.engine.try_next_id().ok());
                self.got.extend(ids.map(crate::Id::raw));
            }
            1 => {
                let handle = &mut self.handles[0];
                let ids = (0..count.min(20)).map_while(|_| handle.next_id().ok());
                self.got.extend(ids.map(crate::Id::raw));
            }
            _ => {
                let mut runs = Vec::new();
                // One that fails gives back what it gathered.
                let _ = self.engine.try_runs(count, order, &mut runs);
                self.got.extend(runs.into_iter().flatten().map(crate::Id::raw));
            }
        }
    }

    /// A call begins to wait.
    pub(super) fn wait(&mut self) {
        let count = self.rng.magnitude(1, 256) as u32;
        let order = self.rng.pick(&[Order::Any, Order::Any, Order::Fresh, Order::Ordered]);
        let wait = Duration::from_nanos(self.rng.magnitude(MS, 20 * SECOND));
        let mut call = Box::pin(self.engine.request(count, order, wait));
        match poll(&mut call) {
            Poll::Ready(result) => self.take(result),
            Poll::Pending => self.waiting.push(call),
        }
    }

    /// All calls that wait are asked whether they are done.
    pub(super) fn read(&mut self) {
        for mut call in std::mem::take(&mut self.waiting) {
            match poll(&mut call) {
                Poll::Ready(result) => self.take(result),
                Poll::Pending => self.waiting.push(call),
            }
        }
    }

    pub(super) fn take(&mut self, result: Result<Vec<Run>, IdError>) {
        self.got.extend(result.into_iter().flatten().flatten().map(crate::Id::raw));
    }

    /// The caller of one that waits goes away.
    pub(super) fn leave(&mut self) {
        let waiting = self.waiting.len() as u64;
        if waiting > 0 {
            drop(self.waiting.swap_remove(self.rng.below(waiting) as usize));
        }
    }

    /// Asks for ids that only a window has.
    pub(super) fn cut(&mut self, order: Order) {
        let mut runs = Vec::new();
        let _ = self.engine.try_runs(1, order, &mut runs);
        self.got.extend(runs.into_iter().flatten().map(crate::Id::raw));
    }

    /// Something happens to it.
    pub(super) fn act(&mut self, faults: bool) {
        match self.rng.below(32) {
            0..3 => self.time.pass(self.rng.magnitude(10_000, 30 * MS)),
            3 => self.time.pass(self.rng.magnitude(100 * MS, 3 * SECOND)),
            4..9 => self.turn(),
            9..13 => self.job(),
            13..17 => self.deliver(),
            17..20 if faults => {
                let registry = lock(&self.link.to);
                registry.fail(self.rng.pick(&[Fault::LandsUnseen, Fault::LandsLate, Fault::LostUnseen]));
                registry.fail_reads(self.rng.below(3) as u32);
            }
            20 if faults => {
                let back = self.rng.magnitude(MS, 5 * SECOND).cast_signed();
                self.clock.change(Change::Step(-back));
            }
            // A write that was given up arrives, maybe after the copy.
            21 => lock(&self.link.to).land(),
            22..24 => self.wait(),
            24 => self.read(),
            25 => self.leave(),
            _ => self.call(),
        }
    }

    /// All that is due is done, again and again, and much of what there is spent.
    pub(super) fn live(&mut self, rounds: u32) {
        for _ in 0..rounds {
            if self.stopped {
                return;
            }
            self.turn();
            while !self.todo.is_empty() {
                self.job();
            }
            while !self.answers.is_empty() {
                self.deliver();
            }
            self.turn();
            for _ in 0..4 {
                self.call();
            }
            self.read();
            self.time.pass(self.rng.magnitude(MS, 2 * SECOND));
        }
    }

    /// A clean stop. Whatever is on its way stays there.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let reads = self.rng.chance(50);
        self.stop_and(reads)
    }

    /// The same; calls that are done are read after it, or left.
    pub(super) fn stop_and(&mut self, reads: bool) -> Result<(), String> {
        self.engine.shutdown();
        self.assembly.producer.finish();
        self.todo.extend(self.assembly.jobs.try_iter());
        while !self.todo.is_empty() {
            self.job();
        }
        self.stopped = true;
        if reads {
            self.read();
        }
        self.waiting.clear();
        // What threads and handles have in hand is settled at their next call, or end.
        self.handles.clear();
        if let Ok(id) = self.engine.try_next_id() {
            return Err(format!("{id} was issued after a stop"));
        }
        let stats = self.engine.stats();
        let (income, came) = (stats.minted + stats.replayed, self.got.len() as u64);
        let outgo = stats.issued + stats.spilled + stats.wasted.total() + stats.held.total();
        if income == outgo && stats.issued == came {
            return Ok(());
        }
        Err(format!("is {income} ids in and {outgo} out, {came} came: {stats:?}"))
    }
}

pub(super) fn poll(call: &mut Pin<Box<Pending>>) -> Poll<Result<Vec<Run>, IdError>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
