//! The ids of one worker held by this engine: granted windows, and the frontier within them.
//!
//! # Invariants
//! - I1 the frontier (tick, sequence) only moves forward, and moves before what it passed is handed out;
//! - I2 nothing is cut outside the spans, which come from windows the registry granted (U6);
//! - I3 nothing is cut at a tick above the one the caller names, which is the engine clock's (U6).

use std::collections::VecDeque;
use std::ops::Range;

use xuid_id::Layout;
use xuid_spill::Extent;

use crate::id::run::Run;
use crate::registry::ownership::Window;
use crate::sys::guards::Guard;

/// Which ids may be cut of the tick that runs, so that large calls leave some of each tick to small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of them.
    Whole,
    /// The first half, and whatever has elapsed.
    FirstHalf,
    /// The second half, once the first one is cut, and nothing that has elapsed.
    SecondHalf,
}

/// One worker's windows and frontier.
#[derive(Debug)]
pub(crate) struct HeldWorker {
    pub(crate) worker: u32,
    spans: VecDeque<Range<u64>>,
    tick: u64,
    sequence: u32,
    /// Another process moved this worker's record, or it cannot be read: no more windows are reserved, and the
    /// held worker ends with the last one.
    pub(crate) contested: bool,
    /// A renewal is under way.
    pub(crate) renewing: bool,
    /// How many ticks the next window shall reach beyond now.
    pub(crate) reach: u64,
}

impl HeldWorker {
    /// A held worker that begins with `window`, whose frontier stands at its start.
    pub(crate) fn new(window: Window, reach: u64) -> Self {
        let (worker, span) = window.into_parts();
        let tick = span.start;
        let spans = VecDeque::from([span]);
        Self { worker, spans, tick, sequence: 0, contested: false, renewing: false, reach }
    }

    /// Adds a further window of the same worker, later than all before.
    pub(crate) fn extend(&mut self, window: Window) {
        let (worker, span) = window.into_parts();
        assert_eq!(worker, self.worker, "a window of another worker");
        match self.spans.back_mut() {
            Some(last) if last.end == span.start => last.end = span.end,
            Some(last) => {
                assert!(last.end < span.start, "windows of one worker overlap");
                self.spans.push_back(span);
            }
            None => {
                assert!(self.tick <= span.start, "a window begins behind the frontier");
                self.spans.push_back(span);
            }
        }
        self.settle();
    }

    /// The tick after the last one owned; `None` when nothing is left.
    pub(crate) fn end(&self) -> Option<u64> {
        self.spans.back().map(|span| span.end)
    }

    /// Whether it owns ticks after this one.
    pub(crate) fn reaches_beyond(&self, tick: u64) -> bool {
        self.end().is_some_and(|end| end > tick)
    }

    /// The first tick of which no id was cut.
    pub(crate) fn untouched(&self) -> u64 {
        self.tick + u64::from(self.sequence > 0 && Guard::HandBackWholeTicks.holds())
    }

    /// Whether there is an id at or before `upto`.
    pub(crate) fn has_ids(&self, upto: u64) -> bool {
        !self.spans.is_empty() && (self.tick <= upto || !Guard::NotAboveClock.holds())
    }

    /// Ids between the frontier and the end of `upto`, roughly: gaps between windows are not subtracted.
    pub(crate) fn available(&self, layout: &Layout, upto: u64) -> u64 {
        let Some(end) = self.end() else { return 0 };
        let ticks = end.min(upto.saturating_add(1)).saturating_sub(self.tick);
        (ticks * u64::from(layout.sequences())).saturating_sub(u64::from(self.sequence))
    }

    /// How many ids may be cut at once where `tick` is the one that runs, of this part of it.
    pub(crate) fn bound(&self, layout: &Layout, tick: u64, part: Part) -> u32 {
        let half = layout.sequences() / 2;
        match part {
            Part::Whole => u32::MAX,
            Part::FirstHalf if self.tick < tick => u32::MAX,
            Part::FirstHalf => half.saturating_sub(self.sequence),
            Part::SecondHalf if self.tick == tick && self.sequence >= half => u32::MAX,
            Part::SecondHalf => 0,
        }
    }

