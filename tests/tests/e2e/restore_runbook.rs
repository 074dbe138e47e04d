//! The runbook "To restore or move a local registry" of docs/operations.md, each sentence by script, for each way in which
//! files come back. `restored_registry` has the control: what comes twice where nothing notices and nothing is fenced.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use xuid_tests::{
    Client, ClientError, FakeClock, Ledger, Order, Serve, Server, Xuid, clock, folder, hello_body, op,
    process,
};

/// More than the spill of [`live`] holds.
const BURST: u64 = 25_000_000;
/// A fence keeps all workers back for so long.
const FENCED_MS: i64 = 125_000;

/// What a folder issued, and as which cluster.
struct Past {
    ledger: Ledger,
    cluster: [u8; 16],
    /// When the last id was minted.
    last_ms: u64,
}

/// A life that leaves land in the spill, a backup of it, and a life that issues that land and more, and is killed.
fn live(data: &Path, backup: &Path) -> Result<Past> {
    let server = Server::start(data)?;
    let (_, hello) = Client::hello(server.addr)?;
    clock::idle(Duration::from_secs(3));
    server.stop()?;
    folder::copy(data, backup)?;
    let mut ledger = Ledger::default();
    let server = Server::start(data)?;
    server.drain(BURST, &mut ledger)?;
    ensure!(server.replayed()? > 1e6, "nothing was replayed: the attack hits nothing\n{server}");
    let mut client = server.client()?;
    let last = client.next(Order::Fresh)?;
    ledger.add_id(last);
    let last_ms = client.decode(last)?.unix_ms;
    ledger.check()?;
    server.kill()?;
    Ok(Past { ledger, cluster: hello.cluster, last_ms })
}

/// A start is refused and names a command; that command, as a person copies it.
fn command_of_refusal(data: &Path) -> Result<Vec<String>> {
    let said = Serve::new(data)?.run_to_exit()?.refused(1)?;
    let last = said.lines().last().unwrap_or_default();
    println!("restore runbook: {last}");
    let command = format!("xuid registry fence --restored {}", data.display());
    let named =
        last.split('`').find(|part| *part == command).with_context(|| format!("{command}: {said}"))?;
    Ok(named.split(' ').skip(1).map(str::to_owned).collect())
}

/// The time up to which each worker is reserved.
fn reserved_until(data: &Path) -> Result<Vec<u64>> {
    let shown = Xuid::new(["workers", "--all", "--json", "--data-dir"])?.arg(data).run()?;
    let row = |line: &str| -> Result<u64> {
        let row: serde_json::Value = serde_json::from_str(line)?;
        row["reserved_until_ms"].as_u64().with_context(|| format!("no time in {line}"))
    };
    shown.ok()?.lines().map(row).collect()
}

/// From the refusal on, whatever way the files came back.
fn follow_the_runbook(data: &Path, past: Past) -> Result<()> {
    let Past { mut ledger, cluster, last_ms } = past;
    let command = command_of_refusal(data)?;
    // Without a person and without --yes nothing is done.
    let asked = Xuid::new(&command)?.run()?.refused(2)?;
    ensure!(asked.contains("--yes") && asked.contains("original"), "{asked}");
    command_of_refusal(data)?;
    let fenced = Xuid::new(&command)?.arg("--yes").run()?;
    println!("restore runbook: {}", fenced.ok()?.trim());
    let reserved = reserved_until(data)?;
    let lowest = reserved.iter().min().copied().unwrap_or_default();
    ensure!(lowest > last_ms + 60_000, "worker reserved until {lowest} only, and ids are of {last_ms}");

    // At once a server runs, and has nothing to give.
    let server = Server::start(data)?;
    match server.client()?.next(Order::Any) {
        Err(error) => println!("restore runbook: {error}"),
        Ok(id) => bail!("{id} was issued before the fence's time is over\n{server}"),
    }
    server.stop()?;
    // Two minutes later.
    let later = FakeClock::new()?;
    later.shift(FENCED_MS + 1_000)?;
    let server = later.over(Serve::new(data)?).start()?;
    server.wait_ready(Duration::from_secs(10))?;
    // A client that was told to use that cluster goes on.
    let mut client = Client::preface(server.addr)?;
    client.call(op::HELLO, &hello_body(1, 1, cluster))?;
    let address = server.addr.to_string();
    let next = Xuid::new(["next", "-n", "1000", "--server", &address])?.run()?;
    for id in next.ok()?.lines() {
        ledger.add_id(id.parse()?);
    }
    server.drain(10_000_000, &mut ledger)?;
    ensure!(server.replayed()? < 1.0, "a spill of before was replayed\n{server}");
    println!("restore runbook: {}", ledger.check()?);
    server.stop()?;
    // What the folder knows refuses nothing from then on.
    later.over(Serve::new(data)?).start()?.stop()?;
    Ok(())
}

