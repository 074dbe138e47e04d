//! `redis-benchmark -t incr` on Redis, on our port for clients of Redis, and on a loop that answers without looking: what of
//! a rate is the server's, and what the tool's own.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::child::Role;
use super::process::{Server, free_port, output};
use crate::rows::{ROUNDS, Row, at_least, figure, median};

/// How many commands the tool sends before it reads replies, for how many in all, and what our rate must be of Redis's.
const DEPTHS: [(u32, u32, f64); 3] = [(1, 150_000, 1.0), (16, 2_000_000, 1.3), (100, 8_000_000, 1.5)];

/// INCR by redis-benchmark with 50 connections. `None` if Redis is not installed.
///
/// # Errors
/// A server or the tool failed.
pub fn redis_benchmark_rows() -> Result<Option<Vec<Row>>> {
    let Some(redis) = Server::redis(false)? else { return Ok(None) };
    let port = free_port()?;
    let _xuid = Server::on_land(&["--resp", &port.to_string(), "--sequence-create", "counter:*"])?;
    let bare = Server::own(Role::Number)?;
    DEPTHS
        .into_iter()
        .map(|depth| row(depth, [port, redis.address, bare.address]))
        .collect::<Result<_>>()
        .map(Some)
}

fn row((depth, commands, target): (u32, u32, f64), servers: [SocketAddr; 3]) -> Result<Row> {
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (server, rates) in servers.into_iter().zip(&mut rates) {
            rates.push(rate(server, depth, commands)? / 1e3);
        }
    }
    let [ours, redis, bare] = &rates;
    let ratio = median(ours) / median(redis);
    let figures = format!(
        "{} against {} of Redis; {} of a loop that answers without looking",
        figure(ours, "k/s"),
        figure(redis, "k/s"),
        figure(bare, "k/s")
    );
    Ok(at_least(&format!("redis-benchmark -t incr -c 50 -P {depth}"), figures, ratio, target, "x"))
}

/// What the tool says of a server's rate.
fn rate(server: SocketAddr, depth: u32, commands: u32) -> Result<f64> {
    let mut tool = Command::new("redis-benchmark");
    tool.args(["-t", "incr", "-c", "50", "--csv", "-p"]).arg(server.port().to_string());
    tool.args(["-P", &depth.to_string(), "-n", &commands.to_string()]);
    let said = output(tool.stdin(Stdio::null()).stderr(Stdio::null()))?;
    let line = said.lines().last().unwrap_or_default();
    let rate = line.split(',').nth(1).and_then(|rate| rate.trim_matches('"').parse().ok());
    let rate: f64 = rate.with_context(|| format!("redis-benchmark says {said:?}"))?;
    ensure!(rate > 0.0, "redis-benchmark was answered nothing");
    Ok(rate)
}
