//! What comes over TCP, from the server's own binary.

use std::time::Duration;

use anyhow::Result;

use crate::client_rate::prefetched_rate;
use crate::load::{Server, tcp_rows};
use crate::rows::{ROUNDS, Row, at_least, figure, median};

/// The rows of the wire.
pub(super) fn tcp() -> Result<Vec<Row>> {
    tcp_rows(ROUNDS)
}

/// The row of the Rust client.
pub(super) fn client() -> Result<Vec<Row>> {
    let server = Server::xuid()?;
    let address = server.address.to_string();
    let rates =
        (0..ROUNDS).map(|_| prefetched_rate(&address, Duration::from_secs(1))).collect::<Result<Vec<_>>>()?;
    let rates: Vec<f64> = rates.into_iter().map(|rate| rate / 1e6).collect();
    let text = figure(&rates, "M/s, one connection");
    Ok(vec![at_least("Rust client with prefetch, next in a loop", text, median(&rates), 100.0, "M ids/s")])
}
