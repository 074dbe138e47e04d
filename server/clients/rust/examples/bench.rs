//! How fast the client is, beside what bounds it: `cargo run --release -p xuid-client --example bench [SECONDS]`, with a
//! server at `XUID_SERVER` or 127.0.0.1:7654, which needs land to spare. Each figure takes so many seconds, 2 by default.
//! `server/clients/bench` runs those of all clients in turn.

use std::env;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use xuid_client::{Client, Options, Order, PrefetchOptions};

const IN_FLIGHT: usize = 100;

/// Turns between two looks at the clock.
const TURNS: u64 = 100_000;

/// What is not counted.
const WARM_UP: Duration = Duration::from_millis(500);

const HEADER: usize = 16;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let span = Duration::from_secs_f64(env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?);
    let server = env::var("XUID_SERVER").unwrap_or_else(|_| "127.0.0.1:7654".to_owned());
    show("a loop over a counter", per_second(span, counter())?);
    let client = Client::connect_env(Options::new()).await?;
    show("prefetched, one by one", prefetched(&client, span).await?);
    show("a raw echo, 100 in flight", echo(&server, span)?);
    show("NEXT, 100 in flight", next_in_flight(&client, span).await?);
    client.close().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a figure is a number in a time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "a figure has three digits")]
fn rate(done: u64, begun: Instant) -> f64 {
    done as f64 / begun.elapsed().as_secs_f64()
}

/// Of what `some` counts.
fn per_second(span: Duration, mut some: impl FnMut() -> Result<u64>) -> Result<f64> {
    let warm = now();
    while warm.elapsed() < WARM_UP {
        some()?;
    }
    let (mut done, begun) = (0, now());
    while begun.elapsed() < span {
        done += some()?;
    }
    Ok(rate(done, begun))
}

fn counter() -> impl FnMut() -> Result<u64> {
    let mut count = 0_u64;
    move || {
        for _ in 0..TURNS {
            count += 1;
            black_box(count);
        }
        Ok(TURNS)
    }
}

async fn prefetched(client: &Client, span: Duration) -> Result<f64> {
    let source = client.prefetch(PrefetchOptions::new())?;
    let mut ids = source.ids();
    let (mut done, mut begun, warm) = (0, now(), now());
    let mut is_warm = false;
    while !is_warm || begun.elapsed() < span {
        for _ in 0..TURNS {
            black_box(ids.next().await?);
        }
        done += TURNS;
        if !is_warm && warm.elapsed() >= WARM_UP {
            (is_warm, done, begun) = (true, 0, now());
        }
    }
    Ok(rate(done, begun))
}

/// A frame of this op.
fn frame(op: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[0] = u8::try_from(body.len()).unwrap_or(u8::MAX);
    bytes[4] = op;
    bytes.extend(body);
    bytes
}

/// Frames that come back as they were sent: a bare socket writes and counts them, and does not look at them. With the eight
/// bytes of its body a frame is as long as the reply that brings an id.
fn echo(server: &str, span: Duration) -> Result<f64> {
    let mut link = TcpStream::connect(server)?;
    link.set_nodelay(true)?;
    let mut hello = [0; 26];
    (hello[0], hello[2]) = (1, 1);
    link.write_all(&[b"\x89XUID\r\n\x1a".as_slice(), &frame(1, &hello)].concat())?;
    let mut header = [0; HEADER];
    link.read_exact(&mut header)?;
    link.read_exact(&mut vec![0; usize::from(header[0])])?;

    let ping = frame(2, &[0; 8]);
    let many = ping.repeat(IN_FLIGHT);
    let (mut part, mut found) = (0, vec![0; many.len()]);
    link.write_all(&many)?;
    per_second(span, || {
        part += link.read(&mut found)?;
        let done = part / ping.len();
        part %= ping.len();
        link.write_all(&many[..done * ping.len()])?;
        Ok(done as u64)
    })
}

/// Tasks, each of which calls again and again.
async fn next_in_flight(client: &Client, span: Duration) -> Result<f64> {
    let begin = now() + WARM_UP;
    let mut callers = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let client = client.clone();
        callers.spawn(async move {
            let mut done = 0;
            loop {
                let before = now();
                if before >= begin + span {
                    return Ok::<u64, xuid_client::ClientError>(done);
                }
                client.next(Order::Any).await?;
                done += u64::from(before >= begin);
            }
        });
    }
    let mut done = 0;
    while let Some(caller) = callers.join_next().await {
        done += caller??;
    }
    Ok(rate(done, begin))
}

fn show(what: &str, figure: f64) {
    println!("{what:<28}{figure:>16.0} /s");
}
