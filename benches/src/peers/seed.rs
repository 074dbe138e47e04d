//! The ring of the 2018 prototype, taken literally, as a baseline.
//!
//! Padded slots of one id each; a shared cursor that wraps, moved by compare-and-set; a slot emptied by
//! compare-and-set; after six slots that were empty or lost to others, a bounded queue of single ids, and after
//! that the generator behind its lock. Whoever takes the last slot of a partition has a background thread refill
//! it. In the generator's place stands a plain counter, so that the ring is measured and not the prototype's clock.
//! It is kinder than the prototype in one thing: where the queue of single ids is empty, that one waits up to 10 ms.
//!
//! A refill overwrites the slots it finds, as the prototype's does: ids are lost that way, and
//! [`lost`](SeedRing::lost) counts them. None is repeated.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;

const SLOTS: usize = 4096;
const PARTITIONS: usize = 4;
const PARTITION: usize = SLOTS / PARTITIONS;
/// Slots tried before the queue.
const TRIES: usize = 6;
/// Single ids kept in the queue.
const SINGLES: usize = 1 << 20;

struct Ring {
    /// An id plus one; zero is empty.
    slots: Vec<CachePadded<AtomicU64>>,
    cursor: CachePadded<AtomicUsize>,
    singles: ArrayQueue<u64>,
    generator: CachePadded<Mutex<u64>>,
    /// Partitions whose refill is queued.
    wanted: [CachePadded<AtomicBool>; PARTITIONS],
    lost: AtomicU64,
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
            singles: ArrayQueue::new(SINGLES),
            generator: CachePadded::new(Mutex::new(SLOTS as u64)),
            wanted: std::array::from_fn(|_| CachePadded::new(AtomicBool::new(false))),
            lost: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        ring.fill_queue();
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
            if id == 0 || ring.slots[at].compare_exchange(id, 0, Ordering::SeqCst, Ordering::SeqCst).is_err()
            {
                continue;
            }
            if (at + 1).is_multiple_of(PARTITION) {
                self.ask(at / PARTITION);
            }
            return id - 1;
        }
        ring.singles.pop().unwrap_or_else(|| ring.generate(1))
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

    /// The first of so many ids of the counter.
    fn generate(&self, count: u64) -> u64 {
        let mut next = self.generator.lock().unwrap_or_else(PoisonError::into_inner);
        *next += count;
        *next - count
    }

    fn fill_queue(&self) {
        while !self.singles.is_full() {
            let first = self.generate(1_024);
            for id in first..first + 1_024 {
                let _ = self.singles.push(id);
            }
        }
    }

    fn refill_until_stopped(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut idle = true;
            for partition in 0..PARTITIONS {
                // Acquire: pairs with the Release of the caller that took the partition's last slot.
                if !self.wanted[partition].swap(false, Ordering::Acquire) {
                    continue;
                }
                idle = false;
                let first = self.generate(PARTITION as u64);
                for (offset, slot) in self.slots[partition * PARTITION..][..PARTITION].iter().enumerate() {
                    let overwritten = slot.swap(first + offset as u64 + 1, Ordering::SeqCst);
                    if overwritten != 0 {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            if idle {
                // Idle it costs nothing: other subjects are measured in the same run.
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
    fn the_baseline_hands_out_each_id_once() {
        let ring = SeedRing::new();
        let mut ids: Vec<u64> = std::thread::scope(|scope| {
            let take = || (0..400_000).map(|_| ring.next_id()).collect::<Vec<_>>();
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 800_000);
    }
}
