//! A registry that is written over while a server runs on it: told within two seconds, and refused as a whole.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::{ClientError, Order, SchedulerDelay, Serve, Server, Xuid, clock, folder, http};

/// From the fault to what is told of it.
const SOON: Duration = Duration::from_secs(2);
/// A first window ends, or is renewed, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether log, `/readyz` and `/metrics` tell that the registry may not be used, and what to do.
fn is_told(server: &Server) -> Result<bool> {
    let (_, ready) = http::get(server.admin, "/readyz")?;
    let refused = server.metrics()?.sum(&["xuid_registry_state", "\"refused\""]);
    let note = ready.contains("has refused this process") && ready.contains("xuid registry fence --restored");
    Ok(note && refused > 0.5 && server.log().contains("the registry may not be used any more"))
}

fn wait_told(server: &Server, delay: &SchedulerDelay) -> Result<Duration> {
    clock::wait_until("it is told", delay.allow(SOON), || is_told(server)).with_context(|| {
        format!("/readyz says {:?}\n{server}", http::get(server.admin, "/readyz").unwrap_or_default())
    })
}

/// Writes this content over the file, as `cp` does: the same file. Not in the middle of a change, of which the second
/// half would land behind it. Returns what was there.
fn write_over(file: &Path, content: &[u8]) -> Result<Vec<u8>> {
    let between_changes = fs::File::open(file)?;
    between_changes.lock()?;
    let before = fs::read(file)?;
    fs::write(file, content)?;
    Ok(before)
}

/// A start on this folder is refused with the command that helps.
fn start_is_refused(data: &Path) -> Result<()> {
    let said = Serve::new(data)?.run_to_exit()?.refused(1)?;
    ensure!(said.contains("xuid registry fence --restored"), "{said}");
    Ok(())
}

/// Waits until the registry's file says something else.
fn changed(file: &Path, than: &[u8]) -> Result<()> {
    clock::wait_until("a window is renewed", LIMIT, || Ok(fs::read(file)? != than)).map(drop)
}

#[test]
fn an_old_registry_over_that_of_a_running_server_is_refused_as_a_whole_and_told_at_once() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let file = data.join("registry");
    let server = Server::start(&data)?;
    let delay = SchedulerDelay::watch();
    server.drain(1_000, &mut ledger)?;
    let old = fs::read(&file)?;
    changed(&file, &old)?;
    write_over(&file, &old)?;
    println!("written over: told after {:?}", wait_told(&server, &delay)?);
    // What is held is used up, and no other worker is taken.
    let mut client = server.client()?;
    clock::wait_until("fresh ids are refused", LIMIT, || match client.next(Order::Fresh) {
        Ok(id) => {
            ledger.add_id(id);
            Ok(false)
        }
        Err(ClientError::Refused(refusal)) => Ok(refusal.is_retryable()),
        Err(error) => Err(error.into()),
    })?;
    ensure!(http::get(server.admin, "/readyz?order=fresh")?.0 == 503);
    ensure!(is_told(&server)?, "it is told as long as it lasts\n{server}");
    let log = server.kill()?;
    ensure!(log.matches("worker taken").count() == 1, "another worker was taken:\n{log}");

    start_is_refused(&data)?;
    Xuid::new(["registry", "fence", "--restored", "--yes"])?.arg(&data).run()?.ok()?;
    println!("written over: {}", ledger.check()?);
    Ok(())
}

#[test]
fn zeros_over_the_registry_of_a_running_server_are_told_at_once_and_so_is_the_file_s_return() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let file = data.join("registry");
    let server = Server::start(&data)?;
    let delay = SchedulerDelay::watch();
    server.drain(1_000, &mut ledger)?;
    for image in [vec![0; fs::metadata(&file)?.len() as usize], Vec::new()] {
        let now = write_over(&file, &image)?;
        println!("zeros: told after {:?}", wait_told(&server, &delay)?);
        write_over(&file, &now)?;
        let back = clock::wait_until("its return is told", delay.allow(SOON), || {
            let (_, ready) = http::get(server.admin, "/readyz")?;
            let is_connected = server.metrics()?.sum(&["xuid_registry_state", "\"connected\""]) > 0.5;
            Ok(is_connected
                && !ready.contains("has refused")
                && server.log().contains("the registry is back"))
        });
        println!("zeros: back after {:?}", back.with_context(|| format!("{server}"))?);
        let mut client = server.client()?;
        clock::wait_until("fresh ids are served", LIMIT, || {
            Ok(client.next(Order::Fresh).map(|id| ledger.add_id(id)).is_ok())
        })?;
    }
    server.stop()?;
    let server = Server::start(&data)?;
    server.drain(1_000_000, &mut ledger)?;
    server.stop()?;
    println!("zeros: {}", ledger.check()?);
    Ok(())
}

#[test]
fn a_second_server_of_the_folder_takes_no_worker_of_a_registry_that_was_written_over() -> Result<()> {
    let (_home, data, mut ledger) = folder::fresh()?;
    let file = data.join("registry");
    let first = Server::start(&data)?;
    let old = fs::read(&file)?;
    first.drain(1_000, &mut ledger)?;
    changed(&file, &old)?;
    write_over(&file, &old)?;
    start_is_refused(&data)?;
    first.kill()?;
    ledger.check()?;
    Ok(())
}
