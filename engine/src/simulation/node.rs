//! One node: a machine's clocks and disk, and the process that lives on it now, if any.
//!
//! The process is the engine's real code; only its two threads are missing, whose work is done here when it is due.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use xuid_spill::{MemoryStorage, SpillId};

use super::chance::Chance;
use super::clock::SimClock;
use super::line::{End, Exchange, Line, State};
use super::summary::Refusals;
use crate::builder::{Assembly, assemble};
use crate::producer::Producer;
use crate::registrar::{Done, Job, Registrar};
use crate::registry::{Genesis, Token};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stock::{self, Opened, Stock};
use crate::sync::lock;
use crate::tenure::Tenure;
use crate::{Engine, Handle, Order, Pending};

/// A thread that is woken runs so much later, in nanoseconds.
const WAKE: u64 = 30_000;

/// More turns than this, one after the other, are not due for a reason.
const RESTLESS: u32 = 50;

/// Records of a simulated spill file: enough for a history, few enough for laps.
const SPILL_BYTES: u64 = 8_192 + 256 * 32;

/// A call that waits.
pub(super) struct Waiting {
    pub(super) pending: Pin<Box<Pending>>,
    pub(super) order: Order,
    /// The last ordered id whose reply was there when this call began.
    pub(super) above: u64,
}

/// A process.
pub(super) struct Life {
    pub(super) engine: Engine,
    pub(super) shared: Arc<Shared>,
    producer: Producer,
    registrar: Registrar,
    jobs: Receiver<Job>,
    done: Sender<Done>,
    queue: VecDeque<Job>,
    pub(super) handles: Vec<Handle>,
    pub(super) waiting: Vec<Waiting>,
    /// The last ordered id that a caller got.
    pub(super) last_ordered: u64,
    next_turn: u64,
    next_job: u64,
    wakes: u64,
    /// Turns since one found nothing due.
    restless: u32,
    /// E, and switches of worker, when they were last looked at.
    seen: (u64, u64),
}

/// A node.
pub(super) struct Node {
    pub(super) number: usize,
    pub(super) exchange: Arc<Exchange>,
    pub(super) clock: Arc<SimClock>,
    pub(super) end: Arc<Mutex<End>>,
    pub(super) settings: Settings,
    pub(super) disk: Option<MemoryStorage>,
    /// Copies of the disk that may be put back.
    pub(super) copies: Vec<Vec<u8>>,
    pub(super) life: Option<Life>,
    /// The highest tick that E ever reached here, in any life.
    pub(super) most: u64,
    /// True times before which the whole process, its producer, its registrar are stopped.
    pub(super) stopped: u64,
    pub(super) producer_stopped: u64,
    pub(super) registrar_stopped: u64,
    pub(super) refusals: Refusals,
    /// Runs of the drain that goes on.
    pub(super) drained: usize,
    /// The engine is being closed.
    pub(super) closing: bool,
    pub(super) chance: Chance,
}

impl Node {
    pub(super) fn new(
        number: usize,
        exchange: Arc<Exchange>,
        settings: Settings,
        spill: bool,
        chance: &mut Chance,
    ) -> Self {
        let end = End {
            state: State::Up,
            ambush: None,
            last: None,
            announced: Vec::new(),
            sample: None,
            told: None,
            chance: chance.fork(),
        };
        Self {
            number,
            clock: SimClock::new(exchange.time.clone(), chance.magnitude(1 << 30, 1 << 50)),
            exchange,
            end: Arc::new(Mutex::new(end)),
            settings,
            disk: spill.then(MemoryStorage::new),
            copies: Vec::new(),
            life: None,
            most: 0,
            stopped: 0,
            producer_stopped: 0,
            registrar_stopped: 0,
            refusals: Refusals::default(),
            drained: 0,
            closing: false,
            chance: chance.fork(),
        }
    }

    fn now(&self) -> u64 {
        self.exchange.time.now()
    }

    /// A process begins.
    pub(super) fn start(&mut self) {
        let line = Box::new(Line::new(self.exchange.clone(), self.number, self.end.clone()));
        let identity = (Token(self.chance.bytes()), format!("node {}", self.number));
        let (disk, spill) = (RefCell::new(self.disk.take()), SpillId::from_bytes(self.chance.bytes()));
        let time = self.exchange.time.clone();
        let assembly = assemble(
            line,
            identity,
            |genesis, tenure| open_spill(&mut disk.borrow_mut(), spill, genesis, tenure),
            self.settings.clone(),
            self.clock.clone(),
            |patience| time.pass(crate::clock::nanos(patience)),
        );
        self.disk = disk.into_inner();
        let Assembly { shared, producer, registrar, jobs, done } = match assembly {
            Ok(assembly) => assembly,
            Err(error) => panic!("an engine was not built: {error}"),
        };
        let engine = Engine::new(shared.clone(), Vec::new());
        let handles = (0..2).map(|_| engine.handle()).collect();
        let e = lock(&shared.gate).minter.engine_clock();
        let now = self.now();
        self.life = Some(Life {
            engine,
            shared,
            producer,
            registrar,
            jobs,
            done,
            queue: VecDeque::new(),
            handles,
            waiting: Vec::new(),
            last_ordered: 0,
            next_turn: now,
            next_job: now,
            wakes: 0,
            restless: 0,
            seen: (e, 0),
        });
        self.look();
    }

    /// The process ends without a word. What the disk had not synced may be lost with it.
    pub(super) fn crash(&mut self, power_cut: bool) {
        let Some(life) = self.life.take() else { return };
        drop(life);
        if let Some(disk) = self.disk.as_ref().filter(|_| power_cut) {
            let chance = &mut self.chance;
            disk.settle(|_| chance.chance(50));
            disk.crash();
        }
    }

