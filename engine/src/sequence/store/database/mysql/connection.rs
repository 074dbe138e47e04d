//! A connection, and what is read of its answers.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};

use super::super::dialect::Created;
use super::super::failure::Failure;
use super::super::table::{FoundRow, FoundTable};
use super::sql::{self, Statements};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Identity, Row};

/// A connection to a host that was checked.
pub(in super::super) struct Connection {
    pub(super) conn: Conn,
    pub(super) table: FoundTable,
    pub(super) sql: Statements,
}

/// What one statement of a text did.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) affected: u64,
    pub(super) last_insert_id: u64,
    pub(super) rows: Vec<mysql_async::Row>,
}

impl Connection {
    /// Sends statements as one text and reads a reply for each. The last one is `COMMIT`.
    pub(super) async fn transact(&mut self, statements: &[String]) -> Result<Vec<Reply>, Failure> {
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
    pub(super) async fn rows(&mut self, statement: &str) -> Result<Vec<mysql_async::Row>, Failure> {
        self.conn.query(statement).await.map_err(|error| failure(&error).of_a_read())
    }

    /// The row that a statement selected, if there is one of the very name.
    pub(super) fn one(&self, rows: &[mysql_async::Row], name: &SequenceName) -> Result<Option<Row>, Failure> {
        let mut found = rows.iter().map(found_row);
        let Some(row) = found.find(|row| row.name == name.as_str()) else { return Ok(None) };
        row.row(self.table.shape).map(Some).map_err(Failure::refused)
    }

    /// A transaction that changes the row of a name in one statement; whether it changed, and the row afterwards.
    pub(super) async fn change(
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

    /// A transaction that makes a row, if there is none, and no lower than where a fence says that new names begin. One text: what it
    /// locks is nobody's business for longer than that. `None` where the table takes another name for this one.
    pub(super) async fn create(
        &mut self,
        name: &SequenceName,
        statement: String,
    ) -> Result<Option<Created>, Failure> {
        let sql = &self.sql;
        // In this order: a gap that is locked before a row is made in it is one for which two wait that have it.
        let statements = [
            sql::LOCKS_GAPS.to_owned(),
            sql::BEGIN.to_owned(),
            statement,
            sql::NOTE_MADE.to_owned(),
            sql.note_least(),
            sql.raise_made(name),
            sql.rows([name].into_iter()),
            "COMMIT".to_owned(),
        ];
        let replies = self.transact(&statements).await?;
        let is_new = replies[2].affected > 0;
        let row = self.one(&replies[6].rows, name)?;
        Ok(row.map(|row| if is_new { Created::New(row) } else { Created::There(row) }))
    }

    /// Which store it is, and what `xuid_store` says of it.
    pub(super) async fn identity(&mut self) -> Result<Identity, Failure> {
        let found = self.rows(&sql::find_table(&sql::literal(&self.table.place.0), "xuid_store")).await?;
        self.sql.has_store_table(!found.is_empty());
        let identity = self.rows(&self.sql.identity.clone()).await?;
        read_identity(&identity)
    }
}

/// Reads a reply for each statement of a text; those that came before an error stay in `replies`.
pub(super) async fn replies_of(conn: &mut Conn, text: &str, replies: &mut Vec<Reply>) -> Result<(), Error> {
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

pub(super) fn read_identity(rows: &[mysql_async::Row]) -> Result<Identity, Failure> {
    let row = rows.first().ok_or_else(|| Failure::Lost { why: "it says no identity".into() })?;
    let current = text(row, 0).filter(|current| !current.is_empty());
    let current = current.ok_or_else(|| Failure::Lost { why: "it says no identity".into() })?;
    Ok(Identity { current, recorded: text(row, 1), fenced: text(row, 2) })
}

/// A row in the order of `Statements::rows`.
pub(super) fn found_row(row: &mysql_async::Row) -> FoundRow {
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
pub(super) fn text(row: &mysql_async::Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn number(row: &mysql_async::Row, at: usize) -> Option<i64> {
    text(row, at)?.parse().ok()
}

/// The server's own words, else the client's.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::Server(said) => said.message.clone(),
        other => other.to_string(),
    }
}

/// Of a statement that was answered with an error, and so did nothing; of silence, that the outcome is not known.
pub(super) fn failure(error: &Error) -> Failure {
    let Error::Server(reply) = error else { return Failure::Lost { why: said(error) } };
    // Rights that are missing, a table or a column that is gone.
    let is_of_table = matches!(reply.code, 1044 | 1045 | 1054 | 1142 | 1143 | 1146 | 1227);
    // A row locked for too long, and a deadlock, leave the connection as it is, and so does a value that a column
    // cannot hold.
    let is_passing = matches!(reply.code, 1205 | 1213 | 1264 | 1267 | 1366 | 1406 | 1690 | 3024 | 1969);
    // Nor does a row that a trigger, or a constraint of the table, keeps as it is: by the classes of SQL, but for MySQL's CHECK.
    let is_of_row =
        ["22", "23", "45"].iter().any(|class| reply.state.starts_with(class)) || reply.code == 3819;
    let is_refusal = is_of_table || is_of_row;
    Failure::Said { why: said(error), is_refusal, ends_connection: !(is_passing || is_of_row) }
}

pub(super) fn ended(error: &Error) -> Failure {
    Failure::Said { why: said(error), is_refusal: false, ends_connection: true }
}
