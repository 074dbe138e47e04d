//! Eight servers that are killed every second, on a registry of 64 workers: each life uses up a worker for the rest of
//! its first window, and still nobody waits longer than that window for a first id.
//!
//! A worker is unusable for at most the two seconds that a first window reaches. Eight lives a second leave at most
//! sixteen behind, and eight are held: of 64 workers, 24 are busy. Announcements last longer, for a session of 6 s, in
//! which 48 workers are left behind; they are no bar, so 64 are enough all the same.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{Job, Ledger, Load, Order, Rng, SchedulerDelay, Serve, Server, Work, Xuid, clock};

use crate::figures::{Spread, locked, wanted, worker_of};

const SERVERS: u64 = 8;
const WORKERS: u64 = 64;
/// `XUID_LOOP_SECONDS` asks for another number.
const SECONDS: u64 = 20;
/// From one kill of a server to its next.
const PERIOD: Duration = Duration::from_secs(1);
/// How far a first window reaches: the longest wait, and what the machine was late.
const WINDOW: Duration = Duration::from_secs(2);
const JOBS: [Job; 3] = [
    Job::gently(Work::Runs(5_000), Order::Any, Duration::from_millis(5)),
    Job::gently(Work::Array(100), Order::Fresh, Duration::from_millis(5)),
    Job::gently(Work::Next(4), Order::Ordered, Duration::from_millis(5)),
];

/// What one life showed.
#[derive(Debug, Clone)]
struct Life {
    /// Unix time of the exec.
    born_ms: u64,
    /// From exec until its banner was read: it listens, with or without a worker.
    announced: Duration,
    /// From exec until its first fresh id had come.
    first: Duration,
    /// Requests refused before that.
    refusals: u32,
    /// The first id.
    id: u64,
    /// All that came.
    ids: u64,
    /// What it logged.
    log: String,
}

#[test]
fn nobody_waits_longer_than_a_window_in_a_crash_loop_and_no_id_comes_twice() -> Result<()> {
    let mut rng = Rng::from_env("crash loop");
    let seconds = wanted("XUID_LOOP_SECONDS", SECONDS);
    let ensemble = Ensemble::start(3)?;
    let url = ensemble.url("/xuid");
    Xuid::new(["registry", "init", &url, "--workers", &WORKERS.to_string()])?.run()?.ok()?;
    let (home, ledger) = (TempDir::new()?, Mutex::new(Ledger::default()));
    let delay = &SchedulerDelay::watch();
    let begin = clock::now();
    let end = begin + Duration::from_secs(seconds);
    let lives: Vec<Life> = thread::scope(|scope| {
        let (home, url, ledger) = (home.path(), url.as_str(), &ledger);
        let mut seats = Vec::new();
        for number in 0..SERVERS {
            // Each at moments of its own within the period.
            let from = begin + rng.millis(0, 1_000);
            let folder = home.join(format!("data-{number}"));
            seats.push(scope.spawn(move || seat(&folder, url, (from, end), ledger, delay)));
        }
        let lives: Result<Vec<_>> = seats.into_iter().map(|seat| seat.join().expect("no panic")).collect();
        anyhow::Ok(lives?.concat())
    })?;
    let mut ledger = ledger.into_inner()?;
    let found = ledger.check()?;
    report(&lives);
    println!("crash loop: {found}, of {WORKERS}");
    check(&lives, seconds)?;
    ensure!(found.workers.iter().all(|worker| *worker < WORKERS), "{:?}", found.workers);
    // Else hardly any worker was used again.
    ensure!(
        lives.len() > 2 * found.workers.len(),
        "{} lives of {} workers",
        lives.len(),
        found.workers.len()
    );
    ledger.add_id(lives[0].id);
    ensure!(ledger.report().duplicates == 1, "a planted duplicate was not seen");
    Ok(())
}

/// The lives of one server, on one data folder, each killed at full load a period after the one before.
fn seat(
    folder: &Path,
    url: &str,
    (from, end): (Instant, Instant),
    ledger: &Mutex<Ledger>,
    delay: &SchedulerDelay,
) -> Result<Vec<Life>> {
    let (mut lives, mut next) = (Vec::new(), from);
    while next < end {
        clock::idle(next.saturating_duration_since(clock::now()));
        next += PERIOD;
        let born_ms = clock::unix_ms();
        let server = Serve::new(folder)?.arg("--registry").arg(url).start()?;
        let announced = server.born().elapsed();
        let (id, refusals) = first_id(&server).with_context(|| format!("{server}"))?;
        let first = server.born().elapsed();
        ensure!(
            first < delay.allow(WINDOW),
            "{first:?} from exec to a first id, listening after {announced:?}\n{server}"
        );
        let load = Load::start(server.addr, &JOBS);
        clock::idle(next.saturating_duration_since(clock::now()));
        let log = server.kill()?;
        let results = load.join()?;
        let ids = 1 + results.iter().map(|result| result.received.ids()).sum::<u64>();
        lives.push(Life { born_ms, announced, first, refusals, id, ids, log });
        let mut ledger = locked(ledger);
        ledger.add_id(id);
        for result in &results {
            ledger.add_received(&result.received);
        }
    }
    Ok(lives)
}

/// An id of a window of this life, and how many requests were refused before it came.
fn first_id(server: &Server) -> Result<(u64, u32)> {
    let mut client = server.client()?;
    let mut refusals = 0;
    let (id, _) = clock::wait_for("a first id", WINDOW * 2, || {
        let found = client.try_next(Order::Fresh)?;
        refusals += u32::from(found.is_none());
        Ok(found)
    })?;
    Ok((id, refusals))
}

fn report(lives: &[Life]) {
    let announced = Spread::of(lives.iter().map(|life| life.announced));
    let first = Spread::of(lives.iter().map(|life| life.first));
    let refused = lives.iter().filter(|life| life.refusals > 0).count();
    let lives_of = |worker| lives.iter().filter(|life| worker_of(life.id) == worker).count();
    let most = (0..WORKERS).map(lives_of).max().unwrap_or_default();
    println!("crash loop: {} lives of {SERVERS} servers, the busiest worker in {most} of them", lives.len());
    println!("crash loop: exec to listening  {announced}");
    println!("crash loop: exec to first id   {first}, {refused} after a refusal");
    if let Some(slowest) = lives.iter().max_by_key(|life| life.first) {
        println!(
            "crash loop: the slowest, {:?} from exec on, exec at {} ms of Unix time:\n{}",
            slowest.first, slowest.born_ms, slowest.log
        );
    }
}

fn check(lives: &[Life], seconds: u64) -> Result<()> {
    // One that needs longer than its period to serve is killed at once, and begins the next one late: none on a machine
    // of its own, and any number of them on one that is busy elsewhere.
    let idle = lives.iter().filter(|life| life.ids < 1_000).count();
    println!("crash loop: {idle} lives issued hardly anything");
    ensure!(idle < lives.len(), "{idle} of {} lives issued hardly anything", lives.len());
    ensure!(lives.len() as u64 * 2 > SERVERS * seconds, "{} lives in {seconds} s", lives.len());
    Ok(())
}
