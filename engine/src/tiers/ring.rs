//! Tier 1: padded slots in partitions, each slot a block of ids that is taken by one swap.
//!
//! Callers take; the producer refills and sweeps. There is no shared cursor: every thread walks from a place of
//! its own, so threads seldom meet on a slot's line.
//!
//! # Invariants
//! - I1 a slot's word is zero or a whole [`Block`]; the thread that swaps a non-zero word out owns all of it (U5);
//! - I2 a refill stores only where it finds zero, by compare-exchange, so that it overwrites nothing;
//! - I3 no decision rests on two words read together.
//!
//! A slot's word carries its meaning in itself, and the atomicity of swap and compare-exchange is all that I1 and I2
//! need: there every access could be Relaxed. But a request that is answered is taken down before the refill
//! ([`Ring::answer`]), and a thread that takes what a refill put in must see that. Otherwise it believes that a request
//! stands, asks for none, and the partition stays empty. So a refill releases, and a take acquires: through threads
//! that took from the slot in between, too, since a swap goes on with the release sequence. On x86-64 both are the
//! instructions that they were.

use crossbeam_utils::CachePadded;

use crate::id::run::Block;
use crate::sys::atomics::{AtomicBool, AtomicU64, Ordering};
use crate::sys::guards::Guard;

/// Partitions of a ring: what is asked for and refilled at a time.
pub(crate) const PARTITIONS: usize = 4;

/// Empty slots a taker passes before it looks elsewhere. Eight: others may have taken a neighbourhood, and a
/// line costs up to 190 ns to look at, so a longer search is dearer than the queue.
const LOOK: usize = 8;

/// Where a thread walks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    at: usize,
    /// Walks in a row that found nothing.
    vain: usize,
}

/// The ring.
pub(crate) struct Ring {
    slots: Box<[CachePadded<AtomicU64>]>,
    asked: [CachePadded<AtomicBool>; PARTITIONS],
}

/// What a walk found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) block: Option<Block>,
    /// A refill was asked for that no thread had asked for yet: wake the producer.
    pub(crate) asked: bool,
}

