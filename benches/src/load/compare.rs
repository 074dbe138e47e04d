//! Rounds of ours and a baseline in turn, and what came of them as rows of a table.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use xuid_load::Shape;
use xuid_protocol::ArraySlots;

use super::child::Role;
use super::dialect::{ARRAY_COUNT, InOrder};
use super::driver::{Load, ask, drive, greet, set_low_water, witness};
use super::process::Server;
use crate::measure::now;
use crate::rows::{Row, at_least, at_most, median, spread};

/// Not measured, at the beginning of a round.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measured in a round.
const SPAN: Duration = Duration::from_millis(800);

/// What our rate must be of Redis's at one setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Connections at once.
    pub connections: usize,
    /// Requests in flight on each.
    pub in_flight: u32,
    /// Whether Redis syncs its log before each answer.
    pub durable: bool,
    /// The least ratio.
    pub target: f64,
}

impl Setting {
    /// The settings that are published.
    pub const ALL: [Self; 5] = [
        Self { connections: 50, in_flight: 100, durable: false, target: 3.0 },
        Self { connections: 50, in_flight: 16, durable: false, target: 1.5 },
        Self { connections: 1, in_flight: 100, durable: false, target: 1.2 },
        Self { connections: 1, in_flight: 1, durable: false, target: 1.0 },
        Self { connections: 50, in_flight: 16, durable: true, target: 3.0 },
    ];

    fn load(self) -> Load {
        load(self.connections, self.in_flight)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.connections, self.in_flight)?;
        if self.durable { f.write_str(" (appendfsync always)") } else { Ok(()) }
    }
}

/// So many connections with so many requests in flight on each, for a round.
pub(super) fn load(connections: usize, in_flight: u32) -> Load {
    Load { connections, in_flight, warm_up: WARM_UP, span: SPAN, low_water: 1 }
}

/// `median [least..most]`, in units of so many.
fn text(figures: &[f64], divisor: f64) -> String {
    let (least, median, most) = spread(figures.to_vec());
    let [median, least, most] = [median, least, most].map(|figure| figure / divisor);
    format!("{median:.2} [{least:.2}..{most:.2}]")
}

/// A unit: its name, and how many of the measured one it is.
type Unit = (&'static str, f64);

/// Measures both in turn, so that what changes on the machine meanwhile changes both.
fn alternate(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut our_figures, mut their_figures) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_figures.push(ours()?);
        their_figures.push(theirs()?);
    }
    Ok((our_figures, their_figures))
}

fn versus(ours: &[f64], theirs: &[f64], baseline: &str, (unit, divisor): Unit) -> String {
    format!("{} against {} of {baseline}, {unit}", text(ours, divisor), text(theirs, divisor))
}

/// NEXT against Redis's INCR, at the settings that `wanted` picks. `None` if Redis is not installed.
///
/// # Errors
/// A server failed, refused a request, or repeated an id.
pub fn redis_rows(rounds: usize, wanted: impl Fn(&Setting) -> bool) -> Result<Option<Vec<Row>>> {
    let mut rows = Vec::new();
    for setting in Setting::ALL.into_iter().filter(wanted) {
        let Some(redis) = Server::redis(setting.durable)? else { return Ok(None) };
        let xuid = Server::xuid()?;
        let next = ask(Shape::Next, 1);
        witness(next, xuid.address)?;
        let (ours, theirs) = alternate(
            rounds,
            || Ok(drive(next, xuid.address, setting.load())?.rate()),
            || Ok(drive(|_| Ok(InOrder::incr()), redis.address, setting.load())?.rate()),
        )?;
        let ratio = median(&ours) / median(&theirs);
        let figures = versus(&ours, &theirs, "Redis INCR", ("k/s", 1e3));
        rows.push(at_least(&format!("TCP, NEXT {setting}"), figures, ratio, setting.target, "x"));
    }
    Ok(Some(rows))
}

/// Ids of a request for many that is looked at.
const WITNESSED: u32 = 1_024;

/// The rows of TCP that need nothing installed.
///
/// # Errors
/// A server failed, refused a request, or repeated an id.
pub fn tcp_rows(rounds: usize) -> Result<Vec<Row>> {
    Ok(vec![
        next_row(rounds)?,
        array_row(rounds, "TCP, ARRAY of 4,096, 8x4", 1)?,
        array_row(rounds, "the same, readers woken by half a window", ARRAY_LOW_WATER)?,
        runs_row(rounds)?,
    ])
}

