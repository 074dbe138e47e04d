//! Where named sequences are kept: the records of a registry, or a database with a witness beside it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::sequences::{OnDemand, SequenceRecords};
use xuid_engine::registry::{Genesis, ReadError};
use xuid_engine::sequence::Sequences;
use xuid_engine::sequence::store::Store;
use xuid_engine::sequence::store::database::{self, DatabaseOptions, DatabaseUrl, Shape};
use xuid_engine::sequence::store::registry::RegistryStore;

use crate::config::{RegistrySetting, SequenceSettings, SequenceStore, Settings, Witness};
use crate::registries::ensemble::Ensemble;
use crate::state::tiny_tokens::TinyTokens;

/// The sequences of a server, or `None` if it has none. `genesis` is the registry's. Blocks, and not within an async
/// runtime; a database that does not answer is waited for later. Of a registry nothing is looked at before a sequence is
/// asked for.
pub(crate) fn open(settings: &Settings, genesis: &Genesis) -> Result<Option<Sequences>> {
    let wanted = &settings.sequences;
    let registry = match settings.registry {
        RegistrySetting::Local => Place::Folder,
        RegistrySetting::ZooKeeper(_) => Place::Registry,
    };
    let (store, beside): (Box<dyn Store>, Box<dyn SequenceRecords>) = match &wanted.store {
        SequenceStore::Off => return Ok(None),
        SequenceStore::Registry => {
            // The leftovers' marks need an opening of their own.
            let records = || on_demand(settings, genesis, registry);
            (Box::new(RegistryStore::new(records())), records())
        }
        SequenceStore::Database(url) => {
            let beside = match wanted.witness {
                Some(Witness::Folder) => Place::Folder,
                Some(Witness::Registry | Witness::None) | None => registry,
            };
            let beside = records(settings, genesis, beside).context(FAILED)?;
            (database::open(url, &options(wanted))?, beside)
        }
    };
    // Who names the folder says that all servers of the database have this one.
    let named = wanted.witness == Some(Witness::Folder);
    let builder = Sequences::builder(store)
        .records(beside)
        .shared_witness(named || matches!(registry, Place::Registry))
        .on_demand(true)
        .witness(wanted.witness != Some(Witness::None))
        .lossless_failover(wanted.lossless)
        .data_dir(&settings.data_dir)
        .wait(settings.wait)
        .hold(wanted.hold)
        .step(wanted.step)
        .step_max(wanted.step_max)
        .idle(wanted.idle)
        .create(wanted.create.iter().cloned())
        .strict(wanted.strict.iter().cloned())
        .limit(wanted.limit);
    Ok(Some(builder.build()?))
}

/// What could not be done.
const FAILED: &str = "failed to open the records of named sequences";

/// Where records are.
#[derive(Debug, Clone, Copy)]
enum Place {
    Folder,
    Registry,
}

/// Records that are opened by the first use, and made by the first sequence. What keeps them from being opened is told to
/// those that ask, and tried again.
fn on_demand(settings: &Settings, genesis: &Genesis, place: Place) -> Box<dyn SequenceRecords> {
    let (settings, genesis) = (settings.clone(), *genesis);
    let shown = match (place, &settings.registry) {
        (Place::Registry, RegistrySetting::ZooKeeper(url)) => url.to_string(),
        _ => format!("local {}", settings.data_dir.display()),
    };
    Box::new(OnDemand::new(shown, genesis.cluster, move |makes| {
        let opened = if makes || matches!(place, Place::Registry) {
            records(&settings, &genesis, place).map(Some)
        } else {
            let of_registry = Some(&genesis).filter(|_| settings.registry != RegistrySetting::Local);
            in_folder(&settings.data_dir, of_registry)
        };
        opened.map_err(|error| ReadError::Unavailable { why: format!("{FAILED}: {error:#}") })
    }))
}

fn records(settings: &Settings, genesis: &Genesis, place: Place) -> Result<Box<dyn SequenceRecords>> {
    match (place, &settings.registry) {
        (Place::Registry, RegistrySetting::ZooKeeper(url)) => {
            Ensemble::new(url, &settings.access, Some(&settings.data_dir))?.open_sequences()
        }
        (_, RegistrySetting::ZooKeeper(_)) => made_in(&settings.data_dir, Some(genesis)),
        (_, RegistrySetting::Local) => made_in(&settings.data_dir, None),
    }
}

/// The records in a folder, which are made where there never were any; `genesis` where its registry is elsewhere.
fn made_in(folder: &Path, genesis: Option<&Genesis>) -> Result<Box<dyn SequenceRecords>> {
    Ok(Box::new(LocalSequences::open_or_create(folder, genesis)?))
}

/// The records in a folder; `None` where there never were any.
pub(crate) fn in_folder(
    folder: &Path,
    genesis: Option<&Genesis>,
) -> Result<Option<Box<dyn SequenceRecords>>> {
    let found = LocalSequences::open(folder, genesis)?;
    Ok(found.map(|found| Box::new(found) as Box<dyn SequenceRecords>))
}

/// How a server would use a database.
pub(crate) fn options(wanted: &SequenceSettings) -> DatabaseOptions {
    DatabaseOptions {
        table: wanted.table.clone(),
        allow_unsafe: wanted.allow_unsafe,
        ..DatabaseOptions::default()
    }
}

/// The tokens of a tinyid deployment, where a server with paths for its clients works on its table.
pub(crate) fn tiny_tokens(settings: &Settings) -> Result<Option<Arc<TinyTokens>>> {
    let wanted = &settings.sequences;
    match &wanted.store {
        SequenceStore::Database(url) if settings.http.is_some() && wanted.table.shape == Shape::TinyId => {
            let (url, options) = (url.clone(), options(wanted));
            let tokens = TinyTokens::follow(move || database::tiny_tokens(&url, &options));
            tokens.map(Some).context("failed to start the thread that reads tiny_id_token")
        }
        _ => Ok(None),
    }
}

/// A store in a database.
pub(crate) fn in_database(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Box<dyn Store>> {
    Ok(database::open(url, options)?)
}

#[cfg(test)]
mod tests {
    use xuid_engine::Layout;
    use xuid_engine::registry::ClusterId;
    use xuid_engine::registry::local::LocalRegistry;

    use super::*;

    /// Of a server with a registry of its own.
    #[test]
    fn a_witness_in_the_folder_is_proof_where_it_was_named_as_the_witness() {
        for (said, is_proof) in [("", false), ("none", false), ("folder", true), ("registry", false)] {
            let folder = tempfile::tempdir().unwrap();
            let witness =
                if said.is_empty() { String::new() } else { format!("sequence_witness = {said:?}") };
            // Nobody listens there, and it is waited for.
            let file = format!(
                "data_dir = {:?}\nsequences = \"postgres://xuid@127.0.0.1:1/ids\"\n{witness}\n",
                folder.path()
            );
            let settings = Settings::of_file(&file).unwrap();
            let (cluster, layout) = (ClusterId::from_bytes([1; 16]), Layout::default());
            let genesis = Genesis::new(cluster, layout, 1, layout.workers());
            drop(LocalRegistry::create(folder.path(), &genesis).unwrap());
            let sequences = open(&settings, &genesis).unwrap().unwrap();
            assert_eq!(sequences.status().is_proof, is_proof, "{said:?}");
        }
    }
}
