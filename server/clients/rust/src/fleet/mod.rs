//! The servers of one cluster, as one to ask.

mod away;
mod backoff;
mod greet;
mod held_ahead;
mod retries;
mod servers;

pub(crate) use backoff::Backoff;
pub(crate) use held_ahead::HeldAhead;
pub(crate) use retries::Retries;
pub(crate) use servers::Fleet;
