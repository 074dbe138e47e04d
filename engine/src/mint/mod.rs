//! How owned ticks become ids: the gate that callers pass, their tickets, the minter, and the workers that are held.

pub(crate) mod gate;
pub(crate) mod minter;
pub(crate) mod ticket;
pub(crate) mod wait_queue;
pub(crate) mod worker;
