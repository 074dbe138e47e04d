//! How a database is used.

use std::time::Duration;

use super::table::Table;

/// How a database is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// The table. Defaults to `xuid`.
    pub table: Table,
    /// How long one host may take until it is connected and checked. Too short, and a slow moment looks like an absent
    /// host; too long, and the next host is tried late. Defaults to 3 s.
    pub connect: Duration,
    /// How long a transaction may take. After that its outcome is unknown, and what it granted is wasted. Defaults to
    /// 3 s.
    pub statement: Duration,
    /// How long a transaction waits for a row that another program holds locked. Defaults to 1 s.
    pub lock: Duration,
    /// Goes on with a database that can lose commits, with a warning. Defaults to no.
    pub allow_unsafe: bool,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            table: Table::default(),
            connect: Duration::from_secs(3),
            statement: Duration::from_secs(3),
            lock: Duration::from_secs(1),
            allow_unsafe: false,
        }
    }
}
