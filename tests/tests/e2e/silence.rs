//! Connections that say nothing, or begin and never end: each is closed at its deadline.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use xuid_tests::{
    Client, ClientError, Job, Ledger, Load, Order, PREFACE, Serve, Server, Work, clock, encode, hello_body,
    op, process,
};

const SILENT: usize = 1_000;
/// Preface and HELLO must be whole within this.
const GREETING: Duration = Duration::from_secs(10);
/// A frame that was begun must be whole within this.
const FRAME: Duration = Duration::from_secs(30);
/// How much later than its deadline a close may be seen on a busy machine.
const SLACK: Duration = Duration::from_secs(4);
/// Anonymous memory with a thousand silent connections.
const MEMORY: u64 = 96 << 20;

/// Waits for the end of a connection; returns how long it took and what was said before.
fn end_of(mut client: Client, limit: Duration) -> Result<(Duration, Vec<u8>)> {
    client.set_read_limit(limit)?;
    let begin = clock::now();
    let said = match client.read_to_end() {
        Ok(said) => said,
        Err(ClientError::Ended(error)) if error.kind() != std::io::ErrorKind::WouldBlock => Vec::new(),
        Err(error) => return Err(anyhow!("not closed within {limit:?}: {error}")),
    };
    Ok((begin.elapsed(), said))
}

/// Opens a connection, writes `bytes`, and expects it closed at `deadline`.
fn closes_at(
    server: &Server,
    name: &'static str,
    bytes: &[u8],
    deadline: Duration,
) -> Result<thread::JoinHandle<Result<()>>> {
    let mut client = Client::silent(server.addr)?;
    client.push_raw(bytes);
    client.flush()?;
    Ok(thread::spawn(move || {
        let (took, said) = end_of(client, deadline + SLACK)?;
        let text = String::from_utf8_lossy(&said).replace(|char: char| !(' '..='~').contains(&char), " ");
        println!("silence: {name}: closed after {took:?}, said {:?}", text.trim());
        ensure!(
            took + Duration::from_secs(1) > deadline,
            "{name}: closed after {took:?}, before its deadline"
        );
        Ok(())
    }))
}

#[test]
fn silent_connections_and_half_frames_are_closed_at_their_deadlines() -> Result<()> {
    // Started before this process allows itself more files: the server must cope with the usual limit of 1,024.
    let server = Serve::fresh()?.start()?;
    process::allow_open_files(4_096)?;
    let load = Load::start(server.addr, &[Job::gently(Work::Next(4), Order::Any, Duration::from_millis(2))]);
    let mut greeting = PREFACE.to_vec();
    encode(&mut greeting, op::HELLO, 0, 1, &hello_body(1, 1, [0; 16]));
    let mut array = Vec::new();
    encode(&mut array, op::ARRAY, 0, 2, &[0; 12]);
    let after_greeting = |part: &[u8]| [&greeting[..], part].concat();
    let mut waits = Vec::new();
    for (name, bytes, deadline) in [
        ("half a preface", PREFACE[..4].to_vec(), GREETING),
        ("a preface alone", PREFACE.to_vec(), GREETING),
        ("half a HELLO header", greeting[..15].to_vec(), GREETING),
        ("half a HELLO body", greeting[..30].to_vec(), GREETING),
        ("one byte of a header", after_greeting(&array[..1]), FRAME),
        ("a header without its body", after_greeting(&array[..16]), FRAME),
        ("all but the last byte", after_greeting(&array[..27]), FRAME),
    ] {
        waits.push(closes_at(&server, name, &bytes, deadline)?);
    }
    let begin = clock::now();
    let silent: Vec<Client> =
        (0..SILENT).map(|_| Client::silent(server.addr)).collect::<Result<_, _>>().context("connecting")?;
    println!("silence: {SILENT} connections in {:?}", begin.elapsed());
    let ids = load.ids();
    clock::wait_until("the bystander is served", Duration::from_secs(5), || Ok(load.ids() > ids + 1_000))?;
    let memory = process::rss_anon(server.pid())?;
    println!("silence: {} KiB of anonymous memory with them", memory >> 10);
    ensure!(memory < MEMORY, "{memory} bytes of anonymous memory");
    for client in silent {
        let left = (GREETING + SLACK).saturating_sub(begin.elapsed()).max(Duration::from_millis(100));
        end_of(client, left).context("a silent connection")?;
    }
    let took = begin.elapsed();
    println!("silence: all of them closed after {took:?}");
    ensure!(took + Duration::from_secs(1) > GREETING, "closed before the deadline: {took:?}");
    server.client()?.next(Order::Any)?;
    for wait in waits {
        wait.join().map_err(|_| anyhow!("a watcher panicked"))??;
    }
    load.ask_to_stop();
    let mut ledger = Ledger::default();
    for result in load.join()? {
        ensure!(result.refusals == 0, "the bystander was refused: {:?}", result.last_refusal);
        ledger.add_received(&result.received);
    }
    println!("silence: the bystander got {}", ledger.check()?);
    server.stop().map(drop)
}

#[test]
fn a_connection_that_asks_for_nothing_gets_a_goaway_when_its_time_is_over() -> Result<()> {
    let idle = Duration::from_secs(3);
    let server = Serve::fresh()?.arg("--idle").arg("3s").start()?;
    let (client, hello) = Client::hello(server.addr)?;
    ensure!(u128::from(hello.idle_ms) == idle.as_millis(), "{hello:?}");
    // One that keeps asking, if only for an echo, outlives it.
    let mut busy = server.client()?;
    let echoes = thread::spawn(move || -> Result<()> {
        for _ in 0..14 {
            clock::idle(idle / 6);
            busy.call(op::PING, b"")?;
        }
        Ok(())
    });
    let (took, said) = end_of(client, idle + SLACK)?;
    println!("silence: an idle connection was closed after {took:?}");
    ensure!(took + Duration::from_millis(500) > idle, "closed after {took:?}");
    ensure!(said.get(4) == Some(&op::GOAWAY), "GOAWAY before the close, not {said:?}");
    echoes.join().map_err(|_| anyhow!("the echoing thread panicked"))?
}

#[test]
fn a_clean_stop_says_goaway_and_finishes_what_is_in_flight() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = server.client()?;
    client.next(Order::Any)?;
    let stopping = thread::spawn(move || server.stop());
    let (took, said) = end_of(client, Duration::from_secs(15))?;
    println!("silence: a clean stop closed an idle connection after {took:?}");
    ensure!(said.get(4) == Some(&op::GOAWAY), "GOAWAY before the close, not {said:?}");
    stopping.join().map_err(|_| anyhow!("the stopping thread panicked"))??;
    Ok(())
}
