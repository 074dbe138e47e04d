//! The harness of the end-to-end tests: it drives the real `xuid` binary from outside and counts duplicates.
//!
//! - [`Serve`], [`Server`]: one `xuid serve` process on free ports, its log, its end by SIGTERM or SIGKILL
//! - [`Xuid`]: one call of a `xuid` command, with its exit code and both outputs
//! - [`Client`]: a blocking client of the wire protocol, written from the specification alone
//! - [`Resp`]: a blocking client of the protocol of Redis, written from its specification alone
//! - [`fronts`]: ids and numbers by any front, from one call
//! - [`Load`]: threads that take ids until they are stopped or the connection dies
//! - [`SchedulerDelay`]: how late this machine runs a thread, for what a test demands of time
//! - [`Timeline`], [`Told`]: connections that remember when each answer came
//! - [`LogPipe`]: a log that is not read for a while
//! - [`LoopDisk`]: a disk of its own, which can be frozen, filled and made read-only
//! - [`FakeClock`]: the wall clock of one server, stepped at will
//! - [`Received`], [`Ledger`]: what was received, and the oracle that finds any id that came twice
//! - [`IssuedVsReceived`]: the same, held against what servers logged before they sent it
//! - [`Prometheus`]: one that scrapes servers and fires alerts
//! - [`zookeeper`], [`proxy`]: private ZooKeeper servers, a hand inside their tree, and faults on the way to them
//! - [`Postgres`], [`MariaDb`]: private databases, killed, stopped, copied and promoted; [`Sql`]: a session with one
//! - [`sequences`]: named sequences on several servers, their takers, and the account of what was taken
//! - [`Relay`]: a TCP relay that passes so many bytes of the answers and no more
//! - [`campaigns`]: attacks repeated many thousand times, in parts that are recorded and joined
//! - [`not_tried`]: what is said of a trial that this machine does not allow
//! - [`http`], [`process`], [`folder`], [`clock`], [`Rng`]: small helpers
//!
//! Nothing here depends on the project's crates: an oracle that shares a codec with the server would share its
//! mistakes too.

#![expect(clippy::must_use_candidate, reason = "a harness; what acts by being used says so at its type")]

pub mod campaigns;
pub mod clock;
pub mod folder;
pub mod fronts;
pub mod http;
pub mod process;
pub mod proxy;
pub mod sequences;
pub mod zookeeper;

mod client;
mod command;
mod faketime;
mod frame;
mod load;
mod log_pipe;
mod loop_disk;
mod mariadb;
mod not_tried;
mod oracle;
mod postgres;
mod prometheus;
mod relay;
mod resp;
mod rng;
mod scheduler_delay;
mod server;
mod sql;
mod template;
mod timeline;

pub use client::{Client, ClientError, Decoded, Hello, Order, Refusal};
pub use command::{Output, Xuid, binary};
pub use faketime::FakeClock;
pub use frame::{Frame, HEADER_LEN, PREFACE, encode, hello_body, op, status};
pub use load::{HEAVY, Job, Load, LoadResults, Work};
pub use log_pipe::LogPipe;
pub use loop_disk::{Bound, Frozen, LoopDisk, RamFs};
pub use mariadb::MariaDb;
pub use not_tried::not_tried;
pub use oracle::{Balance, IssuedVsReceived, Ledger, Received, Report, Run, read_issued};
pub use postgres::Postgres;
pub use prometheus::Prometheus;
pub use relay::{Ending, Relay};
pub use resp::{Resp, RespValue};
pub use rng::Rng;
pub use scheduler_delay::SchedulerDelay;
pub use server::{Serve, Server};
pub use sql::Sql;
pub use timeline::{Fared, Timeline, Told};
