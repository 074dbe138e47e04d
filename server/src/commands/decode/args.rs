//! The command line of `xuid decode`.

use std::path::PathBuf;
use std::str::FromStr;

use xuid_engine::{Id, ParseIdError};

use crate::config::TlsArgs;

/// `xuid decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids, as decimal numbers; `-`, or none at all, takes them from standard input, with white space between them
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<Given>,
    /// One JSON object an id, a line each
    #[arg(long)]
    pub(super) json: bool,
    /// Bits of time, worker and sequence [env: `XUID_LAYOUT`] [default: 41/10/12]
    #[arg(long, value_name = "T/W/S")]
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
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

/// An id, or where there are more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Given {
    Id(Id),
    Stdin,
}

impl FromStr for Given {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        if text == "-" { Ok(Self::Stdin) } else { text.parse().map(Self::Id) }
    }
}