fn next_row(rounds: usize) -> Result<Row> {
    let (xuid, echo) = (Server::xuid()?, Server::own(Role::Echo)?);
    let next = ask(Shape::Next, 1);
    witness(next, xuid.address)?;
    let (ours, theirs) = alternate(
        rounds,
        || Ok(drive(next, xuid.address, load(1, 1))?.p50_us()),
        || Ok(drive(|_| Ok(InOrder::echo()), echo.address, load(1, 1))?.p50_us()),
    )?;
    let ratio = median(&ours) / median(&theirs);
    Ok(at_most("TCP, NEXT 1x1, p50", versus(&ours, &theirs, "an echo", ("us", 1.0)), ratio, 1.15, "x"))
}

/// Against the stream, and beside two bare loops that answer the same requests: one writes consecutive numbers, as much
/// as any server must that gives ids, and one sends the same bytes again, which is what the load itself allows. All are
/// read in pieces of one size, the stream from one connection and the others from eight.
fn array_row(rounds: usize, path: &str, low_water: usize) -> Result<Row> {
    let (xuid, stream) = (Server::xuid()?, Server::own(Role::Stream)?);
    let (numbers, blank) = (Server::own(Role::Numbers)?, Server::own(Role::Blank)?);
    witness(ask(Shape::Array, WITNESSED), xuid.address)?;
    let load = Load { low_water, ..load(8, 4) };
    let arrays = |bare: &Server| {
        let open = |stream: &mut TcpStream| greet(stream).map(|()| InOrder::array());
        drive(open, bare.address, load).map(|outcome| outcome.bytes_per_second())
    };
    let (mut written, mut unwritten) = (Vec::new(), Vec::new());
    let (ours, theirs) = alternate(
        rounds,
        || Ok(drive(ask(Shape::Array, ARRAY_COUNT), xuid.address, load)?.bytes_per_second()),
        || {
            written.push(arrays(&numbers)?);
            unwritten.push(arrays(&blank)?);
            stream_rate(stream.address, low_water)
        },
    )?;
    let ratio = median(&ours) / median(&theirs);
    let [written, unwritten] = [written, unwritten].map(|figures| text(&figures, 1e9));
    let figures = versus(&ours, &theirs, "the raw stream", ("GB/s", 1e9));
    let figures = format!(
        "{figures}; {written} of a bare loop that only writes numbers, {unwritten} of one that writes nothing"
    );
    Ok(at_least(path, figures, ratio, 0.9, "x"))
}

fn runs_row(rounds: usize) -> Result<Row> {
    const COUNT: u32 = 131_072;
    let mut figures = Vec::new();
    for _ in 0..rounds {
        // A server each, and short: a second may spend half of the land that was declared for one.
        let xuid = Server::xuid()?;
        witness(ask(Shape::Runs, WITNESSED), xuid.address)?;
        let load = Load { warm_up: WARM_UP / 2, span: SPAN / 2, ..load(8, 4) };
        let outcome = drive(ask(Shape::Runs, COUNT), xuid.address, load)?;
        figures.push(outcome.rate() * f64::from(COUNT));
    }
    let ratio = median(&figures) / 2e9;
    Ok(Row {
        path: "TCP, RUNS of 131,072, 8x4".to_owned(),
        figures: format!("{}, G ids/s", text(&figures, 1e9)),
        ratio,
        target: "at least 2 G ids/s".to_owned(),
        met: ratio >= 1.0,
    })
}

/// Half of what a window of four comes to.
const ARRAY_LOW_WATER: usize = 2 * ArraySlots::frame_len(ARRAY_COUNT);

/// What is read of it at once.
const PIECE: usize = 256 * 1024;

/// Bytes a second of a stream that nobody looks at.
fn stream_rate(address: SocketAddr, low_water: usize) -> Result<f64> {
    let mut stream = TcpStream::connect(address).context("connecting to the stream")?;
    set_low_water(&stream, low_water)?;
    let mut buffer = vec![0; PIECE];
    let mut read_for = |span: Duration| -> Result<f64> {
        let (begun, mut bytes) = (now(), 0);
        loop {
            bytes += stream.read(&mut buffer)?;
            let elapsed = begun.elapsed();
            if elapsed >= span {
                return Ok(bytes as f64 / elapsed.as_secs_f64());
            }
        }
    };
    read_for(WARM_UP)?;
    read_for(SPAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_and_the_median_is_told_with_its_spread() {
        let turns = std::cell::RefCell::new(Vec::new());
        let figure = |who: char, at: f64| {
            turns.borrow_mut().push(who);
            Ok(at + turns.borrow().len() as f64)
        };
        let (ours, theirs) = alternate(3, || figure('x', 10.0), || figure('r', 0.0)).unwrap();
        assert_eq!(turns.into_inner(), ['x', 'r', 'x', 'r', 'x', 'r']);
        assert_eq!(text(&ours, 1.0), "13.00 [11.00..15.00]");
        assert_eq!(text(&theirs, 2.0), "2.00 [1.00..3.00]");
    }
}
