//! Counts ids that came twice, in bounded memory.
//!
//! ```text
//!   load thread   Tail a connection: joins neighbours ── Recorder: 64 Ki runs ──┐
//!   load thread   ...                                                           ├──► seen thread: sorts, joins, counts
//! ```
//!
//! # Invariants
//! - I1 `duplicates` = ids noted - ids in the union of all runs, exactly, in whatever order and pieces they came;
//! - I2 memory: 16 bytes a run, and 8 for the sort's room; never above the bound, which is checked before runs are
//!   added. Runs that cannot be kept are counted as unseen, and a verdict with unseen ids proves nothing about those.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};

/// Ids from the first to the last, both included.
type Span = (u64, u64);

/// Spans a recorder gathers before it hands them over: 1 MiB.
const PIECE: usize = 64 * 1024;

/// Pieces on their way. A load thread that is faster than the check waits, and the latency it measures shows it.
const ON_THE_WAY: usize = 16;

/// Bytes a span costs: itself, and half of it for the sort's room.
const SPAN_COST: u64 = 24;

/// Spans that are kept before the first sort.
const FIRST_SORT: usize = 1 << 20;

/// Duplicates that are shown.
const SHOWN: usize = 5;

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Ids that were noted.
    pub ids: u64,
    /// How many of them had come before.
    pub duplicates: u64,
    /// Some of them.
    pub shown: Vec<u64>,
    /// Ids that came when the memory was full.
    pub unseen: u64,
    /// Spans at the end, all neighbours joined.
    pub spans: u64,
}

/// The ids seen so far.
#[derive(Debug)]
struct SeenIds {
    spans: Vec<Span>,
    /// Sorted and joined again at this length.
    sort_at: usize,
    /// Never more than this.
    most: usize,
    verdict: Verdict,
}

impl SeenIds {
    fn new(bytes: u64) -> Self {
        let most = usize::try_from(bytes / SPAN_COST).unwrap_or(usize::MAX).max(PIECE);
        Self { spans: Vec::new(), sort_at: FIRST_SORT.min(most), most, verdict: Verdict::default() }
    }

    /// Notes these spans. False: they did not fit any more.
    fn add(&mut self, spans: &[Span]) -> bool {
        let ids: u64 = spans.iter().map(|(first, last)| last - first + 1).sum();
        if self.spans.len() + spans.len() > self.sort_at {
            self.settle();
            // Growing by what is left keeps the work of all sorts within a few times that of one.
            let doubled = self.spans.len().saturating_mul(2) + spans.len();
            self.sort_at = self.sort_at.max(doubled).min(self.most);
        }
        if self.spans.len() + spans.len() > self.sort_at {
            self.verdict.unseen += ids;
            return false;
        }
        if self.spans.capacity() < self.sort_at {
            self.spans.reserve_exact(self.sort_at - self.spans.len());
        }
        self.spans.extend_from_slice(spans);
        self.verdict.ids += ids;
        true
    }

    /// Sorts, joins neighbours, and counts where they overlap.
    fn settle(&mut self) {
        #[expect(
            clippy::stable_sort_primitive,
            reason = "it finds the sorted front as one piece, and merges"
        )]
        self.spans.sort();
        let verdict = &mut self.verdict;
        self.spans.dedup_by(|next, kept| {
            if next.0 <= kept.1 {
                verdict.duplicates += next.1.min(kept.1) - next.0 + 1;
                let room = SHOWN - verdict.shown.len();
                verdict.shown.extend((next.0..=next.1.min(kept.1)).take(room));
            }
            let joins = kept.1.checked_add(1).is_none_or(|after| next.0 <= after);
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
    }

    fn finish(mut self) -> Verdict {
        self.settle();
        self.verdict.spans = self.spans.len() as u64;
        self.verdict
    }
}

/// The thread that checks.
#[derive(Debug)]
pub struct DuplicateCheck {
    thread: JoinHandle<Verdict>,
    sender: SyncSender<Vec<Span>>,
}

