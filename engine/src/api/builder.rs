//! Configures and starts an engine.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use xuid_id::{ClusterId, Layout, Veil};

use crate::api::build_error::BuildError;
use crate::api::data_dir;
use crate::api::engine::Engine;
use crate::api::folder_rights;
use crate::api::memory;
use crate::background::producer::Producer;
use crate::background::registry_thread::{Cause, Done, Job, RegistryThread};
use crate::background::windows::{WindowKeeper, explain};
use crate::clock::engine_clock::EngineClock;
use crate::clock::{Clock, Supervisor, SystemClock, nanos};
use crate::id::key_error::OpaqueKeyError;
use crate::mint::gate::Gate;
use crate::mint::minter::{Ages, Minter};
use crate::registry::health::{Monitored, Tally};
use crate::registry::local::{CreateOptions, LocalError, LocalRegistry};
use crate::registry::ownership::{Identity, Ownership, TakeError};
use crate::registry::{Floor, Genesis, ReadError, Registry, Token};
use crate::settings::Settings;
use crate::shared::{EngineState, Parts};
use crate::sys::deferred_log;
use crate::sys::fork_word::GenerationWord;
use crate::sys::guards::Guard;
use crate::tiers::reserve::Reserve;
use crate::tiers::reserve::open::{self, OpenedSpill};

/// How long `build` waits for a certain worker whose last window a crash left a little ahead of the clock: the
/// length of a first window and a margin.
const PINNED_PATIENCE: Duration = Duration::from_secs(3);

/// Between two tries for a certain worker while the registry does not answer.
const RETRY: Duration = Duration::from_millis(200);

/// How long it waits for any worker: a clean stop hands its window back from the next tick on, which a process
/// started at once is ahead of.
const PATIENCE: Duration = Duration::from_millis(20);

/// Configures an [`Engine`].
#[derive(Default)]
#[must_use = "nothing starts before build()"]
pub struct EngineBuilder {
    folder: Option<PathBuf>,
    registry: Option<Box<dyn Registry>>,
    layout: Option<Layout>,
    floor: Floor,
    clock: Option<Arc<dyn Clock>>,
    /// No folder and no registry: the worker was given to this process.
    in_memory: bool,
    settings: Settings,
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("folder", &self.folder)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Begins to configure an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Begins to configure an engine without a folder, whose ids never come twice **while no other process has this worker,
    /// and while the clock does not go back over a restart** by more than a second.
    ///
    /// It is for programs whose workers somebody else hands out (a deployment's ordinals, a coordinator of its own).
    /// Nothing remembers what was issued once the process ends, so the rest of the promise is the caller's:
    ///
    /// - No two processes have one worker of one namespace at one time. Engines of one process may: they share it, if they
    ///   are of one copy of this library (two versions of it, or two extensions that each bring it, know nothing of each
    ///   other, and count as two processes). A forked child is another process and gets a worker of its own; so does a
    ///   machine that is resumed once more from a snapshot with its memory.
    /// - When a process follows another with the same worker, the clock reads no earlier than it ever did for the first, and
    ///   both have the same [`drift`](EngineBuilder::drift), one second by default. Where its clock was set back, the first
    ///   may have been that much ahead of what it read, so ids begin that much after the first `build`, which waits for it.
    ///   [`floor`](EngineBuilder::floor) makes the wait shorter for those who can assert more.
    ///
    /// Within the process the clock may do what it likes, as with any engine; where it goes back by more than `drift`
    /// there is no other worker to switch to, and calls are refused until it has caught up. So are they after a leap
    /// forward, until what was reserved before it has passed, a minute at most. Unused ids end with the
    /// process. Where a folder can be kept, [`data_dir`](EngineBuilder::data_dir) promises more.
    ///
    /// ```
    /// use xuid_engine::{Engine, Floor};
    ///
    /// // In a test there is no past to stay clear of.
    /// let engine = Engine::memory(7).floor(Floor::Epoch).build()?;
    /// assert_eq!(engine.layout().decode(engine.next_id()?).worker, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(worker: u32) -> EngineBuilder {
        EngineBuilder { in_memory: true, ..EngineBuilder::default().worker(worker) }
    }
}

