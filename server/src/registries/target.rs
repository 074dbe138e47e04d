//! The registry that a command works on, in a folder or in an ensemble, behind one face.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xuid_engine::registry::local::{self, CreateOptions, LocalError, LocalRegistry};
use xuid_engine::registry::{Adopted, Fenced, Registry};
use xuid_engine::{Floor, Layout};

use crate::config::{AccessArgs, RegistrySetting};
use crate::registries::ensemble::Ensemble;
use crate::registries::view::{Created, View};
use crate::text::exit::usage;
use crate::text::human_time::now_ns;

/// Where a registry is.
#[derive(Debug)]
pub(crate) enum Target {
    Folder(PathBuf),
    Ensemble(Ensemble),
}

impl Target {
    /// The one that somebody named as a URL, as a folder, or as `local`, which is `folder`. Credentials are
    /// looked for only where an ensemble is named.
    pub(crate) fn named(text: &str, folder: &Path, access: &AccessArgs) -> Result<Self> {
        match RegistrySetting::parse(text) {
            Ok(RegistrySetting::Local) => Ok(Self::Folder(folder.to_owned())),
            Ok(RegistrySetting::ZooKeeper(url)) => {
                Ok(Self::Ensemble(Ensemble::new(&url, &access.load()?, None)?))
            }
            Err(why) if text.contains("://") => Err(usage(format!("the registry {why}")).into()),
            Err(_) => Ok(Self::Folder(PathBuf::from(text))),
        }
    }

    /// What a command has to be told to work on the same one, as in `xuid workers --registry URL`.
    pub(crate) fn flag(&self) -> &'static str {
        match self {
            Self::Folder(_) => "--data-dir",
            Self::Ensemble(_) => "--registry",
        }
    }

    /// Creates it; without a floor, from now on. `None` workers: as many as the layout has, at most 1024.
    pub(crate) fn create(
        &self,
        layout: Layout,
        floor: Option<Floor>,
        workers: Option<u32>,
    ) -> Result<Created> {
        let workers = workers.unwrap_or_else(|| workers_of_new(layout));
        match self {
            Self::Folder(folder) => create_local(folder, layout, floor.unwrap_or_default(), workers),
            Self::Ensemble(ensemble) => ensemble.create(layout, floor, workers),
        }
    }

    /// Reads all of it.
    pub(crate) fn look(&self) -> Result<View> {
        match self {
            Self::Folder(folder) => Ok(local::inspect(folder)?.into()),
            Self::Ensemble(ensemble) => ensemble.look(),
        }
    }

    /// Raises everything above whatever was granted.
    pub(crate) fn fence(&self) -> Result<Fenced> {
        match self {
            Self::Folder(folder) => match local::fence_restored(folder, now_ns()) {
                Err(LocalError::Absent { path }) if is_of_ensemble(folder) => bail!(
                    "there is no registry at {}: that of this folder's server is in an ensemble, and is fenced with \
                     `xuid registry fence zookeeper://host:port/path`",
                    path.display()
                ),
                Err(LocalError::Absent { path }) => {
                    bail!("there is no registry at {}: put it back from the backup first", path.display())
                }
                fenced => Ok(fenced?),
            },
            Self::Ensemble(ensemble) => ensemble.fence(),
        }
    }

    /// Makes a copy a cluster of its own.
    pub(crate) fn adopt(&self) -> Result<Adopted> {
        match self {
            Self::Folder(folder) => Ok(local::adopt(folder, now_ns())?),
            Self::Ensemble(ensemble) => ensemble.adopt(),
        }
    }
}

/// Workers of a registry that is created and that nobody said more about: at most what the default layout tells apart.
pub(crate) fn workers_of_new(layout: Layout) -> u32 {
    layout.workers().min(1024)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Ensemble(ensemble) => ensemble.url().fmt(f),
        }
    }
}

fn create_local(folder: &Path, layout: Layout, floor: Floor, workers: u32) -> Result<Created> {
    let options = CreateOptions { layout, floor: floor.tick(&layout, now_ns()), workers };
    let mut registry = match LocalRegistry::open_or_create(folder, &options) {
        Err(error @ LocalError::Workers { .. }) => return Err(usage(format!("--workers: {error}")).into()),
        opened => opened?,
    };
    let (genesis, created) = (*registry.genesis(), registry.created());
    registry.close();
    if !created {
        bail!("there is a registry in {} already, of cluster {}", folder.display(), genesis.cluster);
    }
    Ok(Created { genesis, again: false })
}

/// Whether a server with a registry in an ensemble used this data folder: it leaves notes about it.
pub(crate) fn is_of_ensemble(folder: &Path) -> bool {
    let Ok(found) = std::fs::read_dir(folder) else { return false };
    found.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("registry.zookeeper-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<Target> {
        Target::named(text, Path::new("data"), &AccessArgs::default())
    }

    #[test]
    fn a_registry_is_named_as_local_as_a_folder_or_as_a_url() {
        assert!(matches!(named("local"), Ok(Target::Folder(folder)) if folder == Path::new("data")));
        assert!(matches!(named("./other"), Ok(Target::Folder(folder)) if folder == Path::new("./other")));
        assert!(matches!(named("a:1,b:2"), Ok(Target::Folder(_))), "a folder may be called that");
    }

    #[test]
    fn a_url_is_read_whole_and_one_that_is_none_is_not_taken_for_a_folder() {
        let target = named("zookeeper://a,b:7/x/").unwrap();
        assert_eq!((target.to_string().as_str(), target.flag()), ("zookeeper://a:2181,b:7/x", "--registry"));
        for text in ["zookeeper://a:1", "zookeeper://", "http://a:1/x"] {
            let error = named(text).unwrap_err();
            assert!(error.is::<crate::text::exit::Usage>(), "{text}: {error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
