//! The oracle: was any id seen twice, among billions?
//!
//! A bitmap for each (worker, tick), one bit for each sequence. A bitmap that is full is dropped and its tick
//! joins an interval of its worker, so dense land of any size costs next to nothing: a second of one worker is
//! 4,096,000 ids, half a megabyte while it fills, and a part of one interval afterwards.
//!
//! # Invariants
//! - I1: a tick of a worker is in `full`, or in `open`, or has no id recorded; never in two of them.
//! - I2: `left` of an open plot is the number of its zero bits, and is never 0.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use anyhow::{Result, bail};

mod issued;
mod issued_vs_received;

pub use issued::read_issued;
pub use issued_vs_received::{Balance, IssuedVsReceived};

/// How many duplicates a report shows by value.
const EXAMPLES: usize = 8;

/// `count` ids from `first` on, `stride` apart: as a RUNS reply says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first id.
    pub first: u64,
    /// How many ids.
    pub count: u32,
    /// The distance of one id to the next.
    pub stride: u32,
}

/// What one thread received, in order: cheap to write while the load runs, read by a [`Ledger`] afterwards.
#[derive(Debug, Clone, Default)]
pub struct Received {
    runs: Vec<Run>,
    ids: u64,
}

impl Received {
    /// Records one id. It prolongs the last run only if it is that run's next id, so nothing is hidden.
    pub fn push(&mut self, id: u64) {
        self.ids += 1;
        if let Some(last) = self.runs.last_mut()
            && last.stride == 1
            && last.first.wrapping_add(u64::from(last.count)) == id
            && last.count < u32::MAX
        {
            last.count += 1;
        } else {
            self.runs.push(Run { first: id, count: 1, stride: 1 });
        }
    }

    /// Records a run.
    pub fn push_run(&mut self, run: Run) {
        self.ids += u64::from(run.count);
        self.runs.push(run);
    }

    /// How many ids were recorded.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// The recorded runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// Ticks as disjoint half-open intervals that never touch.
#[derive(Debug, Default)]
struct Intervals {
    end_by_start: BTreeMap<u64, u64>,
}

impl Intervals {
    fn contains(&self, tick: u64) -> bool {
        self.end_by_start.range(..=tick).next_back().is_some_and(|(_, end)| tick < *end)
    }

    /// Adds a tick that is not contained yet, and joins it with its neighbours.
    fn insert(&mut self, tick: u64) {
        let before = self.end_by_start.range(..=tick).next_back().filter(|(_, end)| **end == tick);
        let start = before.map_or(tick, |(start, _)| *start);
        let end = self.end_by_start.remove(&(tick + 1)).unwrap_or(tick + 1);
        self.end_by_start.insert(start, end);
    }
}

/// A tick of a worker of which some ids came.
#[derive(Debug)]
struct Plot {
    words: Box<[u64]>,
    left: u32,
}

/// What is recorded of a tick of a worker (I1).
#[derive(Debug, Clone, Copy)]
enum Share<'l> {
    Nothing,
    Everything,
    Of(&'l Plot),
}

/// All that came from one worker.
#[derive(Debug, Default)]
struct Land {
    full: Intervals,
    open: HashMap<u64, Plot>,
}

/// Everything that was ever received from one namespace, and what of it came twice.
#[derive(Debug)]
pub struct Ledger {
    worker_bits: u32,
    sequence_bits: u32,
    lands: HashMap<u64, Land>,
    ids: u64,
    duplicates: u64,
    examples: Vec<u64>,
}

impl Default for Ledger {
    /// Of the default layout: 10 bits of worker, 12 of sequence.
    fn default() -> Self {
        Self::new(10, 12)
    }
}

impl Ledger {
    /// An empty ledger of a layout with these fields below the time.
    pub fn new(worker_bits: u32, sequence_bits: u32) -> Self {
        let (lands, examples) = (HashMap::new(), Vec::new());
        Self { worker_bits, sequence_bits, lands, ids: 0, duplicates: 0, examples }
    }

    /// Records one id.
    pub fn add_id(&mut self, id: u64) {
        self.add(Run { first: id, count: 1, stride: 1 });
    }