    /// Whether an id of a tick that is owned is still to be cut.
    pub(crate) fn is_uncut(&self, tick: u64, sequence: u32) -> bool {
        (tick, sequence) >= (self.tick, self.sequence) && self.spans.iter().any(|span| span.contains(&tick))
    }

    /// The tick of the frontier.
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// The frontier as a raw id. Only for a held worker that has ids.
    pub(crate) fn first_id(&self, layout: &Layout) -> u64 {
        layout.encode(self.tick, self.worker, self.sequence).raw()
    }

    /// Drops spent windows and sets the frontier onto an owned tick.
    fn settle(&mut self) {
        while let Some(span) = self.spans.front() {
            if self.tick >= span.end {
                if !Guard::WindowEnd.holds() && self.spans.len() == 1 {
                    self.spans[0].end = self.tick + 1;
                    break;
                }
                self.spans.pop_front();
                continue;
            }
            if self.tick < span.start {
                self.tick = span.start;
                self.sequence = 0;
            }
            break;
        }
    }

    fn advance_to(&mut self, tick: u64, sequence: u32) {
        debug_assert!((tick, sequence) >= (self.tick, self.sequence), "the frontier goes back");
        self.tick = tick;
        self.sequence = sequence;
        self.settle();
    }

    /// Cuts up to `most` consecutive ids off the frontier's tick, if that is not above `upto`.
    pub(crate) fn cut(&mut self, layout: &Layout, upto: u64, most: u32) -> Option<Run> {
        if most == 0 || !self.has_ids(upto) {
            return None;
        }
        let (tick, sequence) = (self.tick, self.sequence);
        let left = layout.sequences() - sequence;
        let len = if Guard::SequenceEnd.holds() { most.min(left) } else { most };
        let passed = if Guard::FrontierFirst.holds() { len } else { 1 };
        if passed >= left {
            self.advance_to(tick + 1, 0);
        } else {
            self.advance_to(tick, sequence + passed);
        }
        Some(Run::new(layout.encode(tick, self.worker, sequence).raw(), len))
    }

