//! A thread's run: the innermost tier, and with [`GenerationWord::step`] the only code on the path of a hit.
//!
//! # Invariants
//! - I1 only its own thread touches a thread run;
//! - I2 from `next()` up to `end()` all is owned by this thread; a hit moves `place` before it returns the id. In a
//!   handle's thread run that is so once it has caught up: between misses the handle itself knows where it stands;
//! - I3 a thread run whose generation is not its engine's is void: its rest is counted as waste, never used;
//! - I4 `place` is `generation + LONGEST - left`, so that `place - generation` is below [`LONGEST`] exactly if the
//!   generation is the engine's and an id is left. Generations are multiples of [`GENERATION_STEP`], far above any
//!   run's length, so that a wrong one lands above it. One comparison and one branch instead of two, and what it
//!   compares, with `base` added, is the id. With two branches (`generation == ..`, `next != end`) a loop over
//!   `next_id` does 1,789 M ids/s or 450, as the caller's code happens to fall;
//! - I5 a hit counts nothing. What was hit is counted from where the thread run stands: when it is closed or published,
//!   and each id once, since `len` is what was not counted yet.

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use xuid_id::Id;

use crate::id::run::Run;
use crate::settings::LONGEST_BLOCK;
use crate::stats::counters::{Sources, ThreadCounters, Tier};
use crate::sys::fork_word::{GENERATION_STEP, GenerationWord};
use crate::tiers::ring::Cursor;

/// The longest run that a thread takes. Four times the longest that a tier hands out.
pub(crate) const LONGEST: u32 = 4 * LONGEST_BLOCK;

const _: () = assert!((LONGEST as u64) < GENERATION_STEP - 1, "I4");

/// The place of an empty thread run: one that is used up, of a generation that is no engine's (I4). Its next id, too,
/// which is above any limit.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// What is left of the run that a thread took last.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ThreadRun {
    /// I4.
    place: Cell<u64>,
    /// What makes an id of the distance from the generation to `place`.
    base: Cell<u64>,
    /// For all but a hit: the run's own generation, how many of its ids are not counted yet (I5), and the tier that had
    /// it.
    generation: Cell<u64>,
    len: Cell<u64>,
    tier: Cell<Tier>,
}

impl ThreadRun {
    pub(crate) const fn new() -> Self {
        Self {
            place: Cell::new(NOWHERE),
            base: Cell::new(NOWHERE - LONGEST as u64),
            generation: Cell::new(NOWHERE - LONGEST as u64),
            len: Cell::new(0),
            tier: Cell::new(Tier::Ring),
        }
    }

