//! Working connections beside thousands of silent, slow and lying ones, with the settings that a server has by default.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xuid_load::{Dialect, Link, Results};

use super::crowd::{Crowd, Manner};
use super::party::{NEXT, first_of, guest, quantile_ms};
use super::watch::{Watch, first_id, first_reply, readyz};
use super::words::Port;
use crate::load::dialect::InOrder;
use crate::load::driver::{check, connect_from, greet, link};
use crate::load::process::{Server, free_port};
use crate::rows::{Row, at_most, figure, median};

/// Connections that work, each with one request in flight: half of them from addresses of their own, half from those of
/// the bad ones.
const WORKING: usize = 1_000;

/// Those that do not. The half-said requests come from clients that said HELLO, which no address has a bound for. Each is
/// closed when its time is over, and comes again: so many, that there are always as many as are told.
const BAD: [(usize, Manner); 4] =
    [(3_600, Manner::Silent), (1_100, Manner::Slow), (1_000, Manner::Half), (350, Manner::Lying)];

/// The same at other ports, which are sooner rid of those that lie.
const BAD_AT_FRONTS: [(usize, Manner); 4] =
    [(5_000, Manner::Silent), (1_100, Manner::Slow), (1_000, Manner::Half), (350, Manner::Lying)];

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
const FILES: u64 = 12_288;

/// Connections to the admin port that never ask, and those that ask a byte at a time.
const ADMIN: [(usize, Manner); 2] = [(300, Manner::Silent), (200, Manner::SlowHttp)];
const PROBED: Duration = Duration::from_secs(15);

pub(super) fn rows() -> Result<Vec<Row>> {
    let server = Server::by_default(&[], &[])?;
    let address = server.address;
    let all = [BAD_ONES, GOOD_ONES].concat();
    let newcomer = move |number: usize| first_id(address, all[number % all.len()]);
    let open = |stream: &mut TcpStream| greet(stream).map(|()| NEXT);
    beside(&server, (address, Port::Binary), "1,000 x NEXT", open, newcomer)
}

/// The same at the ports for clients of Redis and of HTTP.
pub(super) fn fronts() -> Result<Vec<Row>> {
    let (resp, http) = (free_port()?, free_port()?);
    let words = ["--resp", &resp.to_string(), "--http", &http.to_string()];
    let server = Server::by_default(&words, &[])?;
    let newcomer = |address: SocketAddr, port: Port| {
        let all = [BAD_ONES, GOOD_ONES].concat();
        move |number: usize| first_reply(address, all[number % all.len()], port)
    };
    let incr = |_: &mut TcpStream| Ok(InOrder::incr_any());
    let mut rows =
        beside(&server, (resp, Port::Resp), "1,000 x INCR @any", incr, newcomer(resp, Port::Resp))?;
    let get = |_: &mut TcpStream| Ok(InOrder::leaf_id());
    rows.extend(beside(&server, (http, Port::Http), "1,000 x GET", get, newcomer(http, Port::Http))?);
    Ok(rows)
}

/// One that nobody listens at now.
/// What working connections keep at a port beside bad ones, what the server holds then, and how long a newcomer waits.
fn beside<D: Dialect + Send + 'static>(
    server: &Server,
    place: (SocketAddr, Port),
    what: &str,
    open: impl Fn(&mut TcpStream) -> Result<D>,
    newcomer: impl FnMut(usize) -> Result<()> + Send + 'static,
) -> Result<Vec<Row>> {
    allow_files()?;
    let (mut alone, mut beside, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rate_alone, mut rate_beside) = (Vec::new(), Vec::new());
    let measure = |p99s: &mut Vec<f64>, rates: &mut Vec<f64>| -> Result<()> {
        let results = working(place.0, &open)?;
        p99s.push(quantile_ms(&results, 0.99));
        rates.push(results.requests as f64 / SPAN.as_secs_f64() / 1e3);
        Ok(())
    };
    for _ in 0..ROUNDS {
        measure(&mut alone, &mut rate_alone)?;
    }
    // From before they come until after the last round.
    let newcomers = Watch::start(newcomer);
    let bad = if place.1 == Port::Binary { BAD } else { BAD_AT_FRONTS };
    let crowd = Crowd::gather(place, &bad, BAD_ONES)?;
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
    let path = format!("{what} beside 5,000 that are silent or slow, and 300 that lie");
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
        at_most(&path, figures, median(&beside) / median(&alone), 2.0, "x the p99 without them"),
        at_most("anonymous memory of the server meanwhile", figure(&memory, "MiB"), largest, 190.0, "MiB"),
        at_most("the first id of a new client meanwhile", tried, first, 1_000.0, "ms"),
    ])
}

/// The working ones, for a while.
fn working<D: Dialect + Send + 'static>(
    server: SocketAddr,
    dialect: impl Fn(&mut TcpStream) -> Result<D>,
) -> Result<Results> {
    let open = |number: usize| -> Result<Link<_>> {
        let some = if number.is_multiple_of(2) { GOOD_ONES } else { BAD_ONES };
        let mut stream = connect_from(some[number / 2 % some.len()], server)?;
        let dialect = dialect(&mut stream)?;
        link(stream, dialect, 1)
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
    let crowd = Crowd::gather((admin, Port::Http), &ADMIN, BAD_ONES)?;
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
        setrlimit(Resource::Nofile, raised).context("12,288 open files are needed (ulimit -n)")?;
    }
    Ok(())
}
