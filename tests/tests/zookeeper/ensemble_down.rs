//! The whole ensemble away for a minute under load: what goes on, what is refused and how soon, and how it heals.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{
    Client, ClientError, Job, Ledger, Load, LoadResults, Order, SchedulerDelay, Server, Work, clock, http,
};

use crate::cluster::{self, Cluster};
use crate::fixture::LOADED;

/// How long the ensemble is away.
const OUTAGE: Duration = Duration::from_mins(1);
/// Windows end within the outage.
const WINDOW_MAX: Duration = Duration::from_secs(20);
/// After the leader's first answer all is well again within this.
const HEALED: Duration = Duration::from_secs(5);
/// What a probe allows a request to wait: a refusal that is not given at once takes all of it.
const WAIT: Duration = Duration::from_secs(2);
/// Of two processors that three servers of Java share, and what the machine was late.
const MEDIAN: Duration = Duration::from_millis(5);
const P99: Duration = Duration::from_millis(50);
/// A fifth of what the load asks for on a machine of its own: with half of each processor it gets three quarters.
const LEAST_RATE: f64 = 20_000.0;

/// Some 35,000 ids a second of any order; with what is below, more than 100,000 over three servers.
const ANY: [Job; 2] = [
    Job::gently(Work::Array(300), Order::Any, Duration::from_millis(8)),
    Job::gently(Work::Next(16), Order::Any, Duration::from_millis(8)),
];
const NOW: [Job; 2] = [
    Job::gently(Work::Array(60), Order::Fresh, Duration::from_millis(20)),
    Job::gently(Work::Array(60), Order::Ordered, Duration::from_millis(20)),
];

/// What one order saw at one server.
#[derive(Debug, Default)]
struct Probe {
    ids: Vec<u64>,
    /// When each refusal came, and how long it took.
    refusals: Vec<(Instant, Duration)>,
    /// When each success came.
    successes: Vec<Instant>,
    text: String,
}

