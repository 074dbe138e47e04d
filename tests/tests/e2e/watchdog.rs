//! The watchdog of a service manager: it is fed while the producer turns, and not while the disk holds the producer.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{LoopDisk, Order, Serve, clock, http};

/// The manager's patience; the server says twice in that time that it turns.
const PATIENCE: Duration = Duration::from_millis(500);
/// A producer may stand still for 5 s; then a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// The messages until none came for twice the manager's patience.
fn until_silent(manager: &UnixDatagram) -> Result<Vec<String>> {
    let begin = clock::now();
    let mut messages = Vec::new();
    let mut bytes = [0; 512];
    while let Ok(length) = manager.recv(&mut bytes) {
        messages.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        ensure!(begin.elapsed() < SOON, "it is fed without end: {messages:?}");
    }
    Ok(messages)
}

#[test]
fn a_server_whose_disk_hangs_feeds_no_watchdog_and_one_whose_disk_is_back_does() -> Result<()> {
    let home = TempDir::new()?;
    let Some(disk) = LoopDisk::new("a watchdog beside a frozen disk", home.path())? else { return Ok(()) };
    let path = home.path().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(2 * PATIENCE))?;
    let server = Serve::new(&disk.dir().join("data"))?
        .env("NOTIFY_SOCKET", &path.to_string_lossy())
        .env("WATCHDOG_USEC", &PATIENCE.as_micros().to_string())
        .start()?;
    server.client()?.next(Order::Any)?;
    let mut bytes = [0; 512];
    for wanted in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let length = manager.recv(&mut bytes).with_context(|| format!("{wanted} is to come\n{server}"))?;
        ensure!(
            bytes[..length].starts_with(wanted.as_bytes()),
            "{:?}",
            String::from_utf8_lossy(&bytes[..length])
        );
    }
    let frozen = disk.freeze()?;
    let messages = until_silent(&manager)?;
    ensure!(messages.iter().all(|message| message == "WATCHDOG=1"), "{messages:?}");
    let (status, why) = http::get(server.admin, "/livez")?;
    ensure!(status == 503 && why.contains("producer has not turned"), "{status}: {why}");
    println!("watchdog: fed {} times more on a frozen disk", messages.len());
    drop(frozen);
    let is_fed = || Ok(manager.recv(&mut bytes).is_ok());
    clock::wait_until("it is fed again", SOON, is_fed)?;
    server.stop()?;
    Ok(())
}
