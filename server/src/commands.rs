//! The subcommands, one a file. Each has its `Args` and a `run`.

pub(crate) mod bench;
pub(crate) mod decode;
pub(crate) mod inspect;
pub(crate) mod next;
pub(crate) mod registry;
pub(crate) mod serve;
pub(crate) mod workers;

use clap::ValueEnum;
use tokio::runtime::{Builder, Runtime};

use anyhow::{Context, Result};

/// What a caller asks of an id's age and order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// May come from the reserve, never older than the server's max-age; the fastest
    #[default]
    Any,
    /// A timestamp of now
    Fresh,
    /// Greater than every ordered id answered before
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

impl From<OrderArg> for xuid_engine::Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Any => Self::Any,
            OrderArg::Fresh => Self::Fresh,
            OrderArg::Ordered => Self::Ordered,
        }
    }
}

/// A runtime of `threads` threads; one thread is the caller's own.
pub(crate) fn runtime(threads: usize) -> Result<Runtime> {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.thread_name("xuid-io").enable_all().build().context("failed to start the runtime")
}
