//! A connection, and what is read of its answers.

use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::super::failure::Failure;
use super::super::table::{FoundRow, FoundTable};
use super::notices::Notices;
use super::sql::{self, Statements};
use crate::sequence::store::{Identity, Row};

/// A connection to a host that was checked.
pub(in super::super) struct Connection {
    pub(super) client: Client,
    /// Moves the bytes.
    #[expect(dead_code, reason = "it ends with the connection")]
    pub(super) driver: Driver,
    pub(super) notices: std::sync::Arc<Notices>,
    pub(super) table: FoundTable,
    pub(super) sql: Statements,
}

/// The task that moves the bytes of a connection. It is ended with this, be that in the middle of a try to connect: by itself it
/// goes on for as long as an answer is owed to it.
pub(super) struct Driver(pub(super) JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One parameter, with its type: nothing is prepared.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Connection {
    /// The rows of a statement that only reads.
    pub(super) async fn rows(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let rows = self.client.query_typed(statement, parameters).await;
        rows.map_err(|error| failure(&error).of_a_read())
    }

    /// A transaction around one statement; its rows, and the identity.
    ///
    /// All messages go out before the first answer is waited for, in this order.
    pub(super) async fn transact(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<(Identity, Vec<tokio_postgres::Row>), Failure> {
        let warned = self.notices.warnings();
        let (begun, identity, rows, committed) = tokio::join!(
            biased;
            self.client.batch_execute(&self.sql.begin),
            self.client.query_typed(&self.sql.identity, &[]),
            self.client.query_typed(statement, parameters),
            self.client.batch_execute("COMMIT"),
        );
        self.done(warned, begun, &[identity.as_ref().err(), rows.as_ref().err()], committed)?;
        Ok((read_identity(&identity.map_err(lost)?)?, rows.map_err(lost)?))
    }

    /// What became of a transaction. An error within it means that `COMMIT` rolled it back.
    pub(super) fn done(
        &self,
        warned: u64,
        begun: Result<(), Error>,
        within: &[Option<&Error>],
        committed: Result<(), Error>,
    ) -> Result<(), Failure> {
        // Without a transaction around them, statements commit by themselves.
        begun.map_err(lost)?;
        let mut errors = within.iter().flatten();
        if let Some(silence) = errors.clone().find(|error| error.as_db_error().is_none()) {
            return Err(Failure::Lost { why: said(silence) });
        }
        if let Some(error) = errors.next() {
            return Err(failure(error));
        }
        committed.map_err(lost)?;
        match self.notices.since(warned) {
            Some(warning) => Err(Failure::Lost { why: format!("the database warned: {warning}") }),
            None => Ok(()),
        }
    }

    /// The row that a statement returned, if it did.
    pub(super) fn one(&self, rows: &[tokio_postgres::Row]) -> Result<Option<Row>, Failure> {
        let Some(row) = rows.first() else { return Ok(None) };
        found_row(row)?.row(self.table.shape).map(Some).map_err(Failure::refused)
    }

    /// Which store it is, and what `xuid_store` says of it.
    pub(super) async fn identity(&mut self) -> Result<Identity, Failure> {
        let found = self.rows(sql::STORE_TABLE, &[(&self.sql.store_name, Type::TEXT)]).await?;
        let is_there = found.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
        self.sql.has_store_table(is_there);
        let (identity, _) = self.transact("SELECT 1", &[]).await.map_err(Failure::of_a_read)?;
        Ok(identity)
    }
}

pub(super) fn read_identity(rows: &[tokio_postgres::Row]) -> Result<Identity, Failure> {
    let row = rows.first().ok_or_else(|| Failure::Lost { why: "it says no identity".into() })?;
    let (system, wal): (i64, String) = (row.try_get(0).map_err(lost)?, row.try_get(1).map_err(lost)?);
    // The timeline is what a promotion changes: the first eight digits of a log file's name.
    let timeline = wal.get(..8).unwrap_or(&wal);
    let current = format!("postgres {}/{timeline}", system.cast_unsigned());
    let (recorded, fenced) = (row.try_get(2).map_err(lost)?, row.try_get(3).map_err(lost)?);
    Ok(Identity { current, recorded, fenced })
}

pub(super) fn found_row(row: &tokio_postgres::Row) -> Result<FoundRow, Failure> {
    let read = || -> Result<FoundRow, Error> {
        Ok(FoundRow {
            name: row.try_get(0)?,
            mark: row.try_get(1)?,
            step: row.try_get(2)?,
            increment: row.try_get(3)?,
            remainder: row.try_get(4)?,
            last: row.try_get(5)?,
            strict: row.try_get::<_, Option<bool>>(6)?.unwrap_or(false),
            description: row.try_get(7)?,
        })
    };
    read().map_err(lost)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands it over")]
pub(super) fn lost(error: Error) -> Failure {
    Failure::Lost { why: said(&error) }
}

/// The database's own words, else the client's with their cause.
pub(super) fn said(error: &Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => said.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Of a statement that was answered with an error, and so did nothing; of silence, that the outcome is not known.
pub(super) fn failure(error: &Error) -> Failure {
    let Some(reply) = error.as_db_error() else { return Failure::Lost { why: said(error) } };
    let code = reply.code().code();
    let is_any = |classes: &[&str]| classes.iter().any(|class| code.starts_with(class));
    // A table that changed, rights that are missing.
    let is_of_table = is_any(&["42", "28"]);
    // What a column, a constraint or a trigger does not let pass.
    let is_refusal = is_of_table || is_any(&["22", "23", "P0"]);
    // Read-only, shut down, or otherwise looked at before it is used again.
    let ends_connection = is_of_table || is_any(&["25", "08", "53", "57", "58", "XX"]) && code != "57014";
    Failure::Said { why: said(error), is_refusal, ends_connection }
}
