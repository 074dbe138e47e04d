//! Sixty-four engines started at once on a registry of 1,024 workers: how soon all serve, and how much they write to
//! the ensemble once their windows have grown, as the ensemble itself counts it.
//!
//! The ensemble counts in the low half of its zxid: one for each transaction that changes anything (writes, sessions
//! made and ended), none for reads and pings.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use xuid_tests::zookeeper::{Ensemble, Tamper};
use xuid_tests::{Client, Job, Ledger, Load, Order, Serve, Server, Work, Xuid, clock, process};

use crate::figures::{Spread, wanted};

/// `XUID_ENGINES` asks for another number.
const ENGINES: u64 = 64;
/// All have served an id so soon after the last of them was spawned: a second on two processors of their own, which the
/// test prints, and several where neighbours have half of each.
const SERVED: Duration = Duration::from_secs(12);
/// Windows reach 2, 4, 8, 16, 32 and then 60 s, each renewed with half of it left: they are grown after 1 + 2 + 4 + 8 +
/// 16 seconds, and a margin for those that were renewed late.
const GROWN: Duration = Duration::from_secs(36);
/// A whole period of renewals of windows of 60 s.
const STEADY: Duration = Duration::from_secs(30);
const HALF_A_WINDOW: f64 = 30.0;
/// In steady state, of all engines together.
const MOST_WRITES: f64 = 100.0;
const START_LIMIT: Duration = Duration::from_mins(1);

/// Some twenty requests a second and engine.
const JOB: Job = Job::gently(Work::Array(50), Order::Any, Duration::from_millis(50));

/// How soon engines served that were started at once.
#[derive(Debug)]
struct Start {
    servers: Vec<Server>,
    /// From the first exec to the last.
    spawning: Duration,
    /// From the last exec until each had announced its addresses.
    announced: Spread,
    /// The same until each had served an id of now.
    served: Spread,
    /// The ids.
    ids: Vec<u64>,
}

#[test]
fn sixty_four_engines_started_at_once_all_serve_soon_and_hardly_write_afterwards() -> Result<()> {
    let engines = wanted("XUID_ENGINES", ENGINES);
    process::allow_open_files(8_192)?;
    let ensemble = Ensemble::start(3)?;
    let url = ensemble.url("/xuid");
    Xuid::new(["registry", "init", &url, "--workers", "1024"])?.run()?.ok()?;
    let home = TempDir::new()?;
    let alone = start(engines, &home.path().join("alone"), "local")?;
    alone.tell("on a folder each");
    drop(alone);

    let before = zxid(&ensemble)?;
    let started = start(engines, &home.path().join("together"), &url)?;
    started.tell("on the ensemble ");
    let writes = zxid(&ensemble)? - before;
    let loads: Vec<Load> = started.servers.iter().map(|server| Load::start(server.addr, &[JOB])).collect();
    println!("many engines: {writes} writes to take {engines} workers");
    // A session, a worker and the mark of a spill each: the count counts.
    ensure!(writes >= 3 * engines, "{writes} writes are too few to be true");
    let mut ledger = Ledger::default();
    started.ids.iter().for_each(|id| ledger.add_id(*id));
    ensure!(ledger.report().workers.len() as u64 == engines, "a worker each: {}", ledger.report());

    let (rate, windows) = steady(&ensemble, &ledger.report().workers)?;
    let expected = engines as f64 / HALF_A_WINDOW;
    println!(
        "many engines: {rate:.2} writes/s in steady state; renewals every {HALF_A_WINDOW} s would be {expected:.2}"
    );
    for server in &started.servers {
        let id = server.client()?.try_next(Order::Fresh)?.context("no id")?;
        ledger.add_id(id);
    }
    for load in loads {
        let ids = load.finish(&mut ledger)?;
        ensure!(ids > 1_000, "one issued {ids} ids only");
    }
    println!("many engines: {}", ledger.check()?);
    ledger.add_id(started.ids[0]);
    ensure!(ledger.report().duplicates == 1, "a planted duplicate was not seen");
    control(&ensemble)?;

    ensure!(rate < MOST_WRITES, "{rate} writes/s");
    ensure!(
        (expected / 2.0..expected * 2.0).contains(&windows),
        "{windows} renewals/s instead of {expected}"
    );
    ensure!(started.served.max() < SERVED, "served after {}", started.served);
    Ok(())
}

