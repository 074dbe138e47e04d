//! How even `next_id` is while two threads ask without pause.

use std::time::Duration;

use anyhow::Result;

use crate::measure::{checked, together};
use crate::rows::{Row, SHORT_ROUNDS, at_least, at_most, figure, median};
use crate::subject::{Fixture, Worker};
use crate::timing::{Stopwatch, histogram, times};

/// One measurement.
const SPAN: Duration = Duration::from_millis(200);

/// Calls of a batch.
const BATCH: u64 = 64;

/// Calls before the first that is timed.
const WARMUP: u64 = 10_000;

/// What two threads saw in each round, in nanoseconds.
#[derive(Default)]
struct Seen {
    p50: Vec<f64>,
    p999: Vec<f64>,
    ratio: Vec<f64>,
}

impl Seen {
    fn round(&mut self, fixture: &dyn Fixture, calls: u64, watch: &Stopwatch) -> Result<()> {
        let mut all = histogram()?;
        let warm = || {
            let mut worker = fixture.worker();
            worker.run(WARMUP);
            worker
        };
        let work = |worker: &mut Box<dyn Worker + '_>, interval| -> Result<_> {
            let mut seen = histogram()?;
            times(&mut **worker, interval, calls, watch, &mut seen);
            Ok(seen)
        };
        for one in together(2, SPAN, warm, work) {
            all.add(one?)?;
        }
        let [p50, p999] = [0.5, 0.999].map(|quantile| all.value_at_quantile(quantile) as f64);
        self.p50.push(p50);
        self.p999.push(p999);
        self.ratio.push(p999 / p50);
        Ok(())
    }
}

/// The rows of steadiness.
pub(super) fn rows() -> Result<Vec<Row>> {
    let [ours, counter, atomic] = ["xuid/next_id", "limit/thread-local", "ferroid/atomic"].map(checked);
    let [(_, ours), (_, counter), (_, atomic)] = [ours?, counter?, atomic?];
    let watch = Stopwatch::new();
    let (mut batches, mut plain) = (Seen::default(), Seen::default());
    let (mut singles, mut theirs, mut least) = (Seen::default(), Seen::default(), Seen::default());
    for _ in 0..SHORT_ROUNDS {
        batches.round(&*ours, BATCH, &watch)?;
        plain.round(&*counter, BATCH, &watch)?;
        singles.round(&*ours, 1, &watch)?;
        theirs.round(&*atomic, 1, &watch)?;
        // What reading the counter around next to nothing shows: no call can be seen to be steadier.
        least.round(&*counter, 1, &watch)?;
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
        "p99.9 {}, ferroid/atomic {}, a counter {} (p50 {}, {}, {}; each with two readings of the processor's counter)",
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
