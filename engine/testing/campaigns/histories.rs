//! The campaign of simulated histories. Each trial copies a machine's memory as well, of the same seed.

use crate::testing::campaigns::campaign;
use crate::testing::simulation::history::Plan;
use crate::testing::simulation::summary::WANTED;
use crate::testing::simulation::twins::resumed_twice;
use crate::testing::simulation::{LONG, seed, whole};

/// Of so many histories, each kind of trouble is in one at least.
const MANY: u64 = 2_000;

/// Histories where nobody asks for a range.
const DEFAULT: u64 = 200;

pub(crate) fn run() {
    let total = campaign("simulation", DEFAULT, |n| {
        let seed = seed(n);
        let (mut tally, verdict) = whole(&Plan { seed, steps: LONG, ..Plan::default() });
        if let Err(why) = verdict {
            tally.failures.push(format!("XUID_HISTORY={seed} XUID_STEPS={LONG}: {why}"));
            tally.note("histories that failed", 1);
        }
        if let Err(why) = resumed_twice(seed) {
            tally.failures.push(format!("XUID_TWIN={seed}: {why}"));
        }
        tally.note("memories copied", 1);
        Ok(tally)
    });
    if total.trials >= MANY {
        for what in WANTED {
            assert!(total.notes.contains_key(what), "no history had any {what}");
        }
    }
}
