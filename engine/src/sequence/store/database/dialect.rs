//! What PostgreSQL and MySQL do in their own words, each on one connection.

use super::beside::Beside;
use super::check::Report;
use super::failure::{Denied, Failure};
use super::options::DatabaseOptions;
use super::table::FoundRow;
use super::tiny_token::TinyToken;
use crate::sequence::name::SequenceName;
use crate::sequence::store::{Alteration, Ask, Identity, NewSequence, Outcome, Row};

/// What a transaction granted: an outcome for each ask, in their order, and the store that did it.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) identity: Identity,
    pub(super) outcomes: Vec<Outcome>,
}

/// What became of a row that was to be made.
#[derive(Debug)]
pub(super) enum Created {
    /// It is there now.
    New(Row),
    /// It was there.
    There(Row),
    /// A fence says that new names begin higher, and nothing was made. MySQL raises the new row instead.
    BelowAFence,
}

/// A kind of database.
pub(super) trait Dialect: 'static {
    /// A connection to a host that was checked.
    type Connection: Send;

    /// What the client's thread is called; 15 bytes at most.
    const THREAD: &str;

    /// Whether the client understands a URL.
    fn check_url(url: &str) -> Result<(), String>;

    /// Connects to a host that can be written to, and looks at its settings and at the table.
    async fn connect(
        url: &str,
        host: &str,
        options: &DatabaseOptions,
    ) -> Result<(Self::Connection, Report), Denied>;

    /// Makes the tables that are missing; their names.
    async fn make_tables(url: &str, options: &DatabaseOptions) -> Result<Vec<String>, Denied>;

    /// Which store it is. Looks again whether there is a table where its identity is written.
    async fn identity(connection: &mut Self::Connection) -> Result<Identity, Failure>;

    /// One transaction for all asks.
    async fn grant(connection: &mut Self::Connection, asks: &[Ask]) -> Result<Granted, Failure>;

    /// A row whose name differs from this one in spelling only.
    async fn similar(
        connection: &mut Self::Connection,
        name: &SequenceName,
    ) -> Result<Option<String>, Failure>;

    /// The row of a name.
    async fn read(connection: &mut Self::Connection, name: &SequenceName) -> Result<Option<Row>, Failure>;

    /// Rows in the order of their names' bytes, as they are: fewer than `limit` where there are no more.
    async fn list(
        connection: &mut Self::Connection,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<FoundRow>, Failure>;

    /// Makes a row, no lower than where new names begin at the moment that it is committed; but what
    /// [`wait_for_new`](Self::wait_for_new) waits for need not know.
    async fn create(
        connection: &mut Self::Connection,
        name: &SequenceName,
        new: &NewSequence,
    ) -> Result<Created, Failure>;

    /// Waits, behind the commit of where new names begin, for rows that are being made and may not know of it: they are in the
    /// next list.
    async fn wait_for_new(connection: &mut Self::Connection) -> Result<(), Failure>;

    /// Alters a row.
    async fn alter(
        connection: &mut Self::Connection,
        name: &SequenceName,
        alteration: &Alteration,
    ) -> Result<Option<Row>, Failure>;

    /// Raises a mark.
    async fn raise(
        connection: &mut Self::Connection,
        name: &SequenceName,
        least: u64,
    ) -> Result<Option<Row>, Failure>;

    /// Which tables share `xuid_store` with this one.
    async fn beside(connection: &mut Self::Connection) -> Result<Beside, Failure>;

    /// The rows of `tiny_id_token` beside the table; `None` where there is no such table.
    async fn tiny_tokens(connection: &mut Self::Connection) -> Result<Option<Vec<TinyToken>>, Failure>;

    /// Writes the present identity; the time, too, if it is a fence.
    async fn record_identity(connection: &mut Self::Connection, writes: Writes) -> Result<Identity, Failure>;
}

/// What is written of a store in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Writes {
    Identity,
    /// And the time of a fence, which is later than that one, in seconds of Unix time.
    Fence {
        after: Option<f64>,
    },
}
