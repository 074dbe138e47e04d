//! Which cluster a data folder belongs to, and what its registry says, wherever that is.

use std::path::Path;

use anyhow::{Error, Result};
use serde_json::{Value, json};
use xuid_engine::registry::local::{self, LocalError};

use super::Args;
use crate::stdout::Printer;
use crate::target::{Target, View, is_of_ensemble};
use crate::wall::rfc3339_ms;

/// What a data folder is part of.
pub(super) struct Home {
    /// What `node.json` says.
    pub(super) cluster: Option<String>,
    /// Its servers left notes about an ensemble here.
    is_of_ensemble: bool,
    /// `None` if it is not here and nobody said where it is.
    pub(super) registry: Option<Result<View>>,
}

impl Home {
    /// What the folder itself says.
    pub(super) fn of(folder: &Path) -> Self {
        let registry = match local::inspect(folder) {
            Ok(registry) => Some(Ok(registry.into())),
            Err(LocalError::Absent { .. }) => None,
            Err(error) => Some(Err(Error::from(error))),
        };
        Self {
            cluster: cluster_in(&folder.join("node.json")),
            is_of_ensemble: is_of_ensemble(folder),
            registry,
        }
    }

    /// Whether the folder says nothing that only a data folder says.
    pub(super) fn is_nothing(&self) -> bool {
        self.registry.is_none() && self.cluster.is_none() && !self.is_of_ensemble
    }

    /// Asks the ensemble that was named. A registry in the folder goes before: a server would not share it with one.
    pub(super) fn ask(&mut self, args: &Args) -> Result<()> {
        let target = Target::named(&args.registry, &args.folder, &args.access)?;
        if let (None, Target::Ensemble(_)) = (&self.registry, &target) {
            self.registry = Some(target.look());
        }
        Ok(())
    }

    pub(super) fn tell(&self, out: &mut Printer, folder: &Path) -> Result<()> {
        let cluster = self.cluster.as_deref();
        if let Some(Ok(registry)) = &self.registry {
            return tell(out, registry, cluster);
        }
        let folder = folder.display();
        let belongs = cluster.map(|cluster| format!("cluster {cluster}, ")).unwrap_or_default();
        match &self.registry {
            Some(Err(error)) => out.line(format_args!("{folder}: {belongs}and its registry: {error:#}")),
            _ if self.is_of_ensemble => out.line(format_args!(
                "{folder}: {belongs}of an ensemble: --registry zookeeper://host:port/path looks there too"
            )),
            _ => out.line(format_args!("{folder}: {belongs}no local registry")),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        match &self.registry {
            None => Value::Null,
            Some(Err(error)) => json!({ "error": format!("{error:#}") }),
            Some(Ok(registry)) => json!({
                "path": registry.place,
                "cluster": registry.genesis.cluster.to_string(),
                "layout": registry.genesis.layout.to_string(),
                "floor": registry.genesis.floor,
                "workers": registry.workers.len(),
                "live": registry.live(),
                "findings": registry.findings,
            }),
        }
    }
}

/// The cluster in a `node.json`.
fn cluster_in(path: &Path) -> Option<String> {
    let node: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(node.get("cluster")?.as_str()?.to_owned())
}

fn tell(out: &mut Printer, registry: &View, folder: Option<&str>) -> Result<()> {
    let genesis = &registry.genesis;
    out.line(format_args!("{}: cluster {}", registry.place, genesis.cluster))?;
    if let Some(other) = folder.filter(|cluster| *cluster != genesis.cluster.to_string()) {
        out.line(format_args!("  another one: the folder belongs to cluster {other}"))?;
    }
    out.line(format_args!("  layout       {}", genesis.layout))?;
    out.line(format_args!("  floor        {}", rfc3339_ms(genesis.layout.tick_to_ms(genesis.floor))))?;
    out.line(format_args!("  workers      {}, {} live", registry.workers.len(), registry.live()))?;
    for finding in &registry.findings {
        out.line(format_args!("  damage       {finding}"))?;
    }
    Ok(())
}
