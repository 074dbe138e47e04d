//! What is not a client of ours: connections that say nothing, and a process that locks the registry's file.

use std::fs::File;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use xuid_tests::{ClientError, Order, Serve, Server, clock, http};

/// Something that was to happen within a second or two, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Connections that say nothing.
fn silent(server: &Server, count: usize) -> Result<Vec<TcpStream>> {
    Ok((0..count).map(|_| TcpStream::connect(server.addr)).collect::<Result<_, _>>()?)
}

#[test]
fn a_client_takes_the_place_of_a_connection_that_says_nothing() -> Result<()> {
    let server = Serve::fresh()?.arg("--max-connections").arg("8").start()?;
    let mut working = (0..4).map(|_| server.client()).collect::<Result<Vec<_>>>()?;
    let silent = silent(&server, 40)?;
    // Sooner than the 10 s that each of them has for its HELLO.
    let waited = clock::wait_until("a new client is served", SOON, || {
        Ok(server.client().and_then(|mut client| Ok(client.next(Order::Any)?)).is_ok())
    })?;
    println!("strangers: served after {waited:?} beside {} silent connections", silent.len());
    for client in &mut working {
        client.next(Order::Any).context("a client that said HELLO stays")?;
    }
    Ok(())
}

#[test]
fn few_open_files_are_shared_out_so_that_probes_are_answered() -> Result<()> {
    let server =
        Serve::fresh()?.under("prlimit", &["--nofile=100:100".to_owned(), "--".to_owned()]).start()?;
    let silent = silent(&server, 300)?;
    let probes = (0..200).map(|_| TcpStream::connect(server.admin)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..20 {
        let (status, text) = http::get(server.admin, "/readyz")?;
        ensure!(status == 200, "{status} {text}");
    }
    drop((silent, probes));
    clock::wait_until("a client is served", SOON, || Ok(server.client().is_ok()))?;
    Ok(())
}

#[test]
fn a_registry_that_a_stranger_locks_is_away_since_the_first_change_that_failed() -> Result<()> {
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let server = Serve::new(&data)?.start()?;
    let mut client = server.client()?;
    let lock = File::open(data.join("registry"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    // A first window lasts 2 s; then ids come from memory only.
    clock::wait_until("fresh ids are refused", 2 * SOON, || match client.next(Order::Fresh) {
        Ok(_) => Ok(false),
        Err(ClientError::Refused(refusal)) => Ok(refusal.is_retryable()),
        Err(error) => Err(error.into()),
    })?;
    let away = || -> Result<f64> {
        let metrics = server.metrics()?;
        metrics.value("xuid_registry_away_seconds").context("there is no such figure")
    };
    let mut last = 0.0;
    clock::wait_until("it counts on", 3 * SOON, || {
        let now = away()?;
        ensure!(now >= last, "away for {now} s after {last} s");
        last = now;
        Ok(now >= 6.0)
    })?;
    let (status, text) = http::get(server.admin, "/readyz")?;
    ensure!(status == 200 && text.contains("not served now: fresh, ordered"), "{status} {text}");
    ensure!(text.contains("the registry has not answered"), "{text}");
    ensure!(http::get(server.admin, "/readyz?order=fresh")?.0 == 503);
    client.next(Order::Any).context("ids of any age are served")?;
    flock(&lock, FlockOperation::Unlock)?;
    clock::wait_until("it is back", SOON, || Ok(client.next(Order::Fresh).is_ok()))?;
    clock::wait_until("and counted as that", SOON, || Ok(away()? < 1.0))?;
    let (status, text) = http::get(server.admin, "/readyz?order=fresh")?;
    ensure!(status == 200 && !text.contains("not served"), "{status} {text}");
    Ok(())
}