/// Asks for one id every 20 ms until it is stopped.
fn probe(addr: SocketAddr, order: Order, over: &AtomicBool) -> Result<Probe> {
    let mut client = Client::connect(addr)?;
    let mut seen = Probe::default();
    while !over.load(Ordering::Acquire) {
        let begin = clock::now();
        match client.array(1, WAIT, order) {
            Ok(ids) => {
                seen.ids.extend(ids);
                seen.successes.push(clock::now());
            }
            Err(ClientError::Refused(refusal)) => {
                ensure!(refusal.is_retryable(), "{order:?} met {refusal}");
                seen.refusals.push((begin, begin.elapsed()));
                seen.text = refusal.to_string();
            }
            Err(other) => return Err(other).context(format!("probing {order:?}")),
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(seen)
}

/// Follows `/readyz` of a server: its text each time it changes.
fn watch_readiness(
    server: &Server,
    from: Instant,
    over: &AtomicBool,
) -> Result<Vec<(Duration, u16, String)>> {
    let mut seen: Vec<(Duration, u16, String)> = Vec::new();
    while !over.load(Ordering::Acquire) {
        let (status, text) = http::get(server.admin, "/readyz")?;
        let differs =
            seen.last().is_none_or(|last| last.1 != status || last.2.lines().count() != text.lines().count());
        if differs {
            seen.push((from.elapsed(), status, text));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(seen)
}

#[test]
fn a_minute_without_ensemble_is_bridged_for_any_order_and_refused_at_once_for_the_others() -> Result<()> {
    let mut ensemble = Ensemble::start(3)?;
    let url = ensemble.url("/xuid");
    cluster::init(&url)?;
    let window_max = format!("{}s", WINDOW_MAX.as_secs());
    let cluster = Cluster::start(&[url.clone(), url.clone(), url], &["--window-max", &window_max])?;
    let mut ledger = Ledger::default();
    let (any, now) = (cluster.load(&ANY), cluster.load(&NOW));
    // The subject is a server in its stride: windows have grown and some seconds of land lie in the reserve.
    clock::idle(Duration::from_secs(15));
    let over = &AtomicBool::new(false);
    let (down, up, probes, readiness) = thread::scope(|scope| {
        let from = clock::now();
        let mut probes = Vec::new();
        let mut watches = Vec::new();
        for server in &cluster.servers {
            for order in [Order::Fresh, Order::Ordered] {
                probes.push(scope.spawn(move || probe(server.addr, order, over)));
            }
            watches.push(scope.spawn(move || watch_readiness(server, from, over)));
        }
        let times = outage(&mut ensemble, &cluster.servers[0], &any, &now);
        clock::idle(HEALED + Duration::from_secs(1));
        over.store(true, Ordering::Release);
        let probes: Result<Vec<Probe>> =
            probes.into_iter().map(|one| one.join().expect("no panic")).collect();
        let watches: Result<Vec<_>> = watches.into_iter().map(|one| one.join().expect("no panic")).collect();
        let (down, up) = times?;
        anyhow::Ok((down, up, probes?, (from, watches?)))
    })?;
    let of_any = cluster::finish(any, &mut ledger)?;
    let of_now = cluster::finish(now, &mut ledger)?;
    probes.iter().flat_map(|probe| &probe.ids).for_each(|id| ledger.add_id(*id));
    println!("ensemble down: {}", ledger.check()?);
    check_probes(&probes, down, up, &cluster.delay)?;
    for watch in &readiness.1 {
        check_readiness(watch, up.duration_since(readiness.0))?;
    }
    ensure!(of_now.iter().all(|result| !result.broken), "a connection broke");
    check_any(&of_any, &cluster.delay)?;
    cluster.stop()
}

/// Takes the ensemble away and brings it back; when it went, and when its leader first answered.
fn outage(ensemble: &mut Ensemble, one: &Server, any: &[Load], now: &[Load]) -> Result<(Instant, Instant)> {
    let ids = |loads: &[Load]| loads.iter().map(Load::ids).sum::<u64>();
    let rate = |from: (u64, Instant), to: u64| (to - from.0) as f64 / from.1.elapsed().as_secs_f64();
    let start = (ids(any) + ids(now), clock::now());
    clock::idle(Duration::from_secs(5));
    let before = rate(start, ids(any) + ids(now));
    let fewest = any.iter().chain(now).map(Load::fewest).min();
    ensure!(fewest > Some(LOADED), "a connection of the load got {fewest:?} ids");
    ensemble.kill_all()?;
    let (down, start) = (clock::now(), (ids(any), clock::now()));
    // What one server has left, now and then.
    while down.elapsed() < OUTAGE {
        clock::idle(OUTAGE / 12);
        let page = one.metrics()?;
        let held = ["ring", "queue", "reserve"].map(|tier| page.sum(&["held_ids", tier]));
        let spilled = page.sum(&["spill_ids"]);
        println!(
            "ensemble down: {:.0?}: ring, queue, reserve {held:.0?}, spill {spilled:.0}",
            down.elapsed()
        );
    }
    println!(
        "ensemble down: {before:.0} ids/s before, {:.0} of any order while it was down",
        rate(start, ids(any))
    );
    ensure!(before > LEAST_RATE, "a load of {before:.0} ids/s is none");
    ensemble.start_all()?;
    ensemble.wait_leader(Duration::from_secs(30))?;
    let up = clock::now();
    println!(
        "ensemble down: the leader answered {:?} after the start",
        up.duration_since(down).saturating_sub(OUTAGE)
    );
    Ok((down, up))
}

/// Refusals came at once, from the window's end to soon after the leader was back, and not otherwise.
fn check_probes(probes: &[Probe], down: Instant, up: Instant, delay: &SchedulerDelay) -> Result<()> {
    let mut waits: Vec<Duration> =
        probes.iter().flat_map(|probe| &probe.refusals).map(|refusal| refusal.1).collect();
    waits.sort_unstable();
    ensure!(waits.len() > 6 * 100, "hardly any refusal ({}): did the windows end at all?", waits.len());
    let (median, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
    println!(
        "ensemble down: {} refusals after {median:?} in the median, p99 {p99:?}, at most {:?}",
        waits.len(),
        waits[waits.len() - 1]
    );
    for probe in probes {
        let (first, last) =
            (probe.refusals.first().context("no refusal")?, probe.refusals.last().context("none")?);
        let refused_from = first.0.saturating_duration_since(down);
        let healed = (last.0 + last.1).saturating_duration_since(up);
        println!("ensemble down: refused from {refused_from:?} on, healed after {healed:?}: {}", probe.text);
        ensure!(first.0 > down, "refused before the ensemble went down");
        ensure!(refused_from < WINDOW_MAX + Duration::from_secs(1), "a window lasted {refused_from:?}");
        ensure!(healed < HEALED, "refused for {healed:?} after the leader was back");
        ensure!(probe.successes.last().is_some_and(|last| *last > up), "nothing was issued after the outage");
    }
    ensure!(median < delay.allow(MEDIAN) && p99 < delay.allow(P99), "a refusal took {median:?}, p99 {p99:?}");
    Ok(())
}

/// It said why while it could not serve everything, and said so no longer soon after the leader was back.
fn check_readiness(watch: &[(Duration, u16, String)], up: Duration) -> Result<()> {
    for (at, status, text) in watch {
        println!("ensemble down: /readyz at {at:?}: {status} {}", text.trim().replace('\n', " | "));
    }
    let unready = watch.iter().find(|(at, _, text)| *at < up && text.contains("registry"));
    ensure!(unready.is_some(), "/readyz never named the registry");
    let (at, status, _) = watch.last().context("nothing was read")?;
    ensure!(
        *status == 200 && at.saturating_sub(up) < HEALED,
        "/readyz says {status} since {at:?}, up at {up:?}"
    );
    Ok(())
}

/// Requests of any order never noticed.
fn check_any(results: &[LoadResults], delay: &SchedulerDelay) -> Result<()> {
    cluster::unharmed(results, delay).context("requests of any order")
}
