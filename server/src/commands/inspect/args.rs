//! The command line of `xuid inspect`.

use std::path::PathBuf;

use crate::config::AccessArgs;

/// `xuid inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data folder of a server
    #[arg(value_name = "DATA_DIR")]
    pub(super) folder: PathBuf,
    /// Where the registry is if not in the folder, as in zookeeper://host:port,host:port/path: it knows what was
    /// granted
    #[arg(long, value_name = "URL", default_value = "local", env = "XUID_REGISTRY", hide_env_values = true)]
    pub(super) registry: String,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    /// One JSON object
    #[arg(long)]
    pub(super) json: bool,
}
