//! `xuid`: a server of unique ids over TCP, and the commands around it.
//!
//! A folder imports from those below it and from none above:
//!
//! ```text
//!   cli.rs         the command line
//!   commands/      a file each: serve, next, decode, inspect, workers, registry, bench, about
//!   net/           sockets: listener, io threads, connections, shutdown
//!   fronts/        bytes in, bytes out: XUID/1, and the admin port's HTTP
//!   registries/    a registry in a folder or in an ensemble, behind one face
//!   state/         what a server knows of itself: its engine, traffic, metrics, who is let in; threads for what blocks
//!   config/        flag > variable > file > default
//!   crash_points.rs  where crash campaigns kill the process
//!   text/          standard output, the log, times, exit codes
//! ```
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.

#[cfg(all(feature = "crash-points", not(debug_assertions)))]
compile_error!("the feature crash-points is for crash campaigns, and never for a release build");

mod cli;
mod commands;
mod config;
#[cfg(feature = "crash-points")]
mod crash_points;
#[cfg(not(feature = "crash-points"))]
#[path = "crash_points/absent.rs"]
mod crash_points;
mod fronts;
mod net;
mod registries;
mod state;
mod text;

use std::process::ExitCode;

use clap::Parser;

/// A C build of minutes, so a feature: release builds and benches turn it on. Unit tests count allocations instead.
#[cfg(all(feature = "jemalloc", not(test)))]
#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "crash-points")]
    if let Some(code) = crash_points::begin() {
        return code;
    }
    match cli::Cli::try_parse().map_or_else(|said| cli::answer(&said), cli::Cli::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !text::exit::is_broken_pipe(&error) {
                text::logs::last_line(&format!("xuid: {error:#}"));
            }
            text::exit::exit_code(&error)
        }
    }
}
