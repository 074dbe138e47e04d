//! An engine whose threads do not run, of eight ids a tick and four slots.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use xuid_id::{DEFAULT_EPOCH_MS, Layout};
use xuid_spill::{Extent, MemoryStorage, SpillId};

use crate::Engine;
use crate::api::builder::{Assembly, assemble};
use crate::background::producer::Producer;
use crate::background::registry_thread::{Job, RegistryThread};
use crate::clock::{Clock, Reading};
use crate::id::run::Block;
use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::Identity;
use crate::registry::{ClusterId, Genesis, Registry, Token};
use crate::settings::Settings;
use crate::shared::EngineState;
use crate::tiers::reserve::open::{self, OpenedSpill};
use crate::tiers::ring::PARTITIONS;
use crate::tiers::thread_run::{ThreadRun, ThreadState};

pub(crate) const MS: u64 = 1_000_000;

/// 2026-11-21.
const BEGIN: u64 = 1_795_219_200_000 * MS;

/// A clock that stands until it is told. Loom does not know it: nobody waits for it.
#[derive(Debug, Default)]
pub(crate) struct Time {
    passed: AtomicU64,
    leapt: AtomicU64,
}

impl Time {
    pub(crate) fn pass(&self, ns: u64) {
        self.passed.fetch_add(ns, Ordering::Relaxed);
    }

    /// The wall goes forward, and boot time does not.
    pub(crate) fn leap(&self, ns: u64) {
        self.leapt.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Clock for Time {
    fn read(&self) -> Reading {
        let passed = self.passed.load(Ordering::Relaxed);
        Reading { wall: BEGIN + passed + self.leapt.load(Ordering::Relaxed), boot: passed + MS }
    }
}

/// An engine, for one thread to turn.
pub(crate) struct Bench {
    pub(crate) shared: Arc<EngineState>,
    producer: Producer,
    pub(crate) time: Arc<Time>,
    registry_thread: RegistryThread,
    jobs: std::sync::mpsc::Receiver<Job>,
    registry: MemoryRegistry,
    disk: MemoryStorage,
    _done: std::sync::mpsc::Sender<crate::background::registry_thread::Done>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let layout = Layout::new(58, 2, 3, 1_000, DEFAULT_EPOCH_MS).unwrap();
        let floor = layout.tick_at_ns(BEGIN).unwrap();
        let cluster = ClusterId::from_bytes([1; 16]);
        // One worker, since a choice is left to chance and a model must not be.
        let registry = MemoryRegistry::new(Genesis::new(cluster, layout, floor, 1));
        let (time, disk) = (Arc::new(Time::default()), MemoryStorage::new());
        let storage = Box::new(disk.clone());
        let settings = Settings { slots: PARTITIONS, wait: Duration::ZERO, ..Settings::default() };
        let assembly = assemble(
            Box::new(registry.clone()),
            Identity::new(Token([1; 16]), "a model".into()),
            |genesis, ownership| {
                let spill = SpillId::from_bytes([9; 16]);
                let log = open::create_log(
                    storage,
                    8_192 + 64 * 32,
                    spill,
                    Path::new("model"),
                    (genesis, ownership),
                    Duration::ZERO,
                );
                OpenedSpill { log: log.map(|log| (log, 0)), inherited: 0, refused: 0 }
            },
            settings,
            time.clone(),
            |_| unreachable!("the worker is free"),
        );
        let Assembly { shared, producer, registry_thread, jobs, done } = assembly.unwrap();
        Self { shared, producer, time, registry_thread, jobs, registry, disk, _done: done }
    }

    /// One block of eight ids lies in the ring, where the first thread's walk begins.
    pub(crate) fn fill_ring(&self) {
        let layout = self.shared.layout;
        let first = layout.encode(layout.tick_at_ns(BEGIN).unwrap() - 5, 0, 0).raw();
        let mut block = Some(Block::new(first, 8));
        assert_eq!(self.shared.ring.refill(0, || block.take()).blocks, 1);
    }

    /// Turns the producer while others call.
    pub(crate) fn turn(&mut self) {
        self.producer.turn();
    }

    /// The clean stop, hand-back included, while `others` call. Says what is wrong with the ids that they got in all,
    /// and with the figures.
    pub(crate) fn stop(mut self, others: impl FnOnce() -> Vec<u64>) -> Option<String> {
        let left = self.stop_now();
        let ids = others();
        let issued = ids.len() as u64;
        let stats = Engine::new(self.shared.clone(), Vec::new()).stats();
        let outgo = stats.issued + stats.spilled + stats.wasted.total();
        let wrong = left.wrong(&self.shared.layout, ids);
        wrong
            .or_else(|| {
                (stats.minted != outgo).then(|| format!("{} in, {outgo} out: {stats:?}", stats.minted))
            })
            .or_else(|| (stats.held.total() > 0).then(|| format!("held after the stop: {:?}", stats.held)))
            .or_else(|| {
                (stats.issued != issued).then(|| format!("{issued} issued, {} counted", stats.issued))
            })
    }

    fn stop_now(&mut self) -> Left {
        self.shared.close();
        self.producer.finish();
        while let Ok(job) = self.jobs.try_recv() {
            self.registry_thread.run(job);
        }
        let handed_back_from = self.registry.worker(0).unwrap().record.reserved_until;
        Left { handed_back_from, spilled: self.spilled() }
    }

    fn spilled(&self) -> Vec<Extent> {
        let layout = self.shared.layout;
        let copy = Box::new(MemoryStorage::from_bytes(self.disk.bytes()));
        let expected = xuid_spill::Expected {
            cluster: self.shared.genesis.cluster.bytes(),
            stride: layout.stride(),
            layout: layout.to_bytes(),
        };
        let (mut log, _) = xuid_spill::Log::open(copy, &expected).unwrap();
        log.resume_at(0);
        let mut found = Vec::new();
        log.read(0..log.head(), &mut found).unwrap();
        found.into_iter().map(|(_, extent)| extent).collect()
    }
}

/// A caller without a thread-local, which all threads of a model would have in common.
pub(crate) struct Caller {
    thread_state: ThreadState,
    thread_run: ThreadRun,
    ids: Vec<u64>,
}

impl Caller {
    /// Takes `calls` ids as it can get them, without waiting.
    pub(crate) fn call(shared: &EngineState, calls: usize) -> Self {
        let (mut thread_state, thread_run) = (shared.join(), ThreadRun::new());
        let mut ids = Vec::new();
        for _ in 0..calls {
            let hit = thread_run.hit(&shared.generation);
            let id = hit.or_else(|| shared.next_cold(&thread_run, &mut thread_state, None).ok());
            ids.extend(id.map(crate::Id::raw));
        }
        Self { thread_state, thread_run, ids }
    }