impl EngineBuilder {
    /// The folder of the spill and, where no other is given, of the local registry; made if it is absent. Ids are
    /// unique within the folder only: hosts that issue into one namespace need one registry. A relative one is of the
    /// working directory at this call, whatever directory the process works in later; a process that changes its root
    /// (`chroot`) does so before. Defaults to none.
    pub fn data_dir(self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self { folder: Some(std::path::absolute(&folder).unwrap_or(folder)), ..self }
    }

    /// A registry other than the local one. Defaults to the local one of the data folder.
    pub fn registry(self, registry: Box<dyn Registry>) -> Self {
        Self { registry: Some(registry), ..self }
    }

    /// The layout the registry must have been created with, or is. Defaults to whatever it has, and to
    /// [`Layout::default`] where it is created.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout: Some(layout), ..self }
    }

    /// From when on ids may be minted, where the local registry is created by this call, or a worker is first used by
    /// [`Engine::memory`]; no effect later. Defaults to [`Floor::Now`].
    pub fn floor(self, floor: Floor) -> Self {
        Self { floor, ..self }
    }

    /// How many workers are held at once: each adds a tick's sequences to the sustained rate (4,096 ids a
    /// millisecond by default). Too many use the registry's workers up. Defaults to 1.
    pub fn workers(mut self, workers: u32) -> Self {
        self.settings.workers = workers;
        self
    }

    /// This worker and no other. A rollback of the clock then means waiting, since there is no other to switch to.
    /// Defaults to any.
    pub fn worker(mut self, worker: u32) -> Self {
        self.settings.pinned = Some(worker);
        self
    }

    /// No id is older when it leaves window, queue or spill. Short wastes the reserve; long lets a burst see ids
    /// that old. Defaults to 1 hour.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.settings.max_age = max_age;
        self
    }

    /// How long `next_id`, `runs` and `fill` may wait where everything up to now is spent. Zero refuses at once;
    /// long hides an overload. Defaults to 50 ms.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How much of a worker's unused past a first window takes in, up to `max_age`: a reserve from the start, of
    /// ids that look that old. Defaults to 0.
    pub fn backfill(mut self, backfill: Duration) -> Self {
        self.settings.backfill = backfill;
        self
    }

    /// The longest window. Short asks the registry often and ends soon when it is away; long makes a worker that
    /// crashed unusable for as long. Defaults to 60 s.
    pub fn window_max(mut self, window_max: Duration) -> Self {
        self.settings.window_max = window_max;
        self
    }

    /// Steps back of the wall clock up to this are waited out. Defaults to 15 ms.
    pub fn rollback_wait(mut self, rollback_wait: Duration) -> Self {
        self.settings.rollback_wait = rollback_wait;
        self
    }

    /// Steps back up to this, all together, are caught up with at nine tenths of the pace; beyond, another worker
    /// is taken. Defaults to 1 s.
    pub fn drift(mut self, drift: Duration) -> Self {
        self.settings.drift = drift;
        self
    }

    /// Steps forward up to this are followed at once. Defaults to 5 s.
    pub fn max_forward(mut self, max_forward: Duration) -> Self {
        self.settings.max_forward = max_forward;
        self
    }

    /// Whether unused ids go to a file in the data folder. Without one they stay in memory and end with the
    /// process. Defaults to true.
    pub fn spill(mut self, spill: bool) -> Self {
        self.settings.spill = spill;
        self
    }

    /// The key with which callers see opaque ids: they have no order, and say neither time nor worker to whoever lacks it.
    /// A local registry that this call creates is of opaque ids, of that key for ever; one that is there must have been
    /// created with it. The layout needs 63 bits. Defaults to none, which a registry of opaque ids is not opened with.
    pub fn opaque_key(mut self, key: Veil) -> Self {
        self.settings.veil = Some(key);
        self
    }

    /// Another source of time. Defaults to [`SystemClock`].
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Leaves tiers out, to measure what each is worth. No id is repeated without them; it is only slower.
    #[cfg(feature = "ablation")]
    pub fn tiers(mut self, tiers: crate::Tiers) -> Self {
        self.settings.tiers = tiers;
        self
    }

    /// Opens registry and spill, takes a worker, and starts the threads. Where no worker is free yet the engine
    /// starts all the same and answers [`NotReady`](crate::IdErrorKind::NotReady) until one is.
    ///
    /// # Errors
    /// [`BuildError`] says what was found, what is allowed, and what to do.
    pub fn build(self) -> Result<Engine, BuildError> {
        deferred_log::collected(|| self.open())
    }

    fn open(self) -> Result<Engine, BuildError> {
        self.settings.check()?;
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock));
        if let Some(folder) = &self.folder {
            xuid_spill::make_folder(folder).map_err(|source| {
                let path = folder.clone();
                BuildError::Folder { action: "make the data folder", path, source }
            })?;
            folder_rights::narrow(folder);
        }
        let veil = self.settings.veil.as_ref();
        let layout = match (self.layout, veil) {
            (Some(layout), Some(_)) => Some(layout.opaque().map_err(OpaqueKeyError::from)?),
            (layout, _) => layout,
        };
        let registry: Box<dyn Registry> = match (self.registry, &self.folder) {
            (registry, folder) if self.in_memory => {
                memory::check(&self.settings, folder.is_some(), registry.is_some())?;
                let cluster = ClusterId::from_bytes(random()?);
                let (layout, wall) = (self.layout.unwrap_or_default(), clock.read().wall);
                Box::new(memory::given(cluster, layout, self.floor, wall, &self.settings)?)
            }
            (Some(registry), _) => registry,
            (None, Some(folder)) => Box::new(local(folder, layout, self.floor, veil, clock.as_ref())?),
            (None, None) => return Err(BuildError::NoRegistry),
        };
        let genesis = *registry.genesis();
        genesis.check_veil(veil)?;
        if let Some(wanted) =
            layout.filter(|wanted| *wanted != genesis.layout && Guard::LayoutCompared.holds())
        {
            return Err(BuildError::Layout { found: genesis.layout, wanted });
        }
        if let Some(folder) = &self.folder {
            data_dir::check(folder, genesis.cluster)?;
        }
        start(registry, self.folder.as_deref(), self.settings, clock, spawn)
    }
}

