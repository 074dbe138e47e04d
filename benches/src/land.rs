//! Engines to measure.

use std::time::Duration;

use tempfile::TempDir;
use xuid_engine::stats::Refused;
use xuid_engine::{BuildError, Engine, EngineBuilder, Floor, Order};

/// Ids of one try at a [`drain`]: a tick of the default layout.
const TICK: u32 = 4_096;

/// Refusals after which all that is still to come is the clock's. A refused try brings in what the spill holds, a grant
/// at a time, and each takes the registry some milliseconds.
const REFUSALS: u32 = 100;

/// Takes what an engine has, memory and spill, until it has nothing but what the clock brings; how many ids that were.
#[expect(clippy::must_use_candidate, reason = "it is called for its effect; the count is a by-product")]
pub fn drain(engine: &Engine) -> u64 {
    let (mut ids, mut refused, mut runs) = (0, 0, Vec::new());
    while refused < REFUSALS {
        if engine.try_runs(TICK, Order::Any, &mut runs).is_ok() {
            ids += u64::from(TICK);
        } else {
            refused += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        runs.clear();
    }
    ids
}

/// What makes figures of an engine void: calls that were refused, because its land ran out or there was none yet.
#[must_use]
pub fn objection(engine: &Engine) -> Option<String> {
    let refused = engine.stats().refused;
    (refused != Refused::default()).then(|| format!("calls were refused: {refused:?}"))
}

/// An engine in a temporary folder, removed with it.
#[derive(Debug)]
pub struct Farm {
    /// The engine.
    pub engine: Engine,
    /// Where it keeps its files.
    pub folder: TempDir,
}

impl Farm {
    /// An engine whose land was declared unused since the epoch: a burst spends that instead of waiting for the clock.
    /// One worker has some 10^15 ids of it.
    ///
    /// # Errors
    /// Why the engine could not be built.
    pub fn declared() -> Result<Self, BuildError> {
        let years = Duration::from_hours(10 * 365 * 24);
        Self::build(Engine::builder().floor(Floor::Epoch).max_age(years).backfill(years))
    }

    /// An engine that has only what the clock brings: 4,096 ids a millisecond.
    ///
    /// # Errors
    /// Why the engine could not be built.
    pub fn sustained() -> Result<Self, BuildError> {
        Self::build(Engine::builder())
    }

    /// An engine of these settings in a temporary folder.
    ///
    /// # Errors
    /// Why the engine could not be built.
    pub fn build(builder: EngineBuilder) -> Result<Self, BuildError> {
        let folder = TempDir::new().map_err(|source| BuildError::Folder {
            action: "make a folder in",
            path: std::env::temp_dir(),
            source,
        })?;
        let engine = builder.data_dir(folder.path()).build()?;
        Ok(Self { engine, folder })
    }
}
