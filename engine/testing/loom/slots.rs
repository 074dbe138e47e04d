//! The ring's slots: every block ends with exactly one taker (U5).

use loom::sync::Arc;

use crate::id::run::Block;
use crate::loom::{every, finds};
use crate::sys::guards::Guard;
use crate::tiers::ring::{PARTITIONS, Ring};

/// Two takers and a refill meet at one slot, and what is left is swept.
fn takers_refiller_and_sweeper() -> Option<String> {
    let ring = Arc::new(Ring::new(PARTITIONS));
    ring.refill(0, || Some(Block::new(2, 2)));
    let taker = |ring: &Arc<Ring>| {
        let ring = ring.clone();
        loom::thread::spawn(move || {
            let mut cursor = ring.cursor(0);
            ring.take(&mut cursor).block.map(|block| block.into_run().raw())
        })
    };
    let takers = [taker(&ring), taker(&ring)];
    let mut given = false;
    let refilled = ring.refill(0, || (!std::mem::replace(&mut given, true)).then(|| Block::new(4, 2)));
    let mut seen: Vec<u64> = refilled.left_over.map(|block| block.into_run().raw()).into_iter().collect();
    // What the source never gave out is still with the source.
    if !given {
        seen.push(4);
    }
    for taker in takers {
        seen.extend(taker.join().unwrap());
    }
    (0..PARTITIONS).for_each(|partition| ring.sweep(partition, |block| seen.push(block.into_run().raw())));
    seen.sort_unstable();
    (seen != [2, 4]).then(|| format!("the blocks 2 and 4 were taken as: {seen:?}"))
}

#[test]
fn loom_two_takers_and_a_refill_find_each_block_once() {
    every(None, takers_refiller_and_sweeper);
}

#[test]
fn loom_a_slot_read_and_then_cleared_is_found_out() {
    finds(Guard::TakeBySwap, None, takers_refiller_and_sweeper);
}

#[test]
fn loom_a_refill_that_overwrites_is_found_out() {
    finds(Guard::RefillOnlyEmpty, None, takers_refiller_and_sweeper);
}