    /// The next id, if the thread run is of this generation and not empty.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "this is the whole hit path; a call would cost more than its body"
    )]
    pub(crate) fn hit(&self, generation: &GenerationWord) -> Option<Id> {
        let (distance, next) = generation.step(self.place.get());
        self.hit_at(distance, next)
    }

    /// The id at so far from a generation, where the thread run stands; it stands at `next` then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "half of the hit path")]
    fn hit_at(&self, distance: u64, next: u64) -> Option<Id> {
        #[cfg(test)]
        let distance = self.distance_as_compared(distance);
        if distance < u64::from(LONGEST) {
            self.place.set(next);
            Some(Id::new(distance.wrapping_add(self.base.get())))
        } else {
            // Without it the call after a miss lies in every caller's loop, and each hit jumps over it.
            cold_path();
            None
        }
    }

    /// The first of the next `count` ids, if the thread run is of this generation and has as many. They are counted
    /// when the run is closed, as single ones are.
    #[inline]
    pub(crate) fn hit_many(&self, count: u32, generation: u64) -> Option<u64> {
        let left = self.left_of(generation)?;
        if u64::from(count) <= left {
            self.place.set(self.place.get() + u64::from(count));
            Some(self.end() - left)
        } else {
            None
        }
    }

    /// How many ids are left, if the thread run is of this generation.
    #[inline]
    fn left_of(&self, generation: u64) -> Option<u64> {
        let distance = self.place.get().wrapping_sub(generation);
        #[cfg(test)]
        let distance = self.distance_as_compared(distance);
        u64::from(LONGEST).checked_sub(distance)
    }

    /// The next id of the run, or its end.
    pub(crate) fn next(&self) -> u64 {
        self.end() - self.left_of_own()
    }

    /// The first id that is not of the run any more.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.base.get().wrapping_add(u64::from(LONGEST))
    }

    /// The ids before `next` were used, by code that counts them itself. Never goes back, nor beyond the
    /// end: one of a run before this is none of its ids.
    pub(crate) fn catch_up(&self, next: u64) {
        if (self.next()..=self.end()).contains(&next) {
            self.advance(next - self.next());
        }
    }

    /// How many ids are left of a run of this generation.
    pub(crate) fn left(&self, generation: u64) -> u32 {
        self.left_of(generation).unwrap_or(0) as u32
    }

    /// How many ids are left of a run that was put in a moment ago, whatever its generation.
    pub(crate) fn held(&self) -> u32 {
        self.left_of_own() as u32
    }

    fn left_of_own(&self) -> u64 {
        u64::from(LONGEST) - (self.place.get() - self.generation.get())
    }

    fn advance(&self, count: u64) {
        assert!(count <= self.left_of_own(), "more than the thread_run holds");
        self.place.set(self.place.get() + count);
    }

    /// Takes one id of a run that was put in a moment ago.
    pub(crate) fn take_one(&self) -> Id {
        let id = self.next();
        self.advance(1);
        Id::new(id)
    }

    /// Takes `count` ids, at most what is left. The caller counts them, by their tier in `sources`: they are issued
    /// only if the call gets all that it asked for.
    pub(crate) fn pull(&self, count: u32, sources: &mut Sources) -> Run {
        let first = self.next();
        self.advance(u64::from(count));
        self.len.set(self.len.get() - u64::from(count));
        sources.add(self.tier.get(), u64::from(count));
        Run::new(first, count)
    }

    /// Counts what was hit so far (I5). The rest stays.
    pub(crate) fn publish(&self, counters: &ThreadCounters) {
        let left = self.left_of_own();
        counters.issue(self.tier.get(), self.len.replace(left) - left);
    }

    /// Counts what became of the run, its rest as waste, and empties it.
    pub(crate) fn close_run(&self, counters: &ThreadCounters) {
        self.publish(counters);
        counters.wasted.add(self.len.get());
        Self::new().swap(self);
    }

    /// Counts what was hit so far, and if the run is not of this generation its rest as waste.
    pub(crate) fn catch_up_figures(&self, generation: u64, counters: &ThreadCounters) {
        if self.generation.get() == generation { self.publish(counters) } else { self.close_run(counters) }
    }

    /// Puts a run of a tier into an empty, closed thread run.
    pub(crate) fn fill(&self, generation: u64, run: &Run, tier: Tier) {
        debug_assert!(self.held() == 0 && self.len.get() == 0);
        // Zero is what a forked child reads.
        let good = generation != 0 && generation.is_multiple_of(GENERATION_STEP);
        assert!(run.len() <= LONGEST && good, "I4: {run:?}, generation {generation}");
        let len = u64::from(run.len());
        self.place.set(generation + (u64::from(LONGEST) - len));
        self.base.set((run.raw() + len).wrapping_sub(u64::from(LONGEST)));
        self.generation.set(generation);
        self.len.set(len);
        self.tier.set(tier);
    }

    /// The distance from the engine's generation, or, for a negative control, from the thread run's own.
    #[cfg(test)]
    fn distance_as_compared(&self, distance: u64) -> u64 {
        if crate::sys::guards::Guard::GenerationCompared.holds() {
            distance
        } else {
            self.place.get() - self.generation.get()
        }
    }

    /// Each has what the other had.
    pub(crate) fn swap(&self, other: &Self) {
        self.place.swap(&other.place);
        self.base.swap(&other.base);
        self.generation.swap(&other.generation);
        self.len.swap(&other.len);
        self.tier.swap(&other.tier);
    }
}

/// What a thread has at one engine besides its thread run.
#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) counters: Arc<CachePadded<ThreadCounters>>,
    pub(crate) cursor: Cursor,
    /// For calls that gather runs and hand out something else; empty between calls.
    pub(crate) scratch: Vec<Run>,
}

/// An engine that this thread has called.
struct KnownEngine {
    engine: u64,
    thread_state: ThreadState,
    /// Whether its ids are plots, so that a hit may return them.
    is_plain: bool,
    /// Its thread run while another engine's is in use; always, if it is not plain.
    stashed: ThreadRun,
}

