//! A leap that shows while the answer to a claim is taken in, which the clock had gone back for.

use super::*;
use crate::background::registry_thread::Job;

#[test]
fn a_leap_in_the_reading_of_a_switch_hands_no_worker_back() {
    // Of the readings that follow the answer, the third one is the switch's own.
    for reading in 0..10 {
        let (_, mut two) = copied(|_| ());
        two.clock.change(Change::Right);
        two.clock.change(Change::Step(-(3 * SECOND).cast_signed()));
        two.turn();
        two.job();
        two.deliver();
        two.clock.set_trap(reading, Change::Step((3_600 * SECOND).cast_signed()));
        two.assembly.producer.collect();
        two.clock.disarm();
        let jobs: Vec<_> = two.assembly.jobs.try_iter().collect();
        let hands_back = jobs.iter().any(|job| matches!(job, Job::Release { .. }));
        assert_eq!(hands_back, reading > 2, "a leap in reading {reading}: {jobs:?}");
    }
}
