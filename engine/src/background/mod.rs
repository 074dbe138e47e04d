//! What runs beside the callers: the producer's thread, which refills and keeps windows, and the registry's.

pub(crate) mod ledger;
pub(crate) mod log_once;
pub(crate) mod producer;
pub(crate) mod registry_thread;
pub(crate) mod retry;
pub(crate) mod windows;
