//! PostgreSQL, 12 or later.
//!
//! A grant is one round trip: `BEGIN` with our settings, the identity, the rows locked in the order of their names, the
//! update, and `COMMIT` are sent together. Nothing is kept in the session and no statement has a name, so a proxy that
//! lends connections by the transaction (pgbouncer) may stand between.
//!
//! # Invariants
//! - I1 what an update replaced and what it stored are read from the same locked rows, in its own transaction;
//! - I2 a warning within the transaction makes its outcome unknown: after "canceling wait for synchronous replication"
//!   `COMMIT` succeeds here, and the commit may be nowhere else.

mod connect;
mod connection;
mod notices;
mod sql;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use self::connection::{Connection, Parameter, failure, found_row, lost, read_identity};
use super::beside::{Beside, beside};
use super::dialect::{Created, Dialect, Granted, Writes};
use super::failure::{Denied, Failure};
use super::table::{FoundRow, Moved, floor_of, outcome, spellings};
use super::tiny_token::TinyToken;
use super::{DatabaseOptions, Report};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, Ask, Identity, MOST_STEP, NewLast, NewSequence, Row};

/// The dialect.
pub(super) struct Postgres;

impl Dialect for Postgres {
    type Connection = Connection;

    const THREAD: &str = "xuid-postgres";

    fn check_url(url: &str) -> Result<(), String> {
        connect::config(url, &DatabaseOptions::default()).map(drop)
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
        connection.identity().await
    }

    async fn grant(connection: &mut Connection, asks: &[Ask]) -> Result<Granted, Failure> {
        let shape = connection.table.shape;
        let asked = asks.iter().filter(|ask| connection.table.can_hold(&ask.name));
        let names: Vec<&str> = asked.clone().map(|ask| ask.name.as_str()).collect();
        let counts: Vec<i64> = asked.clone().map(|ask| ask.count.min(MOST_STEP).cast_signed()).collect();
        let leasts: Vec<i64> = asked.clone().map(|ask| ask.least.min(MOST_STEP).cast_signed()).collect();
        let floors: Vec<i64> = asked.map(|ask| floor_of(shape, ask)).collect();
        let warned = connection.notices.warnings();
        let (client, sql) = (&connection.client, &connection.sql);
        let asked: [Parameter<'_>; 4] = [
            (&names, Type::TEXT_ARRAY),
            (&counts, Type::INT8_ARRAY),
            (&leasts, Type::INT8_ARRAY),
            (&floors, Type::INT8_ARRAY),
        ];
        let (begun, identity, locked, moved, committed) = tokio::join!(
            biased;
            client.batch_execute(&sql.begin),
            client.query_typed(&sql.identity, &[]),
            client.query_typed(&sql.lock, &asked[..1]),
            client.query_typed(&sql.grant, &asked),
            client.batch_execute("COMMIT"),
        );
        let within = [identity.as_ref().err(), locked.as_ref().err(), moved.as_ref().err()];
        connection.done(warned, begun, &within, committed)?;
        let identity = read_identity(&identity.map_err(lost)?)?;
        let locked: Vec<FoundRow> = locked.map_err(lost)?.iter().map(found_row).collect::<Result<_, _>>()?;
        let mut ends = Vec::new();
        for row in moved.map_err(lost)? {
            let read = || -> Result<(String, i64), Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
            ends.push(read().map_err(lost)?);
        }
        let settle = |ask: &Ask| {
            let name = ask.name.as_str();
            let row = locked.iter().find(|row| row.name == name);
            let end = ends.iter().find(|(found, _)| found == name).map(|(_, end)| *end);
            let moved = end.map(|to| Moved { from: row.and_then(|row| row.mark).unwrap_or(-1), to });
            outcome(shape, ask, row, moved)
        };
        Ok(Granted { identity, outcomes: asks.iter().map(settle).collect() })
    }

