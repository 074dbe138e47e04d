//! Where unspent ids are, from the nearest to the farthest: a thread's run, the ring, the queue, the reserve.

pub(crate) mod limits;
pub(crate) mod queue;
pub(crate) mod reserve;
pub(crate) mod ring;
pub(crate) mod thread_run;
