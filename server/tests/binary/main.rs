//! The binary as a person or a script uses it: commands, exit codes, signals, limits. What clients can do to a server
//! is tried end to end elsewhere.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "all of this is tests, the helpers too")]

mod about;
mod access;
mod commands;
mod ensemble;
mod fail_over;
mod figures;
mod logs;
mod mistakes;
mod namespaces;
mod pages;
mod service_manager;
mod serving;
mod support;