/// Opens the local registry of a folder, or creates it.
fn local(
    folder: &Path,
    layout: Option<Layout>,
    floor: Floor,
    veil: Option<&Veil>,
    clock: &dyn Clock,
) -> Result<LocalRegistry, BuildError> {
    let layout = layout.unwrap_or_default();
    let floor = floor.tick(&layout, clock.read().wall);
    let options = CreateOptions { layout, floor, workers: layout.workers().min(MOST_WORKERS) };
    match data_dir::remembered(folder)? {
        None => Ok(LocalRegistry::open_or_create_with(folder, &options, veil)?),
        // Made again, it would grant again what the one that is gone had granted.
        Some(cluster) => LocalRegistry::open(folder).map_err(|error| match error {
            LocalError::Absent { .. } => BuildError::RegistryGone { path: folder.to_owned(), cluster },
            other => other.into(),
        }),
    }
}

/// Workers of a local registry: more would make its file large for nothing, since they are processes of one host.
const MOST_WORKERS: u32 = 1024;

fn random() -> Result<[u8; 16], BuildError> {
    let mut bytes = [0; 16];
    let fail =
        |error| BuildError::System { action: "draw random bytes", source: std::io::Error::other(error) };
    getrandom::fill(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

fn owner() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host} pid {}", std::process::id())
}

