//! Working connections beside thousands of silent, slow and lying ones, with the settings that a server has by default.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xuid_load::{Link, Results};

use super::crowd::{Crowd, Manner};
use super::party::{NEXT, first_of, guest, quantile_ms};
use super::watch::{Watch, first_id, readyz};
use crate::load::driver::{check, connect_from, greet, link};
use crate::load::process::Server;
use crate::rows::{Row, at_most, figure, median};

/// Connections that work, each with one request in flight: half of them from addresses of their own, half from those of
/// the bad ones.
const WORKING: usize = 1_000;

/// Those that do not. The half-said requests come from clients that said HELLO, which no address has a bound for. Each is
/// closed when its time is over, and comes again: so many, that there are always as many as are told.
const BAD: [(usize, Manner); 4] =
    [(3_600, Manner::Silent), (1_100, Manner::Slow), (1_000, Manner::Half), (350, Manner::Lying)];

/// So many of them are connected at a time, at least, some of the lying ones among them.
const CONNECTED: usize = 5_000;

/// The addresses of the bad ones.
const BAD_ONES: &[Ipv4Addr] = &[
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];

/// Those of working ones.
const GOOD_ONES: &[Ipv4Addr] =
    &[Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 1, 1), Ipv4Addr::new(127, 0, 1, 2)];

/// Rounds without the bad ones and with them, and how long one is measured.
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_secs(3);

/// Descriptors of this process: all connections, and some.
const FILES: u64 = 8_192;

/// Connections to the admin port that never ask, and those that ask a byte at a time.
const ADMIN: [(usize, Manner); 2] = [(300, Manner::Silent), (200, Manner::SlowHttp)];
const PROBED: Duration = Duration::from_secs(15);

pub(super) fn rows() -> Result<Vec<Row>> {
    allow_files()?;
    let server = Server::by_default(&[], &[])?;
    let (mut alone, mut beside, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rate_alone, mut rate_beside) = (Vec::new(), Vec::new());
    let measure = |p99s: &mut Vec<f64>, rates: &mut Vec<f64>| -> Result<()> {
        let results = working(server.address)?;
        p99s.push(quantile_ms(&results, 0.99));
        rates.push(results.requests as f64 / SPAN.as_secs_f64() / 1e3);
        Ok(())
    };
    for _ in 0..ROUNDS {
        measure(&mut alone, &mut rate_alone)?;
    }
    let address = server.address;
    let all = [BAD_ONES, GOOD_ONES].concat();
    // From before they come until after the last round.
    let newcomers = Watch::start(move |number| first_id(address, all[number % all.len()]));
    let crowd = Crowd::gather(address, &BAD, BAD_ONES)?;
    crowd.wait_for(CONNECTED)?;
    let mut connected = crowd.open();
    for _ in 0..ROUNDS {
        measure(&mut beside, &mut rate_beside)?;
        memory.push(server.anonymous_memory()? as f64 / f64::from(1 << 20));
        connected = connected.min(crowd.open());
    }
    let visits = crowd.closed();
    let newcomers = newcomers.end()?;
    drop(crowd);
    ensure!(connected >= CONNECTED, "only {connected} bad ones were connected: the figures are void");
    let path = "1,000 x NEXT beside 5,000 that are silent or slow, and 300 that lie";
    let figures = format!(
        "p99 {}, without them {}; {}, without them {}; {connected} or more connected at a time, {visits} closed meanwhile",
        figure(&beside, "ms"),
        figure(&alone, "ms"),
        figure(&rate_beside, "k/s"),
        figure(&rate_alone, "k/s"),
    );
    let largest = memory.iter().copied().fold(0.0, f64::max);
    let first = newcomers.longest.as_secs_f64() * 1e3;
    let tried = format!("the slowest of {} new clients, {first:.0} ms", newcomers.times);
    Ok(vec![
        at_most(path, figures, median(&beside) / median(&alone), 2.0, "x the p99 without them"),
        at_most("anonymous memory of the server meanwhile", figure(&memory, "MiB"), largest, 190.0, "MiB"),
        at_most("the first id of a new client meanwhile", tried, first, 1_000.0, "ms"),
    ])
}

/// The working ones, for a while.
fn working(server: SocketAddr) -> Result<Results> {
    let open = |number: usize| -> Result<Link<_>> {
        let some = if number.is_multiple_of(2) { GOOD_ONES } else { BAD_ONES };
        let mut stream = connect_from(some[number / 2 % some.len()], server)?;
        greet(&mut stream)?;
        link(stream, NEXT, 1)
    };
    let links = (0..WORKING).map(open).collect::<Result<_>>()?;
    let results = first_of(vec![guest(links)], SPAN)?;
    check(&results)?;
    Ok(results)
}

/// Probes beside connections to the admin port that ask for nothing.
pub(super) fn admin() -> Result<Vec<Row>> {
    allow_files()?;
    let server = Server::by_default(&[], &[])?;
    let admin = server.admin.context("the server told no admin port")?;
    let probe = move |number: usize| readyz(admin, BAD_ONES[number % BAD_ONES.len()]);
    let watched = |span: Duration| {
        let watch = Watch::start(probe);
        std::thread::sleep(span);
        watch.end()
    };
    let alone = watched(PROBED / 5)?;
    let crowd = Crowd::gather(admin, &ADMIN, BAD_ONES)?;
    let beside = watched(PROBED)?;
    let (open, visits) = (crowd.open(), crowd.closed());
    let longest = beside.longest.as_secs_f64() * 1e3;
    let figures = format!(
        "the slowest of {} probes {longest:.1} ms, without them of {} {:.1} ms; {visits} closed meanwhile, {open} open at the end",
        beside.times,
        alone.times,
        alone.longest.as_secs_f64() * 1e3,
    );
    drop(crowd);
    let path = "/readyz beside 500 that never ask whole";
    Ok(vec![at_most(path, figures, longest, 1_000.0, "ms")])
}

fn allow_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < FILES) {
        let raised = Rlimit { current: Some(FILES), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).context("8,192 open files are needed (ulimit -n)")?;
    }
    Ok(())
}
