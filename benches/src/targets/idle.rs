//! What an engine costs that nobody asks.

use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

use crate::land::Farm;
use crate::rows::{ROUNDS, Row, at_most, figure, median};

/// One measurement.
const SPAN: Duration = Duration::from_secs(4);

/// The row of idleness.
pub(super) fn rows() -> Result<Vec<Row>> {
    let farm = Farm::sustained()?;
    // Its first ids, and what it does at its start, are not idleness.
    farm.engine.next_id()?;
    std::thread::sleep(Duration::from_secs(2));
    let mut shares = Vec::new();
    for _ in 0..ROUNDS {
        let before = cpu_time();
        std::thread::sleep(SPAN);
        shares.push(cpu_time().saturating_sub(before).as_secs_f64() / SPAN.as_secs_f64() * 100.0);
    }
    let row = at_most("CPU of an idle engine", figure(&shares, "%"), median(&shares), 0.3, "% of a core");
    Ok(vec![row])
}

/// What this process used so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
