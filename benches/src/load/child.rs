//! What a child process of a benchmark does: an echo of NEXT's frame sizes, or a stream of bytes. Both stand for what
//! any server could reach on this machine.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::dialect::{NEXT_REPLY, NEXT_REQUEST};

/// Names the role of a child.
pub(super) const VARIABLE: &str = "BENCH_CHILD_ROLE";

/// Bytes of one write of the stream.
const WRITE: usize = 1 << 20;

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Answers 24 bytes to each 16, on the runtime that the server uses where it has one core.
    Echo,
    /// Writes a MB at a time to whoever connects.
    Stream,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Stream => "stream",
        }
    }
}

/// In a child process that a benchmark started of its own program, serves and returns true. Must be the first thing
/// that such a program does, and it must end when this returns true.
///
/// # Errors
/// The child can't listen.
pub fn serve_if_asked() -> Result<bool> {
    let Some(role) = std::env::var_os(VARIABLE) else { return Ok(false) };
    // The parent is gone when its end of the pipe is.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match role.to_str() {
        Some("echo") => echo()?,
        Some("stream") => stream()?,
        _ => bail!("{VARIABLE} is {}, and that is no role", role.display()),
    }
    Ok(true)
}

fn echo() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(echo_one(stream));
        }
    })
}

async fn echo_one(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut at) = (vec![0; 64 * 1024], 0);
    let output = vec![0x5a; 64 * 1024 / NEXT_REQUEST * NEXT_REPLY];
    loop {
        let read = stream.read(&mut input[at..]).await?;
        if read == 0 {
            return Ok(());
        }
        let frames = (at + read) / NEXT_REQUEST;
        at = (at + read) % NEXT_REQUEST;
        stream.write_all(&output[..frames * NEXT_REPLY]).await?;
    }
}

fn stream() -> Result<()> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    announce(listener.local_addr()?)?;
    let bytes = vec![0x5a; WRITE];
    loop {
        let (mut stream, _) = listener.accept()?;
        while stream.write_all(&bytes).is_ok() {}
    }
}

fn announce(address: std::net::SocketAddr) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{address}")?;
    Ok(out.flush()?)
}
