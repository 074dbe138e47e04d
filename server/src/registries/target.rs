//! The registry that a command works on, in a folder or in an ensemble, behind one face.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xuid_engine::registry::local::{self, LocalError, LocalRegistry};
use xuid_engine::registry::{self, Adopted, Fenced, Genesis, OpenError, Opened, Registry, Workers};

use crate::config::{AccessArgs, RegistrySetting};
use crate::registries::ensemble::Ensemble;
use crate::registries::new::New;
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

    /// Creates it.
    pub(crate) fn create(&self, new: &New<'_>) -> Result<Created> {
        new.check()?;
        match self {
            Self::Folder(folder) => create_local(folder, new),
            Self::Ensemble(ensemble) => ensemble.create(new),
        }
    }

    /// Opens closed workers to ticks after that one.
    pub(crate) fn open(&self, workers: Workers, after: u64) -> Result<Opened> {
        let mut registry: Box<dyn Registry> = match self {
            Self::Folder(folder) => Box::new(LocalRegistry::open(folder)?),
            Self::Ensemble(ensemble) => ensemble.open()?,
        };
        let opened = registry::open(registry.as_mut(), workers, after, now_ns());
        registry.close();
        opened.map_err(|error| match error {
            OpenError::Absent { .. } | OpenError::NotClosed { .. } => {
                usage(format!("--workers: {error}")).into()
            }
            OpenError::Ahead { .. } => usage(format!("--after-id: {error}")).into(),
            error => error.into(),
        })
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

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Ensemble(ensemble) => ensemble.url().fmt(f),
        }
    }
}

fn create_local(folder: &Path, new: &New<'_>) -> Result<Created> {
    let New { layout, floor, workers, closed, veil } = *new;
    let floor = floor.unwrap_or_default().tick(&layout, now_ns());
    let mut genesis = Genesis {
        first_worker: workers.from,
        closed,
        ..Genesis::new(local::draw_cluster()?, layout, floor, workers.count())
    };
    if let Some(veil) = veil {
        genesis = genesis.opaque(veil)?;
    }
    match LocalRegistry::create(folder, &genesis) {
        Ok(mut registry) => {
            registry.close();
            Ok(Created { genesis, again: false, ensemble_ahead_ms: None })
        }
        Err(error @ LocalError::Workers { .. }) => Err(usage(format!("--workers: {error}")).into()),
        Err(LocalError::Exists { .. }) => {
            let cluster = local::inspect(folder)?.genesis.cluster;
            bail!("there is a registry in {} already, of cluster {cluster}", folder.display());
        }
        Err(error) => Err(error.into()),
    }
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
