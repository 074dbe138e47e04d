//! Load over TCP, and the servers it is let loose on.
//!
//! ```text
//!   compare ── driver ── dialect      XUID, Redis and an echo are asked by the very same loop, that of xuid_load
//!      │
//!      └────── process ── child       servers, each pinned to the core that the driver is not on
//!
//!   redis_benchmark ── process        Redis's own driver, on Redis and on our port for its clients
//!   neighbours ── driver, process     several loads on one server at once, and what they cost each other
//!   sequences ─── driver, process     named sequences: beside NEXT and Redis, on PostgreSQL, many names
//! ```
//!
//! A program that measures with this must begin with [`serve_if_asked`]: the echo and the raw stream run in a child
//! process of the same program.

mod child;
mod compare;
mod dialect;
mod driver;
mod neighbours;
mod process;
mod redis_benchmark;
mod sequences;

pub use child::serve_if_asked;
pub use compare::{Setting, redis_rows, tcp_rows};
pub use neighbours::NEIGHBOURS;
pub use process::Server;
pub use redis_benchmark::redis_benchmark_rows;
pub use sequences::SEQUENCES;
