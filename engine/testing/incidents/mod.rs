//! The ways in which id services are known to have repeated ids, each as a test of this engine.
//!
//! Every incident below was shipped by somebody, found in production or by a reader, and reported in public. What is
//! told here is the class of system and what went wrong, since the same step is easily taken again. A test runs the
//! engine's own code through the incident and finds no id twice; its negative control runs the step as it was written
//! then, as a small model or by taking one of our [guards](crate::sys::guards) out, through the very same judgement,
//! and must find one. Where the incident is a race, several threads run it many times.
//!
//! | incident | what went wrong | here it cannot, because |
//! |---|---|---|
//! | [`carry`] | the sequence was carried into the worker bits | a held worker goes to the next tick, U6 |
//! | [`replay`] | used ids were played again after a restart | the mark moves first, and in the registry, U4 |
//! | [`empty_ring`] | two takers got one slot as the ring ran empty | a slot is taken by one swap, U5 |
//! | [`first_nodes`] | two first nodes took one worker | a worker is taken by compare-and-set, U2 |
//! | [`recycler`] | a recycler deleted what was not its own any more | every change names a version, nothing is deleted, U2 |
//! | [`lost_guard`] | who had lost its lock or session went on minting | a window is never taken away from anybody, U2, U6 |
//! | [`rollback`] | the clock went back and the sequence began anew | a frontier only moves forward, U6 |

mod carry;
mod empty_ring;
mod first_nodes;
mod lost_guard;
mod recycler;
mod replay;
mod rollback;

use std::collections::HashSet;

use xuid_id::Layout;

use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::{Identity, Ownership, WorkerRequest};
use crate::registry::{ClusterId, Genesis, Registry, Token};

/// The first tick of the registries of these tests.
const FLOOR: u64 = 1_000;

/// Every id that was issued, and those that came again.
#[derive(Debug, Default)]
struct Ledger {
    seen: HashSet<u64>,
    again: Vec<u64>,
}

impl Ledger {
    fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            if !self.seen.insert(id) {
                self.again.push(id);
            }
        }
    }

    /// Fails if an id came twice, or if fewer came than the incident is worth.
    fn check(&self, at_least: usize) {
        assert!(self.again.is_empty(), "{} ids came twice, {} first", self.again.len(), self.again[0]);
        assert!(self.seen.len() >= at_least, "{} ids are too few to show anything", self.seen.len());
    }
}

/// Collisions are near: 4 workers, 8 sequences.
fn small() -> Layout {
    Layout::new(58, 2, 3, 1_000, 0).unwrap()
}

/// What the registries of these tests were created with.
fn genesis(layout: Layout, workers: u32) -> Genesis {
    Genesis::new(ClusterId::from_bytes([5; 16]), layout, FLOOR, workers)
}

fn memory(layout: Layout, workers: u32) -> MemoryRegistry {
    MemoryRegistry::new(genesis(layout, workers))
}

/// One process: each has a token of its own.
fn process(registry: impl Registry + 'static, number: u8) -> Ownership {
    Ownership::new(Box::new(registry), Identity::new(Token([number; 16]), format!("process {number}")))
}

/// A window of so many ticks from now.
fn request(now: u64, ticks: u64) -> WorkerRequest {
    WorkerRequest { now, start: now, end: now + ticks, pinned: None, except: Vec::new() }
}