    async fn similar(connection: &mut Connection, name: &SequenceName) -> Result<Option<String>, Failure> {
        if !connection.table.can_hold(name) {
            return Ok(None);
        }
        let spellings = spellings(name);
        let parameters: [Parameter<'_>; 2] = [(&spellings, Type::TEXT_ARRAY), (&name.as_str(), Type::TEXT)];
        let found = connection.rows(&connection.sql.similar, &parameters).await?;
        Ok(found.first().and_then(|row| row.try_get(0).ok()))
    }

    async fn read(connection: &mut Connection, name: &SequenceName) -> Result<Option<Row>, Failure> {
        if !connection.table.can_hold(name) {
            return Ok(None);
        }
        let found = connection.rows(&connection.sql.read, &[(&name.as_str(), Type::TEXT)]).await?;
        connection.one(&found)
    }

    async fn list(
        connection: &mut Connection,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<FoundRow>, Failure> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [Parameter<'_>; 3] =
            [(&after, Type::TEXT), (&prefix, Type::TEXT), (&most, Type::INT8)];
        let found = connection.rows(&connection.sql.list, &parameters).await?;
        found.iter().map(found_row).collect()
    }

    async fn create(
        connection: &mut Connection,
        name: &SequenceName,
        new: &NewSequence,
    ) -> Result<Created, Failure> {
        connection.table.check_name(name)?;
        let statement = connection.sql.create(&connection.table, new);
        let description = new.description.as_deref().unwrap_or_default();
        let parameters: [Parameter<'_>; 2] = [(&name.as_str(), Type::TEXT), (&description, Type::TEXT)];
        let (_, made) = connection.transact(&statement, &parameters).await?;
        if let Some(row) = connection.one(&made)? {
            return Ok(Created::New(row));
        }
        if let Some(row) = Self::read(connection, name).await? {
            return Ok(Created::There(row));
        }
        match Self::read(connection, &SequenceName::of_new_names()).await? {
            Some(said) if said.next > new.start => Ok(Created::BelowAFence),
            _ => Err(Failure::refused("there is a row that this table takes for the same name")),
        }
    }

    /// A statement looks at the table behind its lock, and who has one keeps it up to its commit.
    async fn wait_for_new(connection: &mut Connection) -> Result<(), Failure> {
        let statement = connection.sql.wait_for_new.clone();
        connection.transact(&statement, &[]).await.map(|_| ())
    }

    async fn alter(
        connection: &mut Connection,
        name: &SequenceName,
        alteration: &Alteration,
    ) -> Result<Option<Row>, Failure> {
        let Some(statement) = connection.sql.alter(&connection.table, alteration) else {
            return Self::read(connection, name).await;
        };
        let description = alteration.description.as_deref().unwrap_or_default();
        let parameters: [Parameter<'_>; 2] = [(&name.as_str(), Type::TEXT), (&description, Type::TEXT)];
        let (_, altered) = connection.transact(&statement, &parameters).await?;
        if let Some(row) = connection.one(&altered)? {
            return Ok(Some(row));
        }
        match (Self::read(connection, name).await?, alteration.last) {
            (Some(row), Some(NewLast::At(_))) => Err(Failure::refused(format!(
                "the last number is {} and only rises, but to retire a sequence",
                row.settings.last
            ))),
            (Some(_), _) => Err(Failure::refused("the row cannot be used")),
            (None, _) => Ok(None),
        }
    }

    async fn raise(
        connection: &mut Connection,
        name: &SequenceName,
        least: u64,
    ) -> Result<Option<Row>, Failure> {
        let least = least.saturating_sub(connection.table.shape.columns().above);
        let least = i64::try_from(least).unwrap_or(i64::MAX);
        let statement = connection.sql.raise.clone();
        let parameters: [Parameter<'_>; 2] = [(&name.as_str(), Type::TEXT), (&least, Type::INT8)];
        let (_, raised) = connection.transact(&statement, &parameters).await?;
        connection.one(&raised)
    }

    async fn beside(connection: &mut Connection) -> Result<Beside, Failure> {
        let identity = connection.identity().await?;
        let (schema, _) = &connection.table.place;
        let found = connection.rows(&sql::columns_of(), &[(schema, Type::TEXT)]).await?;
        let columns = found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let columns: Vec<_> = columns.collect::<Result<_, Error>>().map_err(lost)?;
        Ok(beside(&connection.table, identity, columns.into_iter()))
    }

    async fn tiny_tokens(connection: &mut Connection) -> Result<Option<Vec<TinyToken>>, Failure> {
        let found = connection.client.query_typed(&connection.sql.tiny_tokens(), &[]).await;
        match found {
            Ok(rows) => {
                let token = |row: &tokio_postgres::Row| {
                    Ok(TinyToken { token: row.try_get(0)?, name: row.try_get(1)? })
                };
                let tokens: Result<_, Error> = rows.iter().map(token).collect();
                tokens.map(Some).map_err(|error| Failure::refused(error.to_string()))
            }
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
            Err(error) => Err(failure(&error).of_a_read()),
        }
    }

    async fn record_identity(connection: &mut Connection, writes: Writes) -> Result<Identity, Failure> {
        let identity = Self::identity(connection).await?;
        if !connection.sql.is_store_table_there() {
            connection
                .client
                .batch_execute(&connection.sql.make_store)
                .await
                .map_err(|error| failure(&error))?;
            connection.sql.has_store_table(true);
        }
        let sql = &connection.sql;
        match writes {
            Writes::Fence { after } => {
                let record = sql.record.clone();
                connection
                    .transact(&record, &[(&identity.current, Type::TEXT), (&after, Type::FLOAT8)])
                    .await?;
            }
            Writes::Identity => {
                let note = sql.note.clone();
                connection.transact(&note, &[(&identity.current, Type::TEXT)]).await?;
            }
        }
        Self::identity(connection).await
    }
}
