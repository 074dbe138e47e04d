//! Async client of an xuid server: one connection that many tasks share.
//!
//! ```text
//!   tasks ---> Client (clone it freely)
//!                |  retries, as far as the options allow
//!              Fleet: the servers, one link at a time, to a random one first; dials again, on demand, after a loss or a
//!                     GOAWAY, and goes back to its first choice later
//!                |
//!              Link: one connection. Requests are appended to one outbox, which one task writes as a whole;
//!                    replies find their request by its id, in whatever order they come
//!
//!   thread --> Ids, one each: the rest of a run; an id costs two comparisons
//!                |
//!              Prefetch: runs asked for ahead of need by a task of its own, through a Client; so many as are used in
//!                        the next milliseconds, and none older than allowed
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
//!
//! Ids without a round trip, from one of three servers, any of which may go away:
//!
//! ```no_run
//! # struct Order { id: u64 }
//! # fn orders() -> Vec<Order> { vec![] }
//! # async fn example() -> Result<(), xuid_client::ClientError> {
//! use xuid_client::{Client, Options, PrefetchOptions};
//!
//! let client = Client::connect_any(["ids-1:7654", "ids-2:7654", "ids-3:7654"], Options::new()).await?;
//! let source = client.prefetch(PrefetchOptions::new())?;
//! let mut ids = source.ids();
//! for mut order in orders() {
//!     order.id = ids.next().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Numbers 1, 2, 3, ... of a [named sequence](Sequence): `client.sequence("orders").next().await?`.
//!
//! # When a server goes
//! | it | calls | prefetched ids |
//! |---|---|---|
//! | closes, or its process is killed | those in flight fail, or with [`Options::retry_for`] go to the next server at once | no error; a stall of a connect and two round trips at most |
//! | says GOAWAY | those in flight are finished; one that the server closes on without an answer, and all others, go to the next server | no error |
//! | refuses with `NOT_READY`, `WINDOW_LOST`, `SHUTTING_DOWN`, `INTERNAL`, `STORE_AWAY`, `STORE_BEHIND` | as if it were killed, but those in flight are finished; it is stayed with where the others were tried within the pause that it asks for | no error |
//! | is silent | each gives up after [`Options::timeout`] of its own; the connection ends when it was silent for so long, to a PING as well | a refill gives up after [`PrefetchOptions::max_age`]; if there are other servers, and this one said nothing at all, they are asked next, and calls in flight are still answered |
//! | all of them | an error after [`Options::reconnect_rounds`] | what is held, then an error after [`PrefetchOptions::wait`] |
//!
//! A client that had to leave the server that it began at goes back there after some minutes ([`Options::return_after`]).
//! In each case ids may be wasted, and none comes twice. A call that gives up, or a future that is dropped, ends alone:
//! its request keeps its place among those in flight until its reply comes, and the reply goes to nobody.

mod client;
mod error;
mod fleet;
mod link;
mod log;
mod moment;
mod options;
mod prefetch;
mod process;
mod sequence;
mod served;
#[cfg(feature = "tls")]
mod tls;

/// The crate's README compiles, and what it claims holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use client::Client;
pub use error::{Breach, ClientError};
pub use options::Options;
pub use prefetch::{Ids, Prefetch, PrefetchOptions, PrefetchStats};
pub use sequence::{NewSequence, Sequence, SequenceChanges};
pub use served::Served;
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use xuid_protocol::{ClusterId, Decoded, Limits, NameError, Order, Run, RunIds, Status};