impl Drop for KnownEngine {
    fn drop(&mut self) {
        self.stashed.close_run(&self.thread_state.counters);
    }
}

/// The engines this thread has called; the first one's thread run is [`THREAD_RUN`], if that one is plain. If not,
/// that is empty, and each of its calls misses.
#[derive(Default)]
struct KnownEngines(Vec<KnownEngine>);

impl Drop for KnownEngines {
    fn drop(&mut self) {
        self.stash();
    }
}

/// Engines a thread remembers. More cost their rest of a run when they are forgotten.
const REMEMBERED: usize = 16;

thread_local! {
    /// The run of the engine used last by this thread. Const and without a destructor, so that a hit is a plain
    /// load.
    pub(crate) static THREAD_RUN: ThreadRun = const { ThreadRun::new() };
    static KNOWN_ENGINES: RefCell<KnownEngines> = const { RefCell::new(KnownEngines(Vec::new())) };
}

impl KnownEngines {
    /// Takes the thread run in use back to the engine it belongs to.
    fn stash(&mut self) {
        if let Some(known) = self.0.first().filter(|known| known.is_plain) {
            THREAD_RUN.with(|thread_run| thread_run.swap(&known.stashed));
        }
    }

    /// What this thread has at an engine that it has called.
    fn find(&self, engine: u64) -> Option<&KnownEngine> {
        self.0.iter().find(|known| known.engine == engine)
    }

    /// Makes `engine` the first, its thread run the one in use, if it is plain.
    fn enter(&mut self, engine: u64, is_plain: bool, join: impl FnOnce() -> ThreadState) -> &mut KnownEngine {
        if self.0.first().is_none_or(|known| known.engine != engine) {
            self.stash();
            let known = match self.0.iter().position(|known| known.engine == engine) {
                Some(at) => self.0.remove(at),
                None => KnownEngine { engine, thread_state: join(), is_plain, stashed: ThreadRun::new() },
            };
            self.0.truncate(REMEMBERED - 1);
            self.0.insert(0, known);
            // Stashing swaps the thread run in use with the stashed one; doing it again brings ours in.
            self.stash();
        }
        &mut self.0[0]
    }
}

/// Calls `work` with this thread's run and state at `engine`. In a thread that is ending (its thread-locals
/// are gone) a passing thread run serves, and its rest is wasted.
pub(crate) fn with_thread_state<T>(
    engine: u64,
    is_plain: bool,
    mut join: impl FnMut() -> ThreadState,
    work: impl FnOnce(&ThreadRun, &mut ThreadState) -> T,
) -> T {
    let mut work = Some(work);
    let result = KNOWN_ENGINES.try_with(|engines| {
        let mut engines = engines.try_borrow_mut().ok()?;
        let KnownEngine { thread_state, stashed, .. } = engines.enter(engine, is_plain, &mut join);
        let work = work.take()?;
        Some(if is_plain {
            THREAD_RUN.with(|thread_run| work(thread_run, thread_state))
        } else {
            work(stashed, thread_state)
        })
    });
    if let Ok(Some(value)) = result {
        return value;
    }
    let (thread_run, mut thread_state) = (ThreadRun::new(), join());
    let Some(work) = work.take() else { unreachable!("work is taken only where its value is returned") };
    let value = work(&thread_run, &mut thread_state);
    thread_run.close_run(&thread_state.counters);
    value
}

