//! Named sequences on several real servers: where their numbers come from, who takes them, and what is held against
//! what was taken.
//!
//! - [`Site`], [`Kind`]: a folder, an ensemble or a database, and how servers are started on it
//! - [`Fleet`]: the servers; each start of one is a *life* of its own
//! - [`Name`]: a sequence with its settings
//! - [`Takers`]: clients of all fronts that take numbers, and ids, until they are stopped, over all lives of a server
//! - [`Account`]: every call with what it got; it finds numbers that came twice and orders that do not hold
//! - [`scenes`]: what happens to servers and databases meanwhile
//!
//! # Invariants
//! - N1 no number of a name, and no id, comes twice, over all servers, lives and fronts;
//! - N2 a number that was returned before an ordered call began is lower than what that call gets: of the same life, or,
//!   where the name is strict, of any;
//! - N3 each number is one that the settings of its name allow.

mod account;
mod database;
mod fleet;
mod name;
pub mod scenes;
mod site;
mod takers;
mod wire;

pub use account::{Account, Call, Missed, Twice};
pub use database::Database;
pub use fleet::{Fleet, Seats};
pub use name::Name;
pub use site::{Kind, Site};
pub use takers::{Pace, Takers};
