//! Writing to a descriptor that may be shared with a process that made it non-blocking: a full pipe is waited for.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Writes some of `bytes`, and waits for room where there is none.
pub(super) fn write(out: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::write(&out, bytes) {
            Err(Errno::AGAIN) => _ = poll(&mut [PollFd::new(&out, PollFlags::OUT)], None)?,
            written => return Ok(written?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::thread;

    use rustix::io::ioctl_fionbio;

    use super::*;

    #[test]
    fn a_pipe_that_does_not_block_gets_every_byte() {
        let (mut reader, writer) = pipe().unwrap();
        ioctl_fionbio(&writer, true).unwrap();
        let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut got = vec![0; bytes.len()];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    rest = &rest[write(&writer, rest).unwrap()..];
                }
            });
            reader.read_exact(&mut got).unwrap();
        });
        assert!(got == bytes);
    }
}
