//! The Rust client's prefetched ids: a loop over `next`, one at a time, as a caller would write it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_client::{Client, Ids, Options, PrefetchOptions, PrefetchStats};

use crate::measure::now;

/// Ids between two looks at the clock.
const BATCH: u32 = 100_000;

/// What is not measured: until the source holds as much ahead as the loop needs.
const WARM_UP: Duration = Duration::from_millis(300);

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
        let mut seen = SeenIds::default();
        take_for(&mut ids, WARM_UP, &mut seen).await?;
        let (taken, elapsed) = take_for(&mut ids, span, &mut seen).await?;
        let unique = seen.unique()?;
        Ok(Prefetched { rate: taken as f64 / elapsed.as_secs_f64(), unique, stats: source.stats() })
    })
}

/// Takes ids one by one for `span`; how many, and how long it took.
async fn take_for(ids: &mut Ids, span: Duration, seen: &mut SeenIds) -> Result<(u64, Duration)> {
    let begin = now();
    let mut taken = 0;
    loop {
        for _ in 0..BATCH {
            seen.add(ids.next().await?);
        }
        taken += u64::from(BATCH);
        let elapsed = begin.elapsed();
        if elapsed >= span {
            return Ok((taken, elapsed));
        }
    }
}

/// Every id that came, as intervals.
#[derive(Debug, Default)]
struct SeenIds {
    first: u64,
    /// Behind the last one.
    end: u64,
    closed: Vec<(u64, u64)>,
}

impl SeenIds {
    #[inline]
    fn add(&mut self, id: u64) {
        if id != self.end {
            self.close(id);
        }
        self.end = id + 1;
    }

    #[cold]
    fn close(&mut self, next: u64) {
        if self.end > self.first {
            self.closed.push((self.first, self.end));
        }
        self.first = next;
    }

    /// How many ids there were, if none came twice.
    fn unique(mut self) -> Result<u64> {
        self.close(0);
        self.closed.sort_unstable();
        let twice = self.closed.windows(2).find(|pair| pair[1].0 < pair[0].1);
        ensure!(twice.is_none(), "ids came twice: {twice:?}");
        Ok(self.closed.iter().map(|(first, end)| end - first).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(ids: &[u64]) -> Result<u64> {
        let mut seen = SeenIds::default();
        for id in ids {
            seen.add(*id);
        }
        seen.unique()
    }

    #[test]
    fn an_id_that_came_twice_is_found_wherever_it_lies() {
        assert_eq!(unique(&[5, 6, 7, 1, 2, 9, 0]).unwrap(), 7);
        for twice in [[5, 6, 7, 5], [5, 6, 7, 7], [6, 5, 6, 7], [1, 0, 9, 0]] {
            assert!(unique(&twice).is_err(), "{twice:?}");
        }
    }
}
