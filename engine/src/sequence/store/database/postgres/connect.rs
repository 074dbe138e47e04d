//! Connecting to a host, and what is looked at before it is used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls, Row};

use super::super::check::{Check, Report};
use super::super::failure::{Denied, Failure};
use super::super::options::DatabaseOptions;
use super::super::table::{Alphabet, Content, FoundColumn, FoundTable, Shape};
use super::connection::{Connection, Driver, said};
use super::notices::{Notices, drive};
use super::sql::{self, Statements, quoted};
use crate::sequence::store::Identity;

/// The oldest version whose statements are known to do.
const OLDEST: i64 = 120_000;

/// Data that was sent and not acknowledged for so long ends the connection.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

const SETTINGS: &str = "SELECT current_setting('server_version_num')::bigint, version(), pg_is_in_recovery(), \
    current_setting('transaction_read_only')::boolean, current_setting('fsync'), current_setting('full_page_writes')";

const TABLE: &str = "SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, \
    has_table_privilege(c.oid, 'SELECT') AND has_any_column_privilege(c.oid, 'UPDATE'), \
    EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
      WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL \
        AND i.indnkeyatts = 1 AND a.attname = $2) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";

const COLUMNS: &str = "SELECT column_name::text, data_type::text, character_maximum_length::bigint, \
    current_setting('server_encoding') \
    FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2";

/// The client's settings for a host.
pub(super) fn config(url: &str, options: &DatabaseOptions) -> Result<Config, String> {
    let mut config: Config = url.parse().map_err(|error: Error| said(&error))?;
    if config.get_application_name().is_none() {
        config.application_name("xuid");
    }
    config.connect_timeout(options.connect).tcp_user_timeout(USER_TIMEOUT);
    Ok(config)
}

fn denied(error: &Error) -> Denied {
    Denied::Next { why: said(error) }
}

fn refused(why: impl Into<String>) -> Denied {
    Denied::Refused { why: why.into() }
}

/// A host that can be written to, and its settings.
async fn reach(url: &str, options: &DatabaseOptions) -> Result<(Client, Driver, Arc<Notices>, Row), Denied> {
    let config = config(url, options).map_err(refused)?;
    let (client, connection) = config.connect(NoTls).await.map_err(|error| denied(&error))?;
    let notices = Arc::new(Notices::default());
    let driver = Driver(tokio::spawn(drive(connection, notices.clone())));
    let settings = client.query_typed_one(SETTINGS, &[]).await.map_err(|error| denied(&error))?;
    let read = || -> Result<(i64, bool, bool), Error> {
        Ok((settings.try_get(0)?, settings.try_get(2)?, settings.try_get(3)?))
    };
    let (version, is_standby, is_read_only) = read().map_err(|error| denied(&error))?;
    if version < OLDEST {
        return Err(refused(format!("PostgreSQL {} or later is needed", OLDEST / 10_000)));
    }
    if is_standby {
        return Err(Denied::Next { why: "it is a standby, which cannot be written to".into() });
    }
    if is_read_only {
        return Err(Denied::Next { why: "it is read-only (default_transaction_read_only is on)".into() });
    }
    Ok((client, driver, notices, settings))
}

pub(super) async fn connect(
    url: &str,
    host: &str,
    options: &DatabaseOptions,
) -> Result<(Connection, Report), Denied> {
    let (client, driver, notices, settings) = reach(url, options).await?;
    let (table, is_logged) = look(&client, options).await?;
    let sql = Statements::new(&table, store_name(&table), options);
    let mut connection = Connection { client, driver, notices, table, sql };
    let identity = connection.identity().await.map_err(|failure| match failure {
        Failure::Said { why, is_refusal: true, .. } => refused(why),
        Failure::Said { why, .. } | Failure::Lost { why } => Denied::Next { why },
    })?;
    let text = |column: usize| settings.try_get(column).unwrap_or_default();
    let checks = vec![
        on("fsync", text(4)),
        on("full_page_writes", text(5)),
        Check {
            setting: "the table's persistence",
            value: if is_logged { "logged" } else { "unlogged or temporary" }.into(),
            is_fit: is_logged,
            wanted: "logged",
            otherwise: "a crash empties it",
            remedy: "ALTER TABLE .. SET LOGGED",
        },
    ];
    let report = report(host, text(1), identity, &connection.table, checks);
    Ok((connection, report))
}

fn report(host: &str, version: String, identity: Identity, table: &FoundTable, checks: Vec<Check>) -> Report {
    Report { host: host.to_owned(), version, identity, table: table.table.clone(), checks }
}

fn on(setting: &'static str, value: String) -> Check {
    Check {
        setting,
        is_fit: value == "on",
        value,
        wanted: "on",
        otherwise: "a crash of the machine takes commits back",
        remedy: "set it in postgresql.conf and reload, or go on with sequences_unsafe = true",
    }
}

/// Where the identity of the table's schema is written.
fn store_name(table: &FoundTable) -> String {
    format!("{}.{}", quoted(&table.place.0), quoted("xuid_store"))
}

