//! MariaDB, 10.5 or later, and MySQL, 5.7 or later.
//!
//! A grant is one round trip: one text with the transaction's begin, an update for each name in the order of the names,
//! the identity, the rows and `COMMIT`. The server stops at the first statement that fails.
//!
//! An update stores `LAST_INSERT_ID(mark) + n`, so its reply carries the mark that it replaced. The row, read in the same
//! transaction, says what was stored. So neither an isolation level nor a step that was read before matters, and a
//! changed row counts as one whatever `CLIENT_FOUND_ROWS` says.
//!
//! # Invariants
//! - I1 a reply's last insert id is used only with exactly one affected row;
//! - I2 an error before `COMMIT`'s reply is certain, since the server did not get to `COMMIT`; one after it is silence.

mod connect;
mod sql;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};

use self::sql::Statements;
use super::dialect::{Denied, Dialect, Failure, Granted};
use super::table::{FoundRow, FoundTable, Moved, outcome, spellings};
use super::{DatabaseOptions, Report};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, Ask, Identity, NewLast, NewSequence, Row};

/// The dialect.
pub(super) struct MySql;

/// A connection to a host that was checked.
pub(super) struct Connection {
    conn: Conn,
    table: FoundTable,
    sql: Statements,
}

/// What one statement of a text did.
#[derive(Debug, Default)]
struct Reply {
    affected: u64,
    last_insert_id: u64,
    rows: Vec<mysql_async::Row>,
}

impl Connection {
    /// Sends statements as one text and reads a reply for each. The last one is `COMMIT`.
    async fn transact(&mut self, statements: &[String]) -> Result<Vec<Reply>, Failure> {
        let mut replies: Vec<Reply> = Vec::with_capacity(statements.len());
        let answered = replies_of(&mut self.conn, &statements.join(";\n"), &mut replies).await;
        match answered {
            Ok(()) if replies.len() == statements.len() => Ok(replies),
            Ok(()) => Err(Failure::Lost { why: format!("{} replies came", replies.len()) }),
            Err(error) => {
                let failure = failure(&error);
                if matches!(failure, Failure::Lost { .. }) || replies.len() + 1 >= statements.len() {
                    return Err(Failure::Lost { why: said(&error) });
                }
                if !failure.ends_connection() {
                    self.conn.query_drop("ROLLBACK").await.map_err(|_| ended(&error))?;
                }
                Err(failure)
            }
        }
    }

    /// The rows of a statement that only reads.
    async fn rows(&mut self, statement: &str) -> Result<Vec<mysql_async::Row>, Failure> {
        self.conn.query(statement).await.map_err(|error| failure(&error).of_a_read())
    }

    /// The row that a statement selected, if there is one of the very name.
    fn one(&self, rows: &[mysql_async::Row], name: &SequenceName) -> Result<Option<Row>, Failure> {
        let mut found = rows.iter().map(found_row);
        let Some(row) = found.find(|row| row.name == name.as_str()) else { return Ok(None) };
        row.row(self.table.shape).map(Some).map_err(Failure::refused)
    }

    /// A transaction that changes the row of a name in one statement; whether it changed, and the row afterwards.
    async fn change(
        &mut self,
        name: &SequenceName,
        statement: String,
    ) -> Result<(bool, Option<Row>), Failure> {
        let sql = &self.sql;
        let statements =
            [sql::BEGIN.to_owned(), statement, sql.rows([name].into_iter()), "COMMIT".to_owned()];
        let replies = self.transact(&statements).await?;
        Ok((replies[1].affected > 0, self.one(&replies[2].rows, name)?))
    }
}

/// Reads a reply for each statement of a text; those that came before an error stay in `replies`.
async fn replies_of(conn: &mut Conn, text: &str, replies: &mut Vec<Reply>) -> Result<(), Error> {
    let mut result = conn.query_iter(text).await?;
    loop {
        // Of this statement as long as its rows are not read: reading them goes on to the next one. The client keeps an
        // error of that one back until it is read in its turn.
        let (affected, last_insert_id) =
            (result.affected_rows(), result.last_insert_id().unwrap_or_default());
        let is_last = result.is_empty();
        let rows = result.collect().await?;
        replies.push(Reply { affected, last_insert_id, rows });
        if is_last {
            return Ok(());
        }
    }
}

