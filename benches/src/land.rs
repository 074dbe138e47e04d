//! Engines to measure.

use std::time::Duration;

use tempfile::TempDir;
use xuid_engine::{BuildError, Engine, EngineBuilder, Floor};

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
