//! Configures and starts sequences.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::sequences::Sequences;
use crate::clock::{Clock, SystemClock};
use crate::registry::sequences::SequenceRecords;
use crate::sequence::background::identity::KnownIdentity;
use crate::sequence::background::keeper::Keeper;
use crate::sequence::background::rest::Reclaim;
use crate::sequence::background::teller::Teller;
use crate::sequence::names::hub::Hub;
use crate::sequence::names::own_threads::Begin;
use crate::sequence::pattern::NamePattern;
use crate::sequence::settings::{BuildSequencesError, SequenceConfig};
use crate::sequence::store::Store;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;

/// Configures [`Sequences`].
#[must_use = "nothing starts before build()"]
pub struct SequencesBuilder {
    store: Box<dyn Store>,
    records: Option<Box<dyn SequenceRecords>>,
    folder: Option<PathBuf>,
    clock: Option<Arc<dyn Clock>>,
    on_demand: bool,
    config: SequenceConfig,
}

impl std::fmt::Debug for SequencesBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequencesBuilder")
            .field("store", &self.store.describe())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Sequences {
    /// Begins to configure sequences on a store. The store is asked by one thread, and for the first time after
    /// [`build`](SequencesBuilder::build): it may connect then.
    pub fn builder(store: Box<dyn Store>) -> SequencesBuilder {
        SequencesBuilder {
            store,
            records: None,
            folder: None,
            clock: None,
            on_demand: false,
            config: SequenceConfig::default(),
        }
    }
}

impl SequencesBuilder {
    /// The records that a registry keeps of names. They are the witness of a store that may go back, and say which
    /// leftovers were used. Without them leftovers are not saved. Defaults to none.
    pub fn records(self, records: Box<dyn SequenceRecords>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// Whether grants of a store that may go back are shown to the [`records`](Self::records) before they are used.
    /// Without that, a store that loses commits, or another one in its place, can make ids come twice: all that is
    /// watched then is the store's identity. Defaults to true.
    pub fn witness(mut self, witness: bool) -> Self {
        self.config.witness = witness;
        self
    }

    /// Whether all processes that take from the store show their grants to these same records. If not, they notice no loss of
    /// what others were granted, and the store's identity and marks are watched as well, as without a witness. Defaults to
    /// false for records in a folder, which may be one host's alone, and to true for all others.
    pub fn shared_witness(mut self, is_shared: bool) -> Self {
        self.config.is_witness_shared = Some(is_shared);
        self
    }

    /// Whether a store of another identity is gone on with, without a shared witness: the operator vouches that it lost
    /// nothing. Defaults to false.
    pub fn lossless_failover(mut self, lossless: bool) -> Self {
        self.config.lossless = lossless;
        self
    }

    /// The folder of leftovers, and of the store's identity as this node knows it; made if it is absent. A relative one is
    /// of the working directory at this call. Defaults to none: ids that are held at a stop are wasted.
    pub fn data_dir(self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self { folder: Some(std::path::absolute(&folder).unwrap_or(folder)), ..self }
    }

    /// How long a call may wait where no id is held. Zero refuses at once; long hides a store that is away. Defaults to
    /// 50 ms.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.config.wait = wait;
        self
    }

