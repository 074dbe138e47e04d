//! The campaign of simulated histories of named sequences.

use crate::testing::campaigns::campaign;
use crate::testing::sequences::{WANTED, whole};
use crate::testing::simulation::seed;

/// Of so many histories, each kind of trouble is in one at least.
const MANY: u64 = 2_000;

/// Histories where nobody asks for a range.
const DEFAULT: u64 = 200;

pub(crate) fn run() {
    let total = campaign("sequences", DEFAULT, |n| {
        let seed = seed(n);
        let (mut tally, verdict) = whole(seed);
        if let Err(why) = verdict {
            tally.failures.push(format!("XUID_SEQUENCES={seed}: {why}"));
            tally.note("histories that failed", 1);
        }
        Ok(tally)
    });
    if total.trials >= MANY {
        for what in WANTED {
            assert!(total.notes.contains_key(what), "no history had any {what}");
        }
    }
}
