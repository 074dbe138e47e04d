//! What a caller can be told, and what can keep an engine from starting.

use std::path::PathBuf;
use std::time::Duration;

use crate::layout::Layout;
use crate::registry::{ClusterId, ReadError};

/// Why a call for ids got none. Nothing was issued; whatever had been gathered went back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// No window of ticks is held yet, or the last one ended while the registry was away.
    #[error("no window of ticks is held: {why}; try again in {retry_after:?}")]
    NotReady {
        /// What the engine waits for.
        why: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// Everything minted up to now is spent.
    #[error(
        "every id up to now is spent and {wait:?} brought too few; try again in {retry_after:?}, with fewer, or hold more workers"
    )]
    Overloaded {
        /// How long the call was allowed to wait.
        wait: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// The wall clock went back, and no worker may mint at the new time yet.
    #[error(
        "the clock is behind what was already issued, and no other worker is free; try again in {retry_after:?}"
    )]
    ClockBehind {
        /// When the clock will have caught up.
        retry_after: Duration,
    },
    /// The window was lost to somebody else, and another is being taken.
    #[error("the window of ticks was lost; another is being taken, try again in {retry_after:?}")]
    WindowLost {
        /// When to come back.
        retry_after: Duration,
    },
    /// The time bits of the layout have run out, or the clock is before the layout's epoch.
    #[error("the clock is outside what the layout's time bits can say: {why}")]
    Exhausted {
        /// Which end.
        why: String,
    },
    /// The engine is being shut down, or was.
    #[error("the engine is shut down")]
    ShuttingDown,
    /// This process is a fork of the one that built the engine, and must build its own.
    #[error(
        "this process was forked from the one that built the engine: build an engine of its own after the fork"
    )]
    Forked,
}

impl IdError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Exhausted { .. } | Self::ShuttingDown | Self::Forked)
    }

    /// When it is worth trying again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::ClockBehind { retry_after }
            | Self::WindowLost { retry_after } => Some(*retry_after),
            _ => None,
        }
    }
}

/// Why an engine could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is impossible.
    #[error("{setting} is {found}, and {allowed} is allowed")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The range.
        allowed: &'static str,
    },
    /// Neither a folder nor a registry was given.
    #[error("the engine has neither a data folder nor a registry: give it data_dir(..)")]
    NoRegistry,
    /// The data folder cannot be used.
    #[error("failed to {action} {}", path.display())]
    Folder {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The registry was created with another layout.
    #[error(
        "the registry was created with the layout {found}, and {wanted} was asked for: use the registry's, or another registry"
    )]
    Layout {
        /// The registry's.
        found: Layout,
        /// The one asked for.
        wanted: Layout,
    },
    /// The folder belongs to another cluster than the registry.
    #[error("the data folder {} belongs to cluster {folder}, and the registry is cluster {registry}: give each cluster a folder of its own", path.display())]
    Cluster {
        /// The data folder.
        path: PathBuf,
        /// The cluster it names.
        folder: ClusterId,
        /// The registry's.
        registry: ClusterId,
    },
    /// The folder remembers a cluster and has no registry any more.
    #[error(
        "the data folder {} belongs to cluster {cluster}, and its registry is gone: put the file back as it was, or \
         from a backup and fence it (`xuid registry fence {}`), or use an empty folder, which is another cluster",
        path.display(), path.display()
    )]
    RegistryGone {
        /// The data folder.
        path: PathBuf,
        /// The cluster it names.
        cluster: ClusterId,
    },
    /// The local registry refused.
    #[error(transparent)]
    Local(#[from] crate::registry::local::LocalError),
    /// The registry could not be read.
    #[error(transparent)]
    Registry(#[from] ReadError),
    /// The worker that was asked for cannot be had.
    #[error("worker {worker} cannot be had: {why}")]
    Worker {
        /// The worker.
        worker: u32,
        /// Who holds it, and until when.
        why: String,
    },
    /// A thread could not be started, or the fork page not be mapped.
    #[error("failed to {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}
