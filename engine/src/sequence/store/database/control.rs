//! What is done at a database itself: prepare it, look at it as a server would, and read tinyid's tokens.

use super::tiny_token::TinyToken;
use super::{Beside, DatabaseOptions, DatabaseUrl, Report, open_database};
use crate::sequence::store::{Identity, StoreError};

/// What [`init`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialised {
    /// Tables that were made; those that were there stay as they were.
    pub made: Vec<String>,
    /// The identity that stands in the store now.
    pub identity: Identity,
}

/// Reads tinyid's tokens from the schema of the table; `None` where there is no `tiny_id_token`. Blocks, for as long as
/// `options` allow.
///
/// # Errors
/// [`StoreError`].
pub fn tiny_tokens(
    url: &DatabaseUrl,
    options: &DatabaseOptions,
) -> Result<Option<Vec<TinyToken>>, StoreError> {
    open_database(url, options)?.tiny_tokens()
}

/// Which tables share `xuid_store` with the one of `options`: servers of each go on behind a fence of any. Tables that this
/// user of MySQL has no right to are not among them.
///
/// # Errors
/// [`StoreError`].
pub fn tables_beside(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Beside, StoreError> {
    open_database(url, options)?.beside()
}

/// Makes `xuid_store` and, for the shape `xuid`, `xuid_sequence`, and writes the store's identity. What is there stays.
///
/// # Errors
/// [`StoreError`].
pub fn init(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Initialised, StoreError> {
    let mut database = open_database(url, options)?;
    let made = database.make_tables()?;
    let found = database.identity()?;
    // One that was written already is another store's, and only a fence may overwrite it.
    let identity = if found.recorded.is_none() { database.note_identity()? } else { found };
    Ok(Initialised { made, identity })
}

/// Looks at a store as a server would. An unfit one is reported, not refused.
///
/// # Errors
/// [`StoreError::Away`], and [`StoreError::Refused`] for a table that does not have its shape.
pub fn check(url: &DatabaseUrl, options: &DatabaseOptions) -> Result<Report, StoreError> {
    open_database(url, options)?.report()
}
