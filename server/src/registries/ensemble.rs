//! Registries in a ZooKeeper ensemble, as the commands use them.

use std::path::Path;

use anyhow::Result;
use xuid_engine::Veil;
use xuid_engine::registry::sequences::SequenceRecords;
use xuid_engine::registry::zookeeper::{
    self, Plan, ZooKeeperError, ZooKeeperOptions, ZooKeeperRegistry, ZooKeeperSequences,
};
use xuid_engine::registry::{Adopted, Fenced, Registry};

use crate::config::{Access, Url};
use crate::registries::new::New;
use crate::registries::view::{Created, View};
use crate::text::exit::usage;

/// A registry in an ensemble, and as whom it is used.
#[derive(Debug)]
pub(crate) struct Ensemble {
    url: Url,
    options: ZooKeeperOptions,
}

impl Ensemble {
    /// The registry of that URL; `folder` is the data folder of a server, where it remembers what it saw. Asks nobody
    /// yet.
    #[expect(clippy::unnecessary_wraps, reason = "a build without ZooKeeper has none")]
    pub(crate) fn new(url: &Url, access: &Access, folder: Option<&Path>) -> Result<Self> {
        let options = ZooKeeperOptions {
            session: access.session,
            credentials: access.credentials.clone(),
            folder: folder.map(Path::to_owned),
        };
        Ok(Self { url: url.clone(), options })
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Opens it for an engine. Blocks, and not within an async runtime.
    pub(crate) fn open(&self) -> Result<Box<dyn Registry>> {
        Ok(Box::new(ZooKeeperRegistry::open(&self.url, &self.options)?))
    }

    /// Opens its records of named sequences.
    pub(crate) fn open_sequences(&self) -> Result<Box<dyn SequenceRecords>> {
        Ok(Box::new(ZooKeeperSequences::open(&self.url, &self.options)?))
    }

    pub(crate) fn create(&self, new: &New<'_>) -> Result<Created> {
        let New { layout, floor, workers, closed, veil } = *new;
        let plan = Plan {
            layout,
            floor,
            workers: workers.count(),
            key_check: veil.map(Veil::check),
            first_worker: workers.from,
            closed,
        };
        match zookeeper::init(&self.url, &self.options, &plan) {
            Ok(created) => Ok(Created {
                genesis: created.genesis,
                again: created.again,
                ensemble_ahead_ms: Some(created.ahead_ms),
            }),
            Err(error @ ZooKeeperError::Workers { .. }) => Err(usage(format!("--workers: {error}")).into()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn look(&self) -> Result<View> {
        let found = zookeeper::inspect(&self.url, &self.options)?;
        Ok(View {
            place: self.url.to_string(),
            genesis: found.genesis,
            open: found.open,
            is_current: found.open,
            workers: found.workers,
            marks: found.marks,
            findings: found.findings,
            unreadable: found.unreadable,
        })
    }

    /// By how many ms its clock is ahead of this host's, where it tells that.
    pub(crate) fn clock_ahead_ms(&self) -> Result<Option<i64>> {
        Ok(zookeeper::clock_ahead_ms(&self.url, &self.options)?)
    }

    pub(crate) fn fence(&self) -> Result<Fenced> {
        Ok(zookeeper::fence(&self.url, &self.options)?)
    }

    pub(crate) fn adopt(&self) -> Result<Adopted> {
        Ok(zookeeper::adopt(&self.url, &self.options)?)
    }
}
