//! Clients of single ids beside clients that ask for all there is, and what those get of each other.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use xuid_load::{Ask, Results, Shape};
use xuid_protocol::Order;

use super::party::{Guest, asking, first_of, guest, party_after, quantile_ms, singles};
use crate::load::driver::check;
use crate::load::process::Server;
use crate::rows::{Row, at_least, at_most, figure, median, spread};

/// Clients of single ids.
const SINGLES: usize = 50;

/// The largest request of a default server, and how many of them a greedy client has in flight.
const LARGEST: u32 = 131_072;
const IN_FLIGHT: u32 = 4;

/// Rounds of each, and how long one is measured.
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_millis(1_500);

/// Greedy clients that are compared with each other.
const GREEDY: usize = 64;

/// Workers of the server on which they are: so many give each of them enough requests in the time below to compare their
/// numbers, and more than one request for the reserve that a start leaves.
const WORKERS: &str = "8";
const COMPARED: Duration = Duration::from_secs(20);
const UNTIL_SPENT: Duration = Duration::from_secs(3);

fn largest(wait: Duration) -> Ask {
    Ask { shape: Shape::Runs, count: LARGEST, order: Order::Any, wait }
}

/// Clients of single ids keep half of their rate, and three times their p99.
pub(super) fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for threads in ["1", "2"] {
        let server = Server::by_default(&["--threads", threads], &[])?;
        let mut beside: [(usize, Vec<f64>, Vec<f64>); 3] =
            [0, 1, GREEDY].map(|greedy| (greedy, vec![], vec![]));
        for _ in 0..ROUNDS {
            for (greedy, rates, p99s) in &mut beside {
                let results = measure(server.address, *greedy)?;
                rates.push(results.requests as f64 / SPAN.as_secs_f64() / 1e3);
                p99s.push(quantile_ms(&results, 0.99));
            }
        }
        let [(_, alone_rates, alone_p99s), others @ ..] = &beside;
        for (greedy, rates, p99s) in others {
            let path =
                format!("{SINGLES} x NEXT, {threads} server threads, beside {greedy} x RUNS of {LARGEST}");
            let figures = format!("{}, alone {}", figure(rates, "k/s"), figure(alone_rates, "k/s"));
            let ratio = median(rates) / median(alone_rates);
            rows.push(at_least(&path, figures, ratio, 0.5, "x the rate alone"));
            let figures = format!("p99 {}, alone {}", figure(p99s, "ms"), figure(alone_p99s, "ms"));
            let ratio = median(p99s) / median(alone_p99s);
            rows.push(at_most(&path, figures, ratio, 3.0, "x the p99 alone"));
        }
    }
    Ok(rows)
}

fn measure(address: SocketAddr, greedy: usize) -> Result<Results> {
    let mut guests = vec![singles(address, SINGLES)?];
    if greedy > 0 {
        guests.push(guest(asking(address, greedy, IN_FLIGHT, largest(Duration::from_secs(1)))?));
    }
    let results = first_of(guests, SPAN)?;
    check(&results)?;
    Ok(results)
}

/// Greedy clients get the same number of ids, whatever sizes they ask for.
pub(super) fn shares() -> Result<Vec<Row>> {
    let wait = Duration::from_mins(1);
    let quarter = Ask { count: LARGEST / 4, ..largest(wait) };
    let alike = shares_of("64 clients of RUNS of 131,072", &[(GREEDY, largest(wait), IN_FLIGHT)])?;
    let sizes = [(GREEDY / 2, largest(wait), IN_FLIGHT), (GREEDY / 2, quarter, 4 * IN_FLIGHT)];
    let mixed = shares_of("32 clients of RUNS of 131,072 and 32 of 32,768", &sizes)?;
    Ok(vec![alike, mixed])
}

fn shares_of(path: &str, clients: &[(usize, Ask, u32)]) -> Result<Row> {
    let server = Server::by_default(&["--workers", WORKERS], &[])?;
    let mut guests: Vec<Guest> = Vec::new();
    for (count, ask, in_flight) in clients {
        for link in asking(server.address, *count, *in_flight, *ask)? {
            guests.push(guest(vec![link]));
        }
    }
    let results = party_after(UNTIL_SPENT, guests, COMPARED)?;
    results.iter().try_for_each(check)?;
    let ids: Vec<f64> = results.iter().map(|results| results.ids as f64 / 1e6).collect();
    let (least, _, most) = spread(ids.clone());
    let all = ids.iter().sum::<f64>() / COMPARED.as_secs_f64();
    let figures = format!("{} a client, {all:.1} M ids/s in all", figure(&ids, "M ids"));
    Ok(at_most(
        path,
        figures,
        most / least,
        1.1,
        "x between the client that got most and the one that got least",
    ))
}
