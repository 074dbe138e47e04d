//! Load on an engine in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::time::Instant;
use xuid_engine::{Engine, Floor, Id};

use super::{Args, Harvest, Progress, watch};
use crate::config::cores;

/// Ten years: land declared unused lasts for any run.
const MAX_AGE: Duration = Duration::from_hours(10 * 365 * 24);

/// Calls of `next_id` between two looks at the clock: one call takes a few nanoseconds, and a look some twenty.
const BATCH: u32 = 4_096;

/// Runs the load; returns what all threads got, and how long it took.
pub(super) fn run(args: &Args, progress: &Arc<Progress>) -> Result<(Harvest, Duration)> {
    let folder = Folder::new()?;
    let builder = Engine::builder().data_dir(&folder.0).floor(Floor::Epoch);
    let engine = builder.max_age(MAX_AGE).backfill(MAX_AGE).build()?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let mut loads = Vec::new();
    for _ in 0..threads {
        let (engine, progress, args) = (engine.clone(), Arc::clone(progress), args.clone());
        loads.push(thread::spawn(move || load(&engine, &args, &progress)));
    }
    let took = watch(args.seconds, progress, thread::sleep);
    let mut total = Harvest::new(args.verify)?;
    for load in loads {
        total.merge(load.join().map_err(|_| anyhow!("a thread of the load panicked"))??)?;
    }
    engine.shutdown();
    Ok((total, took))
}

fn load(engine: &Engine, args: &Args, progress: &Progress) -> Result<Harvest> {
    let mut harvest = Harvest::new(args.verify)?;
    let mut ids = vec![Id::default(); args.count as usize];
    while !progress.is_over() {
        let begin = Instant::now();
        let before = harvest.ids;
        let outcome = match (args.runs, args.count) {
            (true, count) => engine.runs(count, args.order.into()).map(|runs| {
                harvest.served(u64::from(count), begin.elapsed());
                for run in runs {
                    harvest.see(run.first().raw(), run.len());
                }
            }),
            (false, 1) if args.order == super::OrderArg::Any => singles(engine, &mut harvest),
            (false, count) => engine.fill(&mut ids, args.order.into()).map(|()| {
                harvest.served(u64::from(count), begin.elapsed());
                for id in &ids {
                    harvest.see(id.raw(), 1);
                }
            }),
        };
        if let Err(error) = outcome {
            harvest.refused += 1;
            harvest.last_refusal = Some(error.to_string());
            thread::sleep(error.retry_after().unwrap_or_default().min(Duration::from_millis(20)));
        }
        progress.ids.fetch_add(harvest.ids - before, Relaxed);
    }
    Ok(harvest)
}

/// One id at a time. The last of a batch is timed alone, clock included.
fn singles(engine: &Engine, harvest: &mut Harvest) -> Result<(), xuid_engine::IdError> {
    let begin = harvest.requests;
    for _ in 1..BATCH {
        let id = engine.next_id()?;
        harvest.requests += 1;
        harvest.see(id.raw(), 1);
    }
    harvest.ids += harvest.requests - begin;
    let timed = Instant::now();
    let id = engine.next_id()?;
    harvest.served(1, timed.elapsed());
    harvest.see(id.raw(), 1);
    Ok(())
}

/// A folder that is gone when the bench is over.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("xuid-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind, it is a small folder among temporary ones.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
