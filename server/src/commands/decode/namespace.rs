//! What is known of the ids that are taken apart: their layout, and what makes it doubtful that an id is one of them.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::registry::local;
use xuid_engine::{Layout, Parts};

use super::args::Args;
use crate::commands::next::reach;
use crate::commands::servers;
use crate::config;
use crate::net::runtime;
use crate::text::human_time::rfc3339_ms;

/// Clocks of hosts that are well kept differ by less, so an id may be that far ahead of this host's clock.
const CLOCKS_APART_MS: u64 = 1_000;

/// A layout, and what whoever said it knows besides.
#[derive(Debug)]
pub(super) struct Namespace {
    layout: Layout,
    /// A server or a registry, as a message calls it; `None`: the layout was given, or is the default one.
    owner: Option<String>,
    /// No id of the namespace is older.
    floor_ms: Option<u64>,
    /// Its workers are those below.
    workers: Option<u64>,
}

impl Namespace {
    /// The one that the command line names.
    pub(super) fn of(args: &Args) -> Result<Self> {
        if let Some(folder) = &args.data_dir {
            let genesis = local::inspect(folder)?.genesis;
            return Ok(Self {
                layout: genesis.layout,
                owner: Some(format!("the registry in {}", folder.display())),
                floor_ms: Some(genesis.layout.tick_to_ms(genesis.floor)),
                workers: Some(u64::from(genesis.workers)),
            });
        }
        if !args.server.is_empty() {
            return runtime::run(Self::of_server(servers(&args.server)?, args.tls.load()?))?;
        }
        let layout = config::layout_said(args.layout.as_deref(), args.epoch.as_deref())?;
        Ok(Self { layout, owner: None, floor_ms: None, workers: None })
    }

    async fn of_server(servers: Vec<String>, tls: Option<Arc<ClientConfig>>) -> Result<Self> {
        let (at, mut connection) = reach(&servers, 0, tls.as_ref()).await?;
        let server = &servers[at];
        let layout = connection.layout().with_context(|| format!("{server} names an impossible layout"))?;
        // A server that is older tells less.
        let info = connection.info().await?;
        let number = |name: &str| info.get(name).and_then(Value::as_u64);
        let owner = Some(format!("the server {server}"));
        Ok(Self { layout, owner, floor_ms: number("floor_ms"), workers: number("registry_workers") })
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Why an id may not be of this namespace.
    pub(super) fn doubt(&self, parts: &Parts, now_ms: u64) -> Option<String> {
        let owner = self.owner.as_deref();
        if parts.unix_ms > now_ms.saturating_add(CLOCKS_APART_MS) {
            return Some(match owner {
                None => "in the future: is it of another layout? (--layout and --epoch, or --server, or --data-dir)"
                    .to_owned(),
                Some(owner) => format!("in the future: it is not of {owner}, or a clock is wrong"),
            });
        }
        let owner = owner?;
        if let Some(floor_ms) = self.floor_ms.filter(|floor_ms| parts.unix_ms < *floor_ms) {
            return Some(format!("not of {owner}: no id there is from before {}", rfc3339_ms(floor_ms)));
        }
        let workers = self.workers.filter(|workers| u64::from(parts.worker) >= *workers)?;
        Some(format!("not of {owner}: the last worker there is {}", workers.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_future_is_doubted_and_one_of_another_clock_is_not() {
        let offline = Namespace { layout: Layout::default(), owner: None, floor_ms: None, workers: None };
        let parts = |unix_ms| Parts { tick: 0, unix_ms, worker: 1_000, sequence: 0 };
        assert_eq!(offline.doubt(&parts(5_000), 5_000), None);
        assert_eq!(offline.doubt(&parts(6_000), 5_000), None);
        assert_eq!(offline.doubt(&parts(0), u64::MAX), None);
        assert!(offline.doubt(&parts(6_001), 5_000).is_some_and(|why| why.contains("--server")));
    }

    #[test]
    fn an_id_that_a_registry_cannot_have_granted_is_told() {
        let owner = Some("the registry in x".to_owned());
        let (floor_ms, workers) = (Some(1_700_000_000_000), Some(16));
        let known = Namespace { layout: Layout::default(), owner, floor_ms, workers };
        let doubt = |unix_ms, worker| {
            known.doubt(&Parts { tick: 0, unix_ms, worker, sequence: 0 }, 1_800_000_000_000)
        };
        assert_eq!(doubt(1_700_000_000_000, 15), None);
        assert!(doubt(1_699_999_999_999, 15).is_some_and(|why| why.contains("before 2023-11-14T22:13:20")));
        assert!(doubt(1_700_000_000_000, 16).is_some_and(|why| why.contains("last worker there is 15")));
        assert!(doubt(1_800_000_001_001, 0).is_some_and(|why| why.contains("the registry in x")));
    }
}
