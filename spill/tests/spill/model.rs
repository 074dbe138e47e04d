//! The log against a naive model: a `VecDeque` of what can be read.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use xuid_spill::{Extent, MemoryStorage, Stock};

use crate::support::{STRIDE, create, open, read_all};

#[derive(Clone, Debug)]
enum Op {
    Append(Vec<Extent>),
    /// The mark moves by this much from the tail.
    Resume(u64),
    /// The file is opened again from a copy of its bytes.
    Reopen,
    /// Distances from the tail.
    Read(u64, u64),
    Search(u64, u64, u64),
}

struct Model {
    capacity: u64,
    records: VecDeque<(u64, Extent)>,
    head: u64,
    tail: u64,
    mark: u64,
}

impl Model {
    fn append(&mut self, extents: &[Extent]) -> Stock {
        let mut dropped = Stock::default();
        for extent in extents {
            self.records.push_back((self.head, *extent));
            self.head += 1;
            if self.head - self.tail > self.capacity {
                self.tail += 1;
                let (_, oldest) = self.records.pop_front().unwrap();
                dropped.extents += 1;
                dropped.ids += oldest.ids();
            }
        }
        dropped
    }

    fn resume_at(&mut self, mark: u64) {
        self.mark = self.mark.max(mark);
        self.head = self.head.max(mark);
        self.tail = self.tail.max(mark);
        self.records.retain(|(index, _)| *index >= mark);
    }

    fn within(&self, start: u64, end: u64) -> Vec<(u64, Extent)> {
        self.records.iter().filter(|(index, _)| (start..end).contains(index)).copied().collect()
    }
}

fn some_extent() -> impl Strategy<Value = Extent> {
    (0u64..1000, 1u32..5000, 1u32..50).prop_map(|(tick, len, ticks)| Extent {
        first: tick * STRIDE,
        len,
        ticks,
    })
}

fn some_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => vec(some_extent(), 0..30).prop_map(Op::Append),
        2 => (0u64..12).prop_map(Op::Resume),
        1 => (0u64..60).prop_map(Op::Resume),
        2 => Just(Op::Reopen),
        2 => (0u64..30, 0u64..30).prop_map(|(from, length)| Op::Read(from, length)),
        2 => (0u64..30, 0u64..1100, 0u64..40).prop_map(|(from, tick, length)| Op::Search(from, tick * STRIDE, length)),
    ]
}

proptest! {
    #[test]
    fn a_log_does_what_a_queue_with_indexes_does(capacity in 1u64..40, ops in vec(some_op(), 0..40)) {
        let (mut disk, mut log) = create(capacity);
        let mut model = Model { capacity, records: VecDeque::new(), head: 0, tail: 0, mark: 0 };
        for op in ops {
            match op {
                Op::Append(extents) => {
                    let start = model.head;
                    let appended = log.append(&extents).unwrap();
                    prop_assert_eq!(appended.dropped, model.append(&extents));
                    prop_assert_eq!(appended.indexes, start..model.head);
                }
                Op::Resume(by) => {
                    let mark = model.tail + by;
                    log.resume_at(mark);
                    model.resume_at(mark);
                    log.resume_at(mark / 2);
                }
                Op::Reopen => {
                    disk = MemoryStorage::from_bytes(disk.bytes());
                    let (reopened, report) = open(&disk, model.mark);
                    prop_assert_eq!(report.damaged, 0);
                    prop_assert!(report.head <= model.head);
                    log = reopened;
                }
                Op::Read(from, length) => {
                    let (start, end) = (model.tail + from, model.tail + from + length);
                    let mut out = vec![(7, Extent { first: 7, len: 7, ticks: 7 })];
                    let read = log.read(start..end, &mut out);
                    prop_assert_eq!(read.is_ok(), end <= model.head);
                    prop_assert_eq!(&out[1..], if read.is_ok() { model.within(start, end) } else { Vec::new() });
                }
                Op::Search(from, oldest, length) => {
                    let (start, end) = (model.tail + from, model.tail + from + length);
                    let mut within = model.within(start, end).into_iter();
                    let alive = within.find(|(_, extent)| extent.last_first(STRIDE) >= oldest);
                    prop_assert_eq!(log.first_alive(start, oldest, end), alive.map(|(index, _)| index));
                }
            }
            prop_assert_eq!((log.tail(), log.head()), (model.tail, model.head));
            prop_assert_eq!(read_all(&log), Vec::from(model.records.clone()));
            let middle = model.tail.midpoint(model.head);
            let half = model.within(model.tail, middle);
            let ids = half.iter().map(|(_, extent)| extent.ids()).sum();
            prop_assert_eq!(log.peek_stock(0..middle), Stock { extents: half.len() as u64, ids });
        }
    }
}
