//! A server stopped where it stands, past its session and its window, while another takes that very worker; then it
//! goes on under load, with memory full of ids of a worker that is not its own any more.
//!
//! Two of three servers are in a round at a time, each in its own phase, so fifty rounds take a minute and a half.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::zookeeper::Ensemble;
use xuid_tests::{
    Client, Job, Ledger, Load, LoadResults, Order, Rng, Serve, Server, Work, Xuid, clock, process,
};

use crate::cluster::{self, Cluster};
use crate::figures::{Spread, locked, tick_of, wanted, worker_of};

/// `XUID_ROUNDS` asks for another number.
const ROUNDS: u64 = 12;
/// Rounds under way at once; one server of three is in none.
const LANES: usize = 2;
const WINDOW: Duration = Duration::from_secs(2);
const ARGUMENTS: [&str; 4] = ["--session", "1s", "--window-max", "2s"];
/// Whoever went on has found out that its worker is another's, and serves from one of its own, within this: a session
/// to be made, a renewal to be lost, a worker to be taken, each tried again after at most a second.
const MOVED: Duration = Duration::from_secs(5);
/// Its worker is another's within this: free after two seconds at the latest, or as long after a claim that was lost.
const TAKEN: Duration = Duration::from_secs(10);
/// Small, so that workers are used again and again within a run.
const WORKERS: &str = "32";

/// Of all three servers, all the time.
const ALWAYS: [Job; 3] = [
    Job::gently(Work::Next(8), Order::Any, Duration::from_millis(3)),
    Job::gently(Work::Array(100), Order::Fresh, Duration::from_millis(3)),
    Job::gently(Work::Array(50), Order::Ordered, Duration::from_millis(5)),
];
/// Of whoever went on, and of whoever took its worker: so much that all they have of it is asked for.
const HEAVY: [Job; 3] = [
    Job::gently(Work::Next(16), Order::Any, Duration::from_millis(1)),
    Job::gently(Work::Runs(20_000), Order::Any, Duration::from_millis(1)),
    Job::gently(Work::Array(100), Order::Fresh, Duration::from_millis(1)),
];

/// Where the rounds take place.
struct Fixture<'a> {
    url: &'a str,
    home: &'a Path,
    servers: &'a [Server],
    /// Servers in no round, and rounds not begun.
    free: Mutex<(Vec<usize>, u64)>,
    ledger: Mutex<Ledger>,
}

/// What one round saw.
#[derive(Debug)]
struct Round {
    victim: usize,
    worker: u64,
    /// Starts of the other that were refused the worker.
    refused: u32,
    stopped: Duration,
    /// Ids of the other, from that worker, before the stopped one went on.
    taken: u64,
    /// Ids of the old window that the stopped one issued after it went on.
    old: u64,
    /// The worker it moved to, and how long after it went on.
    successor: u64,
    moved: Duration,
}

#[test]
fn a_server_stopped_past_its_window_repeats_nothing_though_another_has_its_worker() -> Result<()> {
    let mut rng = Rng::from_env("pauses");
    let rounds = wanted("XUID_ROUNDS", ROUNDS);
    let ensemble = Ensemble::start(3)?;
    let url = ensemble.url("/xuid");
    Xuid::new(["registry", "init", &url, "--workers", WORKERS])?.run()?.ok()?;
    let cluster = Cluster::start(&[url.clone(), url.clone(), url.clone()], &ARGUMENTS)?;
    let always = cluster.load(&ALWAYS);
    let home = TempDir::new()?;
    let fixture = Fixture {
        url: &url,
        home: home.path(),
        servers: &cluster.servers,
        free: Mutex::new(((0..3).collect(), rounds)),
        ledger: Mutex::default(),
    };
    let begin = clock::now();
    let seen = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| Rng::new(rng.word())).collect();
        let lanes: Vec<_> = lanes.into_iter().map(|rng| scope.spawn(|| lane(&fixture, rng))).collect();
        lanes.into_iter().map(|lane| lane.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let seen: Vec<Round> = seen.into_iter().flatten().collect();
    let took = begin.elapsed();
    let mut ledger = fixture.ledger.into_inner()?;
    let always = cluster::finish(always, &mut ledger)?;
    report(&seen, took);
    println!("pauses: {}", ledger.check()?);
    check(&seen, rounds)?;
    ensure!(always.iter().all(|result| !result.broken), "a connection broke");
    control(&mut ledger, &always)?;
    cluster.stop()
}

