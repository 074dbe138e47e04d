//! Cuts owned, elapsed ticks into runs. Called under the gate's lock, by the producer and by callers that found
//! ring and queue empty; it does no I/O.
//!
//! # Invariants
//! - I1 nothing is cut after it was sealed;
//! - I2 nothing is cut at a tick above engine time (U6);
//! - I3 every id that leaves a window is returned, set aside, or counted as expired: `minted` counts them all;
//! - I4 ordered ids only rise, over all held workers and switches of worker.

use std::time::Duration;

use xuid_id::{Face, Id, Layout};
use xuid_spill::Extent;

use crate::clock::engine_clock::Now;
use crate::clock::nanos;
use crate::id::run::Run;
use crate::mint::worker::{HeldWorker, Part};
use crate::registry::ownership::Window;
use crate::settings::Settings;
use crate::sys::guards::Guard;

/// How old a tick may be for `fresh`, at arrival.
const FRESH: Duration = Duration::from_millis(10);

/// How far `ordered` may lag behind the clock.
const ORDERED: Duration = Duration::from_millis(50);

/// How many first ids of a tick a rotating beginning may pass over, so that low bits are not always zero.
const OFFSETS: u32 = 64;

/// The ages, in ticks where nothing else is said, that the orders allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    /// Older than this is wasted.
    pub(crate) max: u64,
    /// `fresh` at arrival, in nanoseconds.
    pub(crate) fresh_ns: u64,
    /// `ordered` may lag this much.
    pub(crate) ordered: u64,
}

impl Ages {
    pub(crate) fn of(settings: &Settings, layout: &Layout) -> Self {
        let ticks = |duration| layout.ticks_in_ns(nanos(duration));
        Self { max: ticks(settings.max_age), fresh_ns: nanos(FRESH), ordered: ticks(ORDERED) }
    }
}

/// The minter.
pub(crate) struct Minter {
    /// Of the plots that it cuts.
    layout: Layout,
    /// The same as callers see it: ordered ids ascend there.
    shown: Layout,
    pub(crate) workers: Vec<HeldWorker>,
    turn: usize,
    aside: Vec<Extent>,
    ordered_above: u64,
    went_back: bool,
    offset: u32,
    sealed: bool,
    pub(crate) ages: Ages,
    /// Ids that left a window, by whatever way.
    pub(crate) minted: u64,
    /// Of those, ids that were too old.
    pub(crate) expired: u64,
    /// Of those, ids that were passed to the producer, callers' cuts being the rest.
    pub(crate) passed: u64,
}

/// What is left to do after the seal.
pub(crate) struct Sealed {
    /// All that was set aside, the rest of the begun tick included.
    pub(crate) extents: Vec<Extent>,
    /// Per worker, the first tick of which no id was cut.
    pub(crate) release: Vec<(u32, u64)>,
}

impl Minter {
    pub(crate) fn new(layout: Layout, ages: Ages) -> Self {
        Self {
            layout: layout.plots(),
            shown: layout,
            workers: Vec::new(),
            turn: 0,
            aside: Vec::new(),
            ordered_above: 0,
            went_back: false,
            offset: 0,
            sealed: false,
            ages,
            minted: 0,
            expired: 0,
            passed: 0,
        }
    }

    /// Holds another worker. What of its window has elapsed already (a backfill) is returned.
    pub(crate) fn add(&mut self, now: &Now, window: Window, reach: u64) -> Vec<Extent> {
        let mut held = HeldWorker::new(window, reach);
        let mut past = Vec::new();
        if let Some(tick) = now.tick {
            held.skip_to(&self.layout, tick, 0, |extent| past.push(extent));
        }
        self.count(&past);
        self.workers.push(held);
        self.pass(past)
    }

    /// A further window of a worker that is held.
    pub(crate) fn extend(&mut self, window: Window, reach: u64) {
        match self.workers.iter_mut().find(|held| held.worker == window.worker()) {
            Some(held) => {
                held.extend(window);
                held.renewing = false;
                held.reach = reach;
            }
            None if !Guard::RenewalOfHeldWorker.holds() => self.workers.push(HeldWorker::new(window, reach)),
            // The held worker ended meanwhile (a switch of worker, a leap): the window is never used.
            None => drop(window),
        }
    }

    fn count(&mut self, extents: &[Extent]) {
        self.minted += ids(extents);
    }

    /// The extents go to the producer.
    fn pass(&mut self, extents: Vec<Extent>) -> Vec<Extent> {
        self.passed += ids(&extents);
        extents
    }

    /// Whether a plot is owned and still to be cut. After the seal what is owned is handed back, to be granted to others.
    pub(crate) fn is_uncut(&self, plot: u64) -> bool {
        let parts = self.layout.decode(Id::new(plot));
        let is_uncut =
            |held: &HeldWorker| held.worker == parts.worker && held.is_uncut(parts.tick, parts.sequence);
        // A sealed one has none: they are handed back.
        self.workers.iter().any(is_uncut)
    }

