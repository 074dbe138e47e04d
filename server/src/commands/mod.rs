//! The subcommands, one a file. Each has its `Args` and a `run`.

pub(crate) mod about;
mod banner;
pub(crate) mod bench;
mod connection;
pub(crate) mod decode;
pub(crate) mod inspect;
pub(crate) mod next;
pub(crate) mod provenance;
pub(crate) mod registry;
pub(crate) mod sequence;
pub(crate) mod serve;
pub(crate) mod workers;

use std::env;

use anyhow::Result;
use clap::ValueEnum;

use crate::config::DEFAULT_LISTEN;
use crate::text::exit::{Usage, usage};

/// What a caller asks of an id's age and order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// May come from the reserve, never older than the server's max-age; the fastest
    #[default]
    Any,
    /// A timestamp of now
    Fresh,
    /// Greater than every ordered id that the same server answered before
    Ordered,
}

impl From<OrderArg> for xuid_protocol::Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Any => Self::Any,
            OrderArg::Fresh => Self::Fresh,
            OrderArg::Ordered => Self::Ordered,
        }
    }
}

/// The servers of a command: those of its flag, else of the variable, else the default one. Each is an address and a
/// port.
pub(crate) fn servers(given: &[String]) -> Result<Vec<String>, Usage> {
    if !given.is_empty() {
        return addresses("--server", given.iter().map(String::as_str));
    }
    match env::var_os(SERVERS) {
        None => Ok(vec![DEFAULT_LISTEN.to_owned()]),
        // What is not UTF-8 is no address either.
        Some(text) => addresses(SERVERS, text.to_string_lossy().split(',')),
    }
}

/// Names the servers where no flag does.
const SERVERS: &str = "XUID_SERVER";

fn addresses<'t>(origin: &str, given: impl Iterator<Item = &'t str>) -> Result<Vec<String>, Usage> {
    given.map(str::trim).map(|server| address(origin, server)).collect()
}

fn address(origin: &str, server: &str) -> Result<String, Usage> {
    let is_one =
        server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_one {
        return Ok(server.to_owned());
    }
    let allowed = format!("addresses and ports with commas between them, as in {DEFAULT_LISTEN}");
    Err(usage(format!("{origin} has {server:?}; allowed are {allowed}")))
}