/// Rounds, one after the other, until enough were begun.
fn lane(fixture: &Fixture<'_>, mut rng: Rng) -> Result<Vec<Round>> {
    let mut seen = Vec::new();
    loop {
        let victim = {
            let (free, left) = &mut *locked(&fixture.free);
            if *left == 0 {
                return Ok(seen);
            }
            *left -= 1;
            let at = rng.below(free.len() as u64) as usize;
            free.swap_remove(at)
        };
        seen.push(round(fixture, victim, &mut rng).with_context(|| format!("{}", fixture.servers[victim]))?);
        locked(&fixture.free).0.push(victim);
    }
}

fn round(fixture: &Fixture<'_>, victim: usize, rng: &mut Rng) -> Result<Round> {
    let server = &fixture.servers[victim];
    let mut client = server.client()?;
    // At any moment between two renewals, or in one.
    clock::idle(rng.millis(0, 1_000));
    let worker = worker_of(fresh(&mut client)?);
    let begin = clock::now();
    process::freeze(server.child())?;
    // It connects to a process that stands: all that it will bring was issued after that went on.
    let late = Load::start(server.addr, &HEAVY);
    clock::idle(rng.millis(1_200, 1_700));
    let (other, refused) = take(fixture, worker, begin + TAKEN)?;
    let load = Load::start(other.addr, &HEAVY);
    let issues = || Ok(load.ids() > 0);
    clock::wait_until("ids of the other", MOVED, issues).with_context(|| format!("{other}"))?;
    clock::idle((WINDOW + rng.millis(100, 600)).saturating_sub(begin.elapsed()));
    ensure!(late.ids() == 0, "a process that stands issues ids");
    let taken = load.ids();
    let stopped = begin.elapsed();
    process::thaw(server.child())?;

    let thawed = clock::now();
    let id = fresh(&mut client)?;
    locked(&fixture.ledger).add_id(id);
    let successor = worker_of(id);
    ensure!(successor != worker, "id {id} of now is of worker {worker}, which is another's");
    let moved = thawed.elapsed();
    clock::idle(rng.millis(200, 400));
    late.ask_to_stop();
    let late = late.join()?;
    // Every other ends as it stands, under load.
    let loads = if rng.below(2) == 0 {
        other.kill()?;
        load.join()?
    } else {
        load.ask_to_stop();
        let results = load.join()?;
        other.stop()?;
        results
    };
    let old = compare(worker, &late, &loads)?;
    let mut ledger = locked(&fixture.ledger);
    for result in late.iter().chain(&loads) {
        ledger.add_received(&result.received);
    }
    Ok(Round { victim, worker, refused, stopped, taken, old, successor, moved })
}

/// A server on exactly that worker, and how often it was refused before. It is while the stopped one is announced and
/// has a window, and when a busy machine answers later than a short session allows.
fn take(fixture: &Fixture<'_>, worker: u64, until: std::time::Instant) -> Result<(Server, u32)> {
    for refused in 0.. {
        let folder = TempDir::new_in(fixture.home)?.keep();
        let serve =
            Serve::new(&folder)?.arg("--registry").arg(fixture.url).arg("--worker").arg(worker.to_string());
        match ARGUMENTS.iter().fold(serve, Serve::arg).start() {
            Ok(server) => return Ok((server, refused)),
            Err(error) if clock::now() > until => return Err(error).context("it never got the worker"),
            Err(error) => println!("pauses: worker {worker} is not to be had yet: {error}"),
        }
    }
    unreachable!("it returns or goes on")
}

