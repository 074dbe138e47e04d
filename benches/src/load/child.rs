//! What a child process of a benchmark does: an echo of NEXT's frame sizes, a reply to each command of a Redis client, numbers
//! in the frames of ARRAY, the same frames with nothing written into them, or a stream of bytes.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
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
    /// Answers the same number to each command of a Redis client, without looking at it.
    Number,
    /// Answers each ARRAY with the next 4,096 numbers, without looking at it.
    Numbers,
    /// Answers each ARRAY with the same bytes, which are written once.
    Blank,
    /// Writes a MB at a time to whoever connects.
    Stream,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Number => "number",
            Self::Numbers => "numbers",
            Self::Blank => "blank",
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
        Some("echo") => on_connections(echo_one)?,
        Some("number") => on_connections(number_one)?,
        Some("numbers") => arrays(true)?,
        Some("blank") => arrays(false)?,
        Some("stream") => stream()?,
        _ => bail!("{VARIABLE} is {}, and that is no role", role.display()),
    }
    Ok(true)
}

/// On the runtime that the server uses where it has one core.
fn on_connections<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    serve: fn(TcpStream) -> F,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve(stream));
        }
    })
}

/// A command is an array, and nothing else of what `redis-benchmark -t incr` sends has its sign.
async fn number_one(mut stream: TcpStream) -> std::io::Result<()> {
    const REPLY: &[u8] = b":123456789\r\n";
    let mut input = vec![0; 64 * 1024];
    let output = REPLY.repeat(input.len());
    loop {
        let read = stream.read(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        let commands = input[..read].split(|byte| *byte == b'*').count() - 1;
        stream.write_all(&output[..commands * REPLY.len()]).await?;
    }
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

/// A loop without a runtime. With `count` it writes numbers into its replies, at its first reply of a length otherwise.
fn arrays(count: bool) -> Result<()> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    announce(listener.local_addr()?)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut clients = Vec::<Counted>::new();
    let (mut input, mut output, mut first) = (vec![0; 64 * 1024], Vec::new(), 1);
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let client = Counted::greet(&listener, &mut input)?;
                epoll::add(&epoll, &client.stream, EventData::new_u64(clients.len() as u64), EventFlags::IN)?;
                clients.push(client);
            } else {
                let client = &mut clients[event.data.u64() as usize];
                if !client.answer(&mut input, &mut output, &mut first, count) {
                    epoll::delete(&epoll, &client.stream)?;
                }
            }
        }
    }
}

/// What the listener is called among the clients.
const LISTENER: u64 = u64::MAX;

/// A client that is sent numbers.
struct Counted {
    stream: std::net::TcpStream,
    /// Bytes of a request that is not whole yet.
    begun: usize,
}

impl Counted {
    fn greet(listener: &std::net::TcpListener, input: &mut [u8]) -> Result<Self> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        // The greeting, whatever it says.
        let _ = stream.read(input)?;
        stream.write_all(&Header::reply(Op::Hello, 0, 0).encode())?;
        Ok(Self { stream, begun: 0 })
    }

    /// Answers what can be read now; false when the client is gone.
    fn answer(&mut self, input: &mut [u8], output: &mut Vec<u8>, first: &mut u64, count: bool) -> bool {
        let read = self.stream.read(input).unwrap_or(0);
        let frames = (self.begun + read) / ARRAY_REQUEST;
        self.begun = (self.begun + read) % ARRAY_REQUEST;
        let len = frames * ARRAY_REPLY;
        let written = if count { 0 } else { output.len().min(len) };
        output.resize(output.len().max(len), 0);
        for frame in output[written..len].chunks_mut(ARRAY_REPLY) {
            let mut slots = ArraySlots::begin(frame, 0, ARRAY_COUNT);
            slots.run(*first, ARRAY_COUNT);
            slots.finish();
            *first += u64::from(ARRAY_COUNT);
        }
        read > 0 && self.stream.write_all(&output[..len]).is_ok()
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
