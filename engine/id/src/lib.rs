//! 64-bit snowflake ids as values: what an id is, how its bits are split, what a caller asks of it, and whose it is; and
//! the names of sequences.
//!
//! Everything here is arithmetic and text: nothing issues an id. `xuid-engine` does, and hands these types on.

mod cluster;
pub mod hex16;
mod id;
mod layout;
mod name;
mod order;
mod text;

pub use cluster::{ClusterId, ParseClusterIdError};
pub use id::{Id, LAST_ID, ParseIdError};
pub use layout::{DEFAULT_EPOCH_MS, ID_BITS, Layout, LayoutError, Parts};
pub use name::{NameError, SequenceName};
pub use order::Order;
pub use text::printable;
