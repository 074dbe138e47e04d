//! Where a database is, and as whom it is used.

use std::fmt;
use std::str::FromStr;

use super::table::Table;

/// Which kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL 12 or later.
    Postgres,
    /// MariaDB 10.5 or later, MySQL 5.7 or later.
    MySql,
}

/// The hosts of a database, its name, and who uses it: `postgres://user:password@h1:5432,h2/db?sslmode=disable`.
///
/// What stands before `@` and after `/` goes to the database's client as it is, so special characters are
/// percent-encoded. Neither `Display` nor `Debug` shows the password.
///
/// ```
/// use xuid_engine::sequence::store::database::DatabaseUrl;
/// let url: DatabaseUrl = "mysql://app:secret@db1,db2:3307/ids".parse()?;
/// assert_eq!(url.hosts(), ["db1", "db2:3307"]);
/// assert_eq!(url.to_string(), "mysql://app@db1,db2:3307/ids");
/// # Ok::<(), xuid_engine::sequence::store::database::ParseDatabaseUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    kind: Kind,
    /// `user` or `user:password`.
    credentials: Option<String>,
    hosts: Vec<String>,
    database: String,
    /// What follows `?`.
    parameters: Option<String>,
}

/// Not a URL of a database. The text is not repeated, since it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the URL of the database {why}; allowed is postgres://user:password@host:port,host:port/database, or mysql://.."
)]
pub struct ParseDatabaseUrlError {
    why: &'static str,
}

/// What a URL of a database may begin with.
const SCHEMES: [(&str, Kind); 4] = [
    ("postgres://", Kind::Postgres),
    ("postgresql://", Kind::Postgres),
    ("mysql://", Kind::MySql),
    ("mariadb://", Kind::MySql),
];

/// What PostgreSQL's client takes from the parameters over what stands before them: nothing else would know of it.
const PLACED: [&str; 5] = ["user", "dbname", "host", "hostaddr", "port"];

impl DatabaseUrl {
    /// Whether a text begins as such a URL does.
    #[must_use]
    pub fn has_scheme(text: &str) -> bool {
        SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
    }

    /// Which kind of database.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The hosts, each with its port where one is said.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether a password stands in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.credentials.as_deref().is_some_and(|credentials| credentials.contains(':'))
    }

    /// The URL of one host, with the password, for the database's client.
    pub(super) fn of_host(&self, host: &str) -> String {
        let credentials = self.credentials.as_ref().map(|found| format!("{found}@")).unwrap_or_default();
        let parameters = self.parameters.as_ref().map(|found| format!("?{found}")).unwrap_or_default();
        format!("{}{credentials}{host}/{}{parameters}", self.scheme(), self.database)
    }

    /// Where the rows of a table lie, whichever host that is on. PostgreSQL looks for a table without a schema along a path
    /// that depends on the user and on the options of the connection, and so they belong to it.
    pub(super) fn place(&self, table: &Table) -> String {
        let (schema, name) = table.parts();
        let database = match (self.kind, schema) {
            (Kind::Postgres, Some(schema)) => format!("{}/{schema}", self.database),
            (Kind::Postgres, None) => {
                let options = self.parameters.iter().flat_map(|parameters| parameters.split('&'));
                let options: String = options.filter(|one| one.starts_with("options=")).collect();
                format!("{}@{}?{options}", self.user().unwrap_or_default(), self.database)
            }
            (Kind::MySql, schema) => schema.unwrap_or(&self.database).to_owned(),
        };
        format!("{}{database}/{name}", self.scheme())
    }

    fn user(&self) -> Option<&str> {
        self.credentials.as_ref().and_then(|credentials| credentials.split(':').next())
    }

    fn scheme(&self) -> &'static str {
        match self.kind {
            Kind::Postgres => "postgres://",
            Kind::MySql => "mysql://",
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme())?;
        if let Some(user) = self.user() {
            write!(f, "{user}@")?;
        }
        write!(f, "{}/{}", self.hosts.join(","), self.database)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

