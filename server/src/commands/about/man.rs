//! `xuid man`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;

use crate::text::stdout::Printer;

/// `xuid man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder that they are written to; it is created when absent
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a page for `command` and for each of its subcommands.
pub(crate) fn run(args: &Args, command: Command) -> Result<()> {
    let mut out = Printer::new()?;
    let folder = args.folder.display();
    fs::create_dir_all(&args.folder).with_context(|| format!("failed to make the folder {folder}"))?;
    clap_mangen::generate_to(command, &args.folder)
        .with_context(|| format!("failed to write manual pages to {folder}"))?;
    out.line(format_args!("wrote the manual pages to {folder}: `man {folder}/xuid.1`"))?;
    out.flush()
}
