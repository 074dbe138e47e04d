//! What each tier is worth: the same burst on engines that lack one.

use std::time::Duration;

use anyhow::Result;
use xuid_engine::{Engine, Floor, Tiers};

use crate::land::{Farm, drain};
use crate::measure::rate;
use crate::rows::{ROUNDS, figure};
use crate::subject::{consume, repeat};

/// One measurement.
const SPAN: Duration = Duration::from_millis(250);

/// How long the engines with and without a spill are left alone.
const IDLE: Duration = Duration::from_secs(10);

fn without(tiers: Tiers) -> Result<Farm> {
    let years = Duration::from_hours(10 * 365 * 24);
    Ok(Farm::build(Engine::builder().floor(Floor::Epoch).max_age(years).backfill(years).tiers(tiers))?)
}

/// Prints the table: M ids/s on one thread and on two.
///
/// # Errors
/// An engine could not be built.
pub fn print() -> Result<()> {
    let all = Tiers::default();
    let variants = [
        ("all tiers", all),
        ("without runs in threads' hands", Tiers { longest_run: 1, ..all }),
        ("with short runs, 64 ids", Tiers { longest_run: 64, ..all }),
        ("with runs of 1,024 ids", Tiers { longest_run: 1_024, ..all }),
        ("without the ring", Tiers { ring: false, ..all }),
        ("without callers at the queue", Tiers { queue: false, ..all }),
        ("without ring and queue", Tiers { ring: false, queue: false, ..all }),
    ];
    let farms = variants.map(|(name, tiers)| (name, without(tiers)));
    println!("next_id, a burst on declared land, {ROUNDS} rounds: median [least..most]");
    let mut figures = vec![[Vec::new(), Vec::new()]; variants.len()];
    for _ in 0..ROUNDS {
        for ((_, farm), figures) in farms.iter().zip(&mut figures) {
            let Ok(farm) = farm else { continue };
            for threads in [1, 2] {
                figures[threads - 1].push(burst(&farm.engine, threads));
            }
        }
    }
    for ((name, farm), [one, two]) in farms.into_iter().zip(figures) {
        farm?;
        println!("  {name:34} {:32} {}", figure(&one, "M/s, 1 thread"), figure(&two, "M/s, 2 threads"));
    }
    spill()
}

fn burst(engine: &Engine, threads: usize) -> f64 {
    let run = |engine: &mut Engine, calls| {
        repeat!(
            calls,
            match engine.next_id() {
                Ok(id) => consume(id.raw()),
                Err(error) => panic!("the figure is void: {error}"),
            }
        );
    };
    rate(threads, SPAN, || engine.clone(), run) / 1e6
}

/// What an idle time leaves to the next life, with a spill and without.
fn spill() -> Result<()> {
    let farms = [("with the spill", true), ("without the spill", false)];
    let farms = farms.map(|(name, spill)| (name, spill, Farm::build(Engine::builder().spill(spill))));
    std::thread::sleep(IDLE);
    println!("ids at once after {IDLE:?} of idling, a clean stop and a restart");
    for (name, spill, farm) in farms {
        let farm = farm?;
        farm.engine.shutdown();
        let engine = Engine::builder().data_dir(farm.folder.path()).spill(spill).build()?;
        println!("  {name:34} {:.1} M", drain(&engine) as f64 / 1e6);
    }
    Ok(())
}