    /// Moves the frontier to `(tick, sequence)` or, if that is not owned, to the next owned id after it, and
    /// hands what it passed to `aside`.
    pub(crate) fn skip_to(
        &mut self,
        layout: &Layout,
        tick: u64,
        sequence: u32,
        mut aside: impl FnMut(Extent),
    ) {
        while (self.tick, self.sequence) < (tick, sequence) && !self.spans.is_empty() {
            let (from, begun) = (self.tick, self.sequence);
            let span_end = self.spans[0].end;
            let whole = layout.sequences();
            let first = layout.encode(from, self.worker, begun).raw();
            let piece = if from == tick {
                self.advance_to(tick, sequence);
                Extent { first, len: sequence - begun, ticks: 1 }
            } else if begun > 0 {
                self.advance_to(from + 1, 0);
                Extent { first, len: whole - begun, ticks: 1 }
            } else {
                let ticks = (tick.min(span_end) - from).min(u64::from(u32::MAX)) as u32;
                self.advance_to(from + u64::from(ticks), 0);
                Extent { first, len: whole, ticks }
            };
            aside(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Layout {
        Layout::new(58, 2, 3, 1_000, 0).unwrap()
    }

    fn ids(layout: &Layout, extent: Extent) -> Vec<u64> {
        let tick = |t| extent.first + u64::from(t) * layout.stride();
        (0..extent.ticks).flat_map(|t| tick(t)..tick(t) + u64::from(extent.len)).collect()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Cut(u64, u32),
        Skip(u64, u32),
        Extend(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..60, 0u32..20).prop_map(|(upto, most)| Step::Cut(upto, most)),
            (0u64..60, 0u32..8).prop_map(|(tick, sequence)| Step::Skip(tick, sequence)),
            (0u64..4, 1u64..9).prop_map(|(gap, ticks)| Step::Extend(gap, ticks)),
        ]
    }

    proptest! {
        #[test]
        fn a_held_worker_hands_out_owned_ids_once_and_none_above_the_clock(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let layout = small();
            let mut held = HeldWorker::new(Window::new(1, 3..7), 1);
            let mut owned: std::collections::BTreeSet<u64> = (3..7).collect();
            let mut end = 7;
            let mut seen = std::collections::HashSet::new();
            let mut high = 0;
            for step in steps {
                let mut out = Vec::new();
                match step {
                    Step::Cut(upto, most) => {
                        if let Some(run) = held.cut(&layout, upto, most) {
                            prop_assert!(run.len() <= most);
                            prop_assert!(layout.tick_of(run.raw()) <= upto);
                            out.extend(run.into_iter().map(crate::Id::raw));
                        }
                    }
                    Step::Skip(tick, sequence) => {
                        held.skip_to(&layout, tick, sequence, |extent| out.extend(ids(&layout, extent)));
                    }
                    Step::Extend(gap, ticks) => {
                        let start = end + gap;
                        // A window is never granted behind the frontier: the registry's mark is past it.
                        held.extend(Window::new(1, start..start + ticks));
                        owned.extend(start..start + ticks);
                        end = start + ticks;
                    }
                }
                for id in out {
                    let parts = layout.decode(crate::Id::new(id));
                    prop_assert!(!held.is_uncut(parts.tick, parts.sequence), "{id} was cut");
                    prop_assert!(id > high || high == 0, "the frontier went back");
                    high = id;
                    prop_assert!(seen.insert(id), "{id} twice");
                    prop_assert!(owned.contains(&layout.tick_of(id)), "{id} is not owned");
                    prop_assert!(layout.tick_of(id) < held.untouched());
                }
            }
        }
    }

    #[test]
    fn the_last_sequence_of_a_tick_does_not_carry_into_the_worker() {
        let layout = small();
        let mut held = HeldWorker::new(Window::new(1, 3..5), 1);
        let ids: Vec<_> = std::iter::from_fn(|| held.cut(&layout, 9, 3)).flatten().collect();
        assert_eq!(ids.len(), 16);
        assert!(ids.iter().all(|&id| layout.decode(id).worker == 1));
        assert_eq!(held.untouched(), 5);
    }

    #[test]
    fn the_two_halves_of_the_tick_that_runs_are_cut_apart_and_all_before_it_belongs_to_the_first() {
        let layout = small();
        let mut held = HeldWorker::new(Window::new(1, 3..9), 1);
        let bounds =
            |held: &HeldWorker| [Part::FirstHalf, Part::SecondHalf].map(|part| held.bound(&layout, 4, part));
        assert_eq!(bounds(&held), [u32::MAX, 0], "of a tick that has elapsed");
        drop(held.cut(&layout, 4, 8).unwrap());
        assert_eq!(bounds(&held), [4, 0]);
        drop(held.cut(&layout, 4, 3).unwrap());
        assert_eq!(bounds(&held), [1, 0]);
        drop(held.cut(&layout, 4, 1).unwrap());
        assert_eq!(bounds(&held), [0, u32::MAX]);
        drop(held.cut(&layout, 4, 4).unwrap());
        assert!(held.cut(&layout, 4, 1).is_none(), "the next tick is still to come");
    }

    #[test]
    fn a_begun_tick_is_not_untouched() {
        let layout = small();
        let mut held = HeldWorker::new(Window::new(0, 3..5), 1);
        assert_eq!(held.untouched(), 3);
        assert!(held.is_uncut(3, 0) && held.is_uncut(4, 7) && !held.is_uncut(2, 7) && !held.is_uncut(5, 0));
        assert_eq!(held.cut(&layout, 3, 1).unwrap().len(), 1);
        assert_eq!(held.untouched(), 4);
        assert!(!held.is_uncut(3, 0) && held.is_uncut(3, 1));
    }
}
