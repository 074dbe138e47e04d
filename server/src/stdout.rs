//! Standard output of the commands: buffered, and a reader that had enough is no failure.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Result;

use crate::failure::Stdout;

/// Locked and buffered standard output.
pub(crate) struct Printer(BufWriter<StdoutLock<'static>>);

impl Printer {
    /// Takes standard output.
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> Result<()> {
        Ok(writeln!(self.0, "{line}").map_err(Stdout)?)
    }

    /// Prints without ending the line.
    pub(crate) fn part(&mut self, part: impl std::fmt::Display) -> Result<()> {
        Ok(write!(self.0, "{part}").map_err(Stdout)?)
    }

    /// Everything printed is out when it returns.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush().map_err(Stdout)?)
    }
}
