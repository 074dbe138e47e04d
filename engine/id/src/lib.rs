//! 64-bit snowflake ids as values: what an id is, how it is written, how its bits are split, what a caller asks of it,
//! and whose it is; and the names of sequences.
//!
//! Everything here is arithmetic and text: nothing issues an id. `xuid-engine` does, and hands these types on.

mod cluster;
mod form;
pub mod hex16;
mod id;
mod instant;
mod layout;
mod name;
mod order;
mod text;
#[cfg(feature = "veil")]
mod veil;
#[cfg(feature = "serde")]
mod with_serde;

/// The crate's README compiles, and what it claims holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use cluster::{ClusterId, ParseClusterIdError};
pub use form::{Form, IdText, ParseIdError, PrefixError, Prefixed, PrefixedText, UnknownForm};
pub use id::{Id, IdRangeError, LAST_ID};
pub use instant::InstantError;
pub use layout::{DEFAULT_EPOCH_MS, Face, ID_BITS, Layout, LayoutError, Parts, UnknownFace};
pub use name::{NameError, SequenceName};
pub use order::Order;
pub use text::printable;
#[cfg(feature = "veil")]
pub use veil::{ParseKeyError, Veil};
