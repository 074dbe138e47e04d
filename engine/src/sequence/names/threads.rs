//! What a thread holds of names: its run of the name that it called last, for ids in no promised order, and the segments
//! that it took ordered ids from.
//!
//! A hit of [`next_any`] is the hit of an engine: a thread-local [`ThreadRun`], whose generation is the name's word. A hit
//! of [`ordered_hit`] compares the same word, and adds one to a segment's atomic.
//!
//! # Invariants
//! - I1 only its own thread touches what is here (in a model of threads, where one thread is all of them, nothing of it runs);
//! - I2 what belongs to a generation that is not the name's is void: its rest is waste, and never used;
//! - I3 what is left of a run that is good, when its thread ends or calls many other names, goes back to the name.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::hub::Hub;
use super::named::Named;
use crate::clock::SECOND;
use crate::id::run::Run;
use crate::sequence::chain::segment::Segment;
use crate::sequence::chain::span::Span;
use crate::sequence::error::SequenceError;
use crate::sequence::numbers::{Demand, Numbers};
use crate::stats::counters::{Sources, ThreadCounters, Tier};
use crate::sys::fork_word::{GENERATION_STEP, GenerationWord, in_register};
use crate::sys::guards::Guard;
use crate::tiers::thread_run::ThreadRun;

/// The longest run that a thread takes, as long as an engine's: at a third of a nanosecond an id it lasts ten times as long
/// as taking it does, some 130 ns.
const LONGEST_RUN: u64 = 4_096;

/// A run that was used up faster than this makes the next one twice as long.
const FAST: u64 = SECOND / 10_000;

/// One that lasted longer makes it half as long.
const SLOW: u64 = SECOND / 100;

/// Names a thread remembers a run of.
const REMEMBERED: usize = 16;

/// Segments a thread remembers.
const SLOTS: usize = 16;

/// A name that this thread took runs of.
struct KnownName {
    named: Arc<Named>,
    hub: Arc<Hub>,
    /// Its run while another name's is in use.
    stashed: ThreadRun,
    runs: Runs,
}

/// How a thread takes runs of a name.
pub(crate) struct Runs {
    counters: Arc<CachePadded<ThreadCounters>>,
    segment: Option<Arc<Segment>>,
    /// Of what generation the segment is.
    generation: u64,
    /// How long the next run is to be.
    length: u64,
    /// Boot time at which the last one was taken.
    taken_at: u64,
}

#[derive(Default)]
struct KnownNames(Vec<KnownName>);

/// A segment that this thread took ordered ids from.
struct Slot {
    generation: Cell<u64>,
    segment: RefCell<Option<Arc<Segment>>>,
}

impl Slot {
    /// The segment, with the borrow's flag read and not written: two stores beside the one locked instruction of a hit
    /// cost up to half of its speed.
    ///
    /// # Safety
    /// While the reference lives, this thread does not [`remember`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "this is the path of an ordered hit")]
    #[expect(unsafe_code, reason = "a borrow that is not written down")]
    unsafe fn segment(&self) -> Option<&Segment> {
        // SAFETY: only this thread has the slot (I1), and only `remember` writes the cell, which the caller rules out.
        unsafe { self.segment.try_borrow_unguarded() }.ok()?.as_deref()
    }
}

/// What a slot has for a generation whose segment is used up. Generations are multiples of [`GENERATION_STEP`], and zero is
/// what a forked child reads.
const FORGOTTEN: u64 = 1;

thread_local! {
    /// The run of the name used last by this thread. Const and without a destructor, so that a hit is a plain load.
    static RUN: ThreadRun = const { ThreadRun::new() };
    static KNOWN: RefCell<KnownNames> = const { RefCell::new(KnownNames(Vec::new())) };
    static SEGMENTS: [Slot; SLOTS] =
        const { [const { Slot { generation: Cell::new(FORGOTTEN), segment: RefCell::new(None) } }; SLOTS] };
}

/// The next id of the thread's run, if that is this name's and not empty.
#[inline(always)]
#[expect(clippy::inline_always, reason = "this is the whole hit path; a call would cost more than its body")]
pub(crate) fn any_hit(word: &GenerationWord) -> Option<u64> {
    RUN.try_with(|run| in_register(run).hit(word).map(xuid_id::Id::raw)).unwrap_or(None)
}

