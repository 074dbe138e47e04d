//! Too few descriptors: connections wait or are refused, those that are open are served, and it recovers.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::Tally;
use super::life;
use crate::{Client, Ledger, Order, Rng, clock};

const WORDS: &[&str] = &["oo many open files", "os error 24"];
/// The server looks again for a free descriptor every 200 ms.
const RECOVERED: Duration = Duration::from_secs(5);
/// A start takes some 28 of them.
const FEWEST: u64 = 6;
const MORE: u64 = 50;

/// A life under a limit, more connections than it can have, then one life with enough.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let data = home.join("data");
    if rng.below(2) == 0 {
        life::enough(&data, rng, ledger, tally)?;
    }
    let limit = FEWEST + rng.below(MORE);
    match life::start_short(life::limited(&data, "nofile", limit)?, WORDS)? {
        None => tally.note("starts refused", 1),
        Some(server) => {
            // With room for no connection at all there is nobody to be served.
            if let Ok(mut first) = Client::connect_within(server.addr, Duration::from_millis(500)) {
                exhaust(&mut first, limit, rng, ledger)
                    .with_context(|| format!("limit {limit}\n{server}"))?;
                drop(first);
                let again = clock::wait_for("it accepts again", RECOVERED, || {
                    Ok(Client::connect_within(server.addr, RECOVERED).ok())
                });
                let (_, waited) = again.with_context(|| format!("limit {limit}\n{server}"))?;
                tally.recovered(waited.as_millis() as u64);
                life::load(&server, rng.millis(20, 200), ledger, tally)?;
            } else {
                tally.note("no room for one connection", 1);
            }
            life::end(server, rng)?;
        }
    }
    life::enough(&data, rng, ledger, tally)
}

/// Opens connections until no more can be had, and asks by the one that was there first.
fn exhaust(first: &mut Client, limit: u64, rng: &mut Rng, ledger: &mut Ledger) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..limit + rng.below(20) {
        // The kernel accepts for the server, so this succeeds whether it has a descriptor or not.
        connections.push(TcpStream::connect(first.peer()?)?);
        for order in Order::ALL {
            ledger.add_id(first.next(order).context("the connection that was there first")?);
        }
    }
    let runs = first.runs(50_000, Duration::from_secs(5), Order::Any)?;
    ensure!(!runs.is_empty());
    ledger.extend(runs);
    Ok(())
}
