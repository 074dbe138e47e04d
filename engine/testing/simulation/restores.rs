//! What a fence is for: without one, a registry that is put back to what it was repeats ids, which is outside of the
//! promise; and the oracle, which has to notice.

use crate::testing::simulation::history::Plan;
use crate::testing::simulation::workload::Theme;
use crate::testing::simulation::{LONG, SHORT, planned, seed, whole};
use crate::testing::support::oracle::Plant;

/// Within so many histories it must show.
const MOST: u64 = 500;

#[test]
fn a_registry_that_is_restored_and_not_fenced_repeats_ids() {
    let plan = |n| Plan {
        seed: seed(n),
        theme: Some(Theme::Restores),
        steps: SHORT,
        unfenced: true,
        ..Plan::default()
    };
    let twice = |n| planned(&plan(n)).err().filter(|why| why.contains("an id came twice"));
    let found = (0..MOST).find_map(|n| twice(n).map(|why| (n, why)));
    match found {
        Some((n, why)) => println!("history {n}: {why}"),
        None => panic!("no history of {MOST} repeats an id without a fence"),
    }
}

#[test]
fn a_registry_that_is_restored_and_fenced_does_not() {
    for n in 0..100 {
        let plan = Plan { seed: seed(n), theme: Some(Theme::Restores), steps: SHORT, ..Plan::default() };
        if let Err(why) = planned(&plan) {
            panic!("history {n}: {why}");
        }
    }
}

#[test]
fn an_id_that_is_reported_twice_is_found_wherever_it_is() {
    for nth in [1, 2, 10, 50] {
        let plan = Plan {
            seed: seed(nth),
            theme: Some(Theme::Calm),
            steps: LONG,
            plant: Plant::Twice(nth),
            ..Plan::default()
        };
        let (tally, verdict) = whole(&plan);
        let why = verdict.unwrap_err();
        assert_eq!(tally.duplicates, 1);
        assert!(why.contains("an id came twice"), "{why}");
    }
}