/// The next ordered id, if the thread remembers the name's segment of that generation, and that is not used up; and whether
/// the next grant is to be asked for now.
#[inline(always)]
#[expect(clippy::inline_always, reason = "this is the whole hit path; a call would cost more than its body")]
#[expect(unsafe_code, reason = "the slot's segment is read in place")]
pub(crate) fn ordered_hit(generation: u64) -> Option<(u64, bool)> {
    SEGMENTS
        .try_with(|slots| {
            let slot = &slots[place(generation)];
            if slot.generation.get() != generation {
                return None;
            }
            // SAFETY: the reference ends with this line, and to take calls nobody.
            let taken = unsafe { slot.segment() }?.take_one();
            if taken.is_none() {
                // I1 of the segment.
                slot.generation.set(FORGOTTEN);
            }
            taken
        })
        .unwrap_or(None)
}

/// So many neighbours, ordered, if the thread remembers the name's segment and that has as many; and whether the next
/// grant is to be asked for now.
#[inline]
#[expect(unsafe_code, reason = "the slot's segment is read in place")]
pub(crate) fn neighbours_hit(generation: u64, count: u64) -> Result<(Span, bool), TooFew> {
    SEGMENTS
        .try_with(|slots| {
            let slot = &slots[place(generation)];
            if slot.generation.get() != generation {
                return Err(TooFew::default());
            }
            // SAFETY: the reference ends in this closure, which calls the segment's own functions alone.
            let segment = unsafe { slot.segment() }.ok_or(TooFew::default())?;
            // Looked at before it is taken of: the end of a segment goes to neighbours together with its successor.
            if segment.left() < count {
                return Err(TooFew::default());
            }
            let Some(taken) = segment.take(count) else {
                // I1 of the segment.
                slot.generation.set(FORGOTTEN);
                return Err(TooFew::default());
            };
            if taken.span.count == count {
                return Ok((taken.span, taken.asks));
            }
            Err(TooFew { part: Some(taken.span), generation })
        })
        .unwrap_or(Err(TooFew::default()))
}

/// What a thread got instead of so many neighbours: a part, which is to be given back, where other threads took of the
/// segment in the very moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TooFew {
    part: Option<Span>,
    generation: u64,
}

impl TooFew {
    pub(crate) fn give_back(self, named: &Named) {
        if let Some(part) = self.part {
            named.undo(part, self.generation);
        }
    }
}

/// Names that were made one after the other have places of their own.
fn place(generation: u64) -> usize {
    (generation / GENERATION_STEP) as usize % SLOTS
}

/// The thread takes its next ordered ids of this segment. The generation was read before the segment was looked up.
pub(crate) fn remember(generation: u64, segment: Option<Arc<Segment>>) {
    // Zero is what a forked child reads.
    if generation == 0 || segment.is_none() {
        return;
    }
    let before = SEGMENTS.try_with(|slots| {
        let slot = &slots[place(generation)];
        slot.generation.set(generation);
        slot.segment.replace(segment)
    });
    // After the slot is whole: it may be the last owner.
    drop(before);
}

/// An id in no promised order for a thread whose run is another name's, or void, or used up.
pub(crate) fn next_any(hub: &Arc<Hub>, named: &Arc<Named>, wait: Duration) -> Result<u64, SequenceError> {
    hub.check_open()?;
    let found = KNOWN.try_with(|known| {
        let mut known = known.try_borrow_mut().ok()?;
        let forgotten = known.enter(hub, named);
        let result = RUN.with(|run| match run.hit(&named.word) {
            Some(id) => Some(id.raw()),
            None => known.0[0].runs.restock(run, hub, named),
        });
        drop(known);
        // After the borrow: it may be the last owner of another name, and more.
        drop(forgotten);
        // What comes back of it may serve another call, whose waker forks.
        result.filter(|_| !hub.forked())
    });
    if let Ok(Some(id)) = found {
        return Ok(id);
    }
    // In a thread that is ending, and where nothing is held: one id, and no run.
    let (numbers, _) = hub.take_blocking(named, Demand::any(1), wait)?;
    Ok(numbers.first().map_or(0, Numbers::first))
}

/// Counts what this thread took out of its runs so far.
pub(crate) fn publish(hub: &Arc<Hub>) {
    if hub.forked() {
        return;
    }
    let _ = KNOWN.try_with(|known| {
        let Ok(known) = known.try_borrow() else { return };
        for (place, name) in known.0.iter().enumerate().filter(|(_, name)| Arc::ptr_eq(&name.hub, hub)) {
            let generation = name.named.word.load();
            let settle = |run: &ThreadRun| run.catch_up_figures(generation, &name.runs.counters);
            if place == 0 { RUN.with(settle) } else { settle(&name.stashed) }
        }
    });
}

impl KnownNames {
    /// Takes the run in use back to the name it belongs to, or the first name's run into use.
    fn stash(&mut self) {
        if let Some(known) = self.0.first() {
            let _ = RUN.try_with(|run| run.swap(&known.stashed));
        }
    }

