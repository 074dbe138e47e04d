//! `xuid`: a server of unique ids over TCP, and the commands around it.
//!
//! ```text
//!   cli ── commands ── serve ── config          flag > variable > file > default
//!                        │
//!                        ├── listener ── crew ── connection ── session ──► xuid-engine
//!                        │             (threads)  (sockets)    (bytes in, bytes out)
//!                        ├── admin ── metrics          HTTP for probes, Prometheus and people
//!                        └── shutdown                  signals, GOAWAY, drain, clean stop
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

#[cfg(all(feature = "proof", not(debug_assertions)))]
compile_error!("the feature proof is for crash campaigns, and never for a release build");

mod admin;
mod banner;
mod buffers;
mod cli;
mod commands;
mod config;
mod connection;
mod crew;
#[cfg(feature = "zookeeper")]
mod ensemble;
#[cfg(not(feature = "zookeeper"))]
#[path = "ensemble/absent.rs"]
mod ensemble;
mod failure;
mod listener;
mod logs;
mod metrics;
mod node;
#[cfg(feature = "proof")]
mod proof;
#[cfg(not(feature = "proof"))]
#[path = "proof/absent.rs"]
mod proof;
mod runtime;
mod session;
mod shutdown;
mod stdout;
mod target;
mod traffic;
mod view;
mod wall;
mod wire;

use std::process::ExitCode;

use clap::Parser;

/// A C build of minutes, so a feature: release builds and benches turn it on. Unit tests count allocations instead.
#[cfg(all(feature = "jemalloc", not(test)))]
#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "proof")]
    if let Some(code) = proof::begin() {
        return code;
    }
    match cli::Cli::try_parse().map_or_else(|said| cli::answer(&said), cli::Cli::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !failure::is_broken_pipe(&error) {
                logs::last_line(&format!("xuid: {error:#}"));
            }
            failure::exit_code(&error)
        }
    }
}
