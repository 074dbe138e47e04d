//! What the clock allows: the sustained rate, and a burst out of what an idle minute left.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use xuid_engine::Engine;

use crate::land::{Farm, drain};
use crate::measure::now;
use crate::rows::{ROUNDS, Row, at_least, at_most, figure, median};
use crate::subject::{consume, repeat};

/// Consecutive ticks that are looked at.
const TICKS: u64 = 10_000;

/// How long one call may wait: a host that takes the processor away for a moment is not what this is about, and land
/// that was not issued meanwhile is issued after.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ticks before them: what was in memory when the count began, and what the end finds half issued.
const MARGIN: u64 = 300;

/// How long the engines are left alone before a burst.
const IDLE: Duration = Duration::from_mins(1);

/// Ids of a burst.
const BURST: u64 = 240_000_000;

/// The row of the sustained rate: ids counted tick by tick, from the ids themselves.
pub(super) fn sustained() -> Result<Vec<Row>> {
    let mut shares = Vec::new();
    for _ in 0..ROUNDS {
        let Farm { engine, folder: _folder } = Farm::build(Engine::builder().wait(PATIENCE))?;
        shares.push(share_of_plots(&engine)? * 100.0);
    }
    let text = figure(&shares, "% of 40,960,000 plots, none twice");
    Ok(vec![at_least("sustained, reserve empty", text, median(&shares), 99.9, "% of the plots")])
}

fn share_of_plots(engine: &Engine) -> Result<f64> {
    let layout = engine.layout();
    let (sequences, stride) =
        (u64::from(layout.sequences()), u64::from(layout.workers()) * u64::from(layout.sequences()));
    drain(engine);
    let first = engine.next_id()?.raw() / stride + MARGIN;
    let mut plots = vec![0_u64; (TICKS * sequences / 64) as usize];
    let mut issued = 0_u64;
    loop {
        let id = engine.next_id()?.raw();
        let tick = id / stride;
        if tick >= first + TICKS + MARGIN {
            return Ok(issued as f64 / (TICKS * sequences) as f64);
        }
        if (first..first + TICKS).contains(&tick) {
            let plot = (tick - first) * sequences + id % sequences;
            let (word, bit) = (&mut plots[(plot / 64) as usize], 1 << (plot % 64));
            ensure!(*word & bit == 0, "{id} came twice");
            *word |= bit;
            issued += 1;
        }
    }
}

/// What one engine did after its idle minute.
struct Burst {
    /// Milliseconds.
    took: f64,
    /// M ids/s.
    after: f64,
    /// Milliseconds.
    gap: f64,
    sleeper_gap: f64,
    /// Extents appended in the idle minute.
    extents: u64,
}

/// The rows of a burst, and of what an idle day writes.
pub(super) fn burst() -> Result<Vec<Row>> {
    let farms = (0..ROUNDS).map(|_| Farm::sustained()).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(IDLE + Duration::from_secs(1));
    let bursts = farms.iter().map(|farm| one_burst(&farm.engine)).collect::<Result<Vec<_>>>()?;
    let of = |pick: fn(&Burst) -> f64| bursts.iter().map(pick).collect::<Vec<f64>>();
    let (took, after, gaps, sleeps) = (of(|b| b.took), of(|b| b.after), of(|b| b.gap), of(|b| b.sleeper_gap));
    let text = format!("{}, then {}", figure(&took, "ms"), figure(&after, "M/s"));
    let text_gap = format!("{}, a thread that sleeps 1 ms {}", figure(&gaps, "ms"), figure(&sleeps, "ms"));
    let gap_ratio = median(&gaps) / median(&sleeps);
    // 32 bytes an extent; the first seconds of a life are not counted twice.
    let day = of(|b| b.extents as f64 * 32.0 * 1_440.0 / 1e6);
    Ok(vec![
        at_most("240 M ids after 60 s of idling, 1 thread", text, median(&took), 400.0, "ms"),
        at_least(
            "the rate after the burst",
            figure(&after, "M/s"),
            median(&after),
            4.0,
            "M ids/s (4.096 is all there is)",
        ),
        at_most(
            "the longest gap after the burst",
            text_gap,
            gap_ratio,
            3.0,
            "x that of a thread that sleeps 1 ms",
        ),
        at_most("what an idle day appends", figure(&day, "MB"), median(&day), 4.0, "MB"),
    ])
}

fn one_burst(engine: &Engine) -> Result<Burst> {
    let extents = engine.stats().spill.extents;
    let begin = now();
    repeat!(BURST, consume(engine.next_id()?.raw()));
    let took = begin.elapsed().as_secs_f64() * 1e3;
    // What is left of the minute.
    drain(engine);
    let span = Duration::from_secs(2);
    let both = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            longest_gap(span, || {
                std::thread::sleep(Duration::from_millis(1));
                Ok(1)
            })
        });
        let ours = longest_gap(span, || engine.next_id().map(|_| 1).map_err(Into::into));
        (ours, sleeper.join())
    });
    let (gap, ids) = both.0?;
    let (sleeper_gap, _) = both.1.map_err(|_| anyhow::anyhow!("the sleeper panicked"))??;
    Ok(Burst { took, after: ids as f64 / span.as_secs_f64() / 1e6, gap, sleeper_gap, extents })
}

/// The longest time between two ends of `call`, in milliseconds, and the sum of what it returned.
fn longest_gap(span: Duration, mut call: impl FnMut() -> Result<u64>) -> Result<(f64, u64)> {
    let begin: Instant = now();
    let (mut last, mut longest, mut sum) = (begin, Duration::ZERO, 0);
    while last - begin < span {
        sum += call()?;
        let here = now();
        longest = longest.max(here - last);
        last = here;
    }
    Ok((longest.as_secs_f64() * 1e3, sum))
}
