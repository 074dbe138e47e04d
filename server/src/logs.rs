//! Logs go to standard error, so that standard output stays what the caller asked for.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config;

/// Logs what `filter` lets through; it was checked when the settings were read.
pub(crate) fn init(filter: &str) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        // Else a line that cannot be written is told to standard error in a way that panics where that cannot be written.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // Fails only if there is a subscriber already, which is as good.
    let _ = subscriber.try_init();
}

/// For commands that end by themselves: what they say is their output, so only warnings unless `RUST_LOG` asks for more.
pub(crate) fn init_for_commands() {
    // What the client of an ensemble has to say about a failure is in the error that follows.
    init(&config::log_of_environment("warn,zookeeper_client=error"));
}
