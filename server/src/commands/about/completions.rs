//! `xuid completions`.

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::text::stdout::Printer;

/// `xuid completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints what the shell has to read to complete the words of `command`.
pub(crate) fn run(args: &Args, mut command: Command) -> Result<()> {
    let mut out = Printer::new()?;
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    out.part(String::from_utf8_lossy(&script))?;
    out.flush()
}
