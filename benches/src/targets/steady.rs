//! How even `next_id` is while two threads ask without pause.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use quanta::Clock;

use super::{SHORT_ROUNDS, at_least, at_most, figure, median};
use crate::measure::{Row, checked, together};
use crate::subject::{Fixture, Worker};
use crate::timing::{Interval, histogram, now};

/// One measurement.
const SPAN: Duration = Duration::from_millis(200);

/// Calls of a batch.
const BATCH: u64 = 64;

/// Times that are taken between two looks at the deadline. The first after a look is longer: far fewer than one in a
/// thousand may be such.
const BETWEEN_LOOKS: usize = 8_192;

/// What two threads saw in each round, in nanoseconds.
#[derive(Default)]
struct Seen {
    p50: Vec<f64>,
    p999: Vec<f64>,
    ratio: Vec<f64>,
}

impl Seen {
    fn round(&mut self, fixture: &dyn Fixture, calls: u64, clock: &Clock) -> Result<()> {
        let mut all = histogram()?;
        let work =
            |worker: &mut Box<dyn Worker + '_>, interval| sample(&mut **worker, calls, interval, clock);
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

/// The processor's own counter; what stands before it is done then, and what stands after it not begun. A reading of the
/// system's clock takes longer than the calls that are measured.
fn reading(clock: &Clock) -> u64 {
    settle();
    let now = clock.raw();
    settle();
    now
}

/// Waits for the instructions before it.
#[expect(unsafe_code, reason = "there is no safe fence of instructions")]
fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it, and it touches neither registers nor memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

fn sample(worker: &mut dyn Worker, calls: u64, interval: Interval, clock: &Clock) -> Result<Histogram<u64>> {
    let mut seen = histogram()?;
    worker.run(10_000);
    while now() < interval.deadline {
        for _ in 0..BETWEEN_LOOKS {
            let start = reading(clock);
            worker.run(calls);
            let end = reading(clock);
            seen.saturating_record(clock.delta_as_nanos(start, end));
        }
    }
    Ok(seen)
}

/// The rows of steadiness.
pub(super) fn rows() -> Result<Vec<Row>> {
    let [ours, counter, atomic] = ["xuid/next_id", "limit/thread-local", "ferroid/atomic"].map(checked);
    let [(_, ours), (_, counter), (_, atomic)] = [ours?, counter?, atomic?];
    let clock = Clock::new();
    let (mut batches, mut plain) = (Seen::default(), Seen::default());
    let (mut singles, mut theirs, mut least) = (Seen::default(), Seen::default(), Seen::default());
    for _ in 0..SHORT_ROUNDS {
        batches.round(&*ours, BATCH, &clock)?;
        plain.round(&*counter, BATCH, &clock)?;
        singles.round(&*ours, 1, &clock)?;
        theirs.round(&*atomic, 1, &clock)?;
        // What reading the counter around next to nothing shows: no call can be seen to be steadier.
        least.round(&*counter, 1, &clock)?;
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
