//! What bounds any generator: counters, and the structures one could be built of.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;

use super::peer::{Workers, locked, per_worker};
use crate::subject::{Fixture, Kind, SharedGenerator, Subject, Supply, Worker};

thread_local! {
    static COUNTER: Cell<u64> = const { Cell::new(0) };
}

/// Ids between the ids of two threads: each counts from a multiple of it.
const APART: u64 = 1 << 40;

/// Ids in the queue while it is measured: half of what it holds.
const QUEUED: u64 = 2_048;

pub(super) fn subjects() -> Vec<Subject> {
    vec![
        limit(
            "limit/thread-local",
            "a thread-local counter's increment: the limit of anything behind &self",
            1,
            || {
                per_worker(1 << 20, |worker| {
                    COUNTER.set(worker * APART);
                    increment
                })
            },
        ),
        limit("limit/thread-local-outlined", "the same through a call that is not inlined", 1, || {
            per_worker(1 << 20, |worker| {
                COUNTER.set(worker * APART);
                increment_outlined
            })
        }),
        limit("limit/fetch_add", "one AtomicU64 shared by all threads, Relaxed", 1, || {
            SharedGenerator::new(CachePadded::new(AtomicU64::new(0)), |counter| {
                counter.fetch_add(1, Ordering::Relaxed)
            })
        }),
        limit("limit/mutex-counter", "a std Mutex around a counter, shared by all threads", 1, || {
            locked(0u64, |next| {
                *next += 1;
                *next
            })
        }),
        limit(
            "limit/array-queue",
            "a bare crossbeam ArrayQueue: each call pops an id and pushes a new one",
            1,
            || {
                let queue = ArrayQueue::new(2 * QUEUED as usize);
                for id in 0..QUEUED {
                    let _ = queue.push(id);
                }
                Box::new(Queue { queue, workers: Workers::default() })
            },
        ),
        limit("limit/write-16", "a plain loop that writes base + i into a slice of 16", 16, || {
            Box::new(Slices(16))
        }),
        limit("limit/write-1024", "the same, 1,024 at a time", 1_024, || Box::new(Slices(1_024))),
    ]
}

fn limit(
    name: &'static str,
    about: &'static str,
    ids_per_call: u64,
    set_up: fn() -> Box<dyn Fixture>,
) -> Subject {
    Subject { name, about, kind: Kind::Limit, supply: Supply::Burst, ids_per_call, set_up }
}

#[inline]
fn increment() -> u64 {
    COUNTER.with(|counter| {
        let next = counter.get() + 1;
        counter.set(next);
        next
    })
}

#[inline(never)]
fn increment_outlined() -> u64 {
    increment()
}

/// A queue that stays half full: every id popped makes room for the one pushed.
struct Queue {
    queue: ArrayQueue<u64>,
    workers: Workers,
}

impl Fixture for Queue {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let mut next = (1 + self.workers.hire(1 << 20)) * APART;
        crate::subject::single(move || {
            // With as many threads as ids in it, and each holding one, it could be empty for a moment.
            let id = loop {
                if let Some(id) = self.queue.pop() {
                    break id;
                }
                std::hint::spin_loop();
            };
            next += 1;
            // Never full: pushes make up for pops only.
            let _ = self.queue.push(next);
            id
        })
    }
}

/// Slices of so many ids, written by nothing but a loop.
struct Slices(usize);

impl Fixture for Slices {
    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(Slice { ids: vec![0; self.0], base: 0 })
    }
}

struct Slice {
    ids: Vec<u64>,
    base: u64,
}

impl Slice {
    fn write(&mut self) {
        for (offset, id) in self.ids.iter_mut().enumerate() {
            *id = self.base + offset as u64;
        }
        self.base += self.ids.len() as u64;
    }
}

impl Worker for Slice {
    fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            self.write();
            black_box(self.ids.as_slice());
        }
    }

    fn collect(&mut self, calls: u64, ids: &mut Vec<u64>) {
        for _ in 0..calls {
            self.write();
            ids.extend_from_slice(&self.ids);
        }
    }
}
