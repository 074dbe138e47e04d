//! Working clients beside strangers who try tokens.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_load::{Ask, Link};

use super::crowd::{Crowd, Manner};
use super::party::{NEXT, first_of, guest, quantile_ms};
use crate::load::driver::{check, greet_with, link};
use crate::load::process::Server;
use crate::measure::now;
use crate::rows::{Row, at_least, figure, median};

const TOKEN: &str = "the right one";

/// Wrong tokens a second.
const WRONG: u32 = 1_000;

/// Clients, and requests in flight on each.
const CLIENTS: usize = 50;
const IN_FLIGHT: u32 = 1;

/// Rounds of each, and how long one is measured.
const ROUNDS: usize = 11;
const SPAN: Duration = Duration::from_millis(1_500);

const FROM: &[Ipv4Addr] = &[Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// The rate that clients keep, with the right token.
pub(super) fn rows() -> Result<Vec<Row>> {
    let server = Server::by_default(&[], &[("XUID_TOKEN", TOKEN)])?;
    let (mut alone, mut beside, mut p99s_alone, mut p99s) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut answered, mut seconds) = (0, 0.0);
    for _ in 0..ROUNDS {
        measure(server.address, &mut alone, &mut p99s_alone)?;
        let crowd = Crowd::stream(server.address, WRONG, Manner::Stranger, FROM)?;
        // The first of them have their answers then, and each second begins and ends as many.
        crowd.wait_for(WRONG as usize / 5)?;
        let (begun, before) = (now(), crowd.closed());
        measure(server.address, &mut beside, &mut p99s)?;
        answered += crowd.closed() - before;
        seconds += begun.elapsed().as_secs_f64();
    }
    let a_second = answered as f64 / seconds;
    ensure!(
        a_second > 0.9 * f64::from(WRONG),
        "only {a_second:.0} wrong tokens a second: the figures are void"
    );
    let figures = format!(
        "{}, alone {}; p99 {}, alone {}; {a_second:.0} wrong tokens answered a second",
        figure(&beside, "k/s"),
        figure(&alone, "k/s"),
        figure(&p99s, "ms"),
        figure(&p99s_alone, "ms")
    );
    let path = format!("{CLIENTS} x NEXT beside {WRONG} wrong tokens a second");
    Ok(vec![at_least(&path, figures, median(&beside) / median(&alone), 0.9, "x the rate alone")])
}

fn measure(server: SocketAddr, rates: &mut Vec<f64>, p99s: &mut Vec<f64>) -> Result<()> {
    let open = |_| -> Result<Link<Ask>> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        greet_with(&mut stream, TOKEN.as_bytes())?;
        link(stream, NEXT, IN_FLIGHT)
    };
    let links = (0..CLIENTS).map(open).collect::<Result<_>>()?;
    let results = first_of(vec![guest(links)], SPAN)?;
    check(&results)?;
    rates.push(results.requests as f64 / SPAN.as_secs_f64() / 1e3);
    p99s.push(quantile_ms(&results, 0.99));
    Ok(())
}