    /// Records a run. One that crosses the end of a tick is cut there: the ids count, whoever they belong to.
    pub fn add(&mut self, run: Run) {
        if run.stride != 1 {
            for step in 0..u64::from(run.count) {
                self.add_id(run.first.wrapping_add(step * u64::from(run.stride)));
            }
            return;
        }
        self.ids += u64::from(run.count);
        let plot_len = 1_u64 << self.sequence_bits;
        let (mut first, mut count) = (run.first, u64::from(run.count));
        while count > 0 {
            let offset = first & (plot_len - 1);
            let part = count.min(plot_len - offset);
            self.mark(first >> self.sequence_bits, offset as u32, part as u32);
            first = first.wrapping_add(part);
            count -= part;
        }
    }

    /// Records all that was received.
    pub fn add_received(&mut self, received: &Received) {
        self.extend(received.runs.iter().copied());
    }

    /// Records all of another ledger of the same layout; its own duplicates are added up.
    ///
    /// # Panics
    /// The layouts differ.
    pub fn merge(&mut self, other: &Ledger) {
        assert_eq!(
            (self.worker_bits, self.sequence_bits),
            (other.worker_bits, other.sequence_bits),
            "ledgers of two layouts"
        );
        self.ids += other.ids;
        self.duplicates += other.duplicates;
        self.examples.extend(other.examples.iter().take(EXAMPLES - self.examples.len().min(EXAMPLES)));
        let plot_len = 1_u32 << self.sequence_bits;
        for (worker, land) in &other.lands {
            for (start, end) in &land.full.end_by_start {
                for tick in *start..*end {
                    self.mark((tick << self.worker_bits) | worker, 0, plot_len);
                }
            }
            for (tick, plot) in &land.open {
                for (offset, count) in bit_runs(&plot.words) {
                    self.mark((tick << self.worker_bits) | worker, offset, count);
                }
            }
        }
    }

    /// The ids of a run that are not recorded.
    pub fn absent(&self, run: Run) -> Vec<u64> {
        let ids = (0..u64::from(run.count)).map(|step| run.first.wrapping_add(step * u64::from(run.stride)));
        // Looked for once a tick, not once an id.
        let (mut index, mut share) = (None, Share::Nothing);
        let mut absent = Vec::new();
        for id in ids {
            let plot_index = id >> self.sequence_bits;
            if index != Some(plot_index) {
                (index, share) = (Some(plot_index), self.share(plot_index));
            }
            let offset = id & ((1 << self.sequence_bits) - 1);
            let is_there = match share {
                Share::Nothing => false,
                Share::Everything => true,
                Share::Of(plot) => plot.words[(offset / 64) as usize] >> (offset % 64) & 1 == 1,
            };
            if !is_there {
                absent.push(id);
            }
        }
        absent
    }

    fn share(&self, plot_index: u64) -> Share<'_> {
        let tick = plot_index >> self.worker_bits;
        let Some(land) = self.lands.get(&(plot_index & ((1 << self.worker_bits) - 1))) else {
            return Share::Nothing;
        };
        if land.full.contains(tick) {
            Share::Everything
        } else {
            land.open.get(&tick).map_or(Share::Nothing, Share::Of)
        }
    }

    /// The sums.
    pub fn report(&self) -> Report {
        let mut workers: Vec<u64> = self.lands.keys().copied().collect();
        workers.sort_unstable();
        Report { ids: self.ids, duplicates: self.duplicates, examples: self.examples.clone(), workers }
    }

    /// The sums, or an error that shows the duplicates.
    pub fn check(&self) -> Result<Report> {
        let report = self.report();
        if report.duplicates > 0 {
            bail!("DUPLICATES: {report}");
        }
        Ok(report)
    }

    /// Bitmaps held now: what bounds the memory.
    pub fn open_plots(&self) -> usize {
        self.lands.values().map(|land| land.open.len()).sum()
    }

