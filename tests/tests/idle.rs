//! What the server costs when nobody asks, and how soon it answers. Alone in its binary, so that nothing else runs.

use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::{Order, Server, clock, folder, process};

#[test]
fn an_idle_server_costs_next_to_nothing_and_its_first_id_comes_at_once() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    Server::start(&data)?.stop()?;
    let (mut first_ids, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..11 {
        let server = Server::start(&data)?;
        ledger.add_id(server.client()?.next(Order::Any)?);
        let took = server.born().elapsed();
        first_ids.push(took);
        waits.push(took.saturating_sub(process::busy(server.pid())?));
        server.stop()?;
    }
    first_ids.sort_unstable();
    println!("idle: first id after exec: {first_ids:?}");
    waits.sort_unstable();
    println!("idle: of which nothing ran: {waits:?}");
    // The least of them: whoever else wants this machine delays some starts, but what a start waits for delays each. How
    // long one takes on a machine of its own is measured by the benchmark `neighbours`.
    ensure!(first_ids[0] < Duration::from_millis(50), "the fastest first id took {:?}", first_ids[0]);
    ensure!(waits[0] < Duration::from_millis(25), "each start waited, at least {:?}", waits[0]);

    let server = Server::start(&data)?;
    ledger.add_id(server.client()?.next(Order::Any)?);
    // The first seconds are those of a start: windows grow, threads settle.
    clock::idle(Duration::from_secs(2));
    let (before, begin) = (process::cpu_seconds(server.pid())?, clock::now());
    clock::idle(Duration::from_secs(20));
    let share = (process::cpu_seconds(server.pid())? - before) / begin.elapsed().as_secs_f64();
    let memory = process::rss_anon(server.pid())?;
    println!("idle: {:.2} % of a core, {} KiB of anonymous memory", share * 100.0, memory >> 10);
    ensure!(share < 0.01, "{:.2} % of a core", share * 100.0);
    ensure!(memory < 64 << 20, "{memory} bytes of anonymous memory");
    ledger.add_id(server.client()?.next(Order::Any)?);
    ledger.check()?;
    server.stop().map(drop)
}