    /// How many ids may be cut now.
    pub(crate) fn available(&self, now: &Now) -> u64 {
        let Some(tick) = now.tick.filter(|_| !self.sealed) else { return 0 };
        self.workers.iter().map(|held| held.available(&self.layout, tick)).sum()
    }

    /// Cuts up to `most` ids of any age.
    pub(crate) fn any(&mut self, now: &Now, part: Part, most: u32) -> Option<Run> {
        self.cut_from_workers(now, part, most, |_| true)
    }

    /// Cuts up to `most` ids of a tick not before `least`.
    pub(crate) fn fresh(&mut self, now: &Now, least: u64, part: Part, most: u32) -> Option<Run> {
        let tick = now.tick?;
        let offset = self.next_offset();
        let layout = self.layout;
        let mut aside = std::mem::take(&mut self.aside);
        let before = aside.len();
        let run = self.cut_from_workers(now, part, most, |held| {
            if held.tick() < least && held.end().is_some_and(|end| end > tick) {
                held.skip_to(&layout, tick, offset, |extent| aside.push(extent));
            }
            // Else its window ended before that, and what it has is for others.
            held.tick() >= least
        });
        self.count(&aside[before..]);
        self.aside = aside;
        run
    }

    /// Cuts up to `most` ids above every ordered id before. Only one held worker serves them, while it lasts.
    pub(crate) fn ordered(&mut self, now: &Now, most: u32) -> Option<Run> {
        let tick = now.tick.filter(|_| !self.sealed)?;
        let least = tick.saturating_sub(self.ages.ordered);
        let offset = self.next_offset();
        let floor = if Guard::OrderedAboveLast.holds() { self.ordered_above } else { 0 };
        let from = self.ordered_from(tick);
        let Self { layout, shown, workers, aside, minted, .. } = self;
        // The frontier of the held worker that served the last one is above it; another held worker's must pass it.
        let held = workers.iter_mut().find(|held| held.reaches_beyond(tick))?;
        let mut pass = |extent: Extent| {
            *minted += extent.ids();
            aside.push(extent);
        };
        if held.tick() < least {
            held.skip_to(layout, tick, offset, &mut pass);
        }
        if held.has_ids(tick) && floor > 0 && shown.face_of(held.first_id(layout)) <= shown.face_of(floor) {
            // Another held worker, or a worker taken after the clock went back: not before engine time has passed the
            // last one.
            if from > tick && Guard::OrderedRises.holds() {
                return None;
            }
            held.skip_to(layout, from, 0, &mut pass);
        }
        let run = held.cut(layout, tick, most)?;
        *minted += u64::from(run.len());
        assert!(
            shown.face_of(run.raw()) > shown.face_of(floor) || floor == 0,
            "an ordered id would not rise"
        );
        let passed = if Guard::OrderedRunWhole.holds() { run.len() } else { 1 };
        self.ordered_above = run.raw() + u64::from(passed) - 1;
        self.went_back = false;
        Some(run)
    }

    /// The first tick in which a held worker that did not serve the last ordered id has ids above it: the same tick
    /// for a higher worker where the worker is the higher field, else the next.
    fn ordered_from(&self, tick: u64) -> u64 {
        let last = self.layout.decode(Id::new(self.ordered_above));
        let held = self.workers.iter().find(|held| held.reaches_beyond(tick));
        let is_next = self.shown.face() != Face::Plain || held.is_none_or(|held| held.worker <= last.worker);
        last.tick + u64::from(is_next)
    }

    /// Nanoseconds until engine time comes to ids that are above the last ordered id, where it has to: it went back
    /// behind that, or another held worker serves now.
    pub(crate) fn ordered_waits(&self, now: &Now) -> u64 {
        let (Some(tick), last @ 1..) = (now.tick, self.ordered_above) else { return 0 };
        let from = self.ordered_from(tick);
        let held = self.workers.iter().find(|held| held.reaches_beyond(tick));
        let shown = |plot| self.shown.face_of(plot);
        let is_below =
            |held: &HeldWorker| held.has_ids(tick) && shown(held.first_id(&self.layout)) <= shown(last);
        if tick >= from || (tick == self.layout.tick_of(last) && !held.is_some_and(is_below)) {
            return 0;
        }
        self.layout.tick_to_ns(from).saturating_sub(now.ns)
    }

    /// Whether engine time went back since the last ordered id was cut.
    pub(crate) fn went_back(&self) -> bool {
        self.went_back
    }

