//! Which cluster a data folder belongs to, and what its registry says, wherever that is.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use serde_json::{Value, json};
use xuid_engine::registry::local::{self, LocalError};
use xuid_engine::registry::{NODE_VERSION, printable};

use super::args::Args;
use crate::registries::target::{Target, is_of_ensemble};
use crate::registries::view::View;
use crate::text::exit::usage;
use crate::text::human_time::rfc3339_ms;
use crate::text::stdout::Printer;

/// What a data folder is part of.
pub(super) struct Home {
    /// What `node.json` says, if it is there.
    node: Option<Result<String>>,
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
            node: cluster_in(&folder.join("node.json")).transpose(),
            is_of_ensemble: is_of_ensemble(folder),
            registry,
        }
    }

    /// Whether the folder says nothing that only a data folder says.
    pub(super) fn is_nothing(&self) -> bool {
        self.registry.is_none() && self.node.is_none() && !self.is_of_ensemble
    }

    /// The cluster that the folder belongs to, as far as it says.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.node.as_ref()?.as_deref().ok()
    }

    /// Why `node.json` does not say it, if it is there.
    pub(super) fn node_error(&self) -> Option<String> {
        self.node.as_ref()?.as_ref().err().map(|error| format!("{error:#}"))
    }

    /// How many of the files and registries that are there could not be read, or not all of them.
    pub(super) fn unread(&self) -> usize {
        let is_unread = match &self.registry {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(registry)) => registry.unreadable > 0,
        };
        usize::from(matches!(self.node, Some(Err(_)))) + usize::from(is_unread)
    }

    /// Asks the ensemble that was named. A registry in the folder goes before: a server would not share it with one.
    pub(super) fn ask(&mut self, args: &Args) -> Result<()> {
        let target = Target::named(&args.registry, &args.folder, &args.access)?;
        if let Target::Folder(other) = &target
            && *other != args.folder
        {
            let text = "allowed is local, or zookeeper://host:port,host:port/path";
            return Err(usage(format!("--registry is {:?}; {text}", args.registry)).into());
        }
        if let (None, Target::Ensemble(_)) = (&self.registry, &target) {
            self.registry = Some(target.look());
        }
        Ok(())
    }

    pub(super) fn tell(&self, out: &mut Printer, folder: &Path) -> Result<()> {
        if let Some(error) = self.node_error() {
            out.line(format_args!("{}: {error}", folder.display()))?;
        }
        let cluster = self.cluster();
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
                "closed": registry.closed(),
                "findings": registry.findings,
                "unreadable": registry.unreadable,
            }),
        }
    }
}

/// What is longer is no `node.json`: it has a line.
const NODE_BYTES: usize = 64 * 1024;

/// The cluster in a `node.json`, if there is one.
fn cluster_in(path: &Path) -> Result<Option<String>> {
    let bytes = match xuid_spill::read_regular(path, NODE_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.context("node.json could not be read")?,
    };
    let node: Value = serde_json::from_slice(&bytes).context("node.json is damaged")?;
    let version = node.get("version").and_then(Value::as_u64).context("node.json names no version")?;
    if version != u64::from(NODE_VERSION) {
        bail!(
            "node.json is of version {version}, and this program knows version {NODE_VERSION}: use the program that wrote it"
        );
    }
    let cluster = node.get("cluster").and_then(Value::as_str).context("node.json names no cluster")?;
    Ok(Some(printable(cluster)))
}

fn tell(out: &mut Printer, registry: &View, folder: Option<&str>) -> Result<()> {
    let genesis = &registry.genesis;
    out.line(format_args!("{}: cluster {}", registry.place, genesis.cluster))?;
    if let Some(other) = folder.filter(|cluster| *cluster != genesis.cluster.to_string()) {
        out.line(format_args!("  another one: the folder belongs to cluster {other}"))?;
    }
    out.line(format_args!("  layout       {}", genesis.layout))?;
    out.line(format_args!("  floor        {}", rfc3339_ms(genesis.layout.tick_to_ms(genesis.floor))))?;
    let (workers, live, closed) = (registry.workers.len(), registry.live(), registry.closed());
    let closed = if closed > 0 { format!(", {closed} closed") } else { String::new() };
    out.line(format_args!("  workers      {workers}, {live} live{closed}"))?;
    for finding in &registry.findings {
        out.line(format_args!("  damage       {finding}"))?;
    }
    Ok(())
}