/// Starts servers with nothing between them, then waits until each has served an id.
fn start(engines: u64, home: &Path, registry: &str) -> Result<Start> {
    let begin = clock::now();
    let mut waiting = Vec::new();
    for number in 0..engines {
        let serve = Serve::new(&home.join(number.to_string()))?.arg("--threads").arg("1");
        waiting.push(serve.arg("--registry").arg(registry).spawn()?);
    }
    let spawned = clock::now();
    let (mut servers, mut ids) = (Vec::new(), Vec::new());
    let (mut announced, mut served) = (Vec::new(), Vec::new());
    let mut connected: Vec<(Server, Client)> = Vec::new();
    while servers.len() < engines as usize {
        // One look at all of them takes little from the two processors that they compete for.
        clock::idle(Duration::from_millis(5));
        let mut still = Vec::new();
        for mut server in waiting {
            if server.is_announced()? {
                announced.push(spawned.elapsed());
                let client = server.client()?;
                connected.push((server, client));
            } else {
                still.push(server);
            }
        }
        waiting = still;
        let mut refused = Vec::new();
        for (server, mut client) in connected {
            if let Some(id) = client.try_next(Order::Fresh)? {
                served.push(spawned.elapsed());
                ids.push(id);
                servers.push(server);
            } else {
                refused.push((server, client));
            }
        }
        connected = refused;
        late(spawned, &waiting, &connected)?;
    }
    let (announced, served) = (Spread::of(announced), Spread::of(served));
    Ok(Start { servers, spawning: spawned - begin, announced, served, ids })
}

/// Names one that is missing after too long.
fn late(since: Instant, waiting: &[Server], connected: &[(Server, Client)]) -> Result<()> {
    if since.elapsed() < START_LIMIT {
        return Ok(());
    }
    let one = waiting.iter().chain(connected.iter().map(|(server, _)| server)).next();
    bail!("{} and {} are missing, for example {one:?}", waiting.len(), connected.len());
}

impl Start {
    fn tell(&self, what: &str) {
        let Self { servers, spawning, announced, served, ids } = self;
        println!("many engines: {what}: {} spawned in {spawning:.0?}, {} ids", servers.len(), ids.len());
        println!("many engines: {what}: last exec to listening  {announced}");
        println!("many engines: {what}: last exec to first id   {served}");
    }
}

/// Lets windows grow, then counts over a whole period of renewals: writes a second, and those of windows among them.
fn steady(ensemble: &Ensemble, workers: &[u64]) -> Result<(f64, f64)> {
    const LOOK: Duration = Duration::from_secs(6);
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    let begin = clock::now();
    let mut last = (begin, zxid(ensemble)?);
    let look = |last: &mut (Instant, u64)| {
        clock::idle(LOOK);
        let (now, count) = (clock::now(), zxid(ensemble)?);
        let rate = (count - last.1) as f64 / (now - last.0).as_secs_f64();
        println!("many engines: {:>5.0?} after the start: {rate:6.2} writes/s", now - begin);
        *last = (now, count);
        anyhow::Ok(())
    };
    while begin.elapsed() < GROWN {
        look(&mut last)?;
    }
    let (steady, before) = (last, Kinds::count(&tamper, workers)?);
    while steady.0.elapsed() < STEADY {
        look(&mut last)?;
    }
    let (seconds, after) = ((last.0 - steady.0).as_secs_f64(), Kinds::count(&tamper, workers)?);
    let of = |kind: fn(&Kinds) -> i64| (kind(&after) - kind(&before)) as f64 / seconds;
    println!(
        "many engines: of these, by the versions of nodes: windows {:.2}/s, marks of spills {:.2}/s, the clock {:.2}/s",
        of(|kinds| kinds.windows),
        of(|kinds| kinds.marks),
        of(|kinds| kinds.clock),
    );
    Ok(((last.1 - steady.1) as f64 / seconds, of(|kinds| kinds.windows)))
}

/// Changes of nodes so far, by what they are.
#[derive(Debug)]
struct Kinds {
    windows: i64,
    marks: i64,
    clock: i64,
}

impl Kinds {
    fn count(tamper: &Tamper, workers: &[u64]) -> Result<Self> {
        let changes = |path: &str| anyhow::Ok(i64::from(tamper.expect(path)?.stat.version));
        let windows =
            workers.iter().map(|worker| changes(&format!("/xuid/w/{worker}"))).sum::<Result<_>>()?;
        let spills = tamper.children("/xuid/s")?;
        let marks = spills.iter().map(|spill| changes(&format!("/xuid/s/{spill}"))).sum::<Result<_>>()?;
        Ok(Self { windows, marks, clock: changes("/xuid/clock")? })
    }
}

/// Changes that the leader has counted in its term.
fn zxid(ensemble: &Ensemble) -> Result<u64> {
    let srvr = ensemble.srvr(ensemble.leader().context("no leader")?)?;
    let zxid = srvr.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).context("no zxid")?;
    Ok(u64::from_str_radix(zxid.trim(), 16)? & u64::from(u32::MAX))
}

/// Writes of ours are counted, each as one.
fn control(ensemble: &Ensemble) -> Result<()> {
    const WRITES: u64 = 200;
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    tamper.create("/counted", b"")?;
    let before = zxid(ensemble)?;
    for write in 0..WRITES {
        tamper.write("/counted", &write.to_le_bytes())?;
    }
    let counted = zxid(ensemble)? - before;
    // The engines go on renewing.
    ensure!((WRITES..2 * WRITES).contains(&counted), "{counted} of {WRITES} writes were counted");
    Ok(())
}
