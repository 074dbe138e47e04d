//! The ring of the 2018 prototype, taken literally, refilled from a plain counter.
//!
//! Taken over as it was: 4,096 references in 4 partitions, one id each, the array of them not padded; the objects
//! they lead to padded to a cache line and made anew at each refill, so that a taker reads a line that the refilling
//! thread wrote; a shared cursor that wraps, moved by compare-and-set without backing off; a slot emptied by
//! compare-and-set; six slots tried, then the generator behind its lock; whoever takes the last slot of a partition
//! has one background thread refill it, which sleeps otherwise; a refill overwrites what it finds. That loses the ids
//! of takers who were late: [`lost`](SeedRing::lost) counts them. None is repeated.
//!
//! # What was chosen, and what it is worth
//! M ids/s at 1 / 2 threads, two cores, medians of five; two runs of the same differ by up to a quarter:
//!
//! | reading | 1 | 2 |
//! |---|---|---|
//! | as here: references of 8 bytes, objects padded, a swap to refill | 54 / 48 | 21 / 21 |
//! | a plain store to refill, as the prototype; a swap counts what is lost | 54 / 51 | 18 / 22 |
//! | 262,144 objects in turn instead of 8,192, as a young generation has | 45 / 51 | 20 / 20 |
//! | the id in the reference's place, nothing else to read | 52 / 49 | 28 / 20 |
//! | that, padded to 64 bytes | 39 / 52 | 18 / 22 |
//! | that, padded to 128 bytes | 54 | 24 |
//! | that, padded to 64, with the prototype's queue of single ids before the generator | 58 | 22 |
//!
//! - The generator is a counter behind a std Mutex, not the prototype's clock: the ring is measured, and it is far
//!   beyond 4,096 ids a millisecond.
//! - The queue of single ids is left out. The prototype fills it with a million ids at the start and tops it up
//!   every 100 ms, and a taker waits for it up to 10 ms. Less than 3 % of the calls get that far. Without topping up
//!   the million would be a gift to a short run; with it, it is the last line above.
//! - Waiting for a slot instead of trying the next is another ring: it stands still when a refill overtakes a taker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;

use super::peer::peer;
use crate::subject::{SharedGenerator, Subject, Supply};

const SLOTS: usize = 4_096;
const PARTITIONS: usize = 4;
const PARTITION: usize = SLOTS / PARTITIONS;
/// Slots tried before the generator.
const TRIES: usize = 6;
/// Objects in turn. Twice the ring, so that one is written again long after it was taken.
const OBJECTS: usize = 2 * SLOTS;

pub(super) fn subjects() -> Vec<Subject> {
    vec![peer(
        "seed/ring",
        "the 2018 prototype's ring taken literally, refilled from a counter",
        Supply::Burst,
        || SharedGenerator::new(SeedRing::new(), SeedRing::next_id),
    )]
}

/// What a reference leads to: one id in a line of its own.
#[repr(align(64))]
struct Object(AtomicU64);

struct Ring {
    /// An id, which is a reference to its object as well; zero is none.
    slots: Box<[AtomicU64]>,
    objects: Box<[Object]>,
    cursor: CachePadded<AtomicUsize>,
    generator: CachePadded<Mutex<u64>>,
    /// Partitions whose refill is queued.
    wanted: [CachePadded<AtomicBool>; PARTITIONS],
    lost: CachePadded<AtomicU64>,
    stop: AtomicBool,
}

/// The ring and its refilling thread.
pub struct SeedRing {
    ring: Arc<Ring>,
    refiller: Option<JoinHandle<()>>,
}

impl SeedRing {
    /// A full ring.
    #[must_use]
    pub fn new() -> Self {
        let ring = Arc::new(Ring {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            objects: (0..OBJECTS).map(|_| Object(AtomicU64::new(0))).collect(),
            cursor: CachePadded::new(AtomicUsize::new(0)),
            generator: CachePadded::new(Mutex::new(1)),
            wanted: std::array::from_fn(|_| CachePadded::new(AtomicBool::new(false))),
            lost: CachePadded::default(),
            stop: AtomicBool::new(false),
        });
        (0..PARTITIONS).for_each(|partition| ring.refill(partition));
        let theirs = ring.clone();
        let refiller = Some(std::thread::spawn(move || theirs.refill_until_stopped()));
        Self { ring, refiller }
    }

