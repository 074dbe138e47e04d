//! Three servers on three nodes, and the leader killed again and again: nobody who asks for ids notices.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::zookeeper::{Ensemble, Mode};
use xuid_tests::{Job, Ledger, Load, Order, Work, clock};

use crate::cluster::{self, Cluster};

/// `XUID_MINUTES` asks for more.
const MINUTES: u64 = 1;
/// From one kill to the next.
const PERIOD: Duration = Duration::from_secs(20);
/// An election takes half a second, a start of Java another; both compete with the load for the processors.
const LIMIT: Duration = Duration::from_secs(15);

const fn often(work: Work, order: Order) -> Job {
    Job::gently(work, order, Duration::from_millis(2))
}

/// Eight clients, over three servers.
fn loads(cluster: &Cluster) -> Vec<Load> {
    let jobs: [&[Job]; 3] = [
        &[
            often(Work::Next(16), Order::Any),
            often(Work::Array(200), Order::Fresh),
            often(Work::Next(4), Order::Ordered),
        ],
        &[
            often(Work::Runs(2_000), Order::Any),
            often(Work::Next(8), Order::Fresh),
            often(Work::Array(100), Order::Ordered),
        ],
        &[often(Work::Array(500), Order::Any), often(Work::Runs(500), Order::Ordered)],
    ];
    cluster.servers.iter().zip(jobs).map(|(server, jobs)| Load::start(server.addr, jobs)).collect()
}

#[test]
fn no_request_fails_and_no_id_comes_twice_while_leaders_are_killed() -> Result<()> {
    let minutes = std::env::var("XUID_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(MINUTES);
    let kills = (minutes * 60 / PERIOD.as_secs()).max(1);
    let mut ensemble = Ensemble::start(3)?;
    let url = ensemble.url("/xuid");
    cluster::init(&url)?;
    // Short windows, so that every election meets renewals of all three; half of one outlasts an election by far.
    let cluster = Cluster::start(&[url.clone(), url.clone(), url], &["--window-max", "8s"])?;
    let loads = loads(&cluster);
    let mut ledger = Ledger::default();
    let mut elections = Vec::new();
    // The first comes early, while windows are at their shortest.
    let mut next = clock::now() + PERIOD / 4;
    for kill in 1..=kills {
        clock::idle(next.saturating_duration_since(clock::now()));
        next += PERIOD;
        let leader = ensemble.leader().context("no leader")?;
        let begin = clock::now();
        ensemble.kill(leader)?;
        let successor = ensemble.wait_leader(LIMIT)?;
        elections.push(begin.elapsed());
        ensemble.restart(leader)?;
        ensemble.wait_serving(LIMIT)?;
        ensure!(ensemble.mode(successor) == Some(Mode::Leader), "{successor} leads no longer\n{ensemble}");
        let ids: u64 = loads.iter().map(Load::ids).sum();
        println!(
            "leader kills: {kill} of {kills}: {leader} -> {successor} in {:?}, {ids} ids",
            elections[elections.len() - 1]
        );
    }
    clock::idle(next.saturating_duration_since(clock::now()));
    let results = cluster::finish(loads, &mut ledger)?;
    elections.sort_unstable();
    println!("leader kills: {}, {kills} elections, the slowest {:?}", ledger.check()?, elections.last());
    ensure!(results.len() == 8 && results.iter().all(|result| result.received.ids() > 1_000 * minutes));
    cluster::unharmed(&results, &cluster.delay)?;
    ensure!(ledger.report().workers.len() == 3, "each keeps its worker: {}", ledger.report());
    cluster.stop()
}
