//! A pipe for a server's log whose reader stands still until it is told to go on: a log driver that blocks.

use std::fs::OpenOptions;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::fs::OFlags;

/// Both ends.
#[derive(Debug)]
pub struct LogPipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl LogPipe {
    /// One that nobody reads.
    pub fn new() -> Result<Self> {
        let (reader, writer) = pipe()?;
        Ok(Self { reader, writer })
    }

    /// The end for the server.
    pub fn end(&self) -> Result<Stdio> {
        Ok(self.writer.try_clone()?.into())
    }

    /// Fills it, so that the next byte that somebody else writes has to wait. Returns how many bytes it took.
    pub fn fill(&self) -> Result<usize> {
        // Opened anew: the flag would else be the server's, too, and its writes would fail in the place of waiting.
        let path = format!("/proc/self/fd/{}", self.writer.as_raw_fd());
        let flags = i32::try_from(OFlags::NONBLOCK.bits())?;
        let mut full = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        let mut filled = 0;
        // A large piece fails where a single byte still fits.
        for piece in [&[b'\n'; 4_096][..], b"\n"] {
            loop {
                match full.write(piece) {
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(filled)
    }

    /// Reads everything, until the server has ended.
    pub fn read_on(self) -> JoinHandle<String> {
        let Self { mut reader, writer } = self;
        drop(writer);
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // A pipe that breaks ends the text; what was read until then still counts.
            let _ = reader.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}
