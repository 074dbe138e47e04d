//! Asking a person before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write as _};

use anyhow::{Context, Result, bail};

use crate::text::exit::usage;

/// Says what will be done and asks. Without a person to ask, only `--yes` will do.
pub(crate) fn confirm(plan: &str, yes: bool) -> Result<()> {
    // Nobody needs the plan on a closed standard error.
    let _ = writeln!(io::stderr(), "{plan}");
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(usage("nobody is there to confirm that: say --yes").into());
    }
    let _ = write!(io::stderr(), "Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("failed to read the answer")?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}
