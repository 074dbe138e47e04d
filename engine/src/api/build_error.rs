//! What can keep an engine from starting.

use std::path::PathBuf;

use xuid_id::Layout;

use crate::id::key_error::OpaqueKeyError;
use crate::registry::{ClusterId, ReadError};
use crate::settings::SettingError;

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
         from a backup, and then run `xuid registry fence --restored {}`, or use an empty folder, which is another cluster",
        path.display(), path.display()
    )]
    RegistryGone {
        /// The data folder.
        path: PathBuf,
        /// The cluster it names.
        cluster: ClusterId,
    },
    /// The namespace has another key of opaque ids, or one where none was given, or none where one was.
    #[error(transparent)]
    Key(#[from] OpaqueKeyError),
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

impl From<SettingError> for BuildError {
    fn from(SettingError { setting, found, allowed }: SettingError) -> Self {
        Self::Setting { setting, found, allowed }
    }
}