/// Counts what this thread was issued by `engine`, and if its run is void, that too: `generation` is the engine's.
/// A thread that never called it has nothing to count.
pub(crate) fn publish(engine: u64, generation: u64) {
    // In a thread that is ending all was counted.
    let _ = KNOWN_ENGINES.try_with(|engines| {
        let Ok(engines) = engines.try_borrow() else { return };
        let Some(KnownEngine { thread_state, is_plain, stashed, .. }) = engines.find(engine) else { return };
        let is_in_use = *is_plain && engines.0.first().is_some_and(|known| known.engine == engine);
        THREAD_RUN.with(|thread_run| {
            let thread_run = if is_in_use { thread_run } else { stashed };
            thread_run.catch_up_figures(generation, &thread_state.counters);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::ring::Ring;

    const A: u64 = 11 * GENERATION_STEP;
    const B: u64 = 22 * GENERATION_STEP;

    fn hit(thread_run: &ThreadRun, generation: u64) -> Option<Id> {
        let place = thread_run.place.get();
        thread_run.hit_at(place.wrapping_sub(generation), place.wrapping_add(1))
    }

    /// A naive model: a generation, and a range.
    #[test]
    fn a_hit_needs_the_right_generation_and_an_id_that_is_left() {
        let generations = [
            GENERATION_STEP,
            2 * GENERATION_STEP,
            A,
            A + GENERATION_STEP,
            1 << 63,
            0_u64.wrapping_sub(GENERATION_STEP),
        ];
        for first in [0, 1, 5_000, (1 << 63) - u64::from(LONGEST)] {
            for len in [1, 2, 1_024, LONGEST] {
                for ours in generations {
                    let (thread_run, counters) = (ThreadRun::new(), ThreadCounters::default());
                    assert!(
                        generations
                            .iter()
                            .chain([&0])
                            .all(|generation| hit(&thread_run, *generation).is_none()),
                        "empty"
                    );
                    assert_eq!((thread_run.next(), thread_run.end()), (NOWHERE, NOWHERE), "above any limit");
                    thread_run.fill(ours, &Run::new(first, len), Tier::Ring);
                    for offset in 1..u64::from(len) {
                        assert_eq!(hit(&thread_run, ours).map(Id::raw), Some(first + offset - 1));
                    }
                    // 0 is what a forked child reads.
                    let wrong = generations.iter().chain([&0]).filter(|generation| **generation != ours);
                    assert!(wrong.clone().all(|generation| hit(&thread_run, *generation).is_none()
                        && thread_run.left(*generation) == 0));
                    assert_eq!(hit(&thread_run, ours).map(Id::raw), Some(first + u64::from(len) - 1));
                    assert!(
                        wrong.chain([&ours]).all(|generation| hit(&thread_run, *generation).is_none()),
                        "used up"
                    );
                    thread_run.close_run(&counters);
                    assert_eq!((counters.issued(), counters.wasted.value()), (u64::from(len), 0));
                    assert!(
                        generations
                            .iter()
                            .chain([&0])
                            .all(|generation| hit(&thread_run, *generation).is_none()),
                        "closed"
                    );
                    assert_eq!((thread_run.next(), thread_run.end()), (NOWHERE, NOWHERE));
                }
            }
        }
    }

    #[test]
    fn several_at_once_are_of_the_right_generation_and_no_more_than_are_left() {
        for len in [1, 2, 1_024, LONGEST] {
            for used in [0, 1, len / 2, len - 1, len] {
                for count in [1, 2, len - used, len - used + 1, LONGEST, LONGEST + 1, u32::MAX] {
                    let thread_run = ThreadRun::new();
                    assert_eq!(thread_run.hit_many(count, A), None, "empty");
                    thread_run.fill(A, &Run::new(5_000, len), Tier::Ring);
                    assert_eq!(thread_run.hit_many(used, A), Some(5_000));
                    for wrong in [B, A - GENERATION_STEP, A + GENERATION_STEP, 0] {
                        assert_eq!(thread_run.hit_many(count, wrong), None, "{count} of {wrong}");
                    }
                    let left = len - used;
                    let first = (count <= left).then_some(5_000 + u64::from(used));
                    assert_eq!(thread_run.hit_many(count, A), first, "{count} of {left}");
                    assert_eq!(thread_run.held(), if first.is_some() { left - count } else { left });
                }
            }
        }
    }

    /// Whatever comes first, and however often it is asked.
    #[test]
    fn what_was_hit_is_counted_once_by_whoever_asks() {
        let (thread_run, counters) = (ThreadRun::new(), ThreadCounters::default());
        let counted = || (counters.issued(), counters.wasted.value());
        thread_run.publish(&counters);
        thread_run.catch_up_figures(A, &counters);
        assert_eq!(counted(), (0, 0), "an empty thread_run");
        thread_run.fill(A, &Run::new(100, 10), Tier::Queue);
        assert!(hit(&thread_run, A).is_some() && hit(&thread_run, A).is_some());
        for _ in 0..2 {
            thread_run.publish(&counters);
            assert_eq!((counted(), thread_run.held()), ((2, 0), 8), "the rest stays in thread_run");
        }
        assert_eq!(thread_run.hit_many(3, A), Some(102));
        let mut sources = Sources::default();
        assert_eq!(thread_run.pull(1, &mut sources).raw(), 105, "its caller counts it");
        thread_run.catch_up_figures(A, &counters);
        assert_eq!((counted(), sources.total(), sources.last()), ((5, 0), 1, Tier::Queue));
        assert!(hit(&thread_run, A).is_some());
        thread_run.catch_up_figures(B, &counters);
        assert_eq!((counted(), thread_run.held()), ((6, 3), 0), "the rest of a void run is waste");
        thread_run.close_run(&counters);
        assert_eq!(counted(), (6, 3));
    }

    /// The thread run of the engine in use, and one that is put by meanwhile; other threads' are left alone.
    #[test]
    fn a_thread_publishes_what_it_has_at_each_engine() {
        let counters: [Arc<CachePadded<ThreadCounters>>; 2] = Default::default();
        let at = |engine: usize| {
            let counters = counters[engine].clone();
            let join = || ThreadState {
                counters: counters.clone(),
                cursor: Ring::new(4).cursor(0),
                scratch: Vec::new(),
            };
            with_thread_state(100 + engine as u64, true, join, |thread_run, _| {
                thread_run.fill(A, &Run::new(64, 10), Tier::Ring);
                assert!(hit(thread_run, A).is_some());
            });
        };
        at(0);
        at(1);
        std::thread::spawn(|| publish(100, A)).join().unwrap();
        assert_eq!([counters[0].issued(), counters[1].issued()], [0, 0]);
        publish(100, A);
        assert_eq!([counters[0].issued(), counters[1].issued()], [1, 0]);
        publish(101, B);
        publish(102, B);
        assert_eq!([counters[0].issued(), counters[1].issued()], [1, 1]);
        assert_eq!([counters[0].wasted.value(), counters[1].wasted.value()], [0, 9]);
    }

    #[test]
    fn a_hand_catches_up_within_its_run_and_never_goes_back() {
        let thread_run = ThreadRun::new();
        for next in [0, 1, u64::from(LONGEST), u64::MAX] {
            thread_run.catch_up(next);
            assert_eq!(thread_run.held(), 0, "an empty thread_run stays empty");
        }
        thread_run.fill(A, &Run::new(100, 10), Tier::Ring);
        for (next, then) in [(100, 100), (99, 100), (0, 100), (103, 103), (102, 103), (111, 103), (110, 110)]
        {
            thread_run.catch_up(next);
            assert_eq!((thread_run.next(), u64::from(thread_run.held())), (then, 110 - then), "told {next}");
        }
    }

    fn thread_state() -> ThreadState {
        ThreadState { counters: Arc::default(), cursor: Ring::new(4).cursor(0), scratch: Vec::new() }
    }

    #[test]
    fn a_thread_that_goes_between_two_engines_keeps_both_runs() {
        let mut taken = Vec::new();
        let mut call = |engine: u64, generation: u64, run: Option<Run>| {
            with_thread_state(engine, true, thread_state, |thread_run, _| {
                if let Some(run) = run {
                    thread_run.fill(generation, &run, Tier::Ring);
                }
                taken.extend(hit(thread_run, generation).map(Id::raw));
            });
        };
        call(1, A, Some(Run::new(100, 4)));
        call(2, B, Some(Run::new(200, 4)));
        call(1, A, None);
        call(2, B, None);
        call(3, A, None);
        call(1, A, None);
        assert_eq!(taken, [100, 200, 101, 201, 102]);
    }

    #[test]
    fn a_threads_rest_is_counted_as_waste_at_its_end() {
        let counters: Arc<CachePadded<ThreadCounters>> = Arc::default();
        let theirs = counters.clone();
        std::thread::spawn(move || {
            let join = || ThreadState {
                counters: theirs.clone(),
                cursor: Ring::new(4).cursor(0),
                scratch: Vec::new(),
            };
            with_thread_state(7, true, join, |thread_run, _| {
                thread_run.fill(A, &Run::new(64, 10), Tier::Ring);
                assert_eq!(hit(thread_run, A).map(Id::raw), Some(64));
                assert_eq!(hit(thread_run, B), None, "another generation is a miss");
            });
        })
        .join()
        .unwrap();
        assert_eq!((counters.issued(), counters.wasted.value()), (1, 9));
    }
}
