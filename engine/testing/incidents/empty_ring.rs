//! Two takers of one slot when the ring runs empty.
//!
//! Generators that fill a ring of ids ahead of time, with a cursor, a tail, and a flag beside each slot that says
//! whether it may be taken. A taker notes the cursor, advances it unless it has reached the tail, and takes the cursor
//! for its own if it differs from what was noted. As the ring runs empty another taker may advance it to the tail in
//! between: then both stand on the last slot, both find its flag set before either has cleared it, and both read the
//! same id.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use crate::id::run::Block;
use crate::sys::atomics::lock;
use crate::sys::guards::Guard;
use crate::testing::incidents::Ledger;
use crate::tiers::ring::Ring;

/// The smallest ring there is, so that it is empty nearly always.
const SLOTS: usize = 4;
const LEN: u32 = 2;

/// Takers in threads of their own, and one that refills as the ring runs empty, until all of `blocks` were taken.
fn drain(takers: usize, blocks: u64, out: &[Guard]) -> Ledger {
    let ring = Ring::new(SLOTS);
    let (ledger, begin) = (Mutex::new(Ledger::default()), Barrier::new(takers + 1));
    let filled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..takers {
            let (ring, ledger, begin, filled) = (&ring, &ledger, &begin, &filled);
            scope.spawn(move || {
                let (mut cursor, mut mine) = (ring.cursor(n), Vec::new());
                begin.wait();
                Guard::without(out, || {
                    loop {
                        let over = filled.load(Ordering::Acquire);
                        match ring.take(&mut cursor).block {
                            Some(block) => mine.extend(block.into_run().into_iter().map(crate::Id::raw)),
                            // Nothing was put in since the last refill, and a walk passes all of these few slots.
                            None if over => break,
                            None => std::thread::yield_now(),
                        }
                    }
                });
                lock(ledger).add(mine);
            });
        }
        let mut next = 0;
        begin.wait();
        let mut left_over = None;
        while next < blocks || left_over.is_some() {
            for partition in 0..crate::tiers::ring::PARTITIONS {
                let mut source = || {
                    left_over.take().or_else(|| {
                        (next < blocks).then(|| {
                            next += 1;
                            Block::new(next * u64::from(LEN), LEN)
                        })
                    })
                };
                let refilled = ring.refill(partition, &mut source);
                left_over = refilled.left_over.or(left_over.take());
            }
        }
        // Release: pairs with the Acquire of the takers, which then walk once more over what was put in last.
        filled.store(true, Ordering::Release);
    });
    assert_eq!(ring.ids(), 0);
    ledger.into_inner().unwrap()
}

#[test]
fn takers_of_a_ring_that_runs_empty_never_share_a_slot() {
    let rounds = if cfg!(miri) { 2 } else { 20 };
    let blocks = if cfg!(miri) { 50 } else { 1_000 };
    for round in 0..rounds {
        let takers = 2 + round % 3;
        let ledger = drain(takers, blocks, &[]);
        let ids = blocks as usize * LEN as usize;
        ledger.check(ids);
        assert_eq!(ledger.seen.len(), ids, "{takers} takers lost some");
    }
}

#[test]
fn negative_control_a_slot_that_is_read_and_then_cleared_is_given_to_two() {
    // Two steps, but of this ring's own, and in threads: it may take some tries to meet between them.
    let repeats = |_| !drain(2, 500, &[Guard::TakeBySwap]).again.is_empty();
    assert!((0..20).any(repeats), "twenty rounds found nothing");
}

/// The ring as it was written then, in the steps that each touch one word.
#[derive(Clone, Default)]
struct Old {
    cursor: usize,
    tail: usize,
    full: [bool; 2],
    slots: [u64; 2],
}

/// A taker of it, and how far it has come.
#[derive(Clone, Default)]
struct Taker {
    step: u8,
    noted: usize,
    own: usize,
    id: Option<u64>,
}

impl Taker {
    /// The next step; false once there is none.
    fn go_on(&mut self, ring: &mut Old) -> bool {
        let at = self.own % 2;
        match self.step {
            0 => self.noted = ring.cursor,
            1 => {
                if ring.cursor != ring.tail {
                    ring.cursor += 1;
                }
                self.own = ring.cursor;
            }
            // The same place as before: the ring is empty. A flag that is down: somebody else was here.
            2 if self.own == self.noted || !ring.full[at] => self.step = 9,
            2 => {}
            3 => self.id = Some(ring.slots[at]),
            4 => ring.full[at] = false,
            _ => return false,
        }
        self.step += 1;
        true
    }
}

/// Every order in which two takers' steps may come: how many end with each taker's id, and how many with one id twice.
fn every_order(ring: &Old, takers: &[Taker; 2], twice: &mut u32, orders: &mut u32) {
    let mut ended = true;
    for n in 0..2 {
        let (mut ring, mut takers) = (ring.clone(), takers.clone());
        if takers[n].go_on(&mut ring) {
            ended = false;
            every_order(&ring, &takers, twice, orders);
        }
    }
    if ended {
        let mut ledger = Ledger::default();
        ledger.add(takers.iter().filter_map(|taker| taker.id));
        *orders += 1;
        *twice += u32::from(!ledger.again.is_empty());
    }
}

#[test]
fn negative_control_a_cursor_and_a_flag_give_the_last_slot_to_two() {
    let (mut twice, mut orders) = (0, 0);
    // One id is left.
    let last = Old { cursor: 0, tail: 1, full: [false, true], slots: [10, 11] };
    every_order(&last, &Default::default(), &mut twice, &mut orders);
    assert!(twice > 0, "none of {orders} orders gives the last slot to two");
    // With two left there is one for each, and the same ring is right: it is the empty one that is not.
    let (mut twice_of_two, mut orders) = (0, 0);
    let two = Old { cursor: 0, tail: 2, full: [true, true], slots: [12, 11] };
    every_order(&two, &Default::default(), &mut twice_of_two, &mut orders);
    assert_eq!(twice_of_two, 0, "of {orders}");
}