impl FromStr for DatabaseUrl {
    type Err = ParseDatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseDatabaseUrlError> {
        let fail = |why| ParseDatabaseUrlError { why };
        let found = SCHEMES.iter().find_map(|(scheme, kind)| Some((text.strip_prefix(scheme)?, *kind)));
        let (rest, kind) = found.ok_or(fail("begins with neither postgres:// nor mysql://"))?;
        let (rest, parameters) = match rest.split_once('?') {
            Some((rest, parameters)) => (rest, Some(parameters.to_owned())),
            None => (rest, None),
        };
        let (authority, database) = rest.split_once('/').ok_or(fail("names no database"))?;
        if database.is_empty() || database.contains('/') {
            return Err(fail("names no database"));
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        if credentials.is_some_and(|credentials| credentials.is_empty() || credentials.starts_with(':')) {
            return Err(fail("names a password and no user"));
        }
        let mut keys =
            parameters.iter().flat_map(|found| found.split('&')).filter_map(|one| one.split('=').next());
        if kind == Kind::Postgres && keys.any(|key| key.contains('%') || PLACED.contains(&key)) {
            return Err(fail(
                "says behind '?' who uses which database on which host, which stands before it",
            ));
        }
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if !hosts.iter().all(|host| is_host(host)) {
            return Err(fail("has a host that is no name or address, with or without a port"));
        }
        Ok(Self {
            kind,
            credentials: credentials.map(str::to_owned),
            hosts,
            database: database.to_owned(),
            parameters,
        })
    }
}

/// One host, with a port or without. A colon that is not the port's stands in brackets, as in an IPv6 address.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let inner = name.strip_prefix('[').map_or(Some(name), |rest| rest.strip_suffix(']'));
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.~%".contains(char);
    let has_sound_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    has_sound_port
        && inner.is_some_and(|inner| {
            !inner.is_empty() && inner.chars().all(|char| is_plain(char) || (inner != name && char == ':'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_hosts_and_a_database_and_keeps_its_password_to_itself() {
        let url: DatabaseUrl =
            "postgresql://app:p%40ss:word@db1:5433,[::1]:7,db2/ids?sslmode=disable".parse().unwrap();
        assert_eq!(
            (url.kind(), url.hosts()),
            (Kind::Postgres, &["db1:5433", "[::1]:7", "db2"].map(String::from)[..])
        );
        assert_eq!(url.of_host("db2"), "postgres://app:p%40ss:word@db2/ids?sslmode=disable");
        assert!(url.has_password());
        for shown in [url.to_string(), format!("{url:?}")] {
            assert!(shown.contains("app@db1:5433,[::1]:7,db2/ids") && !shown.contains("word"), "{shown}");
        }
    }

    #[test]
    fn a_place_tells_tables_apart_and_neither_hosts_nor_spellings() {
        let place =
            |(url, table): (&str, &str)| url.parse::<DatabaseUrl>().unwrap().place(&table.parse().unwrap());
        for [one, other] in [
            [
                ("postgres://app:a@h1,h2/ids", "xuid"),
                ("postgresql://app:b@h3:5433/ids?sslmode=disable", "xuid:xuid_sequence"),
            ],
            [
                ("postgres://app@h/ids", "leaf:shop.t"),
                ("postgres://other@h/ids?options=-csearch_path%3Dx", "leaf:shop.t"),
            ],
            [("mysql://app@h/ids", "leaf"), ("mariadb://other@h/shop", "leaf:ids.leaf_alloc")],
        ] {
            assert_eq!(place(one), place(other));
        }
        let different = [
            ("postgres://app@h/ids", "xuid"),
            ("postgres://app@h/ids", "leaf"),
            ("postgres://app@h/other", "xuid"),
            // Another user's search path begins with another schema.
            ("postgres://other@h/ids", "xuid"),
            ("postgres://app@h/ids?options=-csearch_path%3Dx", "xuid"),
            ("postgres://app@h/ids", "xuid:app.xuid_sequence"),
            ("mysql://app@h/ids", "xuid"),
            ("mysql://app@h/other", "xuid"),
        ];
        let places: std::collections::HashSet<_> = different.into_iter().map(place).collect();
        assert_eq!(places.len(), different.len());
    }

    #[test]
    fn what_is_no_url_is_refused_without_being_repeated() {
        for text in [
            "",
            "secret",
            "http://secret@h/db",
            "mysql://secret@h",
            "mysql://secret@h/",
            "mysql://secret@h/a/b",
            "mysql://secret@/db",
            "mysql://secret@h:0/db",
            "mysql://secret@h:99999/db",
            "mysql://secret@h,,i/db",
            "mysql://:secret@h/db",
            "mysql://secret@::1:7/db",
            // The client would take these for the user, the database and the host, whatever stands before them.
            "postgres://h/ids?user=secret",
            "postgres://app@h/ids?sslmode=disable&dbname=secret",
            "postgres://app@h/ids?host=secret",
            "postgres://app@h/ids?d%62name=secret",
        ] {
            let error = text.parse::<DatabaseUrl>().expect_err(text).to_string();
            assert!(error.contains("host:port/database") && !error.contains("secret"), "{error}");
        }
    }
}
