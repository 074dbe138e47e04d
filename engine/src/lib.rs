//! 64-bit snowflake ids that are never issued twice, at the speed of a thread-local increment.
//!
//! An id is `time | worker | sequence`. Every (worker, tick, sequence) is a plot that may be built on once, ever;
//! the engine is about who owns which plots:
//!
//! ```text
//!   registry   grants windows: ticks [start, end) of one worker, to one process, never twice
//!      |
//!   minter     cuts granted land, up to now, into runs            <-- callers that find nothing above
//!      |                          |
//!   queue      the freshest       spill   extents: land owned, elapsed and unspent, on disk
//!      |                          |       (comes back under a burst, and after a restart)
//!   ring       4096 padded slots in 4 partitions, a block of ids in each
//!      |
//!   thread     the rest of the run this thread took last
//!      |
//!   caller     an id
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
//! No call of this crate is async-signal-safe. A handler that calls [`Engine::next_id`] on a thread which it interrupted in
//! [`Engine::next_id`] can return an id that this thread returns too: a hit loads its place and stores the next one, and a
//! handler between the two finds the same place. A handler that interrupts a miss can wait for ever for a lock that its own
//! thread holds, or panic. Let the handler leave a note (an atomic, a byte in a pipe, a `signalfd`), and let a thread ask.
//!
//! # Runtimes
//!
//! No async runtime is needed: [`Engine::request`] is a plain future. Linux, 64-bit.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "xuid-engine runs on 64-bit Linux: it relies on CLOCK_BOOTTIME, MADV_WIPEONFORK and 64-bit words"
);

#[cfg(all(feature = "proof", not(debug_assertions)))]
compile_error!("the feature proof is for crash campaigns, and never for a release build");

/// A named point at which the proof build may kill itself; nothing in any other build.
macro_rules! crash_point {
    ($point:ident) => {
        #[cfg(feature = "proof")]
        crate::proof::point(crate::proof::Point::$point);
    };
}

mod build_error;
mod builder;
pub mod clock;
mod coalesce;
mod counters;
mod draft;
mod engine;
mod error;
mod fork;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod guards;
mod hand;
mod handle;
mod lane;
mod later;
mod limits;
mod minter;
#[cfg(test)]
#[cfg(loom)]
mod models;
mod node;
mod pending;
mod pieces;
mod producer;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod queue;
mod registrar;
pub mod registry;
#[cfg(test)]
#[cfg(not(loom))]
mod regressions;
mod reserve;
mod ring;
mod run;
mod settings;
mod shared;
#[cfg(test)]
#[cfg(not(loom))]
mod simulation;
pub mod stats;
mod stock;
mod sync;
mod tenure;
mod ticket;
mod wake;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub use build_error::BuildError;
pub use builder::EngineBuilder;
pub use engine::Engine;
pub use error::{IdError, IdErrorKind};
pub use handle::Handle;
pub use pending::Pending;
pub use registry::Floor;
pub use run::{Ids, Run};
#[cfg(feature = "ablation")]
pub use settings::Tiers;
pub use xuid_id::{DEFAULT_EPOCH_MS, ID_BITS, Id, Layout, LayoutError, Order, ParseIdError, Parts};
