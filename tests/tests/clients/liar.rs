//! A server that greets as it should, and then answers each request as it is told to: with a lie, or not at all.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use xuid_tests::{HEADER_LEN, PREFACE, op};

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// The header claims a body of 256 MiB.
    Longer,
    /// The reply belongs to PING.
    OtherOp,
    /// The reply belongs to a request that was not made.
    OtherRequest,
    /// An id of 2^63, or one among others.
    NoId,
    /// One id too few, or one too many.
    Count(i32),
    /// The frame has no bit 7.
    NotAReply,
    /// Nothing comes.
    Silence,
    /// The connection ends where HELLO should be answered.
    HangsUp,
}

/// A listener on any free port. Its threads end with its connections.
#[derive(Debug)]
pub(crate) struct Liar {
    pub(crate) addr: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl Liar {
    pub(crate) fn start(lie: Lie) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (addr, asked) = (listener.local_addr()?, Arc::<AtomicU64>::default());
        let counted = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                // A client that leaves ends the conversation.
                thread::spawn(move || converse(stream, lie, &counted));
            }
        });
        Ok(Self { addr, asked })
    }

    /// Requests for ids that came.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn converse(mut stream: TcpStream, lie: Lie, asked: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut preface = PREFACE;
    stream.read_exact(&mut preface)?;
    loop {
        let mut header = [0; HEADER_LEN];
        stream.read_exact(&mut header)?;
        let mut body = vec![0; u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize];
        stream.read_exact(&mut body)?;
        let mut request_id = [0; 8];
        request_id.copy_from_slice(&header[8..]);
        match header[4] {
            op::HELLO if lie == Lie::HangsUp => return Ok(()),
            op::HELLO => stream.write_all(&frame(op::HELLO | 0x80, request_id, &greeting()))?,
            op::PING | op::BYE if lie != Lie::Silence => {
                stream.write_all(&frame(header[4] | 0x80, request_id, &body))?;
            }
            op::NEXT | op::ARRAY | op::RUNS => {
                asked.fetch_add(1, Ordering::Relaxed);
                stream.write_all(&answer(lie, header[4], request_id, &body))?;
            }
            _ => {}
        }
    }
}

fn answer(lie: Lie, op: u8, request_id: [u8; 8], body: &[u8]) -> Vec<u8> {
    let first: u64 = if lie == Lie::NoId { 1 << 63 } else { 1 << 40 };
    let count = body.first_chunk::<4>().map_or(1, |count| u32::from_le_bytes(*count));
    let answered = if let Lie::Count(more) = lie { count.saturating_add_signed(more) } else { count };
    let body = match op {
        op::ARRAY => array(first, answered),
        op::RUNS => run(first, answered),
        _ => first.to_le_bytes().to_vec(),
    };
    match lie {
        Lie::Longer => {
            let mut whole = frame(op | 0x80, request_id, &body);
            whole[..4].copy_from_slice(&(256_u32 << 20).to_le_bytes());
            whole
        }
        Lie::OtherOp => frame(op::PING | 0x80, request_id, &body),
        Lie::OtherRequest => {
            frame(op | 0x80, (u64::from_le_bytes(request_id) ^ (1 << 20)).to_le_bytes(), &body)
        }
        Lie::NotAReply => frame(op, request_id, &body),
        Lie::NoId | Lie::Count(_) => frame(op | 0x80, request_id, &body),
        Lie::Silence | Lie::HangsUp => Vec::new(),
    }
}

fn array(first: u64, count: u32) -> Vec<u8> {
    let mut body = count.to_le_bytes().to_vec();
    body.extend([0; 4]);
    for at in 0..u64::from(count) {
        body.extend((first + at).to_le_bytes());
    }
    body
}

/// One run of all of them.
fn run(first: u64, count: u32) -> Vec<u8> {
    let mut body = count.to_le_bytes().to_vec();
    body.extend(1_u32.to_le_bytes());
    body.extend(first.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend(1_u32.to_le_bytes());
    body
}

fn frame(op: u8, request_id: [u8; 8], body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend([op, 0, 0, 0]);
    bytes.extend(request_id);
    bytes.extend(body);
    bytes
}

/// What a server of cluster 07 07 .. says of itself.
fn greeting() -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
    body.extend([7; 16]);
    body.extend(1_524_153_600_000_u64.to_le_bytes());
    body.extend(1_000_u32.to_le_bytes());
    body.extend([41, 10, 12, 0]);
    for limit in [4_096_u32, 131_072, 1_024, 300_000] {
        body.extend(limit.to_le_bytes());
    }
    body.extend([4, b'l', b'i', b'a', b'r']);
    body
}