    /// How long what is held of a name shall last: as long a store may be away unnoticed, and so much a crash loses.
    /// Defaults to 10 minutes.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.config.hold = hold;
        self
    }

    /// The most ids that one grant is asked for, at most 2^32. Too few make a fast name ask often. Defaults to 2^32.
    pub fn step_max(mut self, step_max: u64) -> Self {
        self.config.step_max = step_max;
        self
    }

    /// The step of names that are [created](Self::create) by their first use. Defaults to 1,000.
    pub fn step(mut self, step: u64) -> Self {
        self.config.step = step;
        self
    }

    /// How long a name is kept at hand that nothing is taken of, if no [`Sequence`](super::sequence::Sequence) of it lives.
    /// What it holds is kept in any case. Short makes a name that comes back look into a table more. Defaults to 15
    /// minutes.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.config.idle = idle;
        self
    }

    /// Names that are created by their first use. Defaults to none: a mistyped name must not begin a sequence.
    pub fn create(mut self, patterns: impl IntoIterator<Item = NamePattern>) -> Self {
        self.config.create = patterns.into_iter().collect();
        self
    }

    /// Names that are strict whatever their rows say, for stores that have no column for it. Defaults to none.
    pub fn strict(mut self, patterns: impl IntoIterator<Item = NamePattern>) -> Self {
        self.config.strict = patterns.into_iter().collect();
        self
    }

    /// Of how many unused names numbers are kept in memory. Where there are so many, what one more held is wasted when it is not
    /// used any more. Names in use are not bounded.
    /// Defaults to 1,000,000.
    pub fn limit(mut self, names: usize) -> Self {
        self.config.limit = names;
        self
    }

    /// Whether nothing is done before the first call that names a sequence: no thread is started, and no file is looked at.
    /// That first call waits for it. A store that [may go back](Store::may_go_back) is looked at by
    /// [`build`](Self::build) all the same. Defaults to false.
    pub fn on_demand(self, on_demand: bool) -> Self {
        Self { on_demand, ..self }
    }

    /// Another source of time. Defaults to [`SystemClock`](crate::clock::SystemClock).
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Claims the leftovers of an earlier life, and starts the thread that asks the store.
    ///
    /// # Errors
    /// [`BuildSequencesError`]. A store that does not answer is none.
    pub fn build(self) -> Result<Sequences, BuildSequencesError> {
        deferred_log::collected(|| self.open())
    }

    /// Sequences whose threads do not run: their owner turns the teller.
    #[cfg(test)]
    pub(crate) fn assemble_for_test(self) -> (Sequences, Teller) {
        let (hub, teller, _) = self.assemble().unwrap();
        (Sequences::new(hub), teller)
    }

    /// All parts, for a simulation that turns them.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn parts_for_test(
        self,
        jitter: u64,
    ) -> Result<(Sequences, Arc<Hub>, Teller, Keeper), BuildSequencesError> {
        let (hub, mut teller, keeper) = self.assemble()?;
        teller.set_jitter(jitter);
        Ok((Sequences::new(hub.clone()), hub, teller, keeper))
    }

    fn open(self) -> Result<Sequences, BuildSequencesError> {
        let waits = self.is_late();
        let (hub, teller, keeper) = self.assemble()?;
        hub.threads.set_begin(begin(teller, keeper));
        // Dropped after an error, it sees to it that no thread begins.
        let sequences = Sequences::new(hub.clone());
        if !waits {
            let system = |source| BuildSequencesError::System { action: "start a thread", source };
            hub.threads.begin().map_err(system)?;
        }
        Ok(sequences)
    }

    /// Whether the folder is looked at by the teller, when there is something to do.
    fn is_late(&self) -> bool {
        self.on_demand && !self.store.may_go_back()
    }

    fn assemble(self) -> Result<(Arc<Hub>, Teller, Keeper), BuildSequencesError> {
        let is_late = self.is_late();
        let Self { store, records, folder, clock, config, .. } = self;
        config.check()?;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let system = |source| BuildSequencesError::System { action: "map a page", source };
        let hub = Hub::new(config, clock).map_err(system)?;
        let keeper = Keeper::new(hub.clone());
        if is_late {
            let teller =
                Teller::new(hub.clone(), store, records, KnownIdentity::default(), Reclaim::default());
            return Ok((hub, teller.with_late(folder), keeper));
        }
        if let Some(folder) = &folder {
            let fail = |source| folder_error("make the data folder", folder, source);
            xuid_spill::make_folder(folder).map_err(fail)?;
        }
        let folder = folder.as_deref();
        let fail = |source| folder_error("read sequences.store in", folder.unwrap_or(Path::new("")), source);
        let known = KnownIdentity::open(folder).map_err(fail)?;
        // Without records nothing is claimed, and nothing saved; what was left tells how far the store had come.
        let open = if records.is_some() { Reclaim::open } else { Reclaim::open_late };
        let (reclaim, why) = open(folder);
        lock(&hub.tally).status.leftovers = why;
        let teller = Teller::new(hub.clone(), store, records, known, reclaim);
        Ok((hub, teller, keeper))
    }
}

fn folder_error(action: &'static str, folder: &Path, source: std::io::Error) -> BuildSequencesError {
    BuildSequencesError::Folder { action, path: folder.to_owned(), source }
}

/// Starts the two threads, or none: what could not be started waits for the next try.
fn begin(teller: Teller, keeper: Keeper) -> Begin {
    let teller = Arc::new(Mutex::new(Some(teller)));
    let keeper = Arc::new(Mutex::new(Some(keeper)));
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    Box::new(move || {
        let (go, wait) = mpsc::channel();
        let (of_first, of_second) = (teller.clone(), keeper.clone());
        let first = named("xuid-teller").spawn(move || {
            let teller = wait.recv().ok().and_then(|()| lock(&of_first).take());
            if let Some(teller) = teller {
                teller.run();
            }
        })?;
        let second = named("xuid-keeper").spawn(move || {
            let keeper = lock(&of_second).take();
            if let Some(keeper) = keeper {
                keeper.run();
            }
        });
        // Without the second one the first ends, and what it would have run stays.
        match second {
            Ok(second) => {
                let _ = go.send(());
                Ok(vec![first, second])
            }
            Err(error) => {
                drop(go);
                let _ = first.join();
                Err(error)
            }
        }
    })
}