    /// Sets `count` bits of a plot from `offset` on; bits that were set already are duplicates.
    fn mark(&mut self, plot_index: u64, offset: u32, count: u32) {
        let worker = plot_index & ((1 << self.worker_bits) - 1);
        let tick = plot_index >> self.worker_bits;
        let plot_len = 1_u32 << self.sequence_bits;
        let first = (plot_index << self.sequence_bits) | u64::from(offset);
        let land = self.lands.entry(worker).or_default();
        if land.full.contains(tick) {
            self.note(first, u64::from(u32::MAX), count);
            return;
        }
        if count == plot_len && !land.open.contains_key(&tick) {
            land.full.insert(tick);
            return;
        }
        let words = (plot_len as usize).div_ceil(64);
        let fresh = || Plot { words: vec![0; words].into_boxed_slice(), left: plot_len };
        let plot = land.open.entry(tick).or_insert_with(fresh);
        let mut doubles: Vec<(u64, u32)> = Vec::new();
        let (mut at, mut rest) = (offset, count);
        while rest > 0 {
            let (bit, part) = (at % 64, rest.min(64 - at % 64));
            let mask = (u64::MAX >> (64 - part)) << bit;
            let word = &mut plot.words[(at / 64) as usize];
            let twice = *word & mask;
            if twice != 0 {
                let base = (plot_index << self.sequence_bits) | u64::from(at - bit);
                doubles.push((base + u64::from(twice.trailing_zeros()), twice.count_ones()));
            }
            plot.left -= part - twice.count_ones();
            *word |= mask;
            at += part;
            rest -= part;
        }
        if plot.left == 0 {
            land.open.remove(&tick);
            land.full.insert(tick);
        }
        for (example, number) in doubles {
            self.note(example, 1, number);
        }
    }

    /// Counts `number` duplicates; shows the first `shown` of them, as far as there is room.
    fn note(&mut self, first: u64, shown: u64, number: u32) {
        self.duplicates += u64::from(number);
        for step in 0..shown.min(u64::from(number)) {
            if self.examples.len() >= EXAMPLES {
                break;
            }
            self.examples.push(first + step);
        }
    }
}

impl Extend<Run> for Ledger {
    fn extend<I: IntoIterator<Item = Run>>(&mut self, runs: I) {
        runs.into_iter().for_each(|run| self.add(run));
    }
}

impl Extend<u64> for Ledger {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.add_id(id));
    }
}

/// The runs of one bits of a bitmap as (offset, count), cut at word borders.
fn bit_runs(words: &[u64]) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            let start = rest.trailing_zeros();
            let len = (rest >> start).trailing_ones();
            runs.push((index as u32 * 64 + start, len));
            let below = start + len;
            rest = if below == 64 { 0 } else { rest >> below << below };
        }
    }
    runs
}