    /// The clean stop: every id is accounted for.
    pub(super) fn stop(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        self.closing = true;
        life.engine.shutdown();
        life.producer.finish();
        self.look_at(&mut life);
        self.poll_all(&mut life);
        self.closing = false;
        life.take_jobs();
        while let Some(job) = life.queue.pop_front() {
            life.registrar.run(job);
        }
        life.registrar.close();
        let stats = life.engine.stats();
        let (income, outgo) = (
            stats.minted + stats.replayed,
            stats.issued + stats.spilled + stats.wasted.total() + stats.held.total(),
        );
        if income != outgo {
            let node = self.number;
            lock(&self.exchange.oracle)
                .wrong(|| format!("node {node} is {income} ids in and {outgo} out: {stats:?}"));
        }
    }

    /// The true time at which there is something to do, if there is a process.
    pub(super) fn due(&mut self) -> Option<u64> {
        let life = self.life.as_mut()?;
        let wakes = life.shared.producer.calls.load(Ordering::Relaxed);
        if wakes != life.wakes {
            life.wakes = wakes;
            life.next_turn = life.next_turn.min(self.exchange.time.now() + WAKE);
        }
        let turn = life.next_turn.max(self.producer_stopped);
        let job = if life.queue.is_empty() { u64::MAX } else { life.next_job.max(self.registrar_stopped) };
        Some(turn.min(job).max(self.stopped))
    }

    /// Does what is due: a turn of the producer, or a job of the registrar.
    pub(super) fn act(&mut self) {
        let now = self.now();
        let Some(mut life) = self.life.take() else { return };
        if !life.queue.is_empty() && life.next_job.max(self.registrar_stopped) <= now {
            self.do_job(&mut life);
        } else {
            self.turn(&mut life);
        }
        self.life = Some(life);
    }

    fn turn(&mut self, life: &mut Life) {
        let pause = crate::clock::nanos(life.producer.turn());
        self.look_at(life);
        life.restless = if pause == 0 { life.restless + 1 } else { 0 };
        if life.restless > RESTLESS {
            let node = self.number;
            lock(&self.exchange.oracle).wrong(|| format!("the producer of node {node} does not sleep"));
        }
        // Its own work takes a little, too.
        life.next_turn = self.now() + pause.max(WAKE);
        self.take_jobs(life);
    }

    fn take_jobs(&mut self, life: &mut Life) {
        if life.queue.is_empty() {
            life.next_job = self.now() + self.chance.magnitude(20_000, 3_000_000);
        }
        life.take_jobs();
    }

    fn do_job(&mut self, life: &mut Life) {
        let Some(job) = life.queue.pop_front() else { return };
        let done = life.registrar.run(job);
        let _ = life.done.send(done);
        life.shared.producer.wake();
        life.next_job = self.now();
        self.take_jobs(life);
    }

    fn look(&mut self) {
        if let Some(mut life) = self.life.take() {
            self.look_at(&mut life);
            self.life = Some(life);
        }
    }

    /// E goes back at a switch of worker only; how far it got is remembered.
    pub(super) fn look_at(&mut self, life: &mut Life) {
        let e = lock(&life.shared.gate).minter.engine_clock();
        let switches = lock(&life.shared.gauges).upkeep.switches.clock;
        let (before, then) = life.seen;
        if e < before && switches == then {
            let node = self.number;
            lock(&self.exchange.oracle).wrong(|| format!("E of node {node} went from {before} back to {e}"));
        }
        life.seen = (e, switches);
        self.most = self.most.max(life.shared.layout.tick_at_ns(e).unwrap_or(0));
    }

    /// E as it stands.
    pub(super) fn e(&self) -> Option<u64> {
        self.life.as_ref().map(|life| lock(&life.shared.gate).minter.engine_clock())
    }

    /// Somebody copies the disk, in use or not.
    pub(super) fn copy_disk(&mut self) {
        self.copies.extend(self.disk.as_ref().map(MemoryStorage::bytes));
    }

    /// A copy of the disk is put in its place.
    pub(super) fn restore_disk(&mut self) {
        if let (Some(copy), Some(disk), None) = (self.copies.pop(), &mut self.disk, &self.life) {
            *disk = MemoryStorage::from_bytes(copy);
        }
    }
}

impl Life {
    fn take_jobs(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.queue.push_back(job);
        }
    }
}

/// Opens the spill that a disk holds, or makes one.
fn open_spill(
    disk: &mut Option<MemoryStorage>,
    spill: SpillId,
    genesis: &Genesis,
    tenure: &mut Tenure,
) -> Stock {
    let Some(disk) = disk else { return stock::none("this node has no disk") };
    let path = Path::new("simulated");
    if !disk.bytes().is_empty() {
        match stock::open_log(Box::new(disk.clone()), path, genesis, tenure) {
            Ok(Opened::Log(log, mark)) => {
                let inherited = log.stock().ids;
                return Stock { log: Ok((log, mark)), inherited, refused: 0 };
            }
            Err(why) => return Stock { log: Err(why), inherited: 0, refused: 0 },
            Ok(_) => *disk = MemoryStorage::new(),
        }
    }
    let log = stock::create_log(Box::new(disk.clone()), SPILL_BYTES, spill, path, genesis, tenure);
    if log.is_err() {
        *disk = MemoryStorage::new();
    }
    Stock { log: log.map(|log| (log, 0)), inherited: 0, refused: 0 }
}
