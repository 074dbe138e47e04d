//! Files that come back from a copy: a spill of an earlier hour, a whole folder in another place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{Job, Ledger, Load, LoopDisk, Order, RamFs, Serve, Server, Work, Xuid, clock, folder};

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

/// Fails unless the log warns that a spill is older than what was granted from it.
fn warned(log: &str) -> Result<()> {
    let warning = log.lines().find(|line| line.contains("WARN") && line.contains("spill"));
    println!("restored spill: the log says: {}", warning.unwrap_or("nothing"));
    ensure!(warning.is_some(), "the log does not say what was found:\n{log}");
    Ok(())
}

/// A life that replays what the one before left, leaves new land in the spill and is granted that too, so that the
/// mark stands above the end of every earlier copy.
fn outgrow(server: &Server, ledger: &mut Ledger) -> Result<()> {
    server.drain(25_000_000, ledger)?;
    let first = server.replayed()?;
    ensure!(first > 1e6, "nothing was replayed: the attack hits nothing\n{server}");
    clock::idle(Duration::from_secs(4));
    server.drain(18_000_000, ledger)?;
    ensure!(server.replayed()? > first, "nothing more was replayed: the attack hits nothing\n{server}");
    Ok(())
}

/// A folder whose spill holds some seconds of land; returns that spill.
fn leave_land(data: &Path) -> Result<PathBuf> {
    let server = Server::start(data)?;
    clock::idle(Duration::from_secs(5));
    server.stop()?;
    only_spill(data)
}

#[test]
fn a_spill_copied_while_running_and_put_back_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    let spill = leave_land(&data)?;
    // The copy is taken from the running second life, while it is replaying.
    let server = Server::start(&data)?;
    server.drain(1_000_000, &mut ledger)?;
    fs::copy(&spill, &copy)?;
    outgrow(&server, &mut ledger)?;
    server.kill()?;
    for life in 0..2 {
        fs::copy(&copy, &spill)?;
        let server = Server::start(&data)?;
        server.drain(25_000_000, &mut ledger)?;
        println!("restored spill, running, life {life}: {}", ledger.check()?);
        warned(&server.end(life == 0)?)?;
    }
    Ok(())
}

#[test]
fn a_spill_copied_while_stopped_and_put_back_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    let spill = leave_land(&data)?;
    fs::copy(&spill, &copy)?;
    let server = Server::start(&data)?;
    outgrow(&server, &mut ledger)?;
    server.stop()?;
    for life in 0..3 {
        fs::copy(&copy, &spill)?;
        let server = Server::start(&data)?;
        server.drain(25_000_000, &mut ledger)?;
        println!("restored spill, stopped, life {life}: {}", ledger.check()?);
        warned(&server.end(life != 1)?)?;
    }
    Ok(())
}

#[test]
fn a_spill_overwritten_under_a_running_server_replays_nothing_twice() -> Result<()> {
    let home = TempDir::new()?;
    let (data, copy) = (home.path().join("data"), home.path().join("copy-of-spill"));
    let mut ledger = Ledger::default();
    let spill = leave_land(&data)?;
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

/// Where the file system tells no file's birth, it gives what is put back the inode's number of what was there.
#[test]
fn a_folder_that_is_put_back_where_no_file_has_a_birth_is_refused() -> Result<()> {
    let home = TempDir::new()?;
    let Some(disk) = LoopDisk::with_inodes("a restore where files have no births", home.path(), 128)? else {
        return Ok(());
    };
    let data = disk.dir().join("data");
    let mut ledger = Ledger::default();
    let server = Server::start(&data)?;
    server.drain(1_000, &mut ledger)?;
    server.stop()?;
    // As docs/how-to/backup-and-restore.md says it.
    let backup = disk.dir().join("backup");
    let cp = |from: &Path, to: &Path| {
        let done = Command::new("cp").arg("-a").args([from, to]).status()?;
        ensure!(done.success(), "cp -a: {done}");
        Ok(())
    };
    let inode = || Ok::<_, anyhow::Error>(fs::metadata(data.join("registry"))?.ino());
    cp(&data, &backup)?;
    let before = inode()?;
    ensure!(fs::metadata(data.join("registry"))?.created().is_err(), "a file has a birth here");
    // Which number is the lowest that is free, other files decide.
    for filler in 0..50 {
        fs::remove_dir_all(&data)?;
        fs::write(disk.dir().join(format!("filler-{filler}")), "")?;
        cp(&backup, &data)?;
        if inode()? == before {
            break;
        }
    }
    ensure!(inode()? == before, "it did not get its number again: the attack hits nothing");
    let said = Serve::new(&data)?.run_to_exit()?.refused(1)?;
    ensure!(said.contains("fence --restored") && said.contains("of generation"), "{said}");
    // A mount is no other file.
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    disk.mount_again()?;
    let server = Serve::new(&data)?.start()?;
    server.stop().map(drop)
}

/// There who says that a folder is a copy is believed.
#[test]
fn where_nothing_tells_a_file_from_its_copy_each_start_says_so_and_an_adoption_is_one() -> Result<()> {
    let home = TempDir::new()?;
    let Some(ram) = RamFs::new("files of which nothing tells a copy", home.path())? else { return Ok(()) };
    let data = ram.dir().join("data");
    for _ in 0..2 {
        let log = Server::start(&data)?.stop()?;
        ensure!(log.contains("no start can tell this file from a copy"), "{log}");
    }
    let said = Xuid::new(["registry", "adopt", "--yes"])?.arg(&data).run()?;
    ensure!(said.ok()?.starts_with("adopted: cluster"), "{}", said.stdout);
    Server::start(&data)?.stop()?;
    let server = Server::start(&home.path().join("data"))?;
    let log = server.stop()?;
    ensure!(!log.contains("no start can tell"), "{log}");
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
        for command in ["adopt", "fence --restored"] {
            ensure!(said.contains(&format!("xuid registry {command}")), "`{command}` is not named: {said}");
        }
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
