//! The 2018 prototype's ring, taken literally, as a baseline: one id a padded slot, a compare-and-set cursor that
//! wraps at the ring's size, and a background thread that refills partitions from a plain counter.
//!
//! It is faithful to the idea and not to its defects: where the prototype could hand out a slot before it was
//! refilled again, this one waits for the refill, so that it is measured on unique ids too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;

const SLOTS: usize = 4096;
const PARTITIONS: usize = 4;
const PARTITION: usize = SLOTS / PARTITIONS;

struct Ring {
    /// An id plus one; zero is empty.
    slots: Vec<CachePadded<AtomicU64>>,
    cursor: CachePadded<AtomicUsize>,
    /// Partitions that were walked through, and not refilled yet.
    wanted: [CachePadded<AtomicBool>; PARTITIONS],
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
            slots: (1..=SLOTS as u64).map(|id| CachePadded::new(AtomicU64::new(id))).collect(),
            cursor: CachePadded::new(AtomicUsize::new(0)),
            wanted: std::array::from_fn(|_| CachePadded::new(AtomicBool::new(false))),
            stop: AtomicBool::new(false),
        });
        let theirs = ring.clone();
        let refiller = Some(std::thread::spawn(move || refill(&theirs)));
        Self { ring, refiller }
    }

    /// The next id.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        let ring = &*self.ring;
        let mut at = ring.cursor.load(Ordering::Relaxed);
        loop {
            let next = if at + 1 == SLOTS { 0 } else { at + 1 };
            match ring.cursor.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => at = found,
            }
        }
        if (at + 1).is_multiple_of(PARTITION) {
            // Release: pairs with the refiller's Acquire.
            ring.wanted[at / PARTITION].store(true, Ordering::Release);
        }
        let mut spins = 0u32;
        loop {
            let id = ring.slots[at].swap(0, Ordering::Acquire);
            if id != 0 {
                return id - 1;
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Default for SeedRing {
    fn default() -> Self {
        Self::new()
    }
}

fn refill(ring: &Ring) {
    let mut counter = SLOTS as u64;
    while !ring.stop.load(Ordering::Relaxed) {
        let mut idle = true;
        for partition in 0..PARTITIONS {
            // Acquire: pairs with the Release of the caller that walked the partition through.
            if !ring.wanted[partition].swap(false, Ordering::Acquire) {
                continue;
            }
            idle = false;
            for slot in &ring.slots[partition * PARTITION..(partition + 1) * PARTITION] {
                // A caller that has the slot and not yet its id: it gets there.
                while slot.load(Ordering::Relaxed) != 0 {
                    std::hint::spin_loop();
                    if ring.stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
                counter += 1;
                slot.store(counter, Ordering::Release);
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
}

impl Drop for SeedRing {
    fn drop(&mut self) {
        self.ring.stop.store(true, Ordering::Relaxed);
        if let Some(refiller) = self.refiller.take() {
            let _ = refiller.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_hands_out_each_id_once() {
        let ring = SeedRing::new();
        let mut ids: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..40_000).map(|_| ring.next_id()).collect::<Vec<_>>();
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 80_000);
    }
}