/// What a [`Ledger`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Ids received, those that came twice included.
    pub ids: u64,
    /// How many of them had been received before.
    pub duplicates: u64,
    /// Some of the duplicates.
    pub examples: Vec<u64>,
    /// The workers they came from, ascending.
    pub workers: Vec<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ids of {} workers, {} duplicates", self.ids, self.workers.len(), self.duplicates)?;
        if !self.examples.is_empty() {
            write!(out, ", for example {:?} (tick << worker and sequence bits)", self.examples)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Rng;

    fn id(tick: u64, worker: u64, sequence: u64) -> u64 {
        (tick << 22) | (worker << 12) | sequence
    }

    fn run(first: u64, count: u32) -> Run {
        Run { first, count, stride: 1 }
    }

    #[test]
    fn distinct_ids_are_no_duplicates() {
        let mut ledger = Ledger::default();
        for worker in 0..3 {
            for sequence in 0..4096 {
                ledger.add_id(id(77, worker, sequence));
            }
        }
        let report = ledger.check().unwrap();
        assert_eq!((report.ids, report.duplicates, report.workers), (12_288, 0, vec![0, 1, 2]));
        assert_eq!(ledger.open_plots(), 0, "full plots are collapsed");
    }

    #[test]
    fn a_planted_duplicate_is_found_in_an_open_plot_and_in_a_full_one() {
        let mut ledger = Ledger::default();
        ledger.add(run(id(5, 1, 100), 50));
        ledger.add_id(id(5, 1, 149));
        assert_eq!(ledger.report().examples, vec![id(5, 1, 149)]);
        ledger.add(run(id(6, 1, 0), 4096));
        ledger.add(run(id(6, 1, 4000), 3));
        let report = ledger.report();
        assert_eq!((report.ids, report.duplicates), (50 + 1 + 4096 + 3, 4));
        assert_eq!(report.examples[1..], [id(6, 1, 4000), id(6, 1, 4001), id(6, 1, 4002)]);
        assert!(ledger.check().is_err());
    }

    #[test]
    fn a_run_over_the_end_of_a_tick_meets_the_ids_it_covers() {
        let mut ledger = Ledger::default();
        ledger.add(run(id(9, 3, 4090), 10));
        ledger.add_id(id(9, 4, 3));
        assert_eq!(ledger.report().examples, vec![id(9, 4, 3)]);
    }

    #[test]
    fn a_stride_of_zero_is_the_same_id_again() {
        let mut ledger = Ledger::default();
        ledger.add(Run { first: 5, count: 3, stride: 0 });
        ledger.add(Run { first: 6, count: 3, stride: 4 });
        assert_eq!((ledger.report().ids, ledger.report().duplicates), (6, 2));
    }

    #[test]
    fn a_billion_dense_ids_need_no_bitmap_at_all() {
        let mut ledger = Ledger::default();
        for tick in 0..250_000 {
            for quarter in 0..4 {
                ledger.add(run(id(tick, 7, quarter * 1024), 1024));
            }
        }
        assert_eq!(ledger.report().ids, 1_024_000_000);
        assert_eq!(ledger.open_plots(), 0);
        assert_eq!(ledger.lands[&7].full.end_by_start.len(), 1, "one interval");
        ledger.add_id(id(123_456, 7, 99));
        assert_eq!(ledger.report().examples, vec![id(123_456, 7, 99)]);
    }

    #[test]
    fn merging_partial_ledgers_finds_what_came_in_both() {
        let (mut left, mut right) = (Ledger::default(), Ledger::default());
        left.add(run(id(1, 0, 0), 2048));
        right.add(run(id(1, 0, 2048), 2048));
        right.add(run(id(2, 0, 0), 4096));
        left.add(run(id(3, 0, 60), 70));
        right.add(run(id(3, 0, 127), 5));
        left.merge(&right);
        let report = left.report();
        assert_eq!((report.ids, report.duplicates), (2048 + 2048 + 4096 + 75, 3));
        assert_eq!(left.open_plots(), 1);
        let again = Ledger::default();
        left.merge(&again);
        left.merge(&right);
        assert_eq!(left.report().duplicates, 3 + right.report().ids);
    }

    #[test]
    fn it_agrees_with_a_plain_set_on_random_runs() {
        let mut rng = Rng::new(20_260_731);
        for sequence_bits in [3_u32, 6, 12] {
            let mut ledger = Ledger::new(2, sequence_bits);
            let (mut plain, mut doubles) = (HashSet::new(), 0_u64);
            for _ in 0..3_000 {
                let (first, count) = (rng.below(1 << 15), rng.below(40) as u32);
                ledger.add(run(first, count));
                for one in first..first + u64::from(count) {
                    doubles += u64::from(!plain.insert(one));
                }
            }
            let report = ledger.report();
            assert_eq!(report.duplicates, doubles, "{sequence_bits} bits of sequence");
            assert_eq!(report.ids - report.duplicates, plain.len() as u64);
        }
    }

    #[test]
    fn a_tape_joins_neighbours_and_hides_no_duplicate() {
        let mut received = Received::default();
        for one in [10, 11, 12, 12, 13, 5] {
            received.push(one);
        }
        received.push_run(run(6, 2));
        assert_eq!((received.ids(), received.runs().len()), (8, 4));
        let mut ledger = Ledger::default();
        ledger.add_received(&received);
        assert_eq!((ledger.report().ids, ledger.report().examples), (8, vec![12]));
    }
}
