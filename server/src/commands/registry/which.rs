//! Which registry a command is about.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::config::{AccessArgs, DEFAULT_DATA_DIR};
use crate::registries::target::Target;

/// Which registry, and how to tell of it.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// A data folder, or zookeeper://host:port,host:port/path
    #[arg(value_name = "REGISTRY", default_value = DEFAULT_DATA_DIR)]
    pub(super) target: PathBuf,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    /// One JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Which {
    pub(super) fn target(&self) -> Result<Target> {
        match self.target.to_str() {
            Some(text) => Target::named(text, Path::new(DEFAULT_DATA_DIR), &self.access),
            // A URL is text, so this is the name of a folder.
            None => Ok(Target::Folder(self.target.clone())),
        }
    }
}
