//! Connecting to a host, and what is looked at before it is used.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row};

use super::super::check::{Check, Report};
use super::super::failure::{Denied, Failure};
use super::super::options::DatabaseOptions;
use super::super::table::{Alphabet, Content, FoundColumn, FoundTable, Shape};
use super::connection::{Connection, said, text};
use super::sql::{self, Statements, literal, quoted};

/// The oldest versions whose statements are known to do.
const OLDEST_MARIADB: (u32, u32) = (10, 5);
const OLDEST_MYSQL: (u32, u32) = (5, 7);

/// A connection on which nothing moves is tried by the system after so long.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// More than any text that is sent or answered here.
const MOST_PACKET: usize = 16 << 20;

/// The client's settings for a host.
pub(super) fn config(url: &str) -> Result<OptsBuilder, String> {
    let opts = Opts::from_url(url).map_err(|error| error.to_string())?;
    Ok(OptsBuilder::from_opts(opts)
        // The host that was named, and not a socket that has the same name here.
        .prefer_socket(false)
        // A row that stays as it is counts as none.
        .client_found_rows(false)
        .tcp_keepalive(Some(KEEP_ALIVE))
        .max_allowed_packet(Some(MOST_PACKET))
        .wait_timeout(Some(usize::MAX)))
}

fn denied(error: &mysql_async::Error) -> Denied {
    Denied::Next { why: said(error) }
}

fn refused(why: impl Into<String>) -> Denied {
    Denied::Refused { why: why.into() }
}

async fn rows(conn: &mut Conn, statement: &str) -> Result<Vec<Row>, Denied> {
    conn.query(statement).await.map_err(|error| denied(&error))
}

/// The server's variables that matter, by their names.
struct Variables(BTreeMap<String, String>);

impl Variables {
    const NAMES: &str = "'version', 'read_only', 'super_read_only', 'innodb_read_only', 'log_bin', 'sync_binlog', \
        'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'server_uid', 'server_uuid', 'wsrep_on', \
        'group_replication_group_name', 'max_statement_time'";

    async fn read(conn: &mut Conn) -> Result<Self, Denied> {
        let found =
            rows(conn, &format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", Self::NAMES)).await?;
        let pair = |row: &Row| Some((text(row, 0)?.to_lowercase(), text(row, 1)?));
        Ok(Self(found.iter().filter_map(pair).collect()))
    }

    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.value(name).to_uppercase().as_str(), "ON" | "1" | "YES")
    }

    fn is_mariadb(&self) -> bool {
        self.value("version").contains("MariaDB")
    }

    /// Of `10.11.19-MariaDB-log`, 10 and 11.
    fn version(&self) -> (u32, u32) {
        let mut numbers = self.value("version").split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

/// A host that can be written to.
async fn reach(url: &str) -> Result<(Conn, Variables), Denied> {
    let config = config(url).map_err(refused)?;
    let mut conn = Conn::new(config).await.map_err(|error| denied(&error))?;
    let variables = Variables::read(&mut conn).await?;
    let (name, oldest) =
        if variables.is_mariadb() { ("MariaDB", OLDEST_MARIADB) } else { ("MySQL", OLDEST_MYSQL) };
    if variables.version() < oldest {
        return Err(refused(format!("{name} {}.{} or later is needed", oldest.0, oldest.1)));
    }
    for setting in ["read_only", "super_read_only", "innodb_read_only"] {
        let value = variables.value(setting);
        // MariaDB 12 has other values than OFF and ON, and all of them forbid writing.
        if !matches!(value.to_uppercase().as_str(), "" | "OFF" | "0") {
            return Err(Denied::Next { why: format!("it is read-only ({setting} is {value})") });
        }
    }
    Ok((conn, variables))
}

pub(super) async fn connect(
    url: &str,
    host: &str,
    options: &DatabaseOptions,
) -> Result<(Connection, Report), Denied> {
    let (mut conn, variables) = reach(url).await?;
    let (lock, statement) = (options.lock.as_secs().max(1), options.statement.as_secs_f64());
    let limit = if variables.value("max_statement_time").is_empty() {
        String::new()
    } else {
        format!(", max_statement_time = {statement}")
    };
    let session = format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_UNSIGNED_SUBTRACTION', autocommit = 1, \
         innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock}{limit}"
    );
    conn.query_drop(session).await.map_err(|error| denied(&error))?;
    let (table, engine) = look(&mut conn, options).await?;
    let expression = identity_expression(&mut conn, &variables).await;
    // Where it is not known, or not allowed, a node that lags looks as if it had gone back.
    if let Some(waits) = waits_for_others(&variables, &expression) {
        let _ = conn.query_drop(waits).await;
    }
    let sql = Statements::new(&table, store_name(&table), expression);
    let mut connection = Connection { conn, table, sql };
    let identity = connection.identity().await.map_err(|failure| match failure {
        Failure::Said { why, is_refusal: true, .. } => refused(why),
        Failure::Said { why, .. } | Failure::Lost { why } => Denied::Next { why },
    })?;
    let report = Report {
        host: host.to_owned(),
        version: variables.value("version").to_owned(),
        identity,
        table: connection.table.table.clone(),
        checks: checks(&variables, engine),
    };
    Ok((connection, report))
}

