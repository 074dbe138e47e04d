//! SIGTERM while the registry or the disk is away.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::scene::Kind;
use crate::{SchedulerDelay, Server, clock, process};

/// What the server is started with.
const DRAIN: Duration = Duration::from_secs(1);
/// What a stop has after its drain.
const LAST_SECOND: Duration = Duration::from_secs(1);
/// A process that the kernel lets go of ends within this.
const GONE: Duration = Duration::from_secs(20);

/// Stops a server that meets a fault: in time its sockets are closed, its last line is written, and exit is called. How
/// long that took.
pub(super) fn stop(server: &mut Server, kind: Kind, delay: &SchedulerDelay) -> Result<Duration> {
    let mut clients = [server.client()?, server.client()?];
    let begin = clock::now();
    process::terminate(server.child())?;
    let has_exited = || process::has_called_exit(server.pid());
    clock::wait_until("it has called exit", DRAIN + LAST_SECOND + slack(delay), has_exited)?;
    let took = begin.elapsed();
    for client in &mut clients {
        client.set_read_limit(LAST_SECOND)?;
        client.read_to_end().context("a client's connection is closed")?;
    }
    for (port, addr) in [("clients", server.addr), ("probes", server.admin)] {
        ensure!(TcpStream::connect(addr).is_err(), "the port for {port} is open");
    }
    let log = server.log();
    let last = log.lines().last().unwrap_or_default();
    let is_clean = last.contains("stopped issued=");
    let is_given_up =
        last.starts_with("xuid: the engine did not stop within") && last.contains("no id repeats");
    ensure!(is_clean || is_given_up, "its last line is {last:?}");
    ensure!(kind != Kind::Full || is_clean, "a full disk keeps no stop: {last:?}");
    Ok(took)
}

fn slack(delay: &SchedulerDelay) -> Duration {
    // What is looked at every few milliseconds is a little later.
    delay.allow(Duration::from_millis(300))
}

/// Waits for the end of a process that has called exit.
pub(super) fn wait_gone(server: &mut Server) -> Result<()> {
    let last_is_clean = server.log().lines().last().is_some_and(|last| last.contains("stopped issued="));
    let status = process::wait_exit(server.child_mut(), GONE)?;
    let expected = i32::from(!last_is_clean);
    ensure!(
        status.code() == Some(expected),
        "it ended with {status:?}, and {expected} is what its last line means"
    );
    Ok(())
}
