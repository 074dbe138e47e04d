//! Files that come back from a copy: a spill of an earlier hour, a whole folder in another place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Job, Ledger, Load, Order, Serve, Server, Work, Xuid, clock, folder};

/// The one spill file of a folder.
fn only_spill(data: &Path) -> Result<PathBuf> {
    let spills = folder::spills(data)?;
    ensure!(spills.len() == 1, "one spill, not {spills:?}");
    Ok(spills[0].clone())
}

/// The worker of a fresh id.
fn worker(server: &Server, ledger: &mut Ledger) -> Result<u32> {
    let mut client = server.client()?;
    let id = client.next(Order::Fresh)?;
    ledger.add_id(id);
    Ok(client.decode(id)?.worker)
}

/// Lines of a log about the spill that are more than routine.
fn findings(log: &str) -> Vec<&str> {
    let loud = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("spill")
            && ["warn", "error", "mark", "behind", "older", "restored", "copied", "granted", "refused"]
                .iter()
                .any(|word| line.contains(word))
    };
    log.lines().filter(loud).collect()
}

#[test]
fn a_spill_copied_while_running_and_put_back_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    // A first life leaves land in the spill, cleanly.
    let server = Server::start(&data)?;
    server.drain(1_000, &mut ledger)?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    // The copy is taken from the running second life, before and while it replays.
    let server = Server::start(&data)?;
    let spill = only_spill(&data)?;
    fs::copy(&spill, &copy)?;
    server.drain(25_000_000, &mut ledger)?;
    ensure!(server.replayed()? > 1e6, "nothing was replayed: the attack hits nothing\n{server}");
    clock::idle(Duration::from_secs(3));
    server.kill()?;
    println!("restored spill: {}", ledger.check()?);
    // The old file comes back, and the marks of the registry must stand above it.
    fs::copy(&copy, &spill)?;
    let server = Server::start(&data)?;
    server.drain(25_000_000, &mut ledger)?;
    let report = ledger.check()?;
    println!("restored spill: {report}; replayed from the old copy {}", server.replayed()?);
    let log = server.stop()?;
    let said = findings(&log);
    println!("restored spill: the log says\n{}", said.join("\n"));
    ensure!(!said.is_empty(), "the log does not say what was found:\n{log}");
    // And once more, after that life stopped cleanly and appended.
    fs::copy(&copy, &spill)?;
    let server = Server::start(&data)?;
    server.drain(25_000_000, &mut ledger)?;
    println!("restored spill, again: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_spill_copied_while_stopped_and_put_back_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    let spill = only_spill(&data)?;
    fs::copy(&spill, &copy)?;
    for life in 0..3 {
        let server = Server::start(&data)?;
        server.drain(25_000_000, &mut ledger)?;
        let count = server.replayed()?;
        println!("restored spill, stopped, life {life}: {} ({count} replayed)", ledger.check()?);
        ensure!(life > 0 || count > 1e6, "nothing was replayed: the attack hits nothing\n{server}");
        let log = if life == 1 { server.kill()? } else { server.stop()? };
        ensure!(life == 0 || !findings(&log).is_empty(), "the log does not say what was found:\n{log}");
        fs::copy(&copy, &spill)?;
    }
    Ok(())
}

#[test]
fn a_spill_overwritten_under_a_running_server_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    let spill = only_spill(&data)?;
    fs::copy(&spill, &copy)?;
    let mut server = Server::start(&data)?;
    for round in 0..4 {
        server.drain(15_000_000, &mut ledger)?;
        clock::idle(Duration::from_millis(2_200));
        folder::overwrite(&copy, &spill)?;
        println!("overwritten spill, round {round}: {}", ledger.check()?);
    }
    ensure!(server.is_alive()?, "it ended\n{server}");
    server.drain(15_000_000, &mut ledger)?;
    server.kill()?;
    let server = Server::start(&data)?;
    server.drain(15_000_000, &mut ledger)?;
    println!("overwritten spill, next life: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_copied_folder_is_refused_until_it_is_adopted_and_then_repeats_nothing() -> Result<()> {
    let home = TempDir::new()?;
    let (data, hot, cold) = (home.path().join("data"), home.path().join("hot"), home.path().join("cold"));
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    server.drain(1_000, &mut ledger)?;
    clock::idle(Duration::from_secs(4));
    server.stop()?;
    folder::copy(&data, &cold)?;
    let original = Server::start(&data)?;
    original.drain(5_000_000, &mut ledger)?;
    folder::copy(&data, &hot)?;
    for copy in [&hot, &cold] {
        let said = Serve::new(copy)?.run_to_exit()?.refused(1)?;
        ensure!(said.contains("xuid registry adopt"), "the command that helps is not named: {said}");
        println!("copied folder: {}", said.lines().last().unwrap_or_default());
    }
    ledger.check()?;
    // The original goes on, lightly, through the adoption and afterwards.
    let gently = Job::gently(Work::Array(100), Order::Any, Duration::from_millis(20));
    let going_on = Load::start(original.addr, &[gently]);
    Xuid::new(["registry", "adopt", "--yes"])?.arg(&cold).run()?.ok()?;
    let adopted = Server::start(&cold)?;
    // Adopting raises every record above what the original may hold, two minutes at the most.
    let waited = adopted.wait_ready(Duration::from_secs(150))?;
    println!("copied folder: ready after {:?}: {}", adopted.born().elapsed(), waited.trim());
    let (ours, theirs) = (worker(&adopted, &mut ledger)?, worker(&original, &mut ledger)?);
    println!("copied folder: the copy has worker {ours} now, the original {theirs}");
    // Two clusters are promised nothing about each other; but the copy must not fall back on the worker that it
    // shares with the original, and draws another (the same again once in a thousand times).
    for _ in 0..20 {
        adopted.drain(500_000, &mut ledger)?;
        original.drain(500_000, &mut ledger)?;
    }
    let more = going_on.finish(&mut ledger)?;
    ensure!(more > 1_000, "the original went on");
    let report = ledger.check().context("the adopted copy and the original repeat each other")?;
    println!("copied folder: {report}, replayed by the copy {}", adopted.replayed()?);
    Ok(())
}
