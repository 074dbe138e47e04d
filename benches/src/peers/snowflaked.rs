//! snowflaked 1: a generator behind `&mut self`, and one in an atomic word.
//!
//! Both read the clock at each call and have 12 bits of sequence whatever type the id has, so neither can run ahead.
//! Their bursts use several instances in turn, each its own generator, so many that none waits for the clock: what a
//! call costs, and less contention than its documented single static would have. Sustained they are as documented.

use crossbeam_utils::CachePadded;
use snowflaked::{Generator, sync};

use super::peer::{peer, per_worker};
use crate::subject::{Fixture, SharedGenerator, Subject, Supply, Worker, single};

/// Instances that a burst goes through: at 50 ns a call, less than an eighth of what their ticks hold.
const INSTANCES: usize = 16;
/// The field has 10 bits.
const ALL_INSTANCES: u64 = 1 << 10;

pub(super) fn subjects() -> Vec<Subject> {
    use Supply::{Burst, Sustained};
    vec![
        peer("snowflaked/sync", "16 instances of sync::Generator in turn, shared", Burst, || {
            let instances =
                std::array::from_fn(|instance| CachePadded::new(sync::Generator::new(instance as u16)));
            Box::new(Turns { instances })
        }),
        peer("snowflaked/per-thread", "16 instances of Generator in turn, a set a thread", Burst, || {
            per_worker(ALL_INSTANCES / INSTANCES as u64, |worker| {
                let first = worker * INSTANCES as u64;
                let mut instances: [_; INSTANCES] =
                    std::array::from_fn(|instance| Generator::new(first as u16 + instance as u16));
                let mut turn = 0;
                move || {
                    turn = (turn + 1) % INSTANCES;
                    instances[turn].generate()
                }
            })
        }),
        peer("snowflaked/sync-sustained", "one sync::Generator shared by all threads", Sustained, || {
            SharedGenerator::new(CachePadded::new(sync::Generator::new(0)), |generator| generator.generate())
        }),
        peer("snowflaked/per-thread-sustained", "a Generator a thread", Sustained, || {
            per_worker(ALL_INSTANCES, |worker| {
                let mut generator = Generator::new(worker as u16);
                move || generator.generate()
            })
        }),
    ]
}

/// Shared generators, which each thread goes through in turn.
struct Turns {
    instances: [CachePadded<sync::Generator>; INSTANCES],
}

impl Fixture for Turns {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let mut turn = 0;
        single(move || {
            turn = (turn + 1) % INSTANCES;
            self.instances[turn].generate()
        })
    }
}
