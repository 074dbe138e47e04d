//! The registry that a command works on, in a folder or in an ensemble.

#[cfg(feature = "zookeeper")]
pub(crate) mod ensemble;
#[cfg(not(feature = "zookeeper"))]
#[path = "ensemble/absent.rs"]
pub(crate) mod ensemble;
pub(crate) mod target;
pub(crate) mod view;