/// An id of now, as soon as there is one.
fn fresh(client: &mut Client) -> Result<u64> {
    Ok(clock::wait_for("a fresh id", MOVED, || Ok(client.try_next(Order::Fresh)?))?.0)
}

/// How many ids of `worker` the stopped one issued late. All of its are of earlier ticks than any of the other's.
fn compare(worker: u64, late: &[LoadResults], other: &[LoadResults]) -> Result<u64> {
    let runs = |results: &[LoadResults]| -> Vec<xuid_tests::Run> {
        let runs = results.iter().flat_map(|result| result.received.runs());
        runs.filter(|run| worker_of(run.first) == worker).copied().collect()
    };
    let (old, new) = (runs(late), runs(other));
    let first = new.iter().map(|run| tick_of(run.first)).min().context("the other issued nothing")?;
    let last = old.iter().map(|run| tick_of(run.first)).max();
    ensure!(
        last.is_none_or(|last| last < first),
        "worker {worker}: the stopped one reached tick {last:?}, the other began at {first}"
    );
    Ok(old.iter().map(|run| u64::from(run.count)).sum())
}

fn report(seen: &[Round], took: Duration) {
    println!("pauses: server  worker  stopped  refused  ids of the other  old ids after  moved to  after");
    for round in seen {
        let Round { victim, worker, refused, stopped, taken, old, successor, moved } = round;
        println!(
            "pauses: {victim:6} {worker:7} {stopped:>8.2?} {refused:8} {taken:17} {old:14} {successor:9} {moved:>6.0?}"
        );
    }
    let with = |what: fn(&Round) -> bool| seen.iter().filter(|round| what(round)).count();
    println!(
        "pauses: {} rounds in {took:.0?}: the worker taken in {}, ids of the old window issued after in {}, moved {}",
        seen.len(),
        with(|round| round.taken > 0),
        with(|round| round.old > 0),
        Spread::of(seen.iter().map(|round| round.moved)),
    );
}

fn check(seen: &[Round], rounds: u64) -> Result<()> {
    ensure!(seen.len() as u64 == rounds, "{} of {rounds} rounds", seen.len());
    ensure!(seen.iter().all(|round| round.stopped > WINDOW && round.taken > 0), "{seen:?}");
    // Else the rounds would show nothing: there was nothing that could have come twice.
    let old = seen.iter().filter(|round| round.old > 0).count() as u64;
    ensure!(old * 4 >= rounds, "ids of an old window were issued in {old} of {rounds} rounds only");
    Ok(())
}

/// The oracle would have seen it.
fn control(ledger: &mut Ledger, results: &[LoadResults]) -> Result<()> {
    let planted = results.iter().find_map(|result| result.received.runs().last()).context("no id")?;
    ledger.add(*planted);
    ensure!(ledger.report().duplicates == u64::from(planted.count), "a planted duplicate was not seen");
    Ok(())
}

#[test]
fn two_servers_of_one_worker_that_share_no_registry_do_repeat_ids_and_the_oracle_sees_it() -> Result<()> {
    const IDS: u64 = 8_000_000;
    let ensemble = Ensemble::start(1)?;
    let urls = [ensemble.url("/one"), ensemble.url("/other")];
    urls.iter().try_for_each(|url| cluster::init(url))?;
    let cluster = Cluster::start(&urls, &["--worker", "7"])?;
    let ledgers = thread::scope(|scope| {
        let drain = |server: &Server| {
            let mut ledger = Ledger::default();
            server.drain(IDS, &mut ledger).map(|_| ledger)
        };
        let drains: Vec<_> =
            cluster.servers.iter().map(|server| scope.spawn(move || drain(server))).collect();
        drains.into_iter().map(|drain| drain.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut both = Ledger::default();
    for ledger in &ledgers {
        ledger.check()?;
        both.merge(ledger);
    }
    println!("pauses: the control: {}", both.report());
    ensure!(both.report().duplicates > IDS / 4, "{}", both.report());
    cluster.stop()
}
