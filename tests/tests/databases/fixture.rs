//! One server of either kind, its stores, and the ledger of what they granted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use xuid_engine::sequence::SequenceName;
use xuid_engine::sequence::store::database::{DatabaseOptions, DatabaseUrl, init, open};
use xuid_engine::sequence::store::{Ask, NewSequence, Outcome, Store};
use xuid_tests::{MariaDb, Postgres, Sql};

/// Runs a claim on both kinds of server: `claim::postgres` and `claim::mariadb`.
macro_rules! on_both {
    ($($claim:ident),* $(,)?) => {$(
        mod $claim {
            #[test]
            fn postgres() {
                super::$claim(&mut crate::fixture::Server::postgres(&[]));
            }

            #[test]
            fn mariadb() {
                super::$claim(&mut crate::fixture::Server::mariadb(&[]));
            }
        }
    )*};
}
pub(crate) use on_both;

/// The server.
pub(crate) enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    pub(crate) fn postgres(settings: &[&str]) -> Self {
        Self::Postgres(Postgres::start(settings).unwrap())
    }

    pub(crate) fn mariadb(options: &[&str]) -> Self {
        Self::MariaDb(MariaDb::start(options).unwrap())
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        matches!(self, Self::MariaDb(_))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self {
            Self::Postgres(server) => server.addr(),
            Self::MariaDb(server) => server.addr(),
        }
    }

    /// The URL of its database by way of this address.
    pub(crate) fn url_by(&self, addr: &str) -> DatabaseUrl {
        let url = match self {
            Self::Postgres(_) => format!("postgres://postgres@{addr}/postgres"),
            Self::MariaDb(_) => format!("mysql://root@{addr}/test"),
        };
        url.parse().unwrap()
    }

    pub(crate) fn url(&self) -> DatabaseUrl {
        self.url_by(&self.addr().to_string())
    }

    pub(crate) fn sql(&self) -> Sql {
        match self {
            Self::Postgres(server) => server.sql().unwrap(),
            Self::MariaDb(server) => server.sql().unwrap(),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            Self::Postgres(server) => server.kill().unwrap(),
            Self::MariaDb(server) => server.kill().unwrap(),
        }
    }

    pub(crate) fn restart(&mut self) {
        match self {
            Self::Postgres(server) => server.restart().unwrap(),
            Self::MariaDb(server) => server.restart().unwrap(),
        }
    }

    pub(crate) fn freeze(&self) {
        match self {
            Self::Postgres(server) => server.freeze().unwrap(),
            Self::MariaDb(server) => server.freeze().unwrap(),
        }
    }

    pub(crate) fn thaw(&self) {
        match self {
            Self::Postgres(server) => server.thaw().unwrap(),
            Self::MariaDb(server) => server.thaw().unwrap(),
        }
    }

    /// Makes our tables, and opens a store on them.
    pub(crate) fn prepared(&self) -> Box<dyn Store> {
        init(&self.url(), &patient("xuid")).unwrap();
        self.store()
    }

    /// A store on our tables.
    pub(crate) fn store(&self) -> Box<dyn Store> {
        open(&self.url(), &patient("xuid")).unwrap()
    }
}

/// Deadlines that a busy machine keeps.
pub(crate) fn patient(table: &str) -> DatabaseOptions {
    DatabaseOptions {
        table: table.parse().unwrap(),
        connect: Duration::from_secs(20),
        statement: Duration::from_secs(20),
        ..DatabaseOptions::default()
    }
}

pub(crate) fn name(text: &str) -> SequenceName {
    text.parse().unwrap()
}

/// Makes a sequence that is granted a thousand at a time.
pub(crate) fn create(store: &mut dyn Store, text: &str) {
    store.create(&name(text), &NewSequence::default()).unwrap();
}

/// Asks for one id, which is answered with the row's step.
pub(crate) fn ask(text: &str) -> Ask {
    Ask { name: name(text), count: 1, least: 1, floor: 0 }
}

pub(crate) fn grant(store: &mut dyn Store, asks: &[Ask]) -> Vec<Outcome> {
    let mut out = Vec::new();
    store.grant(asks, &mut out);
    assert_eq!(out.len(), asks.len(), "{out:?}");
    out
}

/// The one outcome of a name.
pub(crate) fn grant_one(store: &mut dyn Store, text: &str) -> Outcome {
    grant(store, &[ask(text)]).remove(0)
}

/// The mark of a name in our table, as the database says it.
pub(crate) fn mark(sql: &mut Sql, text: &str) -> u64 {
    sql.number(&format!("SELECT next FROM xuid_sequence WHERE name = '{text}'")).unwrap()
}

/// Every range that was granted, by name.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<String, Vec<(u64, u64)>>);

impl Ranges {
    pub(crate) fn add(&mut self, name: &str, first: u64, end: u64) {
        assert!(first < end, "{name}: [{first}, {end})");
        self.0.entry(name.to_owned()).or_default().push((first, end));
    }

    /// Adds what of these outcomes is a grant.
    pub(crate) fn take(&mut self, asks: &[Ask], outcomes: &[Outcome]) {
        for (ask, outcome) in asks.iter().zip(outcomes) {
            if let Outcome::Granted { first, end, .. } = outcome {
                self.add(ask.name.as_str(), *first, *end);
            }
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        for (name, ranges) in other.0 {
            self.0.entry(name).or_default().extend(ranges);
        }
    }

    /// How many ranges of a name there are.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, Vec::len)
    }

    /// The ranges of a name.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = (u64, u64)> {
        self.0.get(name).into_iter().flatten().copied()
    }

    /// The highest end of a name.
    pub(crate) fn end(&self, name: &str) -> u64 {
        self.0.get(name).into_iter().flatten().map(|(_, end)| *end).max().unwrap_or_default()
    }

    /// How many numbers of a name were granted; none may have been granted twice.
    pub(crate) fn total(&self, name: &str) -> u64 {
        let mut ranges = self.0.get(name).cloned().unwrap_or_default();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{name}: [{:?}) and [{:?}) were both granted", pair[0], pair[1]);
        }
        ranges.iter().map(|(first, end)| end - first).sum()
    }
}
