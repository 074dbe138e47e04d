//! What an idle minute left is served after the restart.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xuid_tests::{Ledger, Order, Server, Xuid, clock, folder};

const IDLE: Duration = Duration::from_mins(1);
/// What `xuid inspect --json` says about all spills of a folder.
#[derive(Debug)]
struct Left {
    ids: u64,
    extents: u64,
}

fn inspect(data: &Path) -> Result<Left> {
    let seen = Xuid::new(["inspect", "--json"])?.arg(data).run()?.json()?;
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let mut left = Left { ids: 0, extents: 0 };
    for spill in seen["spills"].as_array().with_context(|| format!("no spills in {seen}"))? {
        left.ids += number(&spill["ids"]).with_context(|| format!("no ids in {spill}"))?;
        left.extents += number(&spill["extents"]).with_context(|| format!("no extents in {spill}"))?;
    }
    Ok(left)
}

/// Serves what lies in the folder: at least `share` of a burst of `wanted` ids must come out of the spill.
fn serve_from_spill(data: &Path, wanted: u64, share: f64, ledger: &mut Ledger) -> Result<()> {
    let server = Server::start(data)?;
    let took = server.drain(wanted, ledger)?;
    let metrics = server.metrics()?;
    let replayed = metrics.sum(&["replayed", "ids"]);
    println!("burst after idle: {wanted} ids in {took:?}, {replayed} of them replayed");
    println!("{}", metrics.show("served"));
    ensure!(
        replayed >= share * wanted as f64,
        "only {replayed} of {wanted} ids came from the spill\n{server}"
    );
    let minted_meanwhile = 4_096_000.0 * (took.as_secs_f64() + 4.0);
    ensure!(
        replayed + minted_meanwhile >= wanted as f64,
        "{replayed} replayed, {wanted} served: more than exists"
    );
    println!("burst after idle: {}", ledger.check()?);
    server.stop().map(drop)
}

#[test]
fn an_idle_minute_is_kept_over_a_clean_stop_and_served_in_a_burst() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = Server::start(&data)?;
    ledger.add_id(server.client()?.next(Order::Any)?);
    clock::idle(IDLE);
    server.stop()?;
    let left = inspect(&data)?;
    println!("burst after idle: a clean stop left {left:?}");
    ensure!(left.ids >= 235_000_000, "an idle minute left only {left:?}");
    ensure!(left.extents <= 100, "an idle minute is scattered: {left:?}");
    serve_from_spill(&data, 200_000_000, 0.5, &mut ledger)?;
    // What that life did not use went back, and must not repeat what it issued.
    let server = Server::start(&data)?;
    server.drain(30_000_000, &mut ledger)?;
    println!("burst after idle, once more: {}", ledger.check()?);
    server.stop().map(drop)
}

#[test]
fn an_idle_minute_is_kept_over_kill_9_less_what_was_in_memory_and_granted() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let server = Server::start(&data)?;
    ledger.add_id(server.client()?.next(Order::Any)?);
    clock::idle(IDLE);
    server.kill()?;
    let left = inspect(&data)?;
    println!("burst after idle: kill -9 left {left:?}");
    ensure!(left.ids >= 100_000_000, "kill -9 after an idle minute left only {left:?}");
    serve_from_spill(&data, left.ids * 8 / 10, 0.5, &mut ledger)
}
