//! Other clients beside one that writes requests without waiting, and beside one that does not read its replies.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_load::{Ask, Link, Results, Shape, Share, Wire};
use xuid_protocol::{Bulk, Order, request_array, request_next};

use super::party::{Guest, asking, first_of, guest, party, punctual_guest, quantile_ms, singles};
use crate::load::dialect::InOrder;
use crate::load::driver::{check, greet};
use crate::load::process::Server;
use crate::rows::{Row, at_most, figure, median};

/// Clients of single ids.
const SINGLES: usize = 50;

/// PINGs a second of a client that measures how soon they are answered.
const PINGS: u64 = 1_000;

/// Rounds of each, and how long one is measured.
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_millis(1_500);

/// Requests that the flooding client writes at once.
const FLOOD: usize = 4_096;

/// What the client that does not read asks for beforehand: as many requests as a connection may have in flight.
const UNREAD: u64 = 1_024;
const UNREAD_IDS: u32 = 131_072;

/// What a client of fresh ids asks for beside it: more than is served from small requests' share.
const FRESH: Ask =
    Ask { shape: Shape::Runs, count: 1_000, order: Order::Fresh, wait: Duration::from_secs(1) };

pub(super) fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for threads in ["1", "2"] {
        let server = Server::by_default(&["--threads", threads], &[])?;
        rows.extend(flooded(&server, threads)?);
        rows.push(unread(&server, threads)?);
    }
    Ok(rows)
}

/// A client that writes NEXT without waiting, and reads all that comes. It ends when it is dropped.
struct Flooder {
    stream: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Flooder {
    fn start(address: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        greet(&mut stream)?;
        let (mut writer, mut reader) = (stream.try_clone()?, stream.try_clone()?);
        let mut batch = Vec::new();
        (0..FLOOD as u64).for_each(|number| request_next(&mut batch, number, Order::Any));
        let writing = std::thread::spawn(move || while writer.write_all(&batch).is_ok() {});
        let reading = std::thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while reader.read(&mut piece).is_ok_and(|count| count > 0) {}
        });
        Ok(Self { stream, threads: vec![writing, reading] })
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // It fails where the server has closed, and then both threads have ended.
        let _ = self.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// NEXT of single clients, PING of another one, and PING of that one among the single clients: each alone and beside the
/// flood.
fn flooded(server: &Server, threads: &str) -> Result<Vec<Row>> {
    let (mut alone, mut beside) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        alone.add(server.address)?;
        let flooder = Flooder::start(server.address)?;
        beside.add(server.address)?;
        drop(flooder);
    }
    let path =
        |what: &str| format!("{what}, {threads} server threads, beside one that writes NEXT without waiting");
    let figures = |beside: &Quantiles, alone: &Quantiles| {
        let [p99, rare, alone] = [&beside.p99, &beside.rare, &alone.p99].map(|figures| figure(figures, "ms"));
        format!("p99 {p99}, p99.9 {rare}, alone p99 {alone}")
    };
    let rates = format!("{}, alone {}", figure(&beside.rates, "k/s"), figure(&alone.rates, "k/s"));
    let next = format!("{}; {rates}", figures(&beside.next, &alone.next));
    // Without a target: the single clients keep all cores busy, so that the one that measures is late by itself.
    let among = figures(&beside.ping_among, &alone.ping_among);
    let ping = format!("{}; among the {SINGLES}: {among}", figures(&beside.ping, &alone.ping));
    let (of_next, of_ping) = (median(&beside.next.p99), median(&beside.ping.p99));
    Ok(vec![
        at_most(&path(&format!("{SINGLES} x NEXT")), next, of_next, 5.0, "ms at p99"),
        at_most(&path("PING each millisecond"), ping, of_ping, 3.0, "ms at p99"),
    ])
}

/// In milliseconds, of each round.
#[derive(Default)]
struct Quantiles {
    p99: Vec<f64>,
    /// p99.9.
    rare: Vec<f64>,
}

impl Quantiles {
    fn add(&mut self, results: &Results) {
        self.p99.push(quantile_ms(results, 0.99));
        self.rare.push(quantile_ms(results, 0.999));
    }
}

#[derive(Default)]
struct Figures {
    next: Quantiles,
    /// Thousands of NEXT a second.
    rates: Vec<f64>,
    ping: Quantiles,
    ping_among: Quantiles,
}

impl Figures {
    fn add(&mut self, address: SocketAddr) -> Result<()> {
        let [ping] = measured(vec![punctual_guest(vec![pinging(address)?])])?;
        self.ping.add(&ping);
        let [next] = measured(vec![singles(address, SINGLES)?])?;
        self.next.add(&next);
        self.rates.push(next.requests as f64 / SPAN.as_secs_f64() / 1e3);
        let [_, ping] = measured(vec![singles(address, SINGLES)?, punctual_guest(vec![pinging(address)?])])?;
        self.ping_among.add(&ping);
        Ok(())
    }
}

fn measured<const GUESTS: usize>(guests: Vec<Guest>) -> Result<[Results; GUESTS]> {
    let results = party(guests, SPAN)?;
    results.iter().try_for_each(check)?;
    results.try_into().ok().context("each guest has results")
}

fn pinging(address: SocketAddr) -> Result<Link<InOrder>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    greet(&mut stream)?;
    stream.set_nonblocking(true)?;
    let share = Share { rate: PINGS, number: 0, of: 1 };
    Ok(Link::new(Wire::from(stream), "the server", Vec::new(), InOrder::ping(), 1_024, Some(share)))
}

/// Fresh ids beside a connection that asks for 134 million of them and reads nothing: none is refused.
fn unread(server: &Server, threads: &str) -> Result<Row> {
    let fresh = || first_of(vec![guest(asking(server.address, 1, 1, FRESH)?)], SPAN);
    let alone = fresh()?;
    check(&alone)?;
    let mut stream = TcpStream::connect(server.address)?;
    greet(&mut stream)?;
    let mut requests = Vec::new();
    for number in 0..UNREAD {
        request_array(&mut requests, number, Bulk::new(UNREAD_IDS, Order::Fresh, Duration::from_mins(1)));
    }
    stream.write_all(&requests)?;
    let beside = fresh()?;
    drop(stream);
    let path =
        format!("RUNS of 1,000 fresh ids, {threads} server threads, beside a client that does not read");
    let refused = beside.refusals.values().sum::<u64>() + beside.unanswered;
    let figures = format!(
        "{} served, p99 {:.2} ms; alone {}, {:.2} ms",
        beside.requests,
        quantile_ms(&beside, 0.99),
        alone.requests,
        quantile_ms(&alone, 0.99)
    );
    Ok(at_most(&path, figures, refused as f64, 0.0, "refused"))
}
