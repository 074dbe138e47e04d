//! What readiness says of memory.

use super::*;
use crate::id::run::Block;
use crate::sys::atomics::lock;
use crate::tiers::ring::PARTITIONS;

/// Memory is looked through for readiness place by place, and only while nothing is minted.
#[test]
fn ids_anywhere_in_memory_are_served_without_a_window_and_readiness_says_so() {
    let mut driven = Driven::new(Settings::default());
    driven.run(SECOND);
    driven.pass(300 * MS);
    driven.engine.try_runs(1, crate::Order::Fresh, &mut Vec::new()).unwrap();
    let shared = driven.assembly.shared.clone();
    (0..PARTITIONS).for_each(|partition| shared.ring.sweep(partition, drop));
    while shared.queue.pop().is_some() {}
    drop(shared.returns.take());
    lock(&shared.gauges).held = 0;
    assert!(driven.engine.status().ready, "a window is held");
    driven.pass(120 * SECOND);
    let is_served = || {
        let any = driven.notes(&["no window is held", "calls of any age are served from what is in memory"]);
        let none = driven.notes(&["no window is held", "every call is refused"]);
        assert!(any != none && driven.engine.status().ready == any, "{:?}", driven.engine.status());
        any
    };
    assert!(is_served(), "what the fresh call passed by is set aside");
    drop(lock(&shared.gate).minter.take_aside());
    assert!(!is_served());
    let block = || Block::new(8, 8);
    let mut blocks = std::iter::once(block());
    assert_eq!(shared.ring.refill(PARTITIONS - 1, || blocks.next()).blocks, 1);
    assert!(is_served(), "a block lies in the ring");
    shared.ring.sweep(PARTITIONS - 1, drop);
    shared.queue.push(block()).unwrap();
    assert!(is_served(), "a block lies in the queue");
    shared.queue.pop();
    shared.returns.give([block().into_run()], shared.voids());
    assert!(is_served(), "a run is on its way back");
    drop(shared.returns.take());
    lock(&shared.gauges).held = 8;
    assert!(is_served(), "the reserve has ids");
    lock(&shared.gauges).held = 0;
    assert!(!is_served());
}
