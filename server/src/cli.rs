//! The command line: one subcommand a file of [`commands`](crate::commands).

use std::io::{self, IsTerminal};

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::about::{completions, config, man};
use crate::commands::{bench, decode, inspect, next, provenance, registry, sequence, serve, workers};
use crate::config::log_of_environment;
use crate::text::logs;
use crate::text::stdout::Printer;
use crate::text::version;

/// Unique 64-bit ids, ordered by time, over TCP.
#[derive(Debug, Parser)]
#[command(name = "xuid", version = version::short(), long_version = version::long())]
#[command(arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve ids until SIGTERM or SIGINT
    Serve(serve::Args),
    /// Print ids of a running server, one a line
    Next(next::Args),
    /// Say when an id was made, by which worker, and its place in that tick (offline)
    Decode(decode::Args),
    /// Say what is known of where ids came from: never granted, put aside, or to whom and when (read-only)
    Provenance(provenance::Args),
    /// Look into a data folder: what its spill files and its registry hold (read-only)
    Inspect(inspect::Args),
    /// List the workers of a registry: owner, and until when its land is reserved
    Workers(workers::Args),
    /// Create, show, fence or adopt a registry
    Registry(registry::Args),
    /// Create, list, show and use named sequences, and prepare, check and fence their store
    Sequence(sequence::Args),
    /// Put load on a server, or on an engine in this process, and measure
    Bench(bench::Args),
    /// Print the settings of a server, and where each was found
    Config(config::Args),
    /// Print what a shell completes the words of this program by
    Completions(completions::Args),
    /// Write the manual pages into a folder
    Man(man::Args),
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> Result<()> {
        if !matches!(self.command, Command::Serve(_)) {
            // What the client of an ensemble has to say about a failure is in the error that follows.
            logs::init_for_commands(&log_of_environment("warn,zookeeper_client=error"));
        }
        match self.command {
            Command::Serve(args) => serve::run(&args),
            Command::Next(args) => next::run(&args),
            Command::Decode(args) => decode::run(&args),
            Command::Provenance(args) => provenance::run(&args),
            Command::Inspect(args) => inspect::run(&args),
            Command::Workers(args) => workers::run(&args),
            Command::Registry(args) => registry::run(&args),
            Command::Sequence(args) => sequence::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Config(args) => config::run(&args),
            Command::Completions(args) => completions::run(&args, Self::command()),
            Command::Man(args) => man::run(&args, Self::command()),
        }
    }
}

/// What clap has to say instead of a command: wrong usage, which ends with 2, or what --help and --version ask for.
pub(crate) fn answer(said: &clap::Error) -> Result<()> {
    // On a terminal it has colours, which clap knows about.
    if said.use_stderr() || io::stdout().is_terminal() {
        said.exit();
    }
    let mut out = Printer::new()?;
    out.part(said.render())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
