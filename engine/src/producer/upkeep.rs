//! Keeping windows: renewing them at half, taking workers, leaving them when the clock goes back.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use xuid_spill::Extent;

use super::SECOND;
use crate::clock::Verdict;
use crate::gate::{Gate, Trouble};
use crate::layout::Layout;
use crate::minter::{Minter, Now, Steps};
use crate::registrar::{Cause, Done, Job, Tally};
use crate::settings::{FIRST_WINDOW, Settings};
use crate::sync::lock;
use crate::tenure::{ExtendError, TakeError, Wish};

/// Between two tries after a failure. Long enough not to press a registry that is down, short enough that a
/// window's second half (a second at least) holds several.
const RETRY: u64 = SECOND / 5;

/// The longest wait for a worker whose mark is ahead of the clock before looking again.
const LOOK_AGAIN: u64 = SECOND;

/// The state of the windows' upkeep.
pub(crate) struct Upkeep {
    layout: Layout,
    settings: Settings,
    tally: Arc<Mutex<Tally>>,
    taking: bool,
    /// The worker that is being taken may be in use in another copy of this machine.
    void_take: bool,
    /// No worker is taken, and no window renewed, before these instants of boot time.
    take_at: u64,
    renew_at: u64,
    /// Workers whose record cannot be trusted.
    left: Vec<u32>,
    pub(crate) switches: u64,
    pub(crate) rollbacks: u64,
    pub(crate) jumps: u64,
    /// Boot time at which something is to be done, as `watch` found it.
    due: u64,
}

impl Upkeep {
    pub(crate) fn new(layout: Layout, settings: Settings, tally: Arc<Mutex<Tally>>) -> Self {
        Self {
            layout,
            settings,
            tally,
            taking: false,
            void_take: false,
            take_at: 0,
            renew_at: 0,
            left: Vec::new(),
            switches: 0,
            rollbacks: 0,
            jumps: 0,
            due: 0,
        }
    }

    fn ticks(&self, duration: std::time::Duration) -> u64 {
        self.layout.ticks_in_ns(crate::clock::nanos(duration)).max(2)
    }

    pub(crate) fn first_reach(&self) -> u64 {
        self.ticks(FIRST_WINDOW)
    }

    /// A wish for a worker whose window begins now, or earlier where a backfill is wanted.
    pub(crate) fn wish(&self, tick: u64, except: Vec<u32>) -> Wish {
        let backfill = self.layout.ticks_in_ns(crate::clock::nanos(self.settings.backfill));
        let end = (tick + self.first_reach()).min(self.layout.last_tick());
        Wish { now: tick, start: tick.saturating_sub(backfill), end, pinned: self.settings.pinned, except }
    }

    /// When something is due, in boot time.
    pub(crate) fn due(&self, boot: u64) -> u64 {
        self.due.max(boot)
    }

    /// Looks at clock and windows, and sends what is to be done.
    pub(crate) fn watch(&mut self, gate: &mut Gate, now: &Now, steps: Steps, jobs: &Sender<Job>) {
        self.rollbacks += steps.rollbacks;
        self.jumps += steps.jumps;
        if steps.rollbacks > 0 {
            tracing::warn!(verdict = ?now.seen.verdict, "the wall clock went back");
        }
        let boot = now.reading.boot;
        self.due = boot + SECOND;
        let Some(tick) = now.tick else { return };
        gate.minter.lanes.retain(|lane| !(lane.contested && lane.end().is_none()));
        match now.seen.verdict {
            Verdict::Behind { lead } => {
                gate.trouble = Some(Trouble::Behind { lead });
                let believed = self.layout.tick_at_ns(now.seen.now.saturating_sub(lead));
                if let (true, Some(believed), None) = (self.may_take(boot), believed, self.settings.pinned) {
                    let except = self.except(gate);
                    let wish = Wish { start: believed, ..self.wish(believed, except) };
                    self.take(wish, Cause::Behind, jobs);
                }
                return;
            }
            _ if matches!(gate.trouble, Some(Trouble::Behind { .. })) => gate.trouble = None,
            _ => {}
        }
        self.leave_the_future(gate, tick, jobs);
        // A contested lane serves to its window's end, and has its successor by then.
        let lasting = gate.minter.lanes.iter().filter(|lane| !lane.contested).count();
        if lasting < self.settings.workers as usize && self.may_take(boot) {
            let wish = self.wish(tick, self.except(gate));
            self.take(wish, Cause::Missing, jobs);
        }
        self.renew(gate, tick, boot, jobs);
    }