impl Dialect for MySql {
    type Connection = Connection;

    const THREAD: &str = "xuid-mysql";

    fn check_url(url: &str) -> Result<(), String> {
        connect::config(url).map(drop)
    }

    async fn connect(
        url: &str,
        host: &str,
        options: &DatabaseOptions,
    ) -> Result<(Connection, Report), Denied> {
        connect::connect(url, host, options).await
    }

    async fn make_tables(url: &str, options: &DatabaseOptions) -> Result<Vec<String>, Denied> {
        connect::make_tables(url, options).await
    }

    async fn identity(connection: &mut Connection) -> Result<Identity, Failure> {
        let found = connection.rows(&connection.sql.find_store_table()).await?;
        connection.sql.has_store_table(!found.is_empty());
        let identity = connection.rows(&connection.sql.identity.clone()).await?;
        read_identity(&identity)
    }

    async fn grant(connection: &mut Connection, asks: &[Ask]) -> Result<Granted, Failure> {
        let mut order: Vec<&Ask> = asks.iter().filter(|ask| connection.table.can_hold(&ask.name)).collect();
        order.sort_unstable_by_key(|ask| &ask.name);
        let sql = &connection.sql;
        let mut statements = vec![sql::BEGIN.to_owned()];
        statements.extend(order.iter().map(|ask| sql.grant(ask)));
        statements.push(sql.identity.clone());
        statements.push(sql.rows(order.iter().map(|ask| &ask.name)));
        statements.push("COMMIT".into());
        let replies = connection.transact(&statements).await?;
        let (updates, rest) = replies[1..].split_at(order.len());
        let identity = read_identity(&rest[0].rows)?;
        let rows: Vec<FoundRow> = rest[1].rows.iter().map(found_row).collect();
        let settle = |ask: &Ask| {
            let row = rows.iter().find(|row| row.name == ask.name.as_str());
            let update =
                order.iter().zip(updates).find(|(of, _)| of.name == ask.name).map(|(_, update)| update);
            // Without one affected row the id is an earlier statement's (I1).
            let moved = update.filter(|update| update.affected == 1).map(|update| Moved {
                from: i64::try_from(update.last_insert_id).unwrap_or(-1),
                to: row.and_then(|row| row.mark).unwrap_or(-1),
            });
            outcome(connection.table.shape, ask, row, moved)
        };
        Ok(Granted { identity, outcomes: asks.iter().map(settle).collect() })
    }

    async fn similar(connection: &mut Connection, name: &SequenceName) -> Result<Option<String>, Failure> {
        if !connection.table.can_hold(name) {
            return Ok(None);
        }
        let statement = connection.sql.similar(name, &spellings(name));
        let found = connection.rows(&statement).await?;
        Ok(found.first().map(|row| text(row, 0).unwrap_or_default()).filter(|found| found != name.as_str()))
    }

    async fn read(connection: &mut Connection, name: &SequenceName) -> Result<Option<Row>, Failure> {
        if !connection.table.can_hold(name) {
            return Ok(None);
        }
        let found = connection.rows(&connection.sql.rows([name].into_iter())).await?;
        connection.one(&found, name)
    }

