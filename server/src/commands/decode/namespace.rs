//! What is known of the ids that are taken apart: their layout, and what makes it doubtful that an id is one of them.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use xuid_engine::registry::{Workers, local};
use xuid_engine::{Face, Id, Layout, OpaqueKeyError, Parts, Veil};

use super::args::Args;
use crate::commands::connection::Connection;
use crate::commands::next::reach;
use crate::commands::servers;
use crate::config::{self, OpaqueKey};
use crate::net::runtime;
use crate::text::exit::{Usage, usage};
use crate::text::human_time::rfc3339_ms;

/// Clocks of hosts that are well kept differ by less, so an id may be that far ahead of this host's clock.
const CLOCKS_APART_MS: u64 = 1_000;

/// A layout, and what whoever said it knows besides.
#[derive(Debug)]
pub(super) struct Namespace {
    layout: Layout,
    /// The key, where its ids are opaque.
    veil: Option<Veil>,
    /// A server or a registry, as a message calls it; `None`: the layout was given, or is the default one.
    owner: Option<String>,
    /// No id of the namespace is older.
    floor_ms: Option<u64>,
    workers: Option<Workers>,
}

impl Namespace {
    /// The one that the command line names.
    pub(super) fn of(args: &Args) -> Result<Self> {
        let veil = OpaqueKey::load("--opaque-key-file", args.opaque_key_file.as_deref())?.map(|key| key.veil);
        if let Some(folder) = &args.data_dir {
            let genesis = local::inspect(folder)?.genesis;
            genesis.check_veil(veil.as_ref())?;
            return Ok(Self {
                layout: genesis.layout,
                veil,
                owner: Some(format!("the registry in {}", folder.display())),
                floor_ms: Some(genesis.layout.tick_to_ms(genesis.floor)),
                workers: Some(genesis.worker_range()),
            });
        }
        if !args.server.is_empty() {
            return runtime::run(Self::of_server(servers(&args.server)?, args.tls.load()?, veil))?;
        }
        let layout = config::layout_said(args.layout.as_deref(), args.epoch.as_deref())?;
        let layout = match veil {
            Some(_) => layout.opaque().map_err(|error| usage(format!("--layout: {error}")))?,
            None if layout.face() == Face::Opaque => return Err(OpaqueKeyError::Absent.into()),
            None => layout,
        };
        Ok(Self { layout, veil, owner: None, floor_ms: None, workers: None })
    }

    async fn of_server(
        servers: Vec<String>,
        tls: Option<Arc<ClientConfig>>,
        veil: Option<Veil>,
    ) -> Result<Self> {
        let (at, mut connection) = reach(&servers, 0, tls.as_ref()).await?;
        let server = &servers[at];
        let layout = connection.layout().with_context(|| format!("{server} names an impossible layout"))?;
        match &veil {
            _ if veil.is_some() != (layout.face() == Face::Opaque) => {
                let error = if veil.is_some() { OpaqueKeyError::Unwanted } else { OpaqueKeyError::Absent };
                return Err(error).with_context(|| format!("{server} is asked for its layout"));
            }
            Some(veil) if !has_key(&mut connection, veil, &layout).await? => {
                return Err(OpaqueKeyError::Other).with_context(|| format!("{server} opens ids otherwise"));
            }
            _ => {}
        }
        // A server that is older tells less.
        let info = connection.info().await?;
        let number = |name: &str| info.get(name).and_then(Value::as_u64);
        let count = number("registry_workers").and_then(|count| u32::try_from(count).ok());
        let from = number("registry_first_worker").and_then(|from| u32::try_from(from).ok()).unwrap_or(0);
        let workers = count.map(|count| Workers { from, until: from.saturating_add(count) });
        let owner = Some(format!("the server {server}"));
        Ok(Self { layout, veil, owner, floor_ms: number("floor_ms"), workers })
    }

    /// What an id says.
    pub(super) fn parts(&self, id: Id) -> Parts {
        self.layout.decode(self.veil.as_ref().map_or(id, |veil| veil.open(id)))
    }

    /// Its layout, if its ids are ordered by time.
    pub(super) fn ordered(&self) -> Result<Layout, Usage> {
        match self.veil {
            None => Ok(self.layout),
            Some(_) => Err(usage(
                "--at is for a query by time, and opaque ids have no order: keep the time in a column of its own",
            )),
        }
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
        let workers = self.workers.filter(|workers| !workers.contains(parts.worker))?;
        Some(match (workers.from, workers.until.saturating_sub(1)) {
            (first, last) if parts.worker > last || first == 0 => {
                format!("not of {owner}: the last worker there is {last}")
            }
            (first, _) => format!("not of {owner}: the first worker there is {first}"),
        })
    }
}

/// Whether a server opens an id as that key does.
async fn has_key(connection: &mut Connection, veil: &Veil, layout: &Layout) -> Result<bool> {
    let plot = layout.plots().encode(layout.last_tick() / 3, layout.workers() - 1, layout.sequences() / 2);
    let (told, wanted) = (connection.decode(veil.seal(plot).raw()).await?, layout.decode(plot));
    Ok((told.unix_ms, told.worker, told.sequence) == (wanted.unix_ms, wanted.worker, wanted.sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_future_is_doubted_and_one_of_another_clock_is_not() {
        let offline =
            Namespace { layout: Layout::default(), veil: None, owner: None, floor_ms: None, workers: None };
        let parts = |unix_ms| Parts { tick: 0, unix_ms, worker: 1_000, sequence: 0 };
        assert_eq!(offline.doubt(&parts(5_000), 5_000), None);
        assert_eq!(offline.doubt(&parts(6_000), 5_000), None);
        assert_eq!(offline.doubt(&parts(0), u64::MAX), None);
        assert!(offline.doubt(&parts(6_001), 5_000).is_some_and(|why| why.contains("--server")));
    }

    #[test]
    fn an_id_that_a_registry_cannot_have_granted_is_told() {
        let owner = Some("the registry in x".to_owned());
        let (floor_ms, workers) = (Some(1_700_000_000_000), Some(Workers { from: 4, until: 16 }));
        let known = Namespace { layout: Layout::default(), veil: None, owner, floor_ms, workers };
        let doubt = |unix_ms, worker| {
            known.doubt(&Parts { tick: 0, unix_ms, worker, sequence: 0 }, 1_800_000_000_000)
        };
        assert_eq!(doubt(1_700_000_000_000, 15), None);
        assert!(doubt(1_700_000_000_000, 3).is_some_and(|why| why.contains("first worker there is 4")));
        assert!(doubt(1_699_999_999_999, 15).is_some_and(|why| why.contains("before 2023-11-14T22:13:20")));
        assert!(doubt(1_700_000_000_000, 16).is_some_and(|why| why.contains("last worker there is 15")));
        assert!(doubt(1_800_000_001_001, 5).is_some_and(|why| why.contains("the registry in x")));
    }
}
