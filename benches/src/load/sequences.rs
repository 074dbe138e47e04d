//! Named sequences over TCP: beside NEXT and Redis, on PostgreSQL, and many names at once.

mod asked;
mod names;
mod postgres;
mod single;

use crate::table::Group;

/// The groups that need a server.
pub const SEQUENCES: [Group; 3] = [("tcp", single::rows), ("strict", postgres::rows), ("names", names::rows)];