    /// The next id.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        let ring = &*self.ring;
        for _ in 0..TRIES {
            let at = ring.next_index();
            let id = ring.slots[at].load(Ordering::SeqCst);
            // SeqCst here and in the other operations on slots and cursor: the prototype's are volatile.
            if id == 0 || ring.slots[at].compare_exchange(id, 0, Ordering::SeqCst, Ordering::SeqCst).is_err()
            {
                continue;
            }
            if (at + 1).is_multiple_of(PARTITION) {
                self.ask(at / PARTITION);
            }
            return ring.read(id);
        }
        ring.generate(1)
    }

    fn ask(&self, partition: usize) {
        // Release: pairs with the refiller's Acquire.
        let first = !self.ring.wanted[partition].swap(true, Ordering::Release);
        if let Some(refiller) = self.refiller.as_ref().filter(|_| first) {
            refiller.thread().unpark();
        }
    }

    /// Ids that refills overwrote.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.lost.load(Ordering::Relaxed)
    }
}

impl Ring {
    fn next_index(&self) -> usize {
        loop {
            let at = self.cursor.load(Ordering::SeqCst);
            let next = if at >= SLOTS - 1 { 0 } else { at + 1 };
            if self.cursor.compare_exchange(at, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return at;
            }
        }
    }

    /// The id in the object of a taken reference. A collector would keep the object while somebody holds it; here
    /// it may be another's by now if the taker slept through two rings, and then the reference itself says the id.
    fn read(&self, reference: u64) -> u64 {
        let held = self.objects[reference as usize % OBJECTS].0.load(Ordering::Relaxed);
        if held == reference { held } else { reference }
    }

    /// The first of so many ids of the counter.
    fn generate(&self, count: u64) -> u64 {
        let mut next = self.generator.lock().unwrap_or_else(PoisonError::into_inner);
        *next += count;
        *next - count
    }

    fn refill(&self, partition: usize) {
        let first = self.generate(PARTITION as u64);
        let mut lost = 0;
        for (id, slot) in (first..).zip(&self.slots[partition * PARTITION..][..PARTITION]) {
            self.objects[id as usize % OBJECTS].0.store(id, Ordering::Relaxed);
            if slot.swap(id, Ordering::SeqCst) != 0 {
                lost += 1;
            }
        }
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    fn refill_until_stopped(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut idle = true;
            for partition in 0..PARTITIONS {
                // Acquire: pairs with the Release of the caller that took the partition's last slot.
                if self.wanted[partition].swap(false, Ordering::Acquire) {
                    idle = false;
                    self.refill(partition);
                }
            }
            if idle {
                std::thread::park();
            }
        }
    }
}

impl Default for SeedRing {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SeedRing {
    fn drop(&mut self) {
        self.ring.stop.store(true, Ordering::Relaxed);
        if let Some(refiller) = self.refiller.take() {
            refiller.thread().unpark();
            let _ = refiller.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_of_the_counter_was_handed_out_once_is_in_the_ring_or_was_lost() {
        let mut seed = SeedRing::new();
        let mut ids: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..400_000).map(|_| seed.next_id()).collect::<Vec<_>>();
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let ring = seed.ring.clone();
        ring.stop.store(true, Ordering::Relaxed);
        let refiller = seed.refiller.take().unwrap();
        refiller.thread().unpark();
        refiller.join().unwrap();
        let left = ring.slots.iter().filter(|slot| slot.load(Ordering::SeqCst) != 0).count() as u64;
        let made = ring.generate(0) - 1;
        assert_eq!(made, 800_000 + left + seed.lost());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 800_000);
    }
}
