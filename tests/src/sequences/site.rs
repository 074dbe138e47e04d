//! Where numbers come from, and how servers are started there.

use std::path::PathBuf;

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::Database;
use crate::fronts::Doors;
use crate::zookeeper::Ensemble;
use crate::{MariaDb, Postgres, Serve, Xuid};

/// The four stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The data folder, which all servers share.
    Folder,
    /// An ensemble; each server has a folder of its own.
    ZooKeeper,
    /// PostgreSQL, with the witness in the folder that all servers share.
    Postgres,
    /// MariaDB, in the same way.
    MariaDb,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Folder, Self::ZooKeeper, Self::Postgres, Self::MariaDb];
}

/// A store with what belongs to it. Servers on it are to end before it does.
#[derive(Debug)]
pub struct Site {
    /// Kept alive.
    _ensemble: Option<Ensemble>,
    /// The database, where there is one.
    pub database: Option<Database>,
    /// The URL of the ensemble's registry, where there is one.
    registry: Option<String>,
    /// What servers get as `--sequences`.
    sequences: String,
    /// More arguments for them.
    arguments: Vec<String>,
    home: TempDir,
}

impl Site {
    /// A new one of this kind, which is ready.
    pub fn start(kind: Kind) -> Result<Self> {
        let database = match kind {
            Kind::Folder | Kind::ZooKeeper => None,
            Kind::Postgres => Some(Database::Postgres(Postgres::start(&[])?)),
            Kind::MariaDb => Some(Database::MariaDb(MariaDb::start(&[])?)),
        };
        Self::on(database, kind == Kind::ZooKeeper)
    }

    /// Numbers of this database, if there is one, and the registry on an ensemble, if it is to be.
    pub fn on(database: Option<Database>, on_ensemble: bool) -> Result<Self> {
        let (mut ensemble, mut registry) = (None, None);
        if on_ensemble {
            let started = Ensemble::start(1)?;
            let url = started.url("/xuid");
            Xuid::new(["registry", "init", &url, "--workers", "16"])?.run()?.ok()?;
            (ensemble, registry) = (Some(started), Some(url));
        }
        let mut sequences = "registry".to_owned();
        if let Some(database) = &database {
            sequences = database.url();
            Xuid::new(["sequence", "init", &sequences])?.run()?.ok()?;
        }
        let (arguments, home) = (Vec::new(), TempDir::new()?);
        Ok(Self { _ensemble: ensemble, database, registry, sequences, arguments, home })
    }

    /// The database.
    ///
    /// Fails where the store is none.
    pub fn database(&mut self) -> Result<&mut Database> {
        let Some(database) = &mut self.database else { bail!("the store is no database") };
        Ok(database)
    }

    /// Servers that are started from now on find their sequences there.
    pub fn set_sequences(&mut self, url: &str) {
        url.clone_into(&mut self.sequences);
    }

    /// Servers that are started from now on get these, too.
    pub fn add_arguments(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    }

    /// The data folder of a server.
    pub fn folder(&self, node: usize) -> PathBuf {
        self.home.path().join(self.registry.as_ref().map_or("shared".to_owned(), |_| format!("node-{node}")))
    }

    /// A server with all fronts, of which there may be many.
    pub fn serve(&self, node: usize) -> Result<Serve> {
        let serve = Serve::new(&self.folder(node))?.arg("--sequences").arg(&self.sequences);
        let mut serve = Doors::ARGUMENTS.iter().fold(serve, Serve::arg);
        if let Some(url) = &self.registry {
            serve = serve.arg("--registry").arg(url).arg("--session").arg("1s");
        }
        // A busy machine's disk takes its time.
        Ok(self.arguments.iter().fold(serve.arg("--wait").arg("10s"), Serve::arg))
    }
}
