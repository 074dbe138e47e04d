//! A database of either kind.

use anyhow::Result;

use crate::{MariaDb, Postgres, Sql};

/// One server with a database.
#[derive(Debug)]
pub enum Database {
    /// PostgreSQL.
    Postgres(Postgres),
    /// MariaDB.
    MariaDb(MariaDb),
}

/// The same call to either.
macro_rules! either {
    ($self:expr, $server:ident => $call:expr) => {
        match $self {
            Self::Postgres($server) => $call,
            Self::MariaDb($server) => $call,
        }
    };
}

impl Database {
    /// The URL of its database.
    pub fn url(&self) -> String {
        either!(self, server => server.url())
    }

    /// A session.
    pub fn sql(&self) -> Result<Sql> {
        either!(self, server => server.sql())
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        either!(self, server => server.kill())
    }

    /// Starts it again, on the same port; it serves when this returns.
    pub fn restart(&mut self) -> Result<()> {
        either!(self, server => server.restart())
    }

    /// Stops it where it stands.
    pub fn freeze(&self) -> Result<()> {
        either!(self, server => server.freeze())
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        either!(self, server => server.thaw())
    }
}
