//! A registry that comes back from a copy, into the same file: what notices it, and what does not.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Ledger, Serve, Server, Xuid, clock, folder};

/// More than the spill holds: what is in it is issued.
const ALL: u64 = 25_000_000;

/// A folder whose spill holds some seconds of land, and a copy of it.
fn a_past(home: &Path, max_age: &str) -> Result<()> {
    let server = Serve::new(&home.join("data"))?.arg("--max-age").arg(max_age).start()?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    folder::copy(&home.join("data"), &home.join("backup"))
}

/// A life that issues what the spill holds, and is killed.
fn spend(data: &Path, max_age: &str, ledger: &mut Ledger) -> Result<f64> {
    let server = Serve::new(data)?.arg("--max-age").arg(max_age).start()?;
    server.drain(ALL, ledger)?;
    let replayed = server.replayed()?;
    server.kill()?;
    Ok(replayed)
}

/// `cp backup/registry data/registry`.
fn put_registry_back(home: &Path) -> Result<()> {
    fs::copy(home.join("backup/registry"), home.join("data/registry"))?;
    Ok(())
}

/// `cp backup/* data`: what is there gets its old content, and what is new stays.
fn put_folder_back(home: &Path) -> Result<()> {
    for path in folder::files(&home.join("backup"), "")? {
        fs::copy(&path, home.join("data").join(path.file_name().context("a name")?))?;
    }
    Ok(())
}

/// What a snapshot of the disk does: the same files, each with the content of then, and no others.
fn roll_back(home: &Path) -> Result<()> {
    for path in folder::files(&home.join("data"), "")? {
        if !home.join("backup").join(path.file_name().context("a name")?).exists() {
            fs::remove_file(path)?;
        }
    }
    put_folder_back(home)
}

/// A start is refused, and says which command helps.
fn is_refused(data: &Path) -> Result<()> {
    let said = Serve::new(data)?.run_to_exit()?.refused(1)?;
    let last = said.lines().last().unwrap_or_default();
    println!("restored registry: {last}");
    let command = format!("xuid registry fence --restored {}", data.display());
    ensure!(last.contains("was restored") && last.contains(&command), "{said}");
    Ok(())
}

#[test]
fn a_registry_put_back_into_its_file_is_refused_until_a_fence_and_a_rolled_back_disk_is_not() -> Result<()> {
    const MAX_AGE: &str = "1h";
    let home = TempDir::new()?;
    let (home, data) = (home.path(), home.path().join("data"));
    let mut ledger = Ledger::default();
    a_past(home, MAX_AGE)?;
    let replayed = spend(&data, MAX_AGE, &mut ledger)?;
    ensure!(replayed > 1e6, "nothing was replayed: the attack hits nothing");
    ledger.check()?;
    // Each as often as it is tried.
    for _ in 0..2 {
        put_registry_back(home)?;
        is_refused(&data)?;
        let shown = Xuid::new(["registry", "show"])?.arg(&data).run()?;
        ensure!(shown.ok()?.contains("it was restored"), "{shown:?}");
        put_folder_back(home)?;
        is_refused(&data)?;
    }

    // The control: without what the folder knew the same land is replayed once more, and the oracle must see it.
    roll_back(home)?;
    spend(&data, MAX_AGE, &mut ledger)?;
    let known = ledger.report().duplicates;
    println!("restored registry: {known} duplicates where nothing in the folder knew better");
    ensure!(known > 1_000_000, "this attack repeats no id even unnoticed, so its tests prove nothing");

    put_registry_back(home)?;
    is_refused(&data)?;
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    let server = Server::start(&data)?;
    // A fence reaches two minutes ahead, past every window that may have been granted.
    server.wait_ready(Duration::from_secs(150))?;
    server.drain(10_000_000, &mut ledger)?;
    println!("restored registry: {} after a fence, {} replayed", ledger.report(), server.replayed()?);
    ensure!(ledger.report().duplicates == known, "ids came twice after a fence: {}", ledger.report());
    server.stop()?;
    // What the folder knows by now refuses nothing that was fenced.
    Server::start(&data)?.stop()?;
    Ok(())
}

#[test]
fn a_disk_rolled_back_by_more_than_max_age_repeats_nothing_even_unnoticed() -> Result<()> {
    const MAX_AGE: &str = "8s";
    let home = TempDir::new()?;
    let (home, data) = (home.path(), home.path().join("data"));
    let mut ledger = Ledger::default();
    a_past(home, MAX_AGE)?;
    let copied = clock::now();
    let replayed = spend(&data, MAX_AGE, &mut ledger)?;
    ensure!(replayed > 1e6, "nothing was replayed: the attack hits nothing");
    // The newest extent in the copy is too old by then.
    clock::idle(Duration::from_secs(9).saturating_sub(copied.elapsed()));
    roll_back(home)?;
    let replayed = spend(&data, MAX_AGE, &mut ledger)?;
    println!("rolled back past max_age: {replayed} replayed, {}", ledger.check()?);
    Ok(())
}
