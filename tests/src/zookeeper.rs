//! Real ZooKeeper servers for the tests, and a hand inside their tree.
//!
//! - [`Ensemble`]: one or three private servers, killed, stopped, restarted, put back to a backup
//! - [`Tamper`]: reads, damages, deletes and restores nodes; ends other people's sessions
//! - [`wire`]: the few bytes of ZooKeeper's protocol that a proxy and a stolen session need
//!
//! The package `zookeeper` of Debian (its jars) and any Java from 11 on are needed; `tests/run` installs them.

mod ensemble;
mod java;
pub(crate) mod ports;
pub(crate) mod spawner;
mod tamper;
pub mod wire;

pub use ensemble::{Backup, Ensemble, Mode};
pub use java::Sasl;
pub use tamper::{Node, Tamper, Tree};
