//! What connections cost in memory when they are quiet again.

use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Client, Serve, clock, encode, op, process};

const CONNECTIONS: usize = 1_000;
/// Requests that each connection sends in one piece: what they are read into is as large as a server reads at once.
const BURST: usize = 8_000;
/// Bytes of a frame that a burst begins and the next one ends.
const HALF: usize = 9;
/// Each burst fills what the server reads at once; so many of them, and every connection has done so.
const ROUNDS: usize = 2;
/// What a quiet connection may cost on top: it was 60 KiB when each kept the memory that it had read into.
const QUIET: u64 = 6 << 10;
/// The allocator gives back what was freed within some seconds.
const GIVEN_BACK: Duration = Duration::from_secs(20);

#[test]
fn a_thousand_connections_that_were_busy_once_cost_little_when_they_are_quiet() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    process::allow_open_files(4_096)?;
    let mut clients = (0..CONNECTIONS).map(|_| server.client()).collect::<Result<Vec<Client>>>()?;
    let before = process::rss_anon(server.pid())?;
    let mut frame = Vec::new();
    encode(&mut frame, op::DECODE, 0, 0, &7_u64.to_le_bytes());
    for client in &mut clients {
        client.push_raw(&frame[..HALF]);
    }
    for _ in 0..ROUNDS {
        for some in clients.chunks_mut(50) {
            // All of them send before any of them reads: so many are busy at a time. Each ends in the middle of a
            // frame.
            for client in &mut *some {
                client.push_raw(&frame[HALF..]);
                (1..BURST).for_each(|_| _ = client.push(op::DECODE, &7_u64.to_le_bytes()));
                client.push_raw(&frame[..HALF]);
                client.flush()?;
            }
            for client in some {
                for _ in 0..BURST {
                    client.recv()?;
                }
            }
        }
    }
    let busy = process::rss_anon(server.pid())?;
    let mut quiet = busy;
    let limit = before + QUIET * CONNECTIONS as u64;
    let given_back = clock::wait_until("the memory is given back", GIVEN_BACK, || {
        quiet = process::rss_anon(server.pid())?;
        Ok(quiet < limit)
    });
    println!(
        "memory: {} KiB with {CONNECTIONS} connections before a burst, {} after it, {} when quiet ({given_back:?})",
        before >> 10,
        busy >> 10,
        quiet >> 10
    );
    given_back?;
    for client in &mut clients {
        client.push_raw(&frame[HALF..]);
        client.flush()?;
        ensure!(client.recv()?.status == 0);
    }
    Ok(())
}
