//! Hundreds of connections to the registry cut while writes are on their way: outcomes unknown, no id twice.

use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::proxy::{FaultBurst, Proxy, Target};
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{Job, Ledger, Load, Order, Rng, Work, clock};

use crate::cluster::{self, Cluster};

/// `XUID_CUTS` asks for another number.
const CUTS: u64 = 500;

const JOBS: [Job; 3] = [
    Job::gently(Work::Array(2_000), Order::Any, Duration::from_millis(2)),
    Job::gently(Work::Next(8), Order::Fresh, Duration::from_millis(5)),
    Job::gently(Work::Runs(1_000), Order::Ordered, Duration::from_millis(5)),
];

#[test]
fn no_id_comes_twice_when_hundreds_of_writes_end_in_doubt() -> Result<()> {
    let cuts = std::env::var("XUID_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(CUTS);
    let mut rng = Rng::from_env("faults");
    let ensemble = Ensemble::start(1)?;
    cluster::init(&ensemble.url("/xuid"))?;
    let proxies = (0..3).map(|_| Proxy::start(ensemble.addr(0))).collect::<Result<Vec<Proxy>>>()?;
    let urls: Vec<String> =
        proxies.iter().map(|proxy| format!("zookeeper://{}/xuid", proxy.addr())).collect();
    // Eight windows of two seconds each make a write on each connection several times a second.
    let cluster = Cluster::start(&urls, &["--session", "1s", "--window-max", "2s", "--workers", "8"])?;
    let mut ledger = Ledger::default();
    let loads = cluster.load(&JOBS);
    let begin = clock::now();
    let (target, patience, calm) = (Target::Multi, Duration::from_secs(2), Duration::from_millis(150));
    let burst = FaultBurst { faults: cuts, target, patience, calm };
    let toll = burst.run(&proxies, &mut rng);
    println!("faults: {} in {:?}: {toll}", toll.total(), begin.elapsed());
    let unheard: u64 = proxies.iter().map(Proxy::landed_unheard).sum();
    let in_flight: u64 = proxies.iter().map(Proxy::cuts_in_flight).sum();
    let unknown = cluster.sum(&["registry", "unknown", "_total"])?;
    println!(
        "faults: {in_flight} cuts with a request in flight, {unheard} writes landed unheard, {unknown} unknown"
    );
    // After the faults everybody goes on.
    let before: Vec<u64> = loads.iter().map(Load::ids).collect();
    clock::wait_until("all issue after the faults", Duration::from_secs(20), || {
        Ok(loads.iter().zip(&before).all(|(load, before)| load.ids() > before + 100_000))
    })?;
    for server in &cluster.servers {
        server.wait_ready(Duration::from_secs(20))?;
    }
    let results = cluster::finish(loads, &mut ledger)?;
    let refusals: u64 = results.iter().map(|result| result.refusals).sum();
    println!("faults: {}, {refusals} refusals", ledger.check()?);
    for page in cluster.metrics()? {
        println!("{}", page.show("unknown"));
    }
    ensure!(results.iter().all(|result| !result.broken), "a client's connection broke");
    ensure!(toll.total() == cuts, "{toll}");
    ensure!(unheard > cuts / 4, "only {unheard} writes landed unheard: the attack hits nothing");
    ensure!(unknown * 5.0 > cuts as f64, "only {unknown} outcomes were unknown after {cuts} cuts");
    cluster.stop()?;
    ledger.check()?;
    Ok(())
}
