//! One process: the engine's real code over any registry and any spill storage, without its two threads.
//!
//! Whoever has it asks when something is due, and does it: a turn of the producer, a job of the registry thread, or one
//! half of a clean stop. All of it goes through [`Process::act`], so that a campaign that meddles with storage can say
//! in the middle of what it did. To drop it is to kill it: nothing is said to anybody.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use xuid_spill::{MemoryStorage, SpillId, Storage};

use crate::api::build_error::BuildError;
use crate::api::builder::{Assembly, assemble};
use crate::background::producer::Producer;
use crate::background::registry_thread::{Done, Job, RegistryThread};
use crate::clock::Clock;
use crate::registry::ownership::{Identity, Ownership};
use crate::registry::{Genesis, Registry};
use crate::settings::Settings;
use crate::shared::EngineState;
use crate::sys::atomics::lock;
use crate::testing::support::clock::Time;
use crate::testing::support::faults::Panicked;
use crate::tiers::reserve::open::{self, Opened, OpenedSpill};
use crate::{Engine, Handle, Order, Pending};

/// A thread that is woken runs so much later, in nanoseconds.
const WAKE: u64 = 30_000;

/// More turns than this, one after the other, are not due for a reason.
pub(crate) const RESTLESS: u32 = 50;

/// Records of a simulated spill file: enough for a history, few enough for laps.
const SPILL_BYTES: u64 = 8_192 + 256 * 32;

/// A call that waits.
pub(crate) struct Waiting {
    pub(crate) pending: Pin<Box<Pending>>,
    pub(crate) order: Order,
    /// The last ordered id whose reply was there when this call began.
    pub(crate) above: u64,
}

/// What a process does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A turn of the producer.
    Turn,
    /// A job of the registry thread.
    Job,
    /// The first half of a clean stop: takers are refused, what is left goes to the spill.
    Close,
    /// The second half: windows are handed back, and the registry is left.
    Leave,
}

/// A process.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<EngineState>,
    producer: Producer,
    registry_thread: RegistryThread,
    jobs: Receiver<Job>,
    done: Sender<Done>,
    queue: VecDeque<Job>,
    pub(crate) handles: Vec<Handle>,
    pub(crate) waiting: Vec<Waiting>,
    /// The last ordered id that a caller got.
    pub(crate) last_ordered: u64,
    /// The highest tick that E ever reached.
    pub(crate) most: u64,
    /// Ids that callers got.
    pub(crate) got: u64,
    /// Grants that its stop waited for and got, and did not get.
    pub(crate) awaited: u64,
    pub(crate) given_up: u64,
    /// Panics over a job of its registry thread, until somebody takes note of them.
    pub(crate) panics: u64,
    next_turn: u64,
    next_job: u64,
    wakes: u64,
    /// Turns since one found nothing due.
    pub(crate) restless: u32,
    /// E, and switches of worker, when they were last looked at.
    pub(crate) seen: (u64, u64),
}

impl Process {
    /// A process begins: it opens its spill by `open` and takes a first worker.
    pub(crate) fn begin(
        registry: Box<dyn Registry>,
        identity: Identity,
        open: impl FnOnce(&Genesis, &mut Ownership) -> OpenedSpill,
        settings: Settings,
        clock: Arc<dyn Clock>,
        time: &Time,
    ) -> Result<Self, BuildError> {
        let sleep = |patience| time.pass(crate::clock::nanos(patience));
        let Assembly { shared, producer, registry_thread, jobs, done } =
            assemble(registry, identity, open, settings, clock, sleep)?;
        let engine = Engine::new(shared.clone(), Vec::new());
        let handles = (0..2).map(|_| engine.handle()).collect();
        let e = lock(&shared.gate).clock.last();
        Ok(Self {
            engine,
            shared,
            producer,
            registry_thread,
            jobs,
            done,
            queue: VecDeque::new(),
            handles,
            waiting: Vec::new(),
            last_ordered: 0,
            most: 0,
            got: 0,
            awaited: 0,
            given_up: 0,
            panics: 0,
            next_turn: time.now(),
            next_job: time.now(),
            wakes: 0,
            restless: 0,
            seen: (e, 0),
        })
    }

    /// The true time at which there is something to do. Neither thread runs before it is on again.
    pub(crate) fn due(&mut self, now: u64, producer_on: u64, registrar_on: u64) -> u64 {
        let wakes = self.shared.producer.calls.load(Ordering::Relaxed);
        if wakes != self.wakes {
            self.wakes = wakes;
            self.next_turn = self.next_turn.min(now + WAKE);
        }
        let turn = self.next_turn.max(producer_on);
        let job = if self.queue.is_empty() { u64::MAX } else { self.next_job.max(registrar_on) };
        turn.min(job)
    }

    /// What is due first.
    pub(crate) fn next_deed(&self, now: u64, registrar_on: u64) -> Deed {
        if !self.queue.is_empty() && self.next_job.max(registrar_on) <= now { Deed::Job } else { Deed::Turn }
    }