    /// Makes a name the first, its run the one in use. Returns what is forgotten for it.
    fn enter(&mut self, hub: &Arc<Hub>, named: &Arc<Named>) -> Option<KnownName> {
        if self.0.first().is_some_and(|known| Arc::ptr_eq(&known.named, named)) {
            return None;
        }
        self.stash();
        let known = match self.0.iter().position(|known| Arc::ptr_eq(&known.named, named)) {
            Some(at) => self.0.remove(at),
            None => KnownName {
                named: named.clone(),
                hub: hub.clone(),
                stashed: ThreadRun::new(),
                runs: Runs::join(named),
            },
        };
        let forgotten = if self.0.len() >= REMEMBERED { self.0.pop() } else { None };
        self.0.insert(0, known);
        // Stashing swaps the run in use with the stashed one; doing it again brings ours in.
        self.stash();
        forgotten
    }
}

impl Drop for KnownNames {
    fn drop(&mut self) {
        self.stash();
    }
}

impl Drop for KnownName {
    fn drop(&mut self) {
        self.runs.leave(&self.stashed, &self.hub, &self.named);
    }
}

impl Runs {
    pub(crate) fn join(named: &Named) -> Self {
        let (counters, _) = named.threads().join();
        Self { counters, segment: None, generation: 0, length: 1, taken_at: 0 }
    }

    pub(crate) fn counters(&self) -> &ThreadCounters {
        &self.counters
    }

    /// Fills a run that is empty or void, and takes an id of it; `None` if nothing is held, or ids of this name do not
    /// come in runs of neighbours.
    pub(crate) fn restock(&mut self, run: &ThreadRun, hub: &Hub, named: &Arc<Named>) -> Option<u64> {
        run.close_run(&self.counters);
        // Before the ids are taken: a run that is voided while it is on its way is wasted, and not kept.
        let generation = named.word.load();
        if generation == 0 || !named.has_runs() {
            return None;
        }
        let span = self.pull(generation, hub, named)?;
        // In the line of a leap, when the next grant was asked for.
        if hub.forked() {
            return None;
        }
        self.counters.taken.add(span.count);
        // A leap that showed when the next grant was asked for: the ids may have been taken before.
        let is_void = named.word.load() != generation && Guard::LeapWastesHit.holds();
        if span.increment != 1 || is_void {
            // Or its increment changed in the store: the thread has one id, and the rest goes back.
            let kept = u64::from(!is_void);
            self.counters.issue(Tier::Ring, kept);
            self.counters.returned.add(span.count - kept);
            named.give_back_now(span.after(kept), generation);
            // What goes back may serve another call, whose waker forks.
            return (!is_void && !hub.forked()).then_some(span.first);
        }
        run.fill(generation, &Run::new(span.first, span.count as u32), Tier::Ring);
        Some(run.take_one().raw())
    }

    /// Takes the ids of the next run: without a lock, if the thread knows the segment.
    fn pull(&mut self, generation: u64, hub: &Hub, named: &Arc<Named>) -> Option<Span> {
        self.adapt(hub.now());
        if self.generation != generation || named.has_loose() {
            self.segment = None;
        }
        let known = self.segment.as_ref();
        if let Some(taken) = known.and_then(|segment| segment.take(self.length.min(segment.share()))) {
            if taken.asks {
                hub.ask_next(named);
            }
            return Some(taken.span);
        }
        // What is used up is not asked again: each asking counts in it.
        self.segment = None;
        let (span, segment) = hub.pull(named, self.length)?;
        (self.segment, self.generation) = (segment, generation);
        Some(span)
    }

    /// Runs grow while they are used up fast and shrink while they are not: slow callers then see dense ids, and fast ones
    /// do not meet.
    fn adapt(&mut self, boot: u64) {
        let lasted = boot.saturating_sub(self.taken_at);
        self.taken_at = boot;
        if lasted < FAST {
            self.length = (self.length * 2).min(LONGEST_RUN);
        } else if lasted > SLOW {
            self.length = (self.length / 2).max(1);
        }
    }

    /// Gives back what is left of a run that is good, and counts the rest (I2, I3).
    pub(crate) fn leave(&self, run: &ThreadRun, hub: &Hub, named: &Named) {
        // A thread that a child does not have may have held what this would lock.
        if hub.forked() {
            return;
        }
        run.publish(&self.counters);
        let generation = named.word.load();
        let left = run.left(generation);
        if left > 0 {
            let first = run.next();
            let _ = run.pull(left, &mut Sources::default());
            self.counters.returned.add(u64::from(left));
            let span = Span { first, count: u64::from(left), increment: 1 };
            named.give_back_now(Some(span), generation);
        }
        run.close_run(&self.counters);
    }
}
