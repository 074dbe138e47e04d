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
mod connection;
mod sql;

use mysql_async::Error;
use mysql_async::prelude::Queryable;

use self::connection::{Connection, failure, found_row, read_identity, text};
use super::beside::{Beside, beside};
use super::dialect::{Created, Dialect, Granted, Writes};
use super::failure::{Denied, Failure};
use super::table::{FoundRow, Moved, outcome, spellings};
use super::tiny_token::TinyToken;
use super::{DatabaseOptions, Report};
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, Ask, Identity, NewLast, NewSequence, Row};

/// The error of a statement that names a table that is not there.
const NO_SUCH_TABLE: u16 = 1146;

/// The dialect.
pub(super) struct MySql;

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
        connection.identity().await
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
    ) -> Result<Vec<FoundRow>, Failure> {
        let found = connection.rows(&connection.sql.list(prefix, after, limit)).await?;
        Ok(found.iter().map(found_row).collect())
    }

    async fn create(
        connection: &mut Connection,
        name: &SequenceName,
        new: &NewSequence,
    ) -> Result<Created, Failure> {
        connection.table.check_name(name)?;
        let statement = connection.sql.create(&connection.table, name, new);
        if let Some(created) = connection.create(name, statement).await? {
            return Ok(created);
        }
        let similar = Self::similar(connection, name).await?.unwrap_or_default();
        Err(Failure::refused(format!("there is '{similar}', and this table takes both for the same name")))
    }

    /// They have the row locked that says where new names begin, or the gap that it was put into.
    async fn wait_for_new(_: &mut Connection) -> Result<(), Failure> {
        Ok(())
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

    async fn beside(connection: &mut Connection) -> Result<Beside, Failure> {
        let identity = connection.identity().await?;
        let (schema, _) = &connection.table.place;
        let found = connection.rows(&sql::columns_of(schema)).await?;
        let columns = found.iter().filter_map(|row| Some((text(row, 0)?, text(row, 1)?)));
        Ok(beside(&connection.table, identity, columns))
    }

    async fn tiny_tokens(connection: &mut Connection) -> Result<Option<Vec<TinyToken>>, Failure> {
        let found: Result<Vec<mysql_async::Row>, Error> =
            connection.conn.query(connection.sql.tiny_tokens()).await;
        let column = |row: &mysql_async::Row, at| text(row, at).unwrap_or_default();
        match found {
            Ok(rows) => {
                let token = |row| TinyToken { token: column(row, 0), name: column(row, 1) };
                Ok(Some(rows.iter().map(token).collect()))
            }
            Err(Error::Server(said)) if said.code == NO_SUCH_TABLE => Ok(None),
            Err(error) => Err(failure(&error).of_a_read()),
        }
    }

    async fn record_identity(connection: &mut Connection, writes: Writes) -> Result<Identity, Failure> {
        let identity = Self::identity(connection).await?;
        if !connection.sql.is_store_table_there() {
            // A statement that makes a table is a transaction of its own.
            let made = connection.conn.query_drop(sql::make_store(&connection.sql.store_name)).await;
            made.map_err(|error| failure(&error))?;
            connection.sql.has_store_table(true);
        }
        let sql = &connection.sql;
        let statement = match writes {
            Writes::Fence { after } => sql.record(&identity.current, after),
            Writes::Identity => sql.note(&identity.current),
        };
        let statements =
            [sql::BEGIN.to_owned(), statement, connection.sql.identity.clone(), "COMMIT".to_owned()];
        // In other zones an hour of autumn comes twice, and no fence of it is later than another.
        let set_zone = async |connection: &mut Connection, zone| {
            let set = connection.conn.query_drop(format!("SET time_zone = {zone}")).await;
            set.map_err(|error| failure(&error))
        };
        set_zone(connection, "'+00:00'").await?;
        let replies = connection.transact(&statements).await?;
        set_zone(connection, "DEFAULT").await?;
        read_identity(&replies[2].rows)
    }
}
