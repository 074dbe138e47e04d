//! A load generator over TCP: a thread drives its connections by one epoll, each with many requests in flight.
//!
//! ```text
//!   Progress ── LoadThread ── Turns ── Link ── Dialect      a server of XUID/1, or another one beside it
//!                   │                    └──── Flight, Schedule
//!                   ├── Results              figures
//!                   └── Recorder ──► DuplicateCheck
//! ```
//!
//! # Invariants
//! - I1 closed loop: a request is sent when another was answered, so latency is service time at that depth;
//! - I2 open loop: each request has an intended start by [`Schedule`], fixed before the load begins, and latency runs
//!   from there; a request that was due and never sent, or never answered, counts with its age at the end;
//! - I3 throughput counts what was answered within the measured time, latency what was started within it;
//! - I4 the duplicate check sees every id that came, those of the warm-up and of the last replies too.
//!   Where ids are looked at and are to ascend, each is greater than all that had come on its connection when it was
//!   asked for;
//! - I5 a load thread shares nothing that it writes, allocates nothing for a request once warm, and reads the clock
//!   once or twice for all replies of one read.

mod dialect;
mod duplicates;
mod flight;
mod link;
mod progress;
mod results;
mod schedule;
mod turn;
mod wire;

/// The crate's README compiles, and what it claims holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use dialect::{Answer, Ask, Dialect, SequenceAsk, Shape};
pub use duplicates::{DuplicateCheck, Recorder, Tail, Verdict};
pub use flight::Sent;
pub use link::{Link, Share};
pub use progress::{LoadThread, Progress};
pub use results::{Open, Results};
pub use schedule::Schedule;
pub use turn::Turns;
pub use wire::Wire;