    /// The clock went back once more while a worker was being taken: a lane whose land begins beyond the clock is
    /// handed back whole, and another worker is taken.
    fn leave_the_future(&mut self, gate: &mut Gate, tick: u64, jobs: &Sender<Job>) {
        let most = tick + self.ticks(self.settings.drift);
        gate.minter.lanes.retain(|lane| {
            let near = lane.tick() <= most || lane.contested;
            if !near {
                let _ = jobs.send(Job::Release { worker: lane.worker, from: lane.untouched() });
            }
            near
        });
    }

    fn except(&self, gate: &Gate) -> Vec<u32> {
        gate.minter.lanes.iter().map(|lane| lane.worker).chain(self.left.iter().copied()).collect()
    }

    fn may_take(&self, boot: u64) -> bool {
        !self.taking && boot >= self.take_at
    }

    fn take(&mut self, wish: Wish, cause: Cause, jobs: &Sender<Job>) {
        self.taking = jobs.send(Job::Take { reach: wish.end - wish.now, wish, cause }).is_ok();
    }

    /// Renews every window of which less than half is left.
    fn renew(&mut self, gate: &mut Gate, tick: u64, boot: u64, jobs: &Sender<Job>) {
        let most = self.ticks(self.settings.window_max);
        for lane in &mut gate.minter.lanes {
            if lane.contested || lane.renewing {
                continue;
            }
            let left = lane.end().map_or(0, |end| end.saturating_sub(tick));
            // Up to a tenth early, by worker: nodes that started together do not renew together.
            let early = lane.reach / 10 * u64::from(lane.worker % 8) / 8;
            let wanted = lane.reach / 2 + early;
            if left > wanted {
                let ns = self.layout.tick_to_ns(left - wanted).saturating_sub(self.layout.tick_to_ns(0));
                self.due = self.due.min(boot + ns);
                continue;
            }
            if boot < self.renew_at {
                self.due = self.due.min(self.renew_at);
                continue;
            }
            let reach = (lane.reach * 2).min(most);
            let end = (tick + reach).min(self.layout.last_tick());
            lane.renewing = jobs.send(Job::Extend { worker: lane.worker, start: tick, end, reach }).is_ok();
        }
    }