/// An engine whose threads do not run: its owner turns the producer and does the registry thread's jobs.
pub(crate) struct Assembly {
    pub(crate) shared: Arc<EngineState>,
    pub(crate) producer: Producer,
    pub(crate) registry_thread: RegistryThread,
    /// What the registry thread is to do; it ends with the producer, which holds the only sender.
    pub(crate) jobs: Receiver<Job>,
    /// Where it says what it did.
    pub(crate) done: Sender<Done>,
}

/// What a thread does.
type Body = Box<dyn FnOnce() + Send>;

/// Opens everything, and starts the threads by `spawn`. If it fails, nothing of it goes on.
fn start(
    registry: Box<dyn Registry>,
    folder: Option<&Path>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    mut spawn: impl FnMut(&str, Body) -> Result<JoinHandle<()>, BuildError>,
) -> Result<Engine, BuildError> {
    let spill = settings.spill;
    let open = |genesis: &Genesis, ownership: &mut Ownership| match folder {
        Some(folder) if spill => open::open(folder, genesis, ownership),
        Some(_) => open::none("it is switched off"),
        None => open::none("there is no data folder"),
    };
    let mut identity = Identity::new(Token(random()?), owner());
    identity.notes = folder.map(Path::to_owned);
    let Assembly { shared, mut producer, registry_thread, jobs, done } =
        assemble(registry, identity, open, settings, clock, std::thread::sleep)?;
    let (wake, generation) = (shared.producer.clone(), shared.generation.clone());
    // The producer holds the only sender of jobs: when it has done its clean stop, the registry thread ends too.
    let serve = move || registry_thread.serve(&jobs, &done, &wake, &generation);
    let registrar = spawn("xuid-registrar", Box::new(serve))?;
    // It gets the producer once it is there: if it cannot be started, the clean stop is done here.
    let (hand, handed) = channel::<Producer>();
    match spawn("xuid-producer", Box::new(move || run_handed(&handed))) {
        Ok(thread) => {
            let _ = hand.send(producer);
            Ok(Engine::new(shared, vec![thread, registrar]))
        }
        Err(error) => {
            shared.close();
            producer.run();
            drop(producer);
            let _ = registrar.join();
            Err(error)
        }
    }
}

/// Runs the one producer that is handed over, if one is. No other is waited for: in a child that was forked in its run the
/// sender may live on.
fn run_handed(handed: &Receiver<Producer>) {
    if let Ok(mut producer) = handed.recv() {
        producer.run();
    }
}

/// Opens the spill by `open` and takes a first worker, for which it may `sleep` a little.
pub(crate) fn assemble(
    registry: Box<dyn Registry>,
    identity: Identity,
    open: impl FnOnce(&Genesis, &mut Ownership) -> OpenedSpill,
    settings: Settings,
    clock: Arc<dyn Clock>,
    sleep: impl Fn(Duration),
) -> Result<Assembly, BuildError> {
    let (genesis, described) = (*registry.genesis(), registry.describe());
    let layout = genesis.layout.plots();
    let generation =
        GenerationWord::new().map_err(|source| BuildError::System { action: "map the fork page", source })?;
    let supervisor = Supervisor::new(settings.thresholds(), clock.read());
    let engine_clock = EngineClock::new(layout, clock.clone(), supervisor);
    let mut gate = Gate::new(engine_clock, Minter::new(genesis.layout, Ages::of(&settings, &layout)));

    let tally = Arc::new(Mutex::new(Tally::default()));
    let registry = Box::new(Monitored::new(registry, tally.clone(), clock.clone()));
    let mut ownership = Ownership::new(registry, identity);
    let OpenedSpill { log, inherited, refused } = open(&genesis, &mut ownership);
    let mut registry_thread = RegistryThread::new(ownership, tally.clone(), clock.clone());
    let (jobs_out, jobs) = channel();
    let (done, done_in) = channel();
    let mut windows = WindowKeeper::new(layout, settings.clone(), tally.clone());
    let past = first_window(&mut gate, &mut windows, &mut registry_thread, &settings, &jobs_out, sleep)?;

    let mut reserve = Reserve::new(layout, Ages::of(&settings, &layout).max, log);
    reserve.keep(past);
    let parts = Parts {
        genesis,
        registry: described,
        settings,
        clock,
        generation,
        gate,
        tally,
        inherited,
        refused_spills: refused,
    };
    let shared = Arc::new(EngineState::new(parts));
    let producer = Producer::new(shared.clone(), reserve, jobs_out, done_in, windows);
    producer.publish();
    Ok(Assembly { shared, producer, registry_thread, jobs, done })
}

