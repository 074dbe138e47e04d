//! `next_id` on one shared engine beside the prototype's ring, in one run.
//!
//! A burst on declared land: the floor is the epoch and `max_age` ten years, so that the engine spends land that
//! nobody ever used instead of waiting for the clock. What one worker can sustain is 4,096 ids a millisecond.

use std::cell::Cell;
use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

use xuid_benches::land::Farm;
use xuid_benches::measure::{rate, spread};
use xuid_benches::peers::SeedRing;
use xuid_engine::{Engine, Id, IdError};

thread_local! {
    static COUNTER: Cell<u64> = const { Cell::new(0) };
}

/// A thread-local increment: the limit of what any generator behind `&self` can do.
fn count() -> u64 {
    COUNTER.with(|counter| {
        let next = counter.get() + 1;
        counter.set(next);
        next
    })
}

/// A call's id as its caller would use it; refusals show in the engine's figures.
#[inline]
fn used(outcome: Result<Id, IdError>) -> u64 {
    match outcome {
        Ok(id) => id.raw(),
        Err(_) => 0,
    }
}

const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_millis(800);

/// A benchmark of wrong ids is worth nothing: both subjects are checked first.
fn check(engine: &Engine, ring: &SeedRing) -> Result<(), Box<dyn std::error::Error>> {
    let mut seen = HashSet::new();
    for _ in 0..200_000 {
        assert!(seen.insert(engine.next_id()?), "the engine repeated an id");
    }
    let mut seen = HashSet::new();
    for _ in 0..200_000 {
        assert!(seen.insert(ring.next_id()), "the baseline repeated an id");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Farm { engine, folder: _folder } = Farm::declared()?;
    let ring = SeedRing::new();
    check(&engine, &ring)?;
    println!(
        "next_id, a burst on declared land, {ROUNDS} rounds of {SPAN:?}, M ids/s: least, median, most\n"
    );
    let mut medians = Vec::new();
    for threads in [1, 2] {
        let (mut ours, mut seeds, mut handles, mut limit) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            seeds.push(
                rate(
                    threads,
                    SPAN,
                    || (),
                    |()| {
                        black_box(ring.next_id());
                    },
                ) / 1e6,
            );
            ours.push(
                rate(
                    threads,
                    SPAN,
                    || (),
                    |()| {
                        black_box(used(engine.next_id()));
                    },
                ) / 1e6,
            );
            handles.push(
                rate(
                    threads,
                    SPAN,
                    || engine.handle(),
                    |handle| {
                        black_box(used(handle.next_id()));
                    },
                ) / 1e6,
            );
            limit.push(
                rate(
                    threads,
                    SPAN,
                    || (),
                    |()| {
                        black_box(count());
                    },
                ) / 1e6,
            );
        }
        for (name, figures) in [
            ("prototype's ring", seeds),
            ("xuid next_id", ours),
            ("xuid handle", handles),
            ("thread-local count", limit),
        ] {
            let (least, median, most) = spread(figures);
            println!("{name:18} {threads} thread(s)  {least:10.1} {median:10.1} {most:10.1}");
            medians.push(median);
        }
    }
    let stats = engine.stats();
    let refused = stats.refused.overloaded + stats.refused.not_ready;
    assert_eq!(refused, 0, "the run is void: the engine ran out of land");
    let served = stats.served;
    let total = (served.ring + served.queue + served.minter + served.reserve) as f64 / 100.0;
    println!(
        "\nserved by  ring {:.2} %  queue {:.2} %  minter {:.2} %  reserve {:.2} %",
        served.ring as f64 / total,
        served.queue as f64 / total,
        served.minter as f64 / total,
        served.reserve as f64 / total
    );
    println!("xuid at 2 threads is {:.0} x the prototype's ring at 2 threads", medians[5] / medians[4]);
    let valid = medians[0] >= 10.0;
    println!(
        "the baseline {} 10 M ids/s at 1 thread{}",
        if valid { "reaches" } else { "misses" },
        if valid { "" } else { ": the comparison is void" }
    );
    Ok(())
}