    /// Takes another one out of its run, if one is left; says which.
    pub(crate) fn hit(&mut self, shared: &EngineState) -> Option<u64> {
        let id = self.thread_run.hit(&shared.generation).map(crate::Id::raw);
        self.ids.extend(id);
        id
    }

    /// Ends, and says which ids it got.
    pub(crate) fn end(self) -> Vec<u64> {
        self.thread_run.close_run(&self.thread_state.counters);
        self.ids
    }
}

/// What a clean stop left.
struct Left {
    handed_back_from: u64,
    spilled: Vec<Extent>,
}

impl Left {
    /// What is wrong with these ids, which callers got: one came twice, is in the spill as well, or was handed back.
    fn wrong(&self, layout: &Layout, mut ids: Vec<u64>) -> Option<String> {
        if let Some(id) = ids.iter().find(|id| layout.tick_of(**id) >= self.handed_back_from) {
            return Some(format!(
                "{id} was issued, and its tick handed back from {} on",
                self.handed_back_from
            ));
        }
        let stride = layout.stride();
        for extent in &self.spilled {
            let tick = |at: u32| extent.first + u64::from(at) * stride;
            ids.extend((0..extent.ticks).flat_map(|at| tick(at)..tick(at) + u64::from(extent.len)));
        }
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map(|pair| format!("{} is in two places", pair[0]))
    }
}
