//! Many names on one server: how fast they are made, what each costs in memory, and that they come back as they were.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::LONG;
use crate::{Client, Serve, Server, clock, folder, op, process};

/// A server with a hundred thousand names in use has less than 200 MB of anonymous memory: so much a name.
const NAME_BYTES: u64 = 1_700;
/// What it has without any.
const EMPTY_BYTES: u64 = 30 << 20;
/// Requests of one connection in flight; a server takes 1,024.
const IN_FLIGHT: usize = 512;
/// What a start reads, give or take: settings, libraries, the spill, and what the machine says of itself. The records of ten
/// thousand names are five times as long.
const START_READS: u64 = 2 << 20;
/// What came of it.
#[derive(Debug, Clone, Copy)]
pub struct ManyNames {
    /// How many names.
    pub names: u64,
    /// Until all were made.
    pub made_in: Duration,
    /// Anonymous memory before the first name, with all of them in use, and when all are compact.
    pub bytes: [u64; 3],
}

impl ManyNames {
    /// What one name costs in use.
    pub fn bytes_a_name(&self) -> u64 {
        self.bytes[1].saturating_sub(self.bytes[0]) / self.names
    }
}

/// Makes so many names over the wire, uses each once, and again after a clean restart and after it lay idle.
pub fn many_names(names: u64) -> Result<ManyNames> {
    let (_home, data, _) = folder::fresh()?;
    let server = Server::start(&data)?;
    let (empty, empty_reads) = (process::rss_anon(server.pid())?, bytes_read(server.pid())?);
    let begin = clock::now();
    let mut client = server.client()?;
    in_flight(&mut client, op::SEQ_CREATE, names, |_, body| {
        ensure!(body.starts_with(b"{"), "no JSON object: {}", String::from_utf8_lossy(body));
        Ok(())
    })?;
    let made_in = begin.elapsed();
    take(&mut client, names, 1)?;
    let used = process::rss_anon(server.pid())?;
    println!("{names} names: made in {made_in:?}, {} MiB, and {} MiB without", used >> 20, empty >> 20);
    ensure!(used < EMPTY_BYTES + names * NAME_BYTES, "{used} bytes with {names} names in use");
    drop(client);
    server.stop()?;

    // What a start reads does not depend on them, nor does how long it takes.
    let server = Server::start(&data)?;
    let reads = bytes_read(server.pid())?;
    ensure!(
        reads < empty_reads + START_READS,
        "a start read {reads} bytes with {names} names, {empty_reads} without"
    );
    take(&mut server.client()?, names, 2)?;
    let again = process::rss_anon(server.pid())?;
    println!("{names} names: {} MiB in the next life", again >> 20);
    ensure!(again < EMPTY_BYTES + names * NAME_BYTES, "{again} bytes with {names} names in use again");
    server.stop()?;

    let server = Serve::new(&data)?.arg("--sequence-idle").arg("1s").start()?;
    take(&mut server.client()?, names, 3)?;
    let known = || Ok(server.metrics()?.sum(&["xuid_sequence_names", "known"]) < 1.0);
    // Ten thousand of them become so in ten seconds.
    clock::wait_until("idle names are compact", LONG * 3, known)?;
    let compact = process::rss_anon(server.pid())?;
    println!("{names} names: {} MiB when they are idle", compact >> 20);
    ensure!(compact < EMPTY_BYTES + names * NAME_BYTES, "{compact} bytes with {names} idle names");
    take(&mut server.client()?, names, 4)?;
    let back = process::rss_anon(server.pid())?;
    println!("{names} names: {} MiB when they are back", back >> 20);
    ensure!(back < EMPTY_BYTES + names * NAME_BYTES, "{back} bytes with {names} names that were idle");
    server.stop()?;
    Ok(ManyNames { names, made_in, bytes: [empty, used, compact] })
}

fn name(n: u64) -> String {
    format!("shop:{n:06}:orders")
}

/// One number of each name, which must be that one.
fn take(client: &mut Client, names: u64, expected: u64) -> Result<()> {
    in_flight(client, op::SEQ_NEXT, names, |n, body| {
        let number = body.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        ensure!(number == Some(expected), "{number:?} of {} instead of {expected}", name(n));
        Ok(())
    })
}

/// One request of each name, many at a time; what is refused for now is asked for again.
fn in_flight(
    client: &mut Client,
    op: u8,
    names: u64,
    mut answered: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut left: Vec<u64> = (0..names).rev().collect();
    let mut asked = std::collections::HashMap::with_capacity(IN_FLIGHT);
    let begin = clock::now();
    while !left.is_empty() || !asked.is_empty() {
        while asked.len() < IN_FLIGHT
            && let Some(n) = left.pop()
        {
            let text = name(n);
            let mut body = vec![text.len() as u8];
            body.extend(text.as_bytes());
            asked.insert(client.push(op, &body), n);
        }
        client.flush()?;
        let frame = client.recv()?;
        let n = asked.remove(&frame.request_id).context("an answer to nothing")?;
        match frame.status {
            0 => answered(n, &frame.body)?,
            status if status & 0x8000 != 0 && begin.elapsed() < 5 * LONG => left.push(n),
            status => anyhow::bail!("status {status:04x}: {}", String::from_utf8_lossy(&frame.body)),
        }
    }
    Ok(())
}

/// Bytes that a process has read so far, of whatever.
fn bytes_read(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("no rchar")?;
    Ok(line.parse()?)
}
