//! The Rust client's prefetched ids: a loop over `next`, one at a time, as a caller would write it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_client::{Client, Ids, Options, PrefetchOptions, PrefetchStats};
use xuid_load::{DuplicateCheck, Recorder, Tail};

use crate::measure::now;

/// Ids between two looks at the clock.
const BATCH: u32 = 100_000;

/// What is not measured: until the source holds as much ahead as the loop needs.
const WARM_UP: Duration = Duration::from_millis(300);

/// What the check of the ids may use; an id in sequence costs nothing.
const CHECK_MEMORY: u64 = 1 << 28;

/// What one measurement found.
#[derive(Debug, Clone, Copy)]
pub struct Prefetched {
    /// Ids a second.
    pub rate: f64,
    /// How many ids came, warm-up and all, no two of them alike.
    pub unique: u64,
    /// What the source counted.
    pub stats: PrefetchStats,
}

/// Ids a second of a loop over [`Ids::next`] for `span`: one connection, and one thread for loop, refilling and
/// connection together. A run in which an id came twice is an error and not a figure.
pub fn prefetched_rate(server: &str, span: Duration) -> Result<f64> {
    Ok(prefetched(server, span)?.rate)
}

/// As [`prefetched_rate`], with what it counted.
pub fn prefetched(server: &str, span: Duration) -> Result<Prefetched> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(server, Options::new()).await.context("no server to measure")?;
        let source = client.prefetch(PrefetchOptions::new())?;
        let mut ids = source.ids();
        let check = DuplicateCheck::start(CHECK_MEMORY, || ())?;
        let (mut recorder, mut tail) = (check.recorder(), Tail::default());
        take_for(&mut ids, WARM_UP, &mut recorder, &mut tail).await?;
        let (taken, elapsed) = take_for(&mut ids, span, &mut recorder, &mut tail).await?;
        recorder.end(&mut tail);
        drop(recorder);
        let verdict = check.finish()?;
        ensure!(verdict.duplicates == 0, "ids came twice, such as {:?}", verdict.shown);
        ensure!(verdict.unseen == 0, "{} ids were not looked at", verdict.unseen);
        Ok(Prefetched {
            rate: taken as f64 / elapsed.as_secs_f64(),
            unique: verdict.ids,
            stats: source.stats(),
        })
    })
}

/// Takes ids one by one for `span`; how many, and how long it took.
async fn take_for(
    ids: &mut Ids,
    span: Duration,
    recorder: &mut Recorder,
    tail: &mut Tail,
) -> Result<(u64, Duration)> {
    let begin = now();
    let mut taken = 0;
    loop {
        for _ in 0..BATCH {
            recorder.note(tail, ids.next().await?, 1);
        }
        taken += u64::from(BATCH);
        let elapsed = begin.elapsed();
        if elapsed >= span {
            return Ok((taken, elapsed));
        }
    }
}