/// How the server calls itself, or the cluster that it is a member of.
async fn identity_expression(conn: &mut Conn, variables: &Variables) -> String {
    if variables.is_on("wsrep_on") {
        let schema = if variables.is_mariadb() { "information_schema" } else { "performance_schema" };
        return format!(
            "(SELECT concat('galera ', variable_value) FROM {schema}.global_status \
              WHERE variable_name = 'wsrep_cluster_state_uuid')"
        );
    }
    if !variables.value("group_replication_group_name").is_empty() {
        const ONLINE: &str = "SELECT 1 FROM performance_schema.replication_group_members \
            WHERE member_state = 'ONLINE' AND member_id = @@server_uuid";
        if rows(conn, ONLINE).await.is_ok_and(|rows| !rows.is_empty()) {
            return "concat('group ', @@group_replication_group_name)".into();
        }
    }
    match variables.is_mariadb() {
        false => "concat('mysql ', @@server_uuid)".into(),
        // It is `unknown` where no network card was found to make it of.
        true if !["", "unknown"].contains(&variables.value("server_uid")) => {
            "concat('mariadb ', @@server_uid)".into()
        }
        // A MariaDB of before 2024 has no name of its own.
        true => "concat('mariadb ', @@hostname, ':', @@port, @@datadir)".into(),
    }
}

/// What makes a node of a cluster, all of which have one identity, answer behind what the others committed: it may have been told
/// of it and not have applied it yet.
fn waits_for_others(variables: &Variables, expression: &str) -> Option<&'static str> {
    if variables.is_on("wsrep_on") {
        Some("SET SESSION wsrep_sync_wait = @@session.wsrep_sync_wait | 1")
    } else if expression.starts_with("concat('group ") {
        Some(
            "SET SESSION group_replication_consistency = IF(@@session.group_replication_consistency = 'EVENTUAL', 'BEFORE', \
             @@session.group_replication_consistency)",
        )
    } else {
        None
    }
}

fn checks(variables: &Variables, engine: String) -> Vec<Check> {
    let flush = variables.value("innodb_flush_log_at_trx_commit").to_owned();
    let mut checks = vec![
        Check {
            setting: "innodb_flush_log_at_trx_commit",
            is_fit: flush == "1" || (flush == "3" && variables.is_mariadb()),
            value: flush,
            wanted: "1",
            otherwise: "a power cut takes the last second's commits back",
            remedy: "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in the server's file of settings; \
                     or go on with sequences_unsafe = true",
        },
        Check {
            setting: "the table's engine",
            is_fit: engine.eq_ignore_ascii_case("InnoDB"),
            value: engine,
            wanted: "InnoDB",
            otherwise: "it has no transactions, and a crash loses what was written",
            remedy: "ALTER TABLE .. ENGINE=InnoDB",
        },
    ];
    if variables.is_on("log_bin") {
        let value = variables.value("sync_binlog").to_owned();
        checks.push(Check {
            setting: "sync_binlog",
            is_fit: value == "1",
            value,
            wanted: "1 where log_bin is on",
            otherwise: "a power cut takes back commits that the binary log lost",
            remedy: "SET GLOBAL sync_binlog = 1, and the same in the server's file of settings; \
                     or go on with sequences_unsafe = true",
        });
    }
    let method = variables.value("innodb_flush_method").to_owned();
    if matches!(method.to_lowercase().as_str(), "nosync" | "littlesync") {
        checks.push(Check {
            setting: "innodb_flush_method",
            is_fit: false,
            value: method,
            wanted: "one that syncs, as O_DIRECT does",
            otherwise: "a power cut takes commits back",
            remedy: "take it out of the server's file of settings",
        });
    }
    checks
}

