//! INCRBY takes numbers in one piece, and nothing lets a counter go back.

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, Result, ensure};
use xuid_tests::{RespValue, Rng};

use crate::{connect, serve};

/// The most numbers of one command.
const MOST: u64 = 131_072;

/// (v - n, v] belongs to the caller, over the ends of segments, from sixteen connections.
fn pieces_of(increment: u64, rounds: usize) -> Result<()> {
    let (server, mut rng) = (serve()?, Rng::from_env("increments"));
    let mut client = connect(&server)?;
    let settings =
        ["INCREMENT", &increment.to_string(), "REMAINDER", &(1 % increment).to_string(), "STEP", "50"];
    let created = client.call(&[&["XUID.CREATE", "pieces"][..], &settings].concat())?;
    ensure!(created == RespValue::Simple("OK".into()), "{created:?}");
    let addr = server.resp()?;
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let mut rng = Rng::new(rng.word());
            thread::spawn(move || -> Result<Vec<(u64, u64)>> {
                let mut client = xuid_tests::Resp::connect(addr)?;
                let (mut mine, mut last) = (Vec::new(), 0);
                for _ in 0..rounds {
                    let count = match rng.below(10) {
                        0 => 1 + rng.below(MOST),
                        1..=4 => 1 + rng.below(1_000),
                        _ => 1 + rng.below(10),
                    };
                    let top = client.call(&["INCRBY", "pieces", &count.to_string()])?.integer()?;
                    let first = top.checked_sub((count - 1) * increment).context("a piece below 0")?;
                    ensure!(first > last && first % increment == 1 % increment, "{first} after {last}");
                    last = top;
                    mine.push((first, top));
                }
                Ok(mine)
            })
        })
        .collect();
    let mut pieces = BTreeSet::new();
    for worker in workers {
        for piece in worker.join().ok().context("a client panicked")?? {
            ensure!(pieces.insert(piece), "a piece came twice: {piece:?}");
        }
    }
    let mut end = 0;
    for (first, top) in &pieces {
        ensure!(*first > end, "{first} was taken twice: a piece before it ends at {end}");
        end = *top;
    }
    println!("increment {increment}: {} pieces up to {end}", pieces.len());
    server.stop().map(drop)
}

#[test]
fn a_piece_of_neighbours_belongs_to_its_caller() -> Result<()> {
    pieces_of(1, 40)
}

#[test]
fn a_piece_of_every_third_number_belongs_to_its_caller() -> Result<()> {
    pieces_of(3, 40)
}

#[test]
fn a_counter_that_was_moved_over_goes_on_above_its_value_and_never_back() -> Result<()> {
    let server = serve()?;
    let mut client = connect(&server)?;
    ensure!(client.call(&["SET", "visits", "123456", "NX"])? == RespValue::Simple("OK".into()));
    ensure!(client.call(&["INCR", "visits"])? == RespValue::Integer(123_457));
    for words in [
        &["SET", "visits", "1"][..],
        &["DECR", "visits"],
        &["DECRBY", "visits", "5"],
        &["DEL", "visits"],
        &["EXPIRE", "visits", "1"],
        &["GETSET", "visits", "0"],
        &["INCRBY", "visits", "-5"],
        &["FLUSHALL"],
    ] {
        let RespValue::Error(why) = client.call(words)? else { anyhow::bail!("{words:?} was not refused") };
        ensure!(why.starts_with("ERR ") && why.contains("only rises"), "{why}");
    }
    ensure!(client.call(&["SET", "visits", "1", "NX"])? == RespValue::Null);
    ensure!(client.call(&["INCR", "visits"])? == RespValue::Integer(123_458));
    ensure!(client.call(&["GET", "visits"])?.text()? == "123458");
    server.stop().map(drop)
}
