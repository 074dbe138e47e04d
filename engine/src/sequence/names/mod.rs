//! The names of a process: what each holds and counts, the threads' runs, and what all names share.

pub(crate) mod control;
pub(crate) mod deadlines;
pub(crate) mod hub;
pub(crate) mod named;
pub(crate) mod named_table;
pub(crate) mod own_threads;
pub(crate) mod reply;
mod reports;
pub(crate) mod retry;
pub(crate) mod take;
pub(crate) mod threads;
pub(crate) mod untold;
