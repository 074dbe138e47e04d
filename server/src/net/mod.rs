//! Sockets: who connects, which thread serves it, how a connection reads and writes, and how all of them end.

pub(crate) mod allowed;
pub(crate) mod busy_poll;
pub(crate) mod connection;
pub(crate) mod io_threads;
pub(crate) mod listener;
pub(crate) mod newcomers;
pub(crate) mod reload;
pub(crate) mod runtime;
pub(crate) mod service_manager;
pub(crate) mod shutdown;
pub(crate) mod stream;