fn homes() -> Result<(TempDir, PathBuf, PathBuf)> {
    let home = TempDir::new()?;
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    Ok((home, data, backup))
}

#[test]
fn a_registry_written_over_goes_on_by_the_runbook() -> Result<()> {
    let (_home, data, backup) = homes()?;
    let past = live(&data, &backup)?;
    fs::copy(backup.join("registry"), data.join("registry"))?;
    follow_the_runbook(&data, past)
}

#[test]
fn a_registry_put_back_as_another_file_goes_on_by_the_runbook() -> Result<()> {
    let (_home, data, backup) = homes()?;
    let past = live(&data, &backup)?;
    fs::rename(backup.join("registry"), data.join("registry"))?;
    follow_the_runbook(&data, past)
}

#[test]
fn a_folder_put_back_whole_goes_on_by_the_runbook() -> Result<()> {
    let (_home, data, backup) = homes()?;
    let past = live(&data, &backup)?;
    fs::remove_dir_all(&data)?;
    folder::copy(&backup, &data)?;
    follow_the_runbook(&data, past)
}

/// With the spill and the marks of the last moment: of a move nothing is lost but time and what the spill held.
#[test]
fn a_folder_moved_to_another_place_goes_on_by_the_runbook() -> Result<()> {
    let (home, data, backup) = homes()?;
    let past = live(&data, &backup)?;
    let elsewhere = home.path().join("elsewhere");
    folder::copy(&data, &elsewhere)?;
    fs::remove_dir_all(&data)?;
    follow_the_runbook(&elsewhere, past)
}

#[test]
fn a_fence_is_refused_while_a_stopped_server_holds_the_folder() -> Result<()> {
    let (_home, data, backup) = homes()?;
    let server = Server::start(&data)?;
    folder::copy(&data, &backup)?;
    process::freeze(server.child())?;
    let fence = || Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run();
    for _ in 0..2 {
        let said = fence()?.refused(1)?;
        ensure!(said.contains(&server.pid().to_string()) && said.contains("stop it first"), "{said}");
        println!("restore runbook: {}", said.lines().last().unwrap_or_default());
        // Whichever file has the name.
        fs::rename(backup.join("registry"), data.join("registry"))?;
        fs::copy(data.join("registry"), backup.join("registry"))?;
    }
    process::thaw(server.child())?;
    server.kill()?;
    fence()?.ok().map(drop)
}

#[test]
fn a_fence_that_is_killed_at_any_moment_leaves_a_registry_that_is_refused_or_fenced() -> Result<()> {
    let (_home, data, backup) = homes()?;
    let server = Server::start(&data)?;
    let last = server.client()?.next(Order::Any)?;
    let last_ms = server.client()?.decode(last)?.unix_ms;
    server.stop()?;
    folder::copy(&data, &backup)?;
    Server::start(&data)?.stop()?;
    let (mut refused, mut fenced) = (0, 0);
    for (n, moment) in (0..10).chain([12, 15, 20, 30, 40, 60, 80]).enumerate() {
        // In turn written over and put back as another file; the first fence makes another file of it anyway.
        fs::copy(backup.join("registry"), data.join("back"))?;
        if n.is_multiple_of(2) {
            fs::copy(data.join("back"), data.join("registry"))?;
            fs::remove_file(data.join("back"))?;
        } else {
            fs::rename(data.join("back"), data.join("registry"))?;
        }
        let fence = Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data);
        fence.cut(Duration::from_millis(moment))?;
        match Serve::new(&data)?.start_or_refuse()? {
            Err(said) => {
                refused += 1;
                ensure!(said.contains("xuid registry fence --restored"), "cut off after {moment} ms: {said}");
            }
            Ok(server) => {
                fenced += 1;
                let lowest = reserved_until(&data)?.into_iter().min().unwrap_or_default();
                ensure!(lowest > last_ms + 60_000, "cut off after {moment} ms, and served\n{server}");
                match server.client()?.next(Order::Any) {
                    Err(ClientError::Refused(_)) => {}
                    other => bail!("cut off after {moment} ms: {other:?}\n{server}"),
                }
                server.kill()?;
            }
        }
    }
    println!("restore runbook: {refused} fences that were killed left a refusal, and {fenced} a fence");
    ensure!(refused > 0, "none was cut off before its end");
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok().map(drop)
}
