//! Rubbish, silence and greed at the port for clients of Redis.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Resp, RespValue, Rng, Serve, Server, clock, process};

use crate::{connect, serve};

/// What a server may hold on top of what it held.
const ROOM: u64 = 8 * 1024 * 1024;

fn is_well(server: &Server) -> Result<()> {
    let pong = connect(server)?.call(&["PING"])?;
    ensure!(pong == RespValue::Simple("PONG".into()), "{pong:?}");
    Ok(())
}

#[test]
fn claims_are_refused_without_memory_for_them() -> Result<()> {
    let server = serve()?;
    is_well(&server)?;
    let before = process::rss_anon(server.pid())?;
    for claim in [
        "*1\r\n$1073741824\r\n",
        "*2147483648\r\n",
        "*1\r\n$-7\r\n",
        "*-2147483649\r\n$",
        "*1024\r\n$65536\r\n",
    ] {
        for _ in 0..50 {
            let mut client = connect(&server)?;
            client.send(claim.as_bytes())?;
            client.send(b"PING\r\n")?;
            let said = String::from_utf8_lossy(&client.rest()?).into_owned();
            ensure!(said.starts_with("-ERR Protocol error"), "{claim:?}: {said:?}");
        }
    }
    let grown = process::rss_anon(server.pid())?.saturating_sub(before);
    ensure!(grown < ROOM, "{grown} bytes more");
    is_well(&server)?;
    server.stop().map(drop)
}

#[test]
fn rubbish_ends_its_own_connection_and_nothing_else() -> Result<()> {
    let (server, mut rng) = (serve()?, Rng::from_env("rubbish"));
    let mut other = connect(&server)?;
    for round in 0..300 {
        let mut bytes: Vec<u8> = (0..=rng.below(400)).map(|_| rng.below(256) as u8).collect();
        if round % 3 == 0 {
            bytes.splice(0..0, *b"*2\r\n$4\r\nINCR\r\n$");
        }
        let mut stream = TcpStream::connect(server.resp()?)?;
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        drop(stream);
        if round % 50 == 0 {
            ensure!(other.call(&["PING"])? == RespValue::Simple("PONG".into()));
        }
    }
    is_well(&server)?;
    server.stop().map(drop)
}

#[test]
fn a_client_without_a_first_command_is_gone_within_its_ten_seconds() -> Result<()> {
    let server = serve()?;
    let silent = connect(&server)?;
    let mut halves = connect(&server)?;
    halves.send(b"*2\r\n$4\r\nIN")?;
    let begin = clock::now();
    ensure!(silent.rest()?.is_empty() && halves.rest()?.is_empty());
    let took = begin.elapsed();
    ensure!(took > Duration::from_secs(8) && took < Duration::from_secs(20), "gone after {took:?}");
    server.stop().map(drop)
}

#[test]
fn a_token_is_asked_for_and_counts_as_at_the_binary_port() -> Result<()> {
    let serve = Serve::fresh()?.arg("--resp").arg("127.0.0.1:0").arg("--sequences").arg("registry");
    let server = serve.env("XUID_TOKEN", "s3cret").start()?;
    let mut client = Resp::connect(server.resp()?)?;
    ensure!(client.call(&["INCR", "@any"])?.text()?.starts_with("NOAUTH "));
    ensure!(client.call(&["AUTH", "wrong"])?.text()?.starts_with("WRONGPASS "));
    ensure!(client.rest()?.is_empty(), "one guess a connection");
    let mut client = Resp::connect(server.resp()?)?;
    ensure!(client.call(&["AUTH", "s3cret"])? == RespValue::Simple("OK".into()));
    ensure!(client.call(&["INCR", "@any"])?.integer()? > 0);
    server.stop().map(drop)
}

#[test]
fn off_loopback_it_needs_tls_and_a_token() -> Result<()> {
    let refused = Serve::fresh()?.arg("--resp").arg("0.0.0.0:0").run_to_exit()?;
    ensure!(refused.code == Some(2), "{refused:?}");
    ensure!(refused.stderr.contains("resp is bound to 0.0.0.0"), "{}", refused.stderr);
    Ok(())
}

#[test]
fn a_stop_answers_what_was_asked_and_then_closes() -> Result<()> {
    let server = serve()?;
    let mut client = connect(&server)?;
    let commands = vec![vec!["INCR", "counter:stop"]; 1_000];
    let replies = client.call_all(&commands)?;
    ensure!(replies.last() == Some(&RespValue::Integer(1_000)));
    let stopping = std::thread::spawn(move || server.stop());
    ensure!(client.rest()?.is_empty());
    stopping.join().ok().map_or_else(|| anyhow::bail!("a thread panicked"), |stopped| stopped.map(drop))?;
    Ok(())
}