    /// Takes in what the registrar did. Returns land that elapsed before it was granted (a backfill).
    pub(crate) fn take_in(&mut self, done: Done, gate: &mut Gate, jobs: &Sender<Job>) -> Vec<Extent> {
        if let Some((time, at)) = lock(&self.tally).time.take() {
            gate.minter.second_clock(time, at);
        }
        let now = gate.minter.now();
        match done {
            Done::Taken { result: Ok(window), .. } if self.void_take => {
                (self.taking, self.void_take) = (false, false);
                let _ = jobs.send(Job::Forget { worker: window.worker() });
                Vec::new()
            }
            Done::Taken { result: Ok(window), cause: Cause::Behind, .. }
                if !matches!(now.seen.verdict, Verdict::Behind { .. }) =>
            {
                // The clock recovered meanwhile: the workers that are held are good again.
                self.taking = false;
                let (worker, span) = window.into_parts();
                let _ = jobs.send(Job::Release { worker, from: span.start });
                Vec::new()
            }
            Done::Taken { result: Ok(window), reach, cause } => {
                self.taking = false;
                if cause == Cause::Behind {
                    self.switch(gate, jobs);
                }
                let now = gate.minter.now();
                gate.trouble = None;
                tracing::info!(worker = window.worker(), "worker taken");
                gate.minter.add(&now, window, reach)
            }
            Done::Taken { result: Err(error), .. } => {
                (self.taking, self.void_take) = (false, false);
                self.not_taken(&error, gate, now.reading.boot);
                Vec::new()
            }
            Done::Extended { result: Ok(window), reach, .. } => {
                if matches!(gate.trouble, Some(Trouble::NoWindow { .. })) {
                    gate.trouble = None;
                }
                gate.minter.extend(window, reach);
                Vec::new()
            }
            Done::Extended { worker, result: Err(error), .. } => {
                self.not_extended(worker, &error, gate, now.reading.boot);
                Vec::new()
            }
            Done::Released { worker, problem: Some(problem) } => {
                tracing::warn!(worker, problem, "the rest of the window was not handed back");
                Vec::new()
            }
            Done::Released { .. } | Done::Granted { .. } => Vec::new(),
        }
    }

    /// The clock went back and another worker was taken: E goes to the wall, and the old workers are left.
    fn switch(&mut self, gate: &mut Gate, jobs: &Sender<Job>) {
        self.switches += 1;
        for (worker, from) in gate.minter.switch() {
            // The registrar works in order, so a renewal still under way ends before this, and its window is
            // dropped when it comes back, because the lane is gone.
            let _ = jobs.send(Job::Release { worker, from });
        }
    }

    /// Leaves every worker without handing anything back, one that is being taken included: all of them may be in
    /// use in another copy of this machine.
    pub(super) fn abandon(&mut self, gate: &mut Gate, jobs: &Sender<Job>) {
        self.void_take = self.taking;
        for lane in &gate.minter.lanes {
            let _ = jobs.send(Job::Forget { worker: lane.worker });
        }
        gate.minter.abandon();
    }

    fn not_taken(&mut self, error: &TakeError, gate: &mut Gate, boot: u64) {
        let wait = if matches!(error, TakeError::NoneFree { .. }) { LOOK_AGAIN } else { RETRY };
        self.take_at = boot + wait;
        let why = explain(error, &gate.minter);
        tracing::warn!(why, "no worker was taken");
        if gate.minter.lanes.is_empty() && !matches!(gate.trouble, Some(Trouble::Behind { .. })) {
            gate.trouble = Some(Trouble::NoWindow { why });
        }
    }

    fn not_extended(&mut self, worker: u32, error: &ExtendError, gate: &mut Gate, boot: u64) {
        tracing::warn!(%error, "a window was not renewed");
        self.renew_at = boot + RETRY;
        let Some(lane) = gate.minter.lanes.iter_mut().find(|lane| lane.worker == worker) else { return };
        lane.renewing = false;
        match error {
            ExtendError::Lost { for_good, .. } => {
                // What it still has is its own; beyond that another worker is taken.
                lane.contested = true;
                if *for_good {
                    self.left.push(worker);
                }
                gate.trouble = Some(Trouble::WindowLost);
            }
            ExtendError::Later { why } => gate.trouble = Some(Trouble::NoWindow { why: why.clone() }),
        }
    }
}

/// The reason in wall time, since nobody reads ticks.
pub(crate) fn explain(error: &TakeError, minter: &Minter) -> String {
    match error {
        TakeError::Held { owner, until, .. } => {
            format!("it is held by {owner}, who reserved it until {}", minter.wall_time(*until))
        }
        TakeError::Ahead { owner, until, .. } => format!(
            "{owner} was the last to hold it and reserved it until {}, which is ahead of the clock; try again then",
            minter.wall_time(*until)
        ),
        TakeError::NoneFree { earliest } => {
            format!("no worker is free before {}", minter.wall_time(*earliest))
        }
        other => other.to_string(),
    }
}