fn spawn(name: &str, body: Body) -> Result<JoinHandle<()>, BuildError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| BuildError::System { action: "start a thread", source })
}

/// How often a first worker is waited for.
const MOST_WAITS: u32 = 4;

/// Takes a first worker, so that the first call finds ids. Returns what of its window has elapsed.
fn first_window(
    gate: &mut Gate,
    windows: &mut WindowKeeper,
    registry_thread: &mut RegistryThread,
    settings: &Settings,
    jobs: &Sender<Job>,
    sleep: impl Fn(Duration),
) -> Result<Vec<xuid_spill::Extent>, BuildError> {
    let mut waited = None;
    let begun = gate.clock.now().reading.boot;
    loop {
        let now = gate.clock.now();
        let Some(tick) = now.tick else { return Ok(Vec::new()) };
        let request = windows.request(tick, Vec::new());
        let reach = request.end - request.now;
        let done = registry_thread.run(Job::Take { request, reach, cause: Cause::Missing });
        if let Done::Taken { result: Err(error), .. } = &done {
            let passes = match error {
                TakeError::Ahead { until, .. } | TakeError::Held { until, .. } => {
                    Some((*until, PINNED_PATIENCE))
                }
                TakeError::NoneFree { earliest } => Some((*earliest, PATIENCE)),
                _ => None,
            };
            if let Some((ends, patience)) = passes {
                let ahead = gate.clock.time_to(ends, &now);
                // Once more where the clock went back a little meanwhile, and not for one who goes on to hold it.
                let (times, until) = waited.unwrap_or((0, ends));
                if ahead <= patience && until == ends && times < MOST_WAITS {
                    waited = Some((times + 1, ends));
                    sleep(ahead);
                    continue;
                }
            }
            // A registry that was reached a moment ago and does not answer now, as in a fail-over of an ensemble.
            let silent =
                matches!(error, TakeError::InDoubt { .. } | TakeError::Read(ReadError::Unavailable { .. }));
            let spent = now.reading.boot.saturating_sub(begun);
            if silent && settings.pinned.is_some() && spent < nanos(PINNED_PATIENCE) {
                sleep(RETRY);
                continue;
            }
            if let Some(worker) = settings.pinned {
                return Err(BuildError::Worker { worker, why: explain(error, &gate.clock) });
            }
        }
        return Ok(windows.take_in(done, gate, jobs));
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use xuid_id::ClusterId;

    use super::*;
    use crate::Order;
    use crate::clock::Reading;
    use crate::registry::memory::MemoryRegistry;

    type Spawn<'a> = dyn FnMut(&str, Body) -> Result<JoinHandle<()>, BuildError> + 'a;

    /// The first thread is started, and the second one is not.
    #[test]
    fn a_build_that_cannot_start_its_second_thread_leaves_nothing_behind() {
        let (folder, layout) = (tempfile::tempdir().unwrap(), Layout::default());
        let cluster = ClusterId::from_bytes([1; 16]);
        let registry = MemoryRegistry::new(Genesis::new(cluster, layout, 1_000, 1));
        let start = |spawn: &mut Spawn<'_>| {
            let registry = Box::new(registry.clone());
            start(registry, Some(folder.path()), Settings::default(), Arc::new(SystemClock), spawn)
        };
        let (begun, ended) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
        for tries in 1..=3 {
            let mut one_thread = |name: &str, body: Body| {
                if begun.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
                    let source = std::io::Error::from(std::io::ErrorKind::WouldBlock);
                    return Err(BuildError::System { action: "start a thread", source });
                }
                let ended = ended.clone();
                spawn(
                    name,
                    Box::new(move || {
                        body();
                        ended.fetch_add(1, Ordering::Relaxed);
                    }),
                )
            };
            assert!(start(&mut one_thread).is_err());
            assert_eq!(ended.load(Ordering::Relaxed), tries, "the first thread runs on");
        }
        // Neither worker nor spill is taken.
        let engine = start(&mut spawn).unwrap();
        assert_eq!(engine.runs(1, Order::Fresh).unwrap().len(), 1);
        let spills = std::fs::read_dir(folder.path()).unwrap().flatten();
        let spills: Vec<_> =
            spills.filter(|entry| entry.file_name().to_string_lossy().starts_with("spill")).collect();
        assert_eq!(spills.len(), 1, "{spills:?}");
    }

    /// A machine whose clock is set while a process begins: back by 5 ms, while it waits for its worker.
    #[test]
    fn a_certain_worker_is_waited_for_although_the_clock_goes_back_a_little_meanwhile() {
        struct Manual(Mutex<Reading>);

        impl Clock for Manual {
            fn read(&self) -> Reading {
                *self.0.lock().unwrap()
            }
        }

        let (layout, wall) = (Layout::default(), 1_793_000_000_000_000_000);
        let clock = Arc::new(Manual(Mutex::new(Reading { wall, boot: 77_000_000_000 })));
        // Reserved for another second: by a process that was killed, or, in memory, by the floor.
        let floor = layout.tick_at_ns(wall).unwrap() + 1_000;
        let registry = MemoryRegistry::new(Genesis::new(ClusterId::from_bytes([1; 16]), layout, floor, 1));
        let back = std::cell::Cell::new(5_000_000);
        let sleep = |time: Duration| {
            let mut at = clock.0.lock().unwrap();
            at.boot += nanos(time);
            at.wall = at.wall + nanos(time) - back.replace(0);
        };
        let settings = Settings { pinned: Some(0), ..Settings::default() };
        let none = |_: &Genesis, _: &mut Ownership| open::none("a test");
        let identity = Identity::new(Token([1; 16]), owner());
        let built = assemble(Box::new(registry), identity, none, settings, clock.clone(), sleep);
        assert!(built.is_ok(), "{}", built.err().unwrap());
    }

    #[test]
    fn the_producers_thread_ends_with_its_producer_although_the_sender_lives_on() {
        let cluster = ClusterId::from_bytes([1; 16]);
        let genesis = Genesis::new(cluster, Layout::default(), 1_000, 1);
        let (registry, identity) = (MemoryRegistry::new(genesis), Identity::new(Token([1; 16]), owner()));
        let open = |_: &Genesis, _: &mut Ownership| open::none("a test");
        let clock = Arc::new(SystemClock);
        let Assembly { shared, producer, registry_thread: _registry, jobs: _jobs, done: _done } =
            assemble(Box::new(registry), identity, open, Settings::default(), clock, std::thread::sleep)
                .unwrap();
        shared.close();
        let (hand, handed) = channel();
        hand.send(producer).unwrap();
        let (end, ended) = channel();
        std::thread::spawn(move || {
            run_handed(&handed);
            end.send(()).unwrap();
        });
        assert!(ended.recv_timeout(Duration::from_secs(30)).is_ok(), "it waits for another one");
        drop(hand);
    }
}
