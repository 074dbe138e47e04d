//! Several loads on one server at once, each on a thread of its own, measured over the same time.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_load::{Ask, Dialect, Link, Progress, Results, Shape};
use xuid_protocol::Order;

use crate::load::driver::{greet, link, run};

/// Not measured, at the beginning.
const WARM_UP: Duration = Duration::from_millis(500);

/// One load, to be run as a thread of that number.
pub(super) type Guest = Box<dyn FnOnce(&Arc<Progress>, usize) -> Result<Results> + Send>;

/// Connections that send a request when another is answered.
pub(super) fn guest<D: Dialect + Send + 'static>(links: Vec<Link<D>>) -> Guest {
    Box::new(move |progress, seat| run(links, progress, seat, false))
}

/// Connections that send by a timetable.
pub(super) fn punctual_guest<D: Dialect + Send + 'static>(links: Vec<Link<D>>) -> Guest {
    Box::new(move |progress, seat| run(links, progress, seat, true))
}

/// So many connections of this request, with so many in flight on each.
pub(super) fn asking(
    address: SocketAddr,
    connections: usize,
    in_flight: u32,
    ask: Ask,
) -> Result<Vec<Link<Ask>>> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        greet(&mut stream)?;
        link(stream, ask, in_flight)
    };
    (0..connections).map(open).collect()
}

/// One id of any order.
pub(super) const NEXT: Ask = Ask { shape: Shape::Next, count: 1, order: Order::Any, wait: Duration::ZERO };

/// So many clients that ask for one id at a time.
pub(super) fn singles(address: SocketAddr, connections: usize) -> Result<Guest> {
    Ok(guest(asking(address, connections, 1, NEXT)?))
}

/// Runs all for `span`; what each got, in their order.
pub(super) fn party(guests: Vec<Guest>, span: Duration) -> Result<Vec<Results>> {
    party_after(WARM_UP, guests, span)
}

/// The same; what the first got, to which the others are company.
pub(super) fn first_of(guests: Vec<Guest>, span: Duration) -> Result<Results> {
    party(guests, span)?.into_iter().next().context("there was no load to measure")
}

/// Runs all for `span` after another warm-up.
pub(super) fn party_after(warm_up: Duration, guests: Vec<Guest>, span: Duration) -> Result<Vec<Results>> {
    let progress = &Arc::new(Progress::new(guests.len(), warm_up, span));
    std::thread::scope(|scope| {
        let start = |(seat, guest): (usize, Guest)| scope.spawn(move || guest(progress, seat));
        let threads: Vec<_> = guests.into_iter().enumerate().map(start).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, Result<Results>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(end).collect()
    })
}

/// A quantile of the latency, in milliseconds.
pub(super) fn quantile_ms(results: &Results, quantile: f64) -> f64 {
    results.latency.value_at_quantile(quantile) as f64 / 1e6
}