impl Ring {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots >= PARTITIONS && slots.is_multiple_of(PARTITIONS));
        let slots = (0..slots).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { slots, asked: std::array::from_fn(|_| CachePadded::new(AtomicBool::new(false))) }
    }

    fn partition_len(&self) -> usize {
        self.slots.len() / PARTITIONS
    }

    /// A place to walk from, for the `n`th thread: the beginning of a partition of its own, or as far into a
    /// shared one as there are threads before it.
    pub(crate) fn cursor(&self, n: usize) -> Cursor {
        let lap = n / PARTITIONS * LOOK * 2;
        let at = (n % PARTITIONS) * self.partition_len() + lap % self.partition_len();
        Cursor { at, vain: 0 }
    }

    /// Takes the next block on the way. A thread that comes to the end of a partition asks for it, and so does one that
    /// finds nothing: another walks just ahead, or the ring runs dry. Slots found empty before a full one are no reason
    /// to ask: two threads that walk side by side find every second slot empty, and each request would have the
    /// producer look at a whole partition for it.
    pub(crate) fn take(&self, cursor: &mut Cursor) -> Found {
        let (mut asked, mut partition) = (false, 0);
        for _ in 0..LOOK.min(self.slots.len()) {
            let at = cursor.at;
            cursor.at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
            partition = at / self.partition_len();
            let block = self.swap_out(at);
            if (at + 1).is_multiple_of(self.partition_len()) {
                asked |= self.ask(partition);
            }
            if block.is_some() {
                cursor.vain = 0;
                return Found { block, asked };
            }
        }
        asked |= self.ask(partition);
        self.pass_on(cursor, partition);
        Found { block: None, asked }
    }

    /// Goes on in the next partition: at its beginning, where a refill begins, and after a round of all partitions a
    /// look further in each, so that no block lies for ever where no thread comes.
    fn pass_on(&self, cursor: &mut Cursor, partition: usize) {
        let place = cursor.vain / PARTITIONS * LOOK % self.partition_len();
        cursor.at = (partition + 1) % PARTITIONS * self.partition_len() + place;
        cursor.vain += 1;
    }

    /// What a caller does that is to live without the ring: it only asks for the queue behind it to be topped up.
    pub(crate) fn skip(&self) -> Found {
        Found { block: None, asked: self.ask(0) }
    }

    fn swap_out(&self, at: usize) -> Option<Block> {
        // No look before the swap: it would fetch the line twice, first to share and then to own.
        let slot = &self.slots[at];
        if !Guard::TakeBySwap.holds() {
            let word = slot.load(Ordering::Relaxed);
            // Time for another to come by: few do so between two instructions.
            #[cfg(not(loom))]
            if word != 0 {
                std::thread::sleep(std::time::Duration::from_micros(1));
            }
            slot.store(0, Ordering::Relaxed);
            return Block::from_word(word);
        }
        let order = if Guard::AnswerSeen.holds() { Ordering::Acquire } else { Ordering::Relaxed };
        // Acquire: pairs with the Release of `refill`.
        Block::from_word(slot.swap(0, order))
    }

    /// Asks for a partition to be refilled; true if no thread had.
    fn ask(&self, partition: usize) -> bool {
        let flag = &self.asked[partition];
        !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)
    }

    /// Whether a partition was asked for.
    pub(crate) fn is_asked(&self, partition: usize) -> bool {
        self.asked[partition].load(Ordering::Relaxed)
    }

    /// The asked-for refill begins now; a thread that asks from here on asks anew.
    pub(crate) fn answer(&self, partition: usize) {
        self.asked[partition].store(false, Ordering::Relaxed);
    }

    /// Leaves a partition asked for, without waking the producer.
    pub(crate) fn ask_again(&self, partition: usize) {
        self.asked[partition].store(true, Ordering::Relaxed);
    }

    /// Puts blocks into the partition's empty slots until it is full or `next` has none. A block that found its
    /// slot taken goes to the next; one that found none is returned.
    pub(crate) fn refill(&self, partition: usize, mut next: impl FnMut() -> Option<Block>) -> Refilled {
        let begin = partition * self.partition_len();
        let mut refilled = Refilled { blocks: 0, left_over: None, dry: false };
        for slot in &self.slots[begin..begin + self.partition_len()] {
            let Some(block) = refilled.left_over.take().or_else(&mut next) else {
                refilled.dry = true;
                return refilled;
            };
            if !Guard::RefillOnlyEmpty.holds() {
                slot.store(block.word(), Ordering::Relaxed);
                refilled.blocks += 1;
                continue;
            }
            // No look before the exchange, as in a take.
            // Release: pairs with the Acquire in `swap_out`; what was stored before is `answer`.
            match slot.compare_exchange(0, block.word(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => refilled.blocks += 1,
                Err(_) => refilled.left_over = Some(block),
            }
        }
        refilled
    }

    /// Takes everything out of a partition.
    pub(crate) fn sweep(&self, partition: usize, mut sink: impl FnMut(Block)) {
        let begin = partition * self.partition_len();
        (begin..begin + self.partition_len()).filter_map(|at| self.swap_out(at)).for_each(&mut sink);
    }

    /// Whether any slot has ids. It reads no further than the first that has.
    pub(crate) fn is_anything_held(&self) -> bool {
        self.slots.iter().any(|slot| slot.load(Ordering::Relaxed) != 0)
    }

    /// Ids in all slots, read one by one.
    pub(crate) fn ids(&self) -> u64 {
        let word = |slot: &CachePadded<AtomicU64>| slot.load(Ordering::Relaxed);
        self.slots
            .iter()
            .filter_map(|slot| Block::from_word(word(slot)))
            .map(|block| u64::from(block.into_run().len()))
            .sum()
    }
}

