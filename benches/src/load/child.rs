//! What a child process of a benchmark does: an echo of NEXT's frame sizes, numbers in the frames of ARRAY, or a stream
//! of bytes. Each stands for what any server could reach on this machine.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use xuid_protocol::{ArraySlots, HEADER_LEN, Header, Op};

use super::dialect::{ARRAY_COUNT, NEXT_REPLY, NEXT_REQUEST};

/// Names the role of a child.
pub(super) const VARIABLE: &str = "BENCH_CHILD_ROLE";

/// Bytes of one write of the stream.
const WRITE: usize = 1 << 20;

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Answers 24 bytes to each 16.
    Echo,
    /// Answers each ARRAY with the next 4,096 numbers, without looking at it.
    Numbers,
    /// Writes a MB at a time to whoever connects.
    Stream,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Numbers => "numbers",
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
        Some("echo") => serve(echo_one)?,
        Some("numbers") => serve(number_one)?,
        Some("stream") => stream()?,
        _ => bail!("{VARIABLE} is {}, and that is no role", role.display()),
    }
    Ok(true)
}

/// The runtime that the server uses where it has one core.
fn serve<F>(one: fn(TcpStream) -> F) -> Result<()>
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(one(stream));
        }
    })
}

async fn echo_one(mut stream: TcpStream) -> std::io::Result<()> {
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

/// Bytes of ARRAY, and of the reply to it.
const ARRAY_REQUEST: usize = HEADER_LEN + 12;
const ARRAY_REPLY: usize = ArraySlots::frame_len(ARRAY_COUNT);

thread_local! {
    /// One output for all connections, so that it stays in the cache.
    static NUMBERS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

async fn number_one(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut input, mut at, mut first) = (vec![0; 64 * 1024], 0, 1);
    // The greeting, whatever it says.
    let _ = stream.read(&mut input).await?;
    stream.write_all(&Header::reply(Op::Hello, 0, 0).encode()).await?;
    loop {
        let read = stream.read(&mut input[at..]).await?;
        if read == 0 {
            return Ok(());
        }
        let frames = (at + read) / ARRAY_REQUEST;
        at = (at + read) % ARRAY_REQUEST;
        // What the socket does not take at once, which is seldom, is copied and written later.
        let rest = NUMBERS.with_borrow_mut(|output| {
            let len = frames * ARRAY_REPLY;
            output.resize(output.len().max(len), 0);
            for frame in output[..len].chunks_mut(ARRAY_REPLY) {
                let mut slots = ArraySlots::begin(frame, 0, ARRAY_COUNT);
                slots.run(first, ARRAY_COUNT);
                slots.finish();
                first += u64::from(ARRAY_COUNT);
            }
            match stream.try_write(&output[..len]) {
                Ok(written) => Ok(output[written..len].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(output[..len].to_vec()),
                Err(error) => Err(error),
            }
        })?;
        stream.write_all(&rest).await?;
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
