//! Async client of an xuid server: one connection that many tasks share.
//!
//! ```text
//!   tasks ---> Client (clone it freely)
//!                |  retries, as far as the options allow
//!              Fleet: the servers, one link at a time; dials again, on demand, after a loss or a GOAWAY
//!                |
//!              Link: one connection. Requests are appended to one outbox, which one task writes as a whole;
//!                    replies find their request by its id, in whatever order they come
//! ```
//!
//! - Any number of tasks may have requests in flight at once: that is what makes it fast. The number is bounded, and a
//!   task above it waits.
//! - A request whose reply is lost is an error that says so, and is worth repeating: its ids are wasted, and no id
//!   comes twice. A future that is dropped wastes its ids alike.
//! - Several servers must be of one cluster. Two with different cluster ids would issue the same ids, so they are
//!   refused, with both ids shown.
//!
//! ```no_run
//! # async fn example() -> Result<(), xuid_client::ClientError> {
//! use std::time::Duration;
//! use xuid_client::{Client, Options, Order};
//!
//! let client = Client::connect("127.0.0.1:7654", Options::new()).await?;
//! let one = client.next(Order::Any).await?;
//! let many = client.array(1_000, Order::Fresh, Duration::from_millis(50)).await?;
//! let runs = client.runs(100_000, Order::Any, Duration::from_millis(50)).await?;
//! let all: Vec<u64> = runs.into_iter().flatten().collect();
//! # drop((one, many, all));
//! # Ok(())
//! # }
//! ```

mod answer;
mod backoff;
mod client;
mod dial;
mod error;
mod fleet;
mod link;
mod options;
mod pending;
mod served;

pub use client::Client;
pub use error::{Breach, ClientError};
pub use options::Options;
pub use served::Served;
pub use xuid_protocol::{ClusterId, Decoded, Limits, Order, Run, RunIds, Status};