/// What became of a refill.
pub(crate) struct Refilled {
    /// Blocks stored.
    pub(crate) blocks: u64,
    /// A block that found no empty slot.
    pub(crate) left_over: Option<Block>,
    /// The source had no more.
    pub(crate) dry: bool,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::settings::SLOTS;

    fn blocks(n: u64) -> impl FnMut() -> Option<Block> {
        let mut at = 0;
        move || {
            (at < n).then(|| {
                at += 1;
                Block::new(at * 8, 8)
            })
        }
    }

    #[test]
    fn a_refill_never_overwrites_a_full_slot() {
        let ring = Ring::new(8);
        assert_eq!(ring.refill(1, blocks(1)).blocks, 1);
        let refilled = ring.refill(1, || Some(Block::new(800, 8)));
        assert!(refilled.blocks == 1 && !refilled.dry);
        let mut swept = Vec::new();
        ring.sweep(1, |block| swept.push(block.into_run().raw()));
        assert_eq!(swept, [8, 800]);
        assert_eq!(ring.ids(), 0);
    }

    #[test]
    fn a_walk_asks_once_for_the_partition_it_walked_through() {
        let ring = Ring::new(16);
        assert_eq!(ring.refill(0, blocks(9)).blocks, 4);
        let mut cursor = ring.cursor(0);
        for _ in 0..3 {
            assert!(!ring.take(&mut cursor).asked);
        }
        assert!(ring.take(&mut cursor).asked, "the last slot of the partition asks");
        assert!(ring.is_asked(0));
        let nothing = ring.take(&mut cursor);
        assert!(nothing.block.is_none() && nothing.asked, "the next partition is asked for too");
        assert!(!ring.take(&mut ring.cursor(0)).asked, "asking twice is one task");
    }

    #[test]
    fn threads_that_walk_side_by_side_ask_at_the_end_only() {
        let ring = Ring::new(PARTITIONS * 2 * LOOK);
        assert_eq!(ring.refill(0, blocks(99)).blocks, 2 * LOOK as u64);
        let mut cursors = [ring.cursor(0), ring.cursor(0)];
        let asked = |at: usize, cursors: &mut [Cursor; 2]| {
            let found = ring.take(&mut cursors[at]);
            assert!(found.block.is_some());
            found.asked
        };
        for at in (0..LOOK - 1).flat_map(|_| [0, 1]) {
            assert!(!asked(at, &mut cursors), "every second slot is empty, and nobody is to come for one");
        }
        assert!(!asked(0, &mut cursors));
        assert!(asked(1, &mut cursors), "the last slot");
    }

    #[test]
    fn a_walk_that_finds_nothing_asks_and_goes_on_in_the_next_partition() {
        let ring = Ring::new(PARTITIONS * 2 * LOOK);
        assert_eq!(ring.refill(1, blocks(99)).blocks, 2 * LOOK as u64);
        let mut cursor = ring.cursor(0);
        let nothing = ring.take(&mut cursor);
        assert!(nothing.block.is_none() && nothing.asked && ring.is_asked(0));
        let found = ring.take(&mut cursor);
        assert_eq!(found.block.map(|block| block.into_run().raw()), Some(8), "the first of it");
        assert!(!found.asked);
    }

    #[test]
    fn who_finds_nothing_comes_by_every_slot() {
        for place in 0..PARTITIONS {
            let ring = Ring::new(SLOTS);
            ring.refill(2, blocks(700));
            // One block is left, far from where anybody begins.
            let begin = 2 * ring.partition_len();
            assert!((begin..begin + 699).all(|at| ring.swap_out(at).is_some()));
            let mut cursor = ring.cursor(place);
            assert!((0..=SLOTS / LOOK).any(|_| ring.take(&mut cursor).block.is_some()), "from place {place}");
        }
    }

    #[test]
    fn threads_begin_at_places_of_their_own() {
        let ring = Ring::new(SLOTS);
        let places: std::collections::HashSet<_> = (0..64).map(|n| ring.cursor(n).at).collect();
        assert_eq!(places.len(), 64);
    }
}
