//! Standard output of the commands: buffered, and a reader that had enough is no failure.

mod closed;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use crate::text::exit::Stdout;
use crate::text::patient;

/// Buffered standard output. Not the standard library's, which takes every byte for written where the descriptor may
/// not be written to.
pub(crate) struct Printer(BufWriter<Patient>);

/// Waits where standard output takes nothing at the moment: a process that it is shared with may want that it does not
/// block, and a list must not end half way for that.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        patient::write(&self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printer {
    /// Takes standard output. To be called before a command does anything: where nothing can be told, nothing is done.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(BufWriter::new(Patient(writable().map_err(Stdout)?))))
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

fn writable() -> io::Result<File> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    if closed::was_closed() || fcntl_getfl(&out)? & OFlags::RWMODE == OFlags::RDONLY {
        return Err(Errno::BADF.into());
    }
    Ok(out.into())
}