    /// Does it. A job that comes while there is none begins `latency` nanoseconds later.
    pub(crate) fn act(&mut self, deed: Deed, time: &Time, latency: impl FnMut() -> u64) {
        match deed {
            Deed::Turn => {
                let pause = crate::clock::nanos(self.producer.turn());
                self.restless = if pause == 0 { self.restless + 1 } else { 0 };
                // Its own work takes a little, too.
                self.next_turn = time.now() + pause.max(WAKE);
                self.take_jobs(time, latency);
            }
            Deed::Job => {
                let Some(job) = self.queue.pop_front() else { return };
                let panics = &mut self.panics;
                let done = self.registry_thread.unless_it_panics(job, |payload| {
                    let panicked = payload.is::<Panicked>();
                    *panics += u64::from(panicked);
                    panicked
                });
                let _ = self.done.send(done);
                self.shared.producer.wake();
                self.next_job = time.now();
                self.take_jobs(time, latency);
            }
            Deed::Close => {
                self.engine.shutdown();
                self.await_grant(time, latency);
                self.producer.finish();
            }
            Deed::Leave => {
                self.queue.extend(self.jobs.try_iter());
                while let Some(job) = self.queue.pop_front() {
                    self.registry_thread.run(job);
                }
                self.registry_thread.close();
            }
        }
    }

    /// The engine's own wait for a grant that is under way, while the registry thread goes on with its jobs: each takes
    /// so long, and one that takes longer than the stop waits is done after it.
    fn await_grant(&mut self, time: &Time, mut latency: impl FnMut() -> u64) {
        if !self.producer.reserve.is_granting() {
            return;
        }
        let (queue, jobs, answers, registry_thread) =
            (&mut self.queue, &self.jobs, &self.done, &mut self.registry_thread);
        self.producer.await_grant_by(|done, left| {
            queue.extend(jobs.try_iter());
            if let Ok(done) = done.try_recv() {
                return Some(done);
            }
            let (takes, left) = (latency(), crate::clock::nanos(left));
            time.pass(takes.min(left));
            if takes > left {
                return None;
            }
            let _ = answers.send(registry_thread.run(queue.pop_front()?));
            done.try_recv().ok()
        });
        if self.producer.reserve.is_granting() {
            self.given_up += 1;
        } else {
            self.awaited += 1;
        }
    }

    /// After the engine was closed: counts what was issued out of the runs that threads and handles still have in hand.
    /// An id that comes all the same is returned.
    pub(crate) fn settle(&mut self) -> Option<crate::Id> {
        self.handles.clear();
        self.engine.try_next_id().ok()
    }

    /// After a clean stop: minted + replayed = issued + spilled + wasted + held, and what was issued is what came.
    pub(crate) fn account(&self) -> Result<(), String> {
        let stats = self.engine.stats();
        if stats.issued != self.got {
            return Err(format!("counts {} ids issued, {} came", stats.issued, self.got));
        }
        let income = stats.minted + stats.replayed;
        let outgo = stats.issued + stats.spilled + stats.wasted.total() + stats.held.total();
        if income == outgo { Ok(()) } else { Err(format!("is {income} ids in and {outgo} out: {stats:?}")) }
    }

    /// The producer panicked in a turn: it goes on as its thread does.
    pub(crate) fn stumble(&mut self, time: &Time) {
        self.next_turn = time.now() + crate::clock::nanos(self.producer.after_panic());
        self.queue.extend(self.jobs.try_iter());
    }

    fn take_jobs(&mut self, time: &Time, latency: impl FnOnce() -> u64) {
        if self.queue.is_empty() {
            self.next_job = time.now() + latency();
        }
        self.queue.extend(self.jobs.try_iter());
    }
}

/// Opens the spill that a disk holds, or makes one; the engine reaches the disk through what `wire` puts before it.
pub(crate) fn open_spill(
    disk: &mut Option<MemoryStorage>,
    wire: impl Fn(&MemoryStorage) -> Box<dyn Storage>,
    spill: SpillId,
    genesis: &Genesis,
    ownership: &mut Ownership,
) -> OpenedSpill {
    let Some(disk) = disk else { return open::none("this node has no disk") };
    let path = Path::new("simulated");
    if disk.is_empty().is_ok_and(|empty| !empty) {
        match open::open_log(wire(disk), path, genesis, ownership, Duration::ZERO) {
            Ok(Opened::Log(log, mark)) => {
                let inherited = log.stock().ids;
                return OpenedSpill { log: Ok((log, mark)), inherited, refused: 0 };
            }
            Ok(Opened::Later(why)) | Err(why) => {
                return OpenedSpill { log: Err(why), inherited: 0, refused: 0 };
            }
            Ok(_) => *disk = MemoryStorage::new(),
        }
    }
    let log = open::create_log(wire(disk), SPILL_BYTES, spill, path, (genesis, ownership), Duration::ZERO);
    if log.is_err() {
        *disk = MemoryStorage::new();
    }
    OpenedSpill { log: log.map(|log| (log, 0)), inherited: 0, refused: 0 }
}
