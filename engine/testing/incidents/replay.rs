//! Used ids played again after a restart.
//!
//! Services that take ids in advance, from a file, a table or a counter that is written now and then, and note how far
//! they are *after* they have handed some out, or beside what they hand out, where a copy of the file takes the note
//! along. A process that is killed in between, or that is started on a file that was put back, begins where the note is
//! and hands out again what came after it.

use std::path::Path;
use std::time::Duration;

use xuid_spill::{Extent, Log, MIN_BYTES, MemoryStorage, SpillId};

use crate::id::run::Block;
use crate::registry::memory::MemoryRegistry;
use crate::registry::ownership::{GrantRequest, Ownership};
use crate::sys::guards::Guard;
use crate::testing::incidents::{FLOOR, Ledger, genesis, memory, process, small};
use crate::testing::support::rng::Rng;
use crate::tiers::reserve::Reserve;
use crate::tiers::reserve::open::{Opened, create_log, open_log};

const AGE: u64 = 1_000_000;
const RECORDS: u64 = 64;

/// What outlives a process: the registry, the disk, and copies of the disk that somebody made.
struct World {
    registry: MemoryRegistry,
    disk: MemoryStorage,
    copies: Vec<Vec<u8>>,
    processes: u8,
    tick: u64,
    ledger: Ledger,
}

/// One process with its part of the land.
struct Process {
    ownership: Ownership,
    reserve: Reserve,
}

impl World {
    fn new() -> Self {
        let registry = memory(small(), 1);
        let disk = MemoryStorage::new();
        let mut ownership = process(registry.clone(), 0);
        let bytes = MIN_BYTES + 32 * (RECORDS - 1);
        let spill = SpillId::from_bytes([9; 16]);
        let made = create_log(
            Box::new(disk.clone()),
            bytes,
            spill,
            Path::new("spill"),
            (&genesis(small(), 1), &mut ownership),
            Duration::ZERO,
        );
        made.unwrap();
        Self { registry, disk, copies: Vec::new(), processes: 0, tick: FLOOR, ledger: Ledger::default() }
    }

    /// A process starts on what the one before has left.
    fn start(&mut self) -> Process {
        self.processes += 1;
        let mut ownership = process(self.registry.clone(), self.processes);
        let storage = Box::new(self.disk.clone());
        let log: Result<(Log, u64), String> =
            match open_log(storage, Path::new("spill"), &genesis(small(), 1), &mut ownership, Duration::ZERO)
                .unwrap()
            {
                Opened::Log(log, mark) => Ok((log, mark)),
                _ => panic!("the spill was not opened"),
            };
        Process { ownership, reserve: Reserve::new(small(), AGE, log) }
    }

    /// Idle ticks go to the spill.
    fn idle(&mut self, process: &mut Process, ticks: u64) {
        for _ in 0..ticks {
            let first = small().encode(self.tick, 0, 0).raw();
            process.reserve.put_away(vec![Extent { first, len: small().sequences(), ticks: 1 }]);
            self.tick += 1;
        }
    }

    /// A burst: what was spilled is granted and issued, `blocks` of it at most.
    fn burst(&mut self, process: &mut Process, blocks: usize) {
        if let Some(GrantRequest { spill, from, upto, .. }) = process.reserve.plan_grant(self.tick, 0, true) {
            process.reserve.granted(from, process.ownership.grant(spill, from, upto), 0);
        }
        let block = || process.reserve.block(self.tick, true, 4);
        let blocks: Vec<Block> = std::iter::from_fn(block).take(blocks).collect();
        self.ledger.add(blocks.into_iter().flat_map(Block::into_run).map(crate::Id::raw));
    }

    fn copy(&mut self) {
        self.copies.push(self.disk.bytes());
    }

    fn put_back(&mut self, copy: usize) {
        self.disk = MemoryStorage::from_bytes(self.copies[copy].clone());
    }
}

/// Killed in the middle of a burst and started again, and started once more on a copy of before.
fn incident() -> Ledger {
    let mut world = World::new();
    let mut first = world.start();
    world.idle(&mut first, 20);
    world.copy();
    world.burst(&mut first, 5);
    drop(first);
    let mut second = world.start();
    world.burst(&mut second, 50);
    drop(second);
    world.put_back(0);
    let mut third = world.start();
    world.burst(&mut third, 50);
    world.idle(&mut third, 20);
    world.burst(&mut third, 20);
    world.ledger
}

#[test]
fn what_was_issued_is_not_played_again_by_a_later_process_nor_from_a_copy() {
    incident().check(80);
}

#[test]
fn no_order_of_kills_copies_and_restarts_plays_an_id_again() {
    let mut ids = 0;
    for seed in 0..300 {
        let (mut world, mut dice) = (World::new(), Rng::new(seed));
        let mut process = world.start();
        for _ in 0..60 {
            match dice.below(9) {
                0..3 => {
                    let ticks = dice.below(12);
                    world.idle(&mut process, ticks);
                }
                3..6 => {
                    let blocks = dice.below(20) as usize;
                    world.burst(&mut process, blocks);
                }
                6 => world.copy(),
                7 => process = world.start(),
                _ if world.copies.is_empty() => {}
                _ => {
                    let copy = dice.below(world.copies.len() as u64) as usize;
                    world.put_back(copy);
                    process = world.start();
                }
            }
        }
        assert!(world.ledger.again.is_empty(), "seed {seed}: {:?} again", world.ledger.again);
        ids += world.ledger.seen.len();
    }
    assert!(ids > 20_000, "{ids} ids are too few to show anything");
}

#[test]
fn negative_control_a_note_that_is_made_later_or_lies_in_the_file_plays_ids_again() {
    // The note is made after ids went out, and the process is killed before.
    assert!(!Guard::without(&[Guard::MarkFirst], incident).again.is_empty());
    // The note is the file's own, and a copy of the file brings it back.
    assert!(!Guard::without(&[Guard::MarkOfRegistry, Guard::GrantAtMark], incident).again.is_empty());
}
