//! Where named sequences are kept: the records of a registry, or a database with a witness beside it.

use std::path::Path;

use anyhow::{Context, Result};
use xuid_engine::registry::Genesis;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::registry::sequences::SequenceRecords;
use xuid_engine::sequence::Sequences;
use xuid_engine::sequence::store::Store;
use xuid_engine::sequence::store::database::{self, DatabaseOptions, DatabaseUrl};
use xuid_engine::sequence::store::registry::RegistryStore;

use crate::config::{RegistrySetting, SequenceSettings, SequenceStore, Settings, Witness};
use crate::registries::ensemble::Ensemble;

/// The sequences of a server, or `None` if it has none. `genesis` is the registry's. Blocks, and not within an async
/// runtime; a database that does not answer is waited for later.
pub(crate) fn open(settings: &Settings, genesis: &Genesis) -> Result<Option<Sequences>> {
    let wanted = &settings.sequences;
    let records =
        |of: Place| records(settings, genesis, of).context("failed to open the records of named sequences");
    let registry = match settings.registry {
        RegistrySetting::Local => Place::Folder,
        RegistrySetting::ZooKeeper(_) => Place::Registry,
    };
    let (store, beside): (Box<dyn Store>, _) = match &wanted.store {
        SequenceStore::Off => return Ok(None),
        // The leftovers' marks need an opening of their own.
        SequenceStore::Registry => (Box::new(RegistryStore::new(records(registry)?)), registry),
        SequenceStore::Database(url) => {
            let beside = match wanted.witness {
                Some(Witness::Folder) => Place::Folder,
                Some(Witness::Registry | Witness::None) | None => registry,
            };
            (database::open(url, &options(wanted))?, beside)
        }
    };
    let builder = Sequences::builder(store)
        .records(records(beside)?)
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

/// Where records are.
#[derive(Debug, Clone, Copy)]
enum Place {
    Folder,
    Registry,
}

fn records(settings: &Settings, genesis: &Genesis, place: Place) -> Result<Box<dyn SequenceRecords>> {
    match (place, &settings.registry) {
        (Place::Registry, RegistrySetting::ZooKeeper(url)) => {
            Ensemble::new(url, &settings.access, Some(&settings.data_dir))?.open_sequences()
        }
        (_, RegistrySetting::ZooKeeper(_)) => local(&settings.data_dir, Some(genesis)),
        (_, RegistrySetting::Local) => local(&settings.data_dir, None),
    }
}

/// The records in a folder; `genesis` where its registry is elsewhere.
pub(crate) fn local(folder: &Path, genesis: Option<&Genesis>) -> Result<Box<dyn SequenceRecords>> {
    Ok(Box::new(LocalSequences::open_or_create(folder, genesis)?))
}

/// How a server would use a database.
pub(crate) fn options(wanted: &SequenceSettings) -> DatabaseOptions {
    DatabaseOptions {
        table: wanted.table.clone(),
        allow_unsafe: wanted.allow_unsafe,
        ..DatabaseOptions::default()
    }
}

/// A store in a database.
pub(crate) fn in_database(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Box<dyn Store>> {
    Ok(database::open(url, options)?)
}
