//! Calls for many ids at once, beside the least that any implementation must do.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use xuid_engine::{Engine, Id, Order};

use crate::land::{Farm, objection};
use crate::measure::{duplicates, rate};
use crate::rows::{Row, SHORT_ROUNDS, at_least, at_most, figure, median};

/// One measurement.
const SPAN: Duration = Duration::from_millis(100);

/// Ids of a fill.
const FILL: usize = 1_024;

/// Ids of a call for runs: a whole tick of the default layout.
const RUN: u32 = 4_096;

/// The rows of `fill` and `runs`.
pub(super) fn rows() -> Result<Vec<Row>> {
    let Farm { engine, folder: _folder } = Farm::declared()?;
    check(&engine)?;
    let lock = Mutex::new(0_u64);
    let (mut fills, mut loops, mut runs, mut locks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SHORT_ROUNDS {
        fills.push(filled(&engine));
        loops.push(written());
        runs.push(1e9 / rate(1, SPAN, || (), |(), calls| run(&engine, calls)));
        locks.push(1e9 / rate(1, SPAN, || (), |(), calls| locked(&lock, calls)));
    }
    if let Some(why) = objection(&engine) {
        bail!("the figures are void: {why}");
    }
    let text = format!("{}, loop {}", figure(&fills, "G/s"), figure(&loops, "G/s"));
    let text_runs = format!("{} a call, lock and unlock {}", figure(&runs, "ns"), figure(&locks, "ns"));
    Ok(vec![
        at_least(
            "fill of 1,024",
            text,
            median(&fills) / median(&loops),
            0.8,
            "x a loop that writes base + i",
        ),
        at_most("runs of 4,096", text_runs, median(&runs) / median(&locks), 5.0, "x an uncontended Mutex"),
    ])
}

/// What is timed repeats no id.
fn check(engine: &Engine) -> Result<()> {
    let (mut ids, mut slice) = (Vec::new(), vec![Id::default(); FILL]);
    for _ in 0..100 {
        engine.fill(&mut slice, Order::Any)?;
        ids.extend(slice.iter().map(|id| id.raw()));
        ids.extend(engine.runs(RUN, Order::Any)?.into_iter().flatten().map(Id::raw));
    }
    let twice = duplicates(&mut ids);
    ensure!(twice == 0, "fill and runs repeated {twice} of {} ids", ids.len());
    Ok(())
}

fn run(engine: &Engine, calls: u64) {
    for _ in 0..calls {
        // A refusal shows in the engine's own figures.
        drop(black_box(engine.runs(RUN, Order::Any)));
    }
}

fn locked(lock: &Mutex<u64>, calls: u64) {
    for _ in 0..calls {
        *black_box(lock).lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

/// G ids/s of `fill`.
fn filled(engine: &Engine) -> f64 {
    let fill = |ids: &mut Vec<Id>, calls| {
        for _ in 0..calls {
            let _ = engine.fill(ids, Order::Any);
            black_box(&mut *ids);
        }
    };
    rate(1, SPAN, || vec![Id::default(); FILL], fill) * FILL as f64 / 1e9
}

/// G ids/s of a loop that writes consecutive numbers into a slice.
fn written() -> f64 {
    let write = |(base, ids): &mut (u64, Vec<u64>), calls| {
        for _ in 0..calls {
            for (offset, id) in ids.iter_mut().enumerate() {
                *id = *base + offset as u64;
            }
            *base += FILL as u64;
            black_box(&mut *ids);
        }
    };
    rate(1, SPAN, || (1 << 22, vec![0; FILL]), write) * FILL as f64 / 1e9
}
