//! What the log is for: no extent is issued twice, whatever happens to its file.
//!
//! A small world plays the process, the registry that keeps the mark, and the disk. Its rules are those of the real
//! callers; each has a negative control that leaves it out and finds a duplicate.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use xuid_spill::{AppendError, Extent, Log, MemoryStorage};

use crate::support::{create, extent, open};

const CAPACITY: u64 = 40;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// So many extents that nobody had before.
    Append(u64),
    /// The same, and the storage fails when so many bytes have landed.
    FailAppend(u64, usize),
    Sync,
    /// The sectors of these bits become durable, in whatever order a disk likes.
    Settle(u64),
    /// The process dies and starts again.
    Restart,
    /// The power is cut.
    PowerCut,
    /// Somebody copies the file as it is.
    Copy,
    /// Somebody puts the copy of this number back, and the process starts with it.
    Restore(usize),
    /// So many extents are granted and issued.
    Issue(u64),
    /// So many extents are granted, not issued, and appended again, as at a clean stop.
    GiveBack(u64),
    /// So many extents are granted, and the process dies before it issues any.
    GrantAndDie(u64),
}

#[derive(Clone, Copy, Default)]
struct Rules {
    /// The mark is part of the file, so a copy brings back the mark it was made with.
    mark_in_the_file: bool,
    /// The extents of a failed append are issued instead of being wasted.
    issue_failed_appends: bool,
}

struct World {
    rules: Rules,
    disk: MemoryStorage,
    log: Log,
    /// The registry's mark.
    mark: u64,
    copies: Vec<(Vec<u8>, u64)>,
    next: u64,
    issued: HashSet<u64>,
    duplicates: Vec<Extent>,
}

impl World {
    fn new(rules: Rules) -> Self {
        let (disk, log) = create(CAPACITY);
        Self {
            rules,
            disk,
            log,
            mark: 0,
            copies: vec![],
            next: 0,
            issued: HashSet::new(),
            duplicates: vec![],
        }
    }

    fn run(rules: Rules, ops: impl IntoIterator<Item = Op>) -> Self {
        let mut world = Self::new(rules);
        for op in ops {
            world.step(op);
        }
        world
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Append(count) => {
                let fresh = self.fresh(count);
                self.append(&fresh);
            }
            Op::FailAppend(count, landed) => {
                let fresh = self.fresh(count);
                self.disk.fail_write(1, landed);
                let appended = self.log.append(&fresh);
                assert!(matches!(appended, Err(AppendError::Io { .. })), "{appended:?}");
                if self.rules.issue_failed_appends {
                    self.issue(fresh);
                }
            }
            Op::Sync => self.log.sync().unwrap(),
            Op::Settle(bits) => self.disk.settle(|sector| bits >> (sector % 64) & 1 == 1),
            Op::Restart => self.start(),
            Op::PowerCut => {
                self.disk.crash();
                self.start();
            }
            Op::Copy => self.copies.push((self.disk.bytes(), self.mark)),
            Op::Restore(copy) => {
                if let Some((bytes, mark)) = self.copies.get(copy % self.copies.len().max(1)) {
                    self.disk = MemoryStorage::from_bytes(bytes.clone());
                    if self.rules.mark_in_the_file {
                        self.mark = *mark;
                    }
                    self.start();
                }
            }
            Op::Issue(count) => {
                let granted = self.grant(count);
                self.issue(granted);
            }
            Op::GiveBack(count) => {
                let granted = self.grant(count);
                self.append(&granted);
            }
            Op::GrantAndDie(count) => {
                self.grant(count);
                self.start();
            }
        }
    }

    fn fresh(&mut self, count: u64) -> Vec<Extent> {
        self.next += count;
        (self.next - count..self.next).map(extent).collect()
    }

    fn append(&mut self, extents: &[Extent]) {
        self.log.append(extents).unwrap();
    }

    fn issue(&mut self, extents: Vec<Extent>) {
        for extent in extents {
            if !self.issued.insert(extent.first) {
                self.duplicates.push(extent);
            }
        }
    }

    fn start(&mut self) {
        self.log = open(&self.disk, self.mark).0;
    }

    /// Reads, moves the mark, tells the log, and only then lets go of the extents.
    fn grant(&mut self, count: u64) -> Vec<Extent> {
        let start = self.log.tail();
        let end = (start + count).min(self.log.head());
        let mut read = Vec::new();
        self.log.read(start..end, &mut read).unwrap();
        self.mark = end;
        self.log.resume_at(end);
        read.into_iter().map(|(_, extent)| extent).collect()
    }
}

fn some_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u64..30).prop_map(Op::Append),
        1 => (1u64..30, 0usize..1000).prop_map(|(count, landed)| Op::FailAppend(count, landed)),
        1 => Just(Op::Sync),
        1 => any::<u64>().prop_map(Op::Settle),
        1 => Just(Op::Restart),
        2 => Just(Op::PowerCut),
        1 => Just(Op::Copy),
        1 => (0usize..4).prop_map(Op::Restore),
        4 => (1u64..20).prop_map(Op::Issue),
        1 => (1u64..20).prop_map(Op::GiveBack),
        1 => (1u64..20).prop_map(Op::GrantAndDie),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn no_extent_is_issued_twice_whatever_is_torn_lost_copied_or_restored(ops in vec(some_op(), 0..60)) {
        let world = World::run(Rules::default(), ops);
        prop_assert_eq!(world.duplicates, []);
    }
}

#[test]
fn negative_control_a_mark_that_is_copied_with_the_file_issues_twice() {
    let ops = [Op::Append(5), Op::Copy, Op::Issue(5), Op::Restore(0), Op::Issue(5)];
    assert_eq!(World::run(Rules::default(), ops).duplicates, []);
    let world = World::run(Rules { mark_in_the_file: true, ..Rules::default() }, ops);
    assert_eq!(world.duplicates.len(), 5);
}

#[test]
fn negative_control_extents_of_a_failed_append_that_are_not_wasted_are_issued_twice() {
    // All 10 records land although the write fails, and a restart finds them.
    let ops = [Op::FailAppend(10, 320), Op::Restart, Op::Issue(10)];
    let world = World::run(Rules::default(), ops);
    assert_eq!((world.issued.len(), world.duplicates.len()), (10, 0));
    let world = World::run(Rules { issue_failed_appends: true, ..Rules::default() }, ops);
    assert_eq!(world.duplicates.len(), 10);
}