/// Where the identity of the table's schema is written.
fn store_name(table: &FoundTable) -> String {
    format!("{}.{}", quoted(&table.place.0), quoted("xuid_store"))
}

/// Looks at the table; it and its engine.
async fn look(conn: &mut Conn, options: &DatabaseOptions) -> Result<(FoundTable, String), Denied> {
    let shape = options.table.shape;
    let (schema, name) = options.table.parts();
    let of_schema = schema.map_or("DATABASE()".to_owned(), literal);
    let place = format!("table_schema = {of_schema} AND table_name = {}", literal(name));
    let found = format!(
        "SELECT table_schema AS c0, table_name AS c1, table_type AS c2, engine AS c3 \
         FROM information_schema.tables WHERE {place}"
    );
    let found = rows(conn, &found).await?;
    let shown = options.table.name();
    let Some(found) = found.first() else {
        let remedy = if shape == Shape::Xuid { ": make it once with `xuid sequence init URL`" } else { "" };
        return Err(refused(format!(
            "there is no table {shown} in this database, or no right to it{remedy}"
        )));
    };
    let part = |at: usize| text(found, at).unwrap_or_default();
    let (schema, name, kind, engine) = (part(0), part(1), part(2), part(3));
    if kind != "BASE TABLE" {
        return Err(refused(format!("{shown} is a {} and no table", kind.to_lowercase())));
    }
    let columns = format!(
        "SELECT column_name AS c0, data_type AS c1, character_maximum_length AS c2, character_set_name AS c3 \
         FROM information_schema.columns WHERE {place}"
    );
    let columns: BTreeMap<String, FoundColumn> = rows(conn, &columns).await?.iter().map(column).collect();
    let unique = format!(
        "SELECT index_name AS c0 FROM information_schema.statistics WHERE {place} AND non_unique = 0 \
         GROUP BY index_name HAVING count(*) = 1 AND max(sub_part) IS NULL AND lower(max(column_name)) = {}",
        literal(shape.columns().name)
    );
    let has_unique_key = !rows(conn, &unique).await?.is_empty();
    let table = format!("{}.{}", quoted(&schema), quoted(&name));
    let table = FoundTable { shape, place: (schema, name), table, columns };
    table.check(shown, has_unique_key).map_err(refused)?;
    Ok((table, engine))
}

fn column(row: &Row) -> (String, FoundColumn) {
    let kind = text(row, 1).unwrap_or_default().to_lowercase();
    let found = FoundColumn {
        content: match kind.as_str() {
            "bigint" => Content::Bigint,
            "int" | "mediumint" | "smallint" | "tinyint" => Content::Integer,
            "varchar" | "char" => Content::Text,
            "varbinary" => Content::Bytes,
            _ => Content::Other,
        },
        most: text(row, 2).and_then(|most| most.parse().ok()),
        alphabet: match text(row, 3).as_deref() {
            None | Some("utf8mb4" | "binary") => Alphabet::All,
            Some("utf8" | "utf8mb3") => Alphabet::Basic,
            Some(_) => Alphabet::Ascii,
        },
        kind,
    };
    (text(row, 0).unwrap_or_default().to_lowercase(), found)
}

/// Makes the tables that are missing; the store table beside the table that is used.
pub(super) async fn make_tables(url: &str, options: &DatabaseOptions) -> Result<Vec<String>, Denied> {
    let (mut conn, _) = reach(url).await?;
    let (schema, name) = options.table.parts();
    let mut made = Vec::new();
    if options.table.shape == Shape::Xuid {
        let table = schema.map(|schema| quoted(schema) + ".").unwrap_or_default() + &quoted(name);
        make(&mut conn, schema, name, &sql::make_sequences(&table), &mut made).await?;
    }
    let (table, _) = look(&mut conn, options).await?;
    let statement = sql::make_store(&store_name(&table));
    make(&mut conn, Some(&table.place.0), "xuid_store", &statement, &mut made).await?;
    Ok(made)
}

async fn make(
    conn: &mut Conn,
    schema: Option<&str>,
    name: &str,
    statement: &str,
    made: &mut Vec<String>,
) -> Result<(), Denied> {
    let of_schema = schema.map_or("DATABASE()".to_owned(), literal);
    if rows(conn, &sql::find_table(&of_schema, name)).await?.is_empty() {
        let failed = |error| refused(format!("failed to make {name}: {}", said(&error)));
        conn.query_drop(statement).await.map_err(failed)?;
        made.push(name.to_owned());
    }
    Ok(())
}
