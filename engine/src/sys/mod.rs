//! What everything else stands on: atomics, words that a fork voids, wake-ups, files that are whole or absent, and
//! their locks, log lines that wait, the threads of clients, and the guards and crash points of tests.

pub(crate) mod atomics;
pub(crate) mod boot;
pub(crate) mod checksum;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(crate) mod client_thread;
#[cfg(any(test, feature = "crash-points"))]
pub mod crash_points;
pub(crate) mod deferred_log;
pub(crate) mod draft;
pub(crate) mod file_lock;
pub(crate) mod fork_word;
pub(crate) mod guards;
pub(crate) mod wake;
