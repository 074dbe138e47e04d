//! 64-bit snowflake ids that are never issued twice, at the speed of a thread-local increment.
//!
//! An id is `time | worker | sequence`. A process owns ticks of a worker before it issues ids of them: the registry
//! grants a window of ticks to one process only, and never again. The engine moves the ids of owned ticks from the
//! registry to the caller, and each folder does a part of that. A folder imports from those below it and from none
//! above:
//!
//! ```text
//!   sequence/     named sequences, on stores of their own; the path of snowflake ids knows nothing of them
//!   api/          Engine, Handle, EngineBuilder: what a caller sees
//!   background/   two threads: the producer refills and keeps windows; the registry thread asks the registry
//!   shared/       the state that all threads share, and a call that finds no id in its thread's run
//!   tiers/        where unspent ids lie: a thread's run, the ring (4096 padded slots), the queue, the reserve on disk
//!   mint/         cuts owned ticks, up to now, into runs; callers that wait hold a ticket
//!   registry/     owns workers: the port, windows and marks by compare-and-set, the local and the ZooKeeper adaptor
//!   stats/        counts every id: minted, issued, spilled, wasted by cause, held
//!   settings.rs   the settings of an engine, checked
//!   clock/        supervises time; uniqueness never rests on it
//!   id/           runs of ids, and why a call got none
//!   sys/          atomics, words that a fork voids, wake-ups, files, log lines, guards
//! ```
//!
//! - [`Engine`] is shared by any number of threads; [`Handle`] belongs to one. [`EngineBuilder`] configures both.
//! - [`Order`] says how old ids may be and whether they must rise.
//! - [`Layout`] splits the bits; [`registry`] is the port that owns workers, with a local adaptor.
//! - [`clock`] supervises time. Uniqueness never rests on it.
//! - [`stats`] counts every id: minted, issued, spilled, wasted by cause, held.
//!
//! # Signal handlers
//!
//! No call of this crate is async-signal-safe. A handler that calls [`Engine::next_id`] on a thread which it
//! interrupted in [`Engine::next_id`] can return an id that this thread returns too: a hit loads its place and stores
//! the next one, and a handler between the two finds the same place. A handler that interrupts a miss can wait for ever
//! for a lock that its own thread holds, or panic. Let the handler leave a note (an atomic, a byte in a pipe, a
//! `signalfd`), and let a thread ask.
//!
//! # Runtimes
//!
//! No async runtime is needed: [`Engine::next_id_async`] and [`Engine::request`] are plain futures.
//!
//! # Systems
//!
//! 64-bit Linux only: the crate relies on `CLOCK_BOOTTIME`, `MADV_WIPEONFORK` and 64-bit words. On another system its
//! build says so and ends; the crate `xuid-client` runs there.

#[cfg(all(feature = "crash-points", not(debug_assertions)))]
compile_error!("the feature crash-points is for crash campaigns, and never for a release build");

/// A named point at which the crash-point build may kill itself; nothing in any other build.
macro_rules! crash_point {
    ($point:ident) => {
        #[cfg(feature = "crash-points")]
        crate::sys::crash_points::point(crate::sys::crash_points::Point::$point);
    };
}

mod api;
mod background;
pub mod clock;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../testing/fuzz/mod.rs"]
pub mod fuzzing;
mod id;
#[cfg(test)]
#[cfg(loom)]
#[path = "../testing/loom/mod.rs"]
mod loom;
mod mint;
pub mod registry;
pub mod sequence;
mod settings;
mod shared;
pub mod stats;
mod sys;
#[cfg(test)]
#[cfg(not(loom))]
#[path = "../testing/mod.rs"]
mod testing;
mod tiers;

/// The examples of the crate's README compile and hold.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use api::build_error::BuildError;
pub use api::builder::EngineBuilder;
pub use api::engine::Engine;
pub use api::handle::Handle;
pub use api::pending::Pending;
pub use id::error::{IdError, IdErrorKind};
pub use id::key_error::OpaqueKeyError;
pub use id::run::{Ids, Run};
pub use mint::wait_queue::Caller;
pub use registry::Floor;
#[cfg(feature = "ablation")]
pub use settings::Tiers;
#[cfg(any(test, feature = "crash-points"))]
pub use sys::crash_points;
pub use xuid_id::{
    DEFAULT_EPOCH_MS, Face, Form, ID_BITS, Id, IdRangeError, IdText, InstantError, Layout, LayoutError,
    Order, ParseIdError, ParseKeyError, Parts, PrefixError, Prefixed, PrefixedText, UnknownForm, Veil,
};