    async fn list(
        connection: &mut Connection,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Row>, Failure> {
        let (mut rows, mut after) = (Vec::new(), after.to_owned());
        while rows.len() < limit {
            let wanted = limit - rows.len();
            let found = connection.rows(&connection.sql.list(prefix, &after, wanted)).await?;
            for row in found.iter().map(found_row) {
                after.clone_from(&row.name);
                // A row that cannot be used is not listed; its name says why when it is asked for.
                rows.extend(row.row(connection.table.shape));
            }
            if found.len() < wanted {
                break;
            }
        }
        Ok(rows)
    }

    async fn create(
        connection: &mut Connection,
        name: &SequenceName,
        new: &NewSequence,
    ) -> Result<(Row, bool), Failure> {
        connection.table.check_name(name)?;
        let statement = connection.sql.create(&connection.table, name, new);
        let (is_new, row) = connection.change(name, statement).await?;
        if let Some(row) = row {
            return Ok((row, is_new));
        }
        let similar = Self::similar(connection, name).await?.unwrap_or_default();
        Err(Failure::refused(format!("there is '{similar}', and this table takes both for the same name")))
    }

    async fn alter(
        connection: &mut Connection,
        name: &SequenceName,
        alteration: &Alteration,
    ) -> Result<Option<Row>, Failure> {
        let Some(statement) = connection.sql.alter(&connection.table, name, alteration) else {
            return Self::read(connection, name).await;
        };
        let (is_altered, row) = connection.change(name, statement).await?;
        match (row, alteration.last) {
            (Some(row), Some(NewLast::At(last))) if !is_altered && row.settings.last > last => {
                Err(Failure::refused(format!(
                    "the last number is {} and only rises, but to retire a sequence",
                    row.settings.last
                )))
            }
            (row, _) => Ok(row),
        }
    }

    async fn raise(
        connection: &mut Connection,
        name: &SequenceName,
        least: u64,
    ) -> Result<Option<Row>, Failure> {
        let least = least.saturating_sub(connection.table.shape.columns().above);
        let statement = connection.sql.raise(name, i64::try_from(least).unwrap_or(i64::MAX));
        Ok(connection.change(name, statement).await?.1)
    }

    async fn record_identity(connection: &mut Connection) -> Result<Identity, Failure> {
        let identity = Self::identity(connection).await?;
        if !connection.sql.is_store_table_there() {
            // A statement that makes a table is a transaction of its own.
            let made = connection.conn.query_drop(sql::make_store(&connection.sql.store_name)).await;
            made.map_err(|error| failure(&error))?;
            connection.sql.has_store_table(true);
        }
        let statements = [
            sql::BEGIN.to_owned(),
            connection.sql.record(&identity.current),
            connection.sql.identity.clone(),
            "COMMIT".to_owned(),
        ];
        let replies = connection.transact(&statements).await?;
        read_identity(&replies[2].rows)
    }
}

fn read_identity(rows: &[mysql_async::Row]) -> Result<Identity, Failure> {
    let row = rows.first().ok_or_else(|| Failure::Lost { why: "it says no identity".into() })?;
    let current = text(row, 0).filter(|current| !current.is_empty());
    let current = current.ok_or_else(|| Failure::Lost { why: "it says no identity".into() })?;
    Ok(Identity { current, recorded: text(row, 1), fenced: text(row, 2) })
}

/// A row in the order of `Statements::rows`.
fn found_row(row: &mysql_async::Row) -> FoundRow {
    FoundRow {
        name: text(row, 0).unwrap_or_default(),
        mark: number(row, 1),
        step: number(row, 2),
        increment: number(row, 3),
        remainder: number(row, 4),
        last: number(row, 5),
        strict: number(row, 6).is_some_and(|strict| strict != 0),
        description: text(row, 7),
    }
}

/// A value as text; what is not UTF-8 is no name that anybody asks for.
fn text(row: &mysql_async::Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(row: &mysql_async::Row, at: usize) -> Option<i64> {
    text(row, at)?.parse().ok()
}

/// The server's own words, else the client's.
fn said(error: &Error) -> String {
    match error {
        Error::Server(said) => said.message.clone(),
        other => other.to_string(),
    }
}

/// Of a statement that was answered with an error, and so did nothing; of silence, that the outcome is not known.
fn failure(error: &Error) -> Failure {
    let Error::Server(reply) = error else { return Failure::Lost { why: said(error) } };
    // Rights that are missing, a table or a column that is gone.
    let is_refusal = matches!(reply.code, 1044 | 1045 | 1054 | 1142 | 1143 | 1146 | 1227);
    // A row locked for too long, and a deadlock, leave the connection as it is, and so does a value that a column
    // cannot hold.
    let is_passing = matches!(reply.code, 1205 | 1213 | 1264 | 1267 | 1366 | 1406 | 1690 | 3024 | 1969);
    Failure::Said { why: said(error), is_refusal, ends_connection: !is_passing }
}

fn ended(error: &Error) -> Failure {
    Failure::Said { why: said(error), is_refusal: false, ends_connection: true }
}