impl DuplicateCheck {
    /// Starts it with so many bytes; `full` is called once if they do not suffice.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(bytes: u64, full: impl FnOnce() + Send + 'static) -> Result<Self> {
        let (sender, receiver) = sync_channel(ON_THE_WAY);
        let work = move || count_duplicates(SeenIds::new(bytes), &receiver, full);
        let thread = thread::Builder::new()
            .name("xuid-duplicates".into())
            .spawn(work)
            .context("failed to start a thread")?;
        Ok(Self { thread, sender })
    }

    /// For one load thread.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        Recorder { piece: Vec::with_capacity(PIECE), sender: self.sender.clone() }
    }

    /// The verdict, once all recorders are gone.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn finish(self) -> Result<Verdict> {
        drop(self.sender);
        self.thread.join().map_err(|_| anyhow!("the duplicate check panicked"))
    }
}

fn count_duplicates(mut seen: SeenIds, pieces: &Receiver<Vec<Span>>, full: impl FnOnce()) -> Verdict {
    let mut full = Some(full);
    for piece in pieces {
        if !seen.add(&piece)
            && let Some(full) = full.take()
        {
            full();
        }
    }
    seen.finish()
}

/// Where a load thread leaves what it got.
#[derive(Debug)]
pub struct Recorder {
    piece: Vec<Span>,
    sender: SyncSender<Vec<Span>>,
}

/// The span that a connection's ids go on with, as long as they come in sequence.
#[derive(Debug, Default)]
pub struct Tail(Option<Span>);

impl Recorder {
    /// Notes `count` ids from `first` on.
    #[inline]
    pub fn note(&mut self, tail: &mut Tail, first: u64, count: u32) {
        let Some(steps) = u64::from(count).checked_sub(1) else { return };
        let last = first.saturating_add(steps);
        match &mut tail.0 {
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            held => {
                if let Some(span) = held.replace((first, last)) {
                    self.push(span);
                }
            }
        }
    }

    /// Notes ids one by one. Neighbours are joined in registers first: most of an array is in sequence.
    pub fn note_each(&mut self, tail: &mut Tail, mut ids: impl Iterator<Item = u64>) {
        let Some(mut first) = ids.next() else { return };
        let mut count = 1;
        for id in ids {
            if first.checked_add(u64::from(count)) == Some(id) && count < u32::MAX {
                count += 1;
            } else {
                self.note(tail, first, count);
                (first, count) = (id, 1);
            }
        }
        self.note(tail, first, count);
    }

    /// No more ids come on this connection.
    pub fn end(&mut self, tail: &mut Tail) {
        if let Some(span) = tail.0.take() {
            self.push(span);
        }
    }

