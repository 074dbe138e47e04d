//! That a seed says all: a history that is run again is the same one, whatever its thread did before, or a failure's
//! seed would show nothing.

use crate::testing::campaigns::Tally;
use crate::testing::simulation::history::Plan;
use crate::testing::simulation::{SHORT, seed, whole};

/// Histories that are compared.
const HISTORIES: u64 = 60;

fn run(n: u64) -> (Tally, Result<(), String>) {
    whole(&Plan { seed: seed(n), steps: SHORT, ..Plan::default() })
}

#[test]
fn a_history_that_is_run_again_is_the_same_to_the_last_id() {
    // One after the other: this thread's hands remember the engines of those before.
    let all: Vec<_> = (0..HISTORIES).map(run).collect();
    for n in (0..HISTORIES).rev() {
        let before = &all[n as usize];
        // In a thread that never ran any.
        let again = std::thread::scope(|scope| scope.spawn(|| run(n)).join());
        let again = again.expect("a panic is caught in it");
        assert_eq!(format!("{before:?}"), format!("{again:?}"), "XUID_HISTORY={}", seed(n));
    }
    assert!(
        all.windows(2).all(|pair| pair[0].0.digest != pair[1].0.digest),
        "all histories are the same one"
    );
}
