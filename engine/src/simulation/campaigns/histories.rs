//! The campaign of simulated histories.

use std::collections::BTreeMap;

use super::{Tally, campaign};
use crate::simulation::history::Plan;
use crate::simulation::summary::WANTED;
use crate::simulation::{LONG, planned, seed};

/// Of so many histories, each kind of trouble is in one at least.
const MANY: u64 = 2_000;

/// Histories where nobody asks for a range.
const DEFAULT: u64 = 200;

pub(super) fn run() {
    let total = campaign("simulation", DEFAULT, |n| {
        let seed = seed(n);
        match planned(&Plan { seed, steps: LONG, ..Plan::default() }) {
            Ok(summary) => Ok(summary.tally()),
            Err(why) => Ok(Tally {
                duplicates: u64::from(why.contains("an id came twice")),
                failures: vec![format!("XUID_HISTORY={seed} XUID_STEPS={LONG}: {why}")],
                notes: BTreeMap::from([("histories that failed".to_owned(), 1)]),
                ..Tally::default()
            }),
        }
    });
    if total.trials >= MANY {
        for what in WANTED {
            assert!(total.notes.contains_key(what), "no history had any {what}");
        }
    }
}
