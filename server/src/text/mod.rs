//! What people read: lines on standard output, the log, times, ids, and how a process ends.

pub(crate) mod exit;
pub(crate) mod form;
pub(crate) mod human_time;
pub(crate) mod json;
pub(crate) mod logs;
mod patient;
pub(crate) mod shell;
pub(crate) mod stdout;
pub(crate) mod version;