    /// The first tick that a `fresh` call of this instant may get: none that began more than 10 ms ago, but for the
    /// one that runs.
    pub(crate) fn least_fresh(&self, now: &Now) -> u64 {
        let ago = now.ns.saturating_sub(self.ages.fresh_ns);
        let begun = self.layout.tick_at_ns(ago).unwrap_or(0);
        let least = begun + u64::from(self.layout.tick_to_ns(begun) < ago);
        least.min(now.tick.unwrap_or(0))
    }

    fn next_offset(&mut self) -> u32 {
        self.offset = (self.offset + 1) % OFFSETS;
        // A tick of fewer ids than that keeps most of them.
        self.offset % (self.layout.sequences() / 4).max(1)
    }

    fn cut_from_workers(
        &mut self,
        now: &Now,
        part: Part,
        most: u32,
        mut ready: impl FnMut(&mut HeldWorker) -> bool,
    ) -> Option<Run> {
        let tick = now.tick.filter(|_| !self.sealed)?;
        self.drop_stale(tick);
        for _ in 0..self.workers.len() {
            self.turn = (self.turn + 1) % self.workers.len();
            let held = &mut self.workers[self.turn];
            if !ready(held) {
                continue;
            }
            let most = most.min(held.bound(&self.layout, tick, part));
            if let Some(run) = held.cut(&self.layout, tick, most) {
                self.minted += u64::from(run.len());
                return Some(run);
            }
        }
        None
    }

    /// Ids that are too old are wasted where they leave the window (U7).
    fn drop_stale(&mut self, tick: u64) {
        let max_age = if Guard::AgeOfWindow.holds() { self.ages.max } else { u64::MAX };
        let oldest = tick.saturating_sub(max_age);
        for held in self.workers.iter_mut().filter(|held| held.tick() < oldest) {
            let (minted, expired) = (&mut self.minted, &mut self.expired);
            held.skip_to(&self.layout, oldest, 0, |extent| {
                *minted += extent.ids();
                *expired += extent.ids();
            });
        }
    }

    /// The first raw id that is not too old for a call that is done now, for which it may have waited long (U7).
    pub(crate) fn oldest(&self, now: &Now) -> u64 {
        let max_age = if Guard::AgeOfTicket.holds() { self.ages.max } else { u64::MAX };
        now.tick.map_or(0, |tick| tick.saturating_sub(max_age) * self.layout.stride())
    }

    /// All that elapsed (every tick before now) and all that was set aside. For the producer.
    pub(crate) fn elapsed(&mut self, now: &Now) -> Vec<Extent> {
        let mut out = std::mem::take(&mut self.aside);
        let Some(tick) = now.tick.filter(|_| !self.sealed) else { return self.pass(out) };
        let before = out.len();
        self.drop_stale(tick);
        for held in &mut self.workers {
            held.skip_to(&self.layout, tick, 0, |extent| out.push(extent));
        }
        self.count(&out[before..]);
        self.pass(out)
    }

    /// Windows of other workers were taken, since the clock went back: every held worker ends. Returns what each leaves
    /// untouched.
    pub(crate) fn switch(&mut self) -> Vec<(u32, u64)> {
        self.went_back = true;
        if !Guard::HandBackLast.holds() {
            return self.workers.iter().map(|held| (held.worker, held.untouched())).collect();
        }
        self.workers.drain(..).map(|held| (held.worker, held.untouched())).collect()
    }

    /// How many ids were set aside and not collected yet.
    pub(crate) fn aside_ids(&self) -> u64 {
        ids(&self.aside)
    }

    /// What was set aside and not collected yet.
    pub(crate) fn take_aside(&mut self) -> Vec<Extent> {
        let aside = std::mem::take(&mut self.aside);
        self.pass(aside)
    }

    /// Ends every held worker without handing anything back: what was granted may be in another copy of this process.
    pub(crate) fn abandon(&mut self) {
        self.workers.clear();
    }

    /// The last cut: everything up to now, after which nothing is cut any more.
    pub(crate) fn seal(&mut self, now: &Now) -> Sealed {
        if !Guard::SealFirst.holds() {
            let release = self.workers.iter().map(|held| (held.worker, held.untouched())).collect();
            return Sealed { extents: self.take_aside(), release };
        }
        let layout = self.layout;
        let mut extents = std::mem::take(&mut self.aside);
        let before = extents.len();
        if let Some(tick) = now.tick.filter(|_| !self.sealed) {
            for held in &mut self.workers {
                held.skip_to(&layout, tick + 1, 0, |extent| extents.push(extent));
            }
        }
        self.count(&extents[before..]);
        self.sealed = true;
        let release = self.workers.drain(..).map(|held| (held.worker, held.untouched())).collect();
        Sealed { extents: self.pass(extents), release }
    }
}

fn ids(extents: &[Extent]) -> u64 {
    extents.iter().map(Extent::ids).sum()
}
