//! How even `next_id` is while two threads ask without pause.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::{SHORT_ROUNDS, at_least, at_most, figure, median};
use crate::measure::{Row, checked, together};
use crate::subject::{Fixture, Worker};
use crate::timing::{Interval, histogram, now};

/// One measurement.
const SPAN: Duration = Duration::from_millis(200);

/// Calls of a batch.
const BATCH: u64 = 64;

/// What two threads saw in each round, in nanoseconds.
#[derive(Default)]
struct Seen {
    p50: Vec<f64>,
    p999: Vec<f64>,
    ratio: Vec<f64>,
}

impl Seen {
    fn round(&mut self, fixture: &dyn Fixture, calls: u64) -> Result<()> {
        let mut all = histogram()?;
        let work = |worker: &mut Box<dyn Worker + '_>, interval| sample(&mut **worker, calls, interval);
        for one in together(2, SPAN, || fixture.worker(), work) {
            all.add(one?)?;
        }
        let [p50, p999] = [0.5, 0.999].map(|quantile| all.value_at_quantile(quantile) as f64);
        self.p50.push(p50);
        self.p999.push(p999);
        self.ratio.push(p999 / p50);
        Ok(())
    }
}

fn sample(worker: &mut dyn Worker, calls: u64, interval: Interval) -> Result<Histogram<u64>> {
    let mut seen = histogram()?;
    worker.run(10_000);
    let mut last = now();
    while last < interval.deadline {
        worker.run(calls);
        let here = now();
        seen.saturating_record((here - last).as_nanos() as u64);
        last = here;
    }
    Ok(seen)
}

/// The rows of steadiness.
pub(super) fn rows() -> Result<Vec<Row>> {
    let [ours, counter, atomic] = ["xuid/next_id", "limit/thread-local", "ferroid/atomic"].map(checked);
    let [(_, ours), (_, counter), (_, atomic)] = [ours?, counter?, atomic?];
    let (mut batches, mut plain) = (Seen::default(), Seen::default());
    let (mut singles, mut theirs, mut least) = (Seen::default(), Seen::default(), Seen::default());
    for _ in 0..SHORT_ROUNDS {
        batches.round(&*ours, BATCH)?;
        plain.round(&*counter, BATCH)?;
        singles.round(&*ours, 1)?;
        theirs.round(&*atomic, 1)?;
        // What reading the clock around next to nothing shows: no call can be seen to be steadier.
        least.round(&*counter, 1)?;
    }
    for fixture in [&ours, &atomic] {
        if let Some(why) = fixture.objection() {
            anyhow::bail!("the figures are void: {why}");
        }
    }
    let text = format!(
        "p50 {}, p99.9 {}; a counter's {} and {}",
        figure(&batches.p50, "ns"),
        figure(&batches.p999, "ns"),
        figure(&plain.p50, "ns"),
        figure(&plain.p999, "ns")
    );
    let text_single = format!(
        "p99.9 {}, ferroid/atomic {}, a counter {} (p50 {}, {}, {}; each with a reading of the clock)",
        figure(&singles.p999, "ns"),
        figure(&theirs.p999, "ns"),
        figure(&least.p999, "ns"),
        figure(&singles.p50, "ns"),
        figure(&theirs.p50, "ns"),
        figure(&least.p50, "ns")
    );
    let ratio = median(&theirs.p999) / median(&singles.p999);
    Ok(vec![
        at_most("batches of 64, 2 threads", text, median(&batches.ratio), 10.0, "x p50 at p99.9"),
        at_least("single calls, 2 threads", text_single, ratio, 20.0, "x lower p99.9 than ferroid/atomic"),
    ])
}
