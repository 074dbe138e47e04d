//! The command line of `xuid decode`.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::config::TlsArgs;
use crate::text::form::FormArgs;
use crate::text::human_time::instant;

/// `xuid decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids, in the form of --form; `-`, or none at all, takes them from standard input, with white space between them
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<String>,
    #[command(flatten)]
    pub(super) form: FormArgs,
    /// Print the lowest id of this instant, for a query by time: RFC 3339, or Unix milliseconds
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "ids")]
    pub(super) at: Option<SystemTime>,
    /// One JSON object an id, a line each
    #[arg(long)]
    pub(super) json: bool,
    /// A layout by name (twitter, sonyflake, ..) or its bits of time, worker and sequence [env: `XUID_LAYOUT`] [default: 41/10/12]
    #[arg(long, value_name = "LAYOUT")]
    pub(super) layout: Option<String>,
    /// Unix milliseconds of tick 0 [env: `XUID_EPOCH`] [default: 1524153600000]
    #[arg(long, value_name = "MS")]
    pub(super) epoch: Option<String>,
    /// Take the layout from one of these servers, the first that can be reached
    #[arg(long, value_name = "ADDR,ADDR", value_delimiter = ',', conflicts_with_all = ["layout", "epoch", "data_dir"])]
    pub(super) server: Vec<String>,
    /// Take the layout from the local registry in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["layout", "epoch"])]
    pub(super) data_dir: Option<PathBuf>,
    /// The key of opaque ids, as the server has it
    #[arg(long, value_name = "FILE", env = "XUID_OPAQUE_KEY_FILE", hide_env_values = true)]
    pub(super) opaque_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}