    fn push(&mut self, span: Span) {
        self.piece.push(span);
        if self.piece.len() == PIECE {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        // It fails only if the duplicate check panicked, which its end tells.
        let _ = self.sender.send(piece);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;

    const ROOM: u64 = 64 << 20;

    /// The verdict on what two threads of one connection each got.
    fn verdict(left: &[(u64, u32)], right: &[(u64, u32)]) -> Verdict {
        let check = DuplicateCheck::start(ROOM, || panic!("it was not full")).unwrap();
        for notes in [left, right] {
            let (mut recorder, mut tail) = (check.recorder(), Tail::default());
            for (first, count) in notes {
                recorder.note(&mut tail, *first, *count);
            }
            recorder.end(&mut tail);
        }
        check.finish().unwrap()
    }

    #[test]
    fn one_id_planted_among_millions_is_found_and_shown() {
        let apart = |index: u64| (index * 10, 5);
        let left: Vec<_> = (0..400_000).map(apart).collect();
        let mut right: Vec<_> = (400_000..800_000).map(apart).collect();
        let clean = verdict(&left, &right);
        assert_eq!((clean.ids, clean.duplicates, clean.spans), (4_000_000, 0, 800_000));
        right.push((1_234_564, 1));
        let found = verdict(&left, &right);
        assert_eq!((found.duplicates, found.shown), (1, vec![1_234_564]));
    }

    #[test]
    fn ids_noted_one_by_one_are_those_noted_as_runs() {
        let (check, ids) = (
            DuplicateCheck::start(ROOM, || panic!("it was not full")).unwrap(),
            [5, 6, 7, 7, 8, 100, 3, 4, u64::MAX],
        );
        let (mut recorder, mut tail) = (check.recorder(), Tail::default());
        recorder.note_each(&mut tail, ids.into_iter());
        recorder.note_each(&mut tail, std::iter::empty());
        recorder.end(&mut tail);
        drop(recorder);
        let found = check.finish().unwrap();
        assert_eq!((found.ids, found.duplicates, found.spans), (9, 1, 3));
    }

    #[test]
    fn an_id_that_came_twice_in_a_row_on_one_connection_is_found() {
        assert_eq!(verdict(&[(7, 1), (7, 1)], &[]).duplicates, 1);
        assert_eq!(verdict(&[(u64::MAX, 1)], &[(u64::MAX - 3, 4)]).duplicates, 1, "the last id of all too");
        assert_eq!(verdict(&[(u64::MAX, 1), (0, 1)], &[]).duplicates, 0);
    }

    #[test]
    fn a_duplicate_of_what_was_sorted_long_ago_is_counted_once_a_time_it_came() {
        let mut seen = SeenIds::new(ROOM);
        for round in 0..40u64 {
            let piece: Vec<Span> = (0..PIECE as u64)
                .map(|index| ((round << 40) + index * 4, (round << 40) + index * 4 + 2))
                .collect();
            assert!(seen.add(&piece));
        }
        assert!(seen.spans.capacity() * 16 < ROOM as usize);
        assert!(seen.add(&[(4, 6), (4, 4), (3 << 40, 3 << 40)]));
        let verdict = seen.finish();
        assert_eq!((verdict.duplicates, verdict.spans), (5, 40 * PIECE as u64));
    }

    #[test]
    fn ids_in_sequence_cost_nothing_and_memory_never_passes_its_bound() {
        let mut seen = SeenIds::new(8 << 20);
        // Neighbours in pieces, backwards: each sort joins them to one.
        for round in (0..200u64).rev() {
            let piece: Vec<Span> = (0..PIECE as u64)
                .map(|index| (round * PIECE as u64 + index, round * PIECE as u64 + index))
                .collect();
            assert!(seen.add(&piece), "round {round}");
        }
        assert!(seen.spans.capacity() <= (8 << 20) / 16);
        assert_eq!(seen.finish().spans, 1);
    }

    #[test]
    fn a_full_check_says_so_once_and_says_what_it_has_not_seen() {
        let told = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&told);
        let check = DuplicateCheck::start(4 << 20, move || _ = counting.fetch_add(1, Relaxed)).unwrap();
        let (mut recorder, mut tail) = (check.recorder(), Tail::default());
        for index in 0..1_000_000 {
            recorder.note(&mut tail, index * 2, 1);
        }
        recorder.end(&mut tail);
        drop(recorder);
        let verdict = check.finish().unwrap();
        assert_eq!((told.load(Relaxed), verdict.ids + verdict.unseen, verdict.duplicates), (1, 1_000_000, 0));
        assert!(verdict.ids > 100_000 && verdict.unseen > 0, "{verdict:?}");
    }

    proptest! {
        #[test]
        fn duplicates_are_counted_as_a_set_would(notes in prop::collection::vec((0u64..300, 1u32..20), 0..40)) {
            let (mut set, mut ids, mut duplicates) = (HashSet::new(), 0, 0);
            for id in notes.iter().flat_map(|(first, count)| *first..first + u64::from(*count)) {
                ids += 1;
                duplicates += u64::from(!set.insert(id));
            }
            let (left, right) = notes.split_at(notes.len() / 2);
            let found = verdict(left, right);
            prop_assert_eq!((found.ids, found.duplicates), (ids, duplicates));
        }
    }
}
