//! A slow way to the ensemble, and a folder with a long past: a start looks at all that it knows before it believes in
//! the registry, and not at one thing after the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use xuid_tests::proxy::{Proxy, Way};
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{Order, Serve};

use crate::cluster;

/// Lives that are killed, each on another worker, which the folder remembers.
const PAST: usize = 40;
/// Each way.
const SLOW: Duration = Duration::from_millis(50);

#[test]
fn a_start_over_a_slow_way_takes_no_longer_after_forty_crashes() -> Result<()> {
    let ensemble = Ensemble::start(1)?;
    cluster::init(&ensemble.url("/xuid"))?;
    let proxy = Proxy::start(ensemble.addr(0))?;
    let url = format!("zookeeper://{}/xuid", proxy.addr());
    let home = TempDir::new()?;
    let life = |folder: &str| -> Result<Duration> {
        let server = Serve::new(&home.path().join(folder))?.arg("--registry").arg(&url).start()?;
        server.client()?.next(Order::Any)?;
        let first_id = server.born().elapsed();
        server.kill()?;
        Ok(first_id)
    };
    life("young")?;
    for _ in 0..PAST {
        life("old")?;
    }
    proxy.set(Way::Delay(SLOW));
    let (young, old) = (life("young")?, life("old")?);
    println!("slow way: first id after {young:?} in a folder of one life, {old:?} in one of {PAST}");
    // One after the other they would be 39 ways there and back more: 3.9 s.
    ensure!(old < young + SLOW * 2 * PAST as u32 / 3, "{old:?}, and {young:?} in a young folder");
    Ok(())
}
