//! Disks that fail: spills with bad bytes or missing ends, no space, no right to write.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Ledger, LoopDisk, Rng, Serve, Server, Xuid, clock, folder, folder::Mount};

/// A life that leaves land in the spill.
fn leave_land(data: &Path, ledger: &mut Ledger) -> Result<()> {
    let server = Server::start(data)?;
    server.drain(1_000, ledger)?;
    clock::idle(Duration::from_millis(2_500));
    server.stop().map(drop)
}

#[test]
fn a_damaged_spill_is_reported_and_the_rest_of_it_served_once() -> Result<()> {
    let mut rng = Rng::from_env("damaged spill");
    let (_home, data, mut ledger) = folder::fresh()?;
    leave_land(&data, &mut ledger)?;
    let spills = folder::spills(&data)?;
    ensure!(!spills.is_empty(), "a clean stop leaves a spill");
    let written = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
    for round in 0..12 {
        for spill in folder::spills(&data)? {
            let end = written(&fs::read(&spill)?);
            // The records, and every third time the header.
            let from = if round % 3 == 2 { 0 } else { end.min(4_096) };
            folder::flip(&spill, from + rng.below(end - from), 1 + rng.below(7) as usize)?;
        }
        let seen = Xuid::new(["inspect"])?.arg(&data).run()?;
        ensure!(matches!(seen.code, Some(0 | 1)) && !seen.stderr.contains("panicked"), "{seen:?}");
        let server = Server::start(&data)?;
        server.drain(6_000_000, &mut ledger)?;
        ledger.check()?;
        clock::idle(Duration::from_millis(1_200));
        server.end(round % 2 == 0)?;
    }
    println!("damaged spill: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_shortened_spill_costs_ids_and_repeats_none() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    for keep in [8 * 1024 * 1024, 4_096 + 100, 4_096, 100, 1, 0] {
        leave_land(&data, &mut ledger)?;
        for spill in folder::spills(&data)? {
            folder::shorten(&spill, keep)?;
        }
        let server = Server::start(&data)?;
        server.drain(12_000_000, &mut ledger)?;
        println!("shortened spill, {keep} bytes kept: {}", ledger.check()?);
        server.stop()?;
    }
    Ok(())
}