/// Looks at the table; it, and whether a crash leaves it as it is.
async fn look(client: &Client, options: &DatabaseOptions) -> Result<(FoundTable, bool), Denied> {
    let shape = options.table.shape;
    let (schema, name) = options.table.parts();
    let wanted = schema.map(|schema| format!("{}.", quoted(schema))).unwrap_or_default() + &quoted(name);
    let asked = [(&wanted as _, Type::TEXT), (&shape.columns().name as _, Type::TEXT)];
    let found = client.query_typed_opt(TABLE, &asked).await.map_err(|error| denied(&error))?;
    let shown = options.table.name();
    let Some(found) = found else {
        let remedy = if shape == Shape::Xuid { ": make it once with `xuid sequence init URL`" } else { "" };
        return Err(refused(format!("there is no table {shown} in this database{remedy}")));
    };
    let read = || -> Result<(String, String, String, String, bool, bool), Error> {
        Ok((
            found.try_get(0)?,
            found.try_get(1)?,
            found.try_get(2)?,
            found.try_get(3)?,
            found.try_get(4)?,
            found.try_get(5)?,
        ))
    };
    let (schema, name, kind, persistence, is_allowed, has_unique_key) =
        read().map_err(|error| denied(&error))?;
    if !["r", "p"].contains(&kind.as_str()) {
        return Err(refused(format!("{shown} is a view or something else, and no table")));
    }
    if !is_allowed {
        return Err(refused(format!("this role may not use {shown}: GRANT SELECT, UPDATE ON {shown} TO it")));
    }
    let asked = [(&schema as _, Type::TEXT), (&name as _, Type::TEXT)];
    let columns = client.query_typed(COLUMNS, &asked).await.map_err(|error| denied(&error))?;
    let columns = columns.iter().map(column).collect::<Result<BTreeMap<_, _>, Error>>();
    let columns = columns.map_err(|error| denied(&error))?;
    let table = format!("{}.{}", quoted(&schema), quoted(&name));
    let table = FoundTable { shape, place: (schema, name), table, columns };
    table.check(shown, has_unique_key).map_err(refused)?;
    Ok((table, persistence == "p"))
}

fn column(row: &Row) -> Result<(String, FoundColumn), Error> {
    let (name, kind, encoding): (String, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
    let most: Option<i64> = row.try_get(2)?;
    let found = FoundColumn {
        content: match kind.as_str() {
            "bigint" => Content::Bigint,
            "integer" | "smallint" => Content::Integer,
            "character varying" | "text" => Content::Text,
            _ => Content::Other,
        },
        most: most.and_then(|most| u64::try_from(most).ok()),
        alphabet: match encoding.as_str() {
            "UTF8" | "SQL_ASCII" => Alphabet::All,
            _ => Alphabet::Ascii,
        },
        kind,
    };
    Ok((name, found))
}

/// Makes the tables that are missing; the store table beside the table that is used.
pub(super) async fn make_tables(url: &str, options: &DatabaseOptions) -> Result<Vec<String>, Denied> {
    let (client, _driver, _, _) = reach(url, options).await?;
    make(&client, options).await
}

async fn make(client: &Client, options: &DatabaseOptions) -> Result<Vec<String>, Denied> {
    let (schema, name) = options.table.parts();
    let mut made = Vec::new();
    let mut exec = async |statement: String, table: &str| {
        let is_there = client
            .query_typed_one("SELECT to_regclass($1) IS NOT NULL", &[(&table, Type::TEXT)])
            .await
            .and_then(|row| row.try_get(0))
            .map_err(|error| denied(&error))?;
        if is_there {
            return Ok(());
        }
        client
            .batch_execute(&statement)
            .await
            .map_err(|error| refused(format!("failed to make {table}: {}", said(&error))))?;
        made.push(table.replace('"', ""));
        Ok::<(), Denied>(())
    };
    let prefix = schema.map(|schema| format!("{}.", quoted(schema))).unwrap_or_default();
    if options.table.shape == Shape::Xuid {
        let table = format!("{prefix}{}", quoted(name));
        exec(sql::make_sequences(&table), &table).await?;
    }
    let (table, _) = look(client, options).await?;
    let store = store_name(&table);
    exec(sql::make_store(&store), &store).await?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    /// As a pooler does whose database hangs. It is tried again and again.
    #[test]
    fn a_try_that_is_given_up_behind_the_login_leaves_no_connection() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("postgres://xuid@{}/ids?sslmode=disable", listener.local_addr().unwrap());
            let served = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut said = [0; 4_096];
                let _startup = stream.read(&mut said).await.unwrap();
                // Logged in, and ready.
                stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await.unwrap();
                let mut asked = 0;
                loop {
                    match stream.read(&mut said).await {
                        Ok(count @ 1..) => asked += count,
                        _ => return asked,
                    }
                }
            });
            let options = DatabaseOptions::default();
            let tried = timeout(Duration::from_millis(300), connect(&url, "host", &options)).await;
            assert!(tried.is_err(), "it was answered");
            let asked = timeout(Duration::from_secs(10), served).await.expect("its end is not seen").unwrap();
            assert!(asked > 0, "it asked for nothing");
        });
    }
}