/// What cannot be said ends nobody who would have said it.
#[test]
fn a_log_that_cannot_be_written_changes_nothing_else() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    for _ in 0..2 {
        let words = ["-c", r#"exec "$@" 2>/dev/full"#, "sh"].map(str::to_owned);
        let server = Serve::new(&data)?.under("sh", &words).start()?;
        server.drain(1_000_000, &mut ledger)?;
        server.stop()?;
    }
    println!("a log on a full disk: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_spill_shortened_while_running_is_abandoned_and_the_server_goes_on() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    leave_land(&data, &mut ledger)?;
    let mut server = Server::start(&data)?;
    for spill in folder::spills(&data)? {
        folder::shorten(&spill, 100)?;
    }
    server.drain(20_000_000, &mut ledger)?;
    clock::idle(Duration::from_secs(2));
    server.drain(5_000_000, &mut ledger)?;
    ensure!(server.is_alive()?, "it ended\n{server}");
    ensure!(server.log().to_lowercase().contains("spill"), "the log does not say it\n{server}");
    println!("shortened while running: {}", ledger.check()?);
    server.stop()?;
    let server = Server::start(&data)?;
    server.drain(5_000_000, &mut ledger)?;
    println!("shortened while running, next life: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_disk_too_small_for_the_registry_is_a_clear_failure() -> Result<()> {
    let home = TempDir::new()?;
    let place = home.path().join("disk");
    let Some(mount) = Mount::tmpfs(&place, "64k")? else { return Ok(()) };
    let said = Serve::new(&mount.dir().join("data"))?.run_to_exit()?.refused(1)?;
    let lower = said.to_lowercase();
    ensure!(lower.contains("space") || lower.contains("disk"), "{said}");
    println!("small disk: {}", said.lines().last().unwrap_or_default());
    // A genesis that failed half-way is no registry: with room it begins, or says what is in the way.
    let again = Serve::new(&mount.dir().join("data"))?.run_to_exit()?;
    again.refused(1)?;
    Ok(())
}

#[test]
fn a_disk_too_small_for_the_spill_serves_without_it_and_says_so() -> Result<()> {
    let home = TempDir::new()?;
    let place = home.path().join("disk");
    let Some(mount) = Mount::tmpfs(&place, "6m")? else { return Ok(()) };
    let data = mount.dir().join("data");
    let mut ledger = Ledger::default();
    for life in 0..3 {
        let server = Server::start(&data)?;
        server.drain(8_000_000, &mut ledger)?;
        let ready = server.wait_ready(Duration::from_secs(5))?;
        let log = server.log();
        ensure!(log.to_lowercase().contains("spill"), "the log does not say it\n{server}");
        ensure!(ready.to_lowercase().contains("spill"), "readiness does not say it: {ready}");
        println!("no room for the spill, life {life}: {} ({})", ledger.check()?, ready.trim());
        server.end(life != 1)?;
    }
    Ok(())
}

#[test]
fn a_disk_that_fills_up_stops_neither_reserving_nor_serving() -> Result<()> {
    let home = TempDir::new()?;
    let place = home.path().join("disk");
    let Some(mount) = Mount::tmpfs(&place, "48m")? else { return Ok(()) };
    let data = mount.dir().join("data");
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    server.drain(1_000_000, &mut ledger)?;
    println!("full disk: {} bytes were free", mount.fill("ballast")?);
    // Windows are two seconds long at first: several must be reserved on the full disk.
    clock::idle(Duration::from_secs(5));
    server.drain(10_000_000, &mut ledger)?;
    server.stop()?;
    for life in 0..3 {
        let server = Server::start(&data)?;
        server.drain(8_000_000, &mut ledger)?;
        println!("full disk, life {life}: {}", ledger.check()?);
        server.end(life != 0)?;
    }
    Ok(())
}

#[test]
fn to_see_whether_the_registry_takes_changes_writes_nothing() -> Result<()> {
    let home = TempDir::new()?;
    let Some(disk) = LoopDisk::new("the writes of an idle registry", home.path())? else { return Ok(()) };
    Server::start(&disk.dir().join("data"))?.stop()?;
    // The spill, which is written while nobody asks, lies elsewhere.
    let data = home.path().join("data");
    folder::copy(&disk.dir().join("data"), &data)?;
    fs::remove_file(data.join("registry"))?;
    let registry = disk.bind("data/registry", &data.join("registry"))?;
    disk.commit_each_second()?;
    let server = Server::start(&data)?;
    // Windows are reserved further and further apart. The server looks a few times a second, and if a look began a
    // transaction, its journal would commit each second.
    let (mut writes, mut since) = (disk.writes()?, clock::now());
    let quiet = || {
        let now = disk.writes()?;
        if now != writes {
            (writes, since) = (now, clock::now());
        }
        Ok(since.elapsed() >= Duration::from_secs(4))
    };
    let took = clock::wait_until("four seconds without a write", Duration::from_secs(90), quiet)?;
    println!("idle registry: nothing was written for four seconds, {took:?} after the start");
    server.stop()?;
    drop(registry);
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_written_is_a_clear_failure() -> Result<()> {
    let home = TempDir::new()?;
    // A file where the folder should be.
    let file = home.path().join("file");
    fs::write(&file, "not a folder")?;
    Serve::new(&file)?.run_to_exit()?.refused(1)?;
    let place = home.path().join("disk");
    let Some(mount) = Mount::tmpfs(&place, "48m")? else { return Ok(()) };
    mount.set_read_only(true)?;
    let fresh = Serve::new(&mount.dir().join("data"))?.run_to_exit()?.refused(1)?;
    ensure!(fresh.to_lowercase().contains("read-only"), "{fresh}");
    mount.set_read_only(false)?;
    let data = mount.dir().join("data");
    let mut ledger = Ledger::default();
    leave_land(&data, &mut ledger)?;
    mount.set_read_only(true)?;
    let used = Serve::new(&data)?.run_to_exit()?.refused(1)?;
    ensure!(used.to_lowercase().contains("read-only"), "{used}");
    println!("read-only: {}", used.lines().last().unwrap_or_default());
    Xuid::new(["inspect"])?.arg(&data).run()?.ok()?;
    mount.set_read_only(false)?;
    let server = Server::start(&data)?;
    server.drain(10_000_000, &mut ledger)?;
    println!("read-only, writable again: {}", ledger.check()?);
    server.stop().map(drop)
}
