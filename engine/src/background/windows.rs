//! Keeping windows: renewing them at half, taking workers, leaving them when the clock goes back.
//!
//! On the producer's thread, under the gate's lock; it sends jobs to the registry thread and waits for none.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xuid_id::Layout;
use xuid_spill::Extent;

use crate::background::log_once::LogOnce;
use crate::background::registry_thread::{Cause, Done, Job};
use crate::background::retry::{RETRY, Retries, early};
use crate::clock::engine_clock::{EngineClock, Now, Steps};
use crate::clock::{SECOND, Verdict, nanos};
use crate::mint::gate::{Gate, Trouble};
use crate::mint::worker::HeldWorker;
use crate::registry::health::Tally;
use crate::registry::ownership::{ExtendError, TakeError, Window, WorkerRequest};
use crate::settings::{FIRST_WINDOW, Settings};
use crate::stats::published::WindowTally;
use crate::sys::atomics::lock;
use crate::sys::deferred_log;
use crate::sys::guards::Guard;

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// The longest wait for a worker whose mark is ahead of the clock before looking again.
const LOOK_AGAIN: u64 = SECOND;

/// A window is renewed again after such a part of what is left of it, at the soonest.
const PART_LEFT: u64 = 8;

/// How it stands with the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Answers,
    /// The last jobs were not answered.
    Silent,
    /// Its adaptor knows that there is no connection.
    Disconnected,
}

/// Keeps the windows of the workers that are held.
pub(crate) struct WindowKeeper {
    layout: Layout,
    settings: Settings,
    registry_thread: Arc<Mutex<Tally>>,
    taking: bool,
    /// Looks at the registry's clock that were not answered yet: one at a time.
    looks: u32,
    /// The worker that is being taken may be in use in another copy of this machine.
    void_take: bool,
    /// Copies of this process that the registry thread had met when it was asked last.
    pub(crate) copies: u64,
    retries: Retries,
    log_once: LogOnce,
    /// How it stood with the registry at the last look.
    standing: Standing,
    /// The first tick at which a worker is free, as the registry said last; for callers that are told to wait.
    earliest: Option<u64>,
    pub(crate) tally: WindowTally,
    /// Boot time at which something is to be done, as `watch` found it.
    due: u64,
}

impl WindowKeeper {
    pub(crate) fn new(layout: Layout, settings: Settings, registry_thread: Arc<Mutex<Tally>>) -> Self {
        Self {
            layout,
            settings,
            registry_thread,
            taking: false,
            looks: 0,
            void_take: false,
            copies: 0,
            retries: Retries::default(),
            log_once: LogOnce::default(),
            standing: Standing::Answers,
            earliest: None,
            tally: WindowTally::default(),
            due: 0,
        }
    }

    fn ticks(&self, duration: Duration) -> u64 {
        self.layout.ticks_in_ns(nanos(duration)).max(2)
    }

    /// How long so many ticks are.
    fn span_ns(&self, ticks: u64) -> u64 {
        self.layout.tick_to_ns(ticks).saturating_sub(self.layout.tick_to_ns(0))
    }

    pub(crate) fn first_reach(&self) -> u64 {
        self.ticks(FIRST_WINDOW)
    }

    /// A request for a worker whose window begins now, or earlier where a backfill is wanted.
    pub(crate) fn request(&self, tick: u64, except: Vec<u32>) -> WorkerRequest {
        let backfill = self.layout.ticks_in_ns(nanos(self.settings.backfill));
        let end = (tick + self.first_reach()).min(self.layout.last_tick());
        WorkerRequest {
            now: tick,
            start: tick.saturating_sub(backfill),
            end,
            pinned: self.settings.pinned,
            except,
        }
    }

    /// When something is due, in boot time.
    pub(crate) fn due(&self, boot: u64) -> u64 {
        self.due.max(boot)
    }

    /// Looks at clock and windows, and sends what is to be done.
    pub(crate) fn watch(&mut self, gate: &mut Gate, now: &Now, steps: Steps, jobs: &Sender<Job>) {
        self.tally.rollbacks += steps.rollbacks;
        self.tally.jumps += steps.jumps;
        let boot = now.reading.boot;
        self.due = boot + SECOND;
        self.log_once.clock(&gate.clock.course(), boot);
        let away = self.look_at_registry(boot);
        gate.minter.workers.retain(|held| !(held.contested && held.end().is_none()));
        // Before the tick is asked for: a clock that comes back from beyond the last tick is behind, too.
        if let Verdict::Behind { lead } = now.seen.verdict {
            let believed_ns = now.seen.now.saturating_sub(lead);
            let free = self.earliest.map(|tick| self.layout.tick_to_ns(tick).saturating_sub(believed_ns));
            gate.trouble =
                Some(Trouble::Behind { wait: free.map_or(lead, |free| free.max(RETRY).min(lead)) });
            let believed = self.layout.tick_at_ns(believed_ns);
            let believed = believed.filter(|tick| *tick <= self.layout.last_tick());
            leave_spent(gate, now, believed, jobs);
            let probing = away && gate.minter.workers.iter().any(|held| held.renewing);
            if !probing && self.may_take(boot, away) {
                if let (Some(believed), None) = (believed, self.settings.pinned) {
                    let except = held(gate);
                    let request = WorkerRequest { start: believed, ..self.request(believed, except) };
                    self.take(request, Cause::Behind, jobs);
                } else {
                    self.look(boot, jobs);
                }
            }
            return;
        }
        self.earliest = None;
        if matches!(gate.trouble, Some(Trouble::Behind { .. })) {
            gate.trouble = None;
        }
        let Some(tick) = now.tick else {
            // Before the epoch no window can be asked for, either.
            if self.may_take(boot, away) {
                self.look(boot, jobs);
            }
            return;
        };
        self.log_once.time_left(&self.layout, now.ns, boot);
        self.leave_the_future(gate, tick, jobs);
        // A contested held worker serves to its window's end, and has its successor by then.
        let lasting = gate.minter.workers.iter().filter(|held| !held.contested).count();
        let take = lasting < self.settings.workers as usize && self.may_take(boot, away);
        let mut ready = self.ready(gate, tick, boot, away);
        if away {
            // One job at a time, of whatever has waited longest.
            let busy = self.taking || gate.minter.workers.iter().any(|held| held.renewing);
            ready.sort_unstable();
            ready.truncate(usize::from(!busy));
            if take && !busy && ready.first().is_none_or(|(turn, _)| *turn >= self.retries.take_turn()) {
                ready.clear();
                self.take_missing(gate, tick, jobs);
            }
        } else if take {
            self.take_missing(gate, tick, jobs);
        }
        let most = self.ticks(self.settings.window_max);
        for (_, at) in ready {
            let held = &mut gate.minter.workers[at];
            let reach = (held.reach * 2).min(most);
            let end = (tick + reach).min(self.layout.last_tick());
            held.renewing = jobs.send(Job::Extend { worker: held.worker, start: tick, end, reach }).is_ok();
        }
    }

    /// There is no window to ask for, and the registry's clock may yet show that the wall is right.
    fn look(&mut self, boot: u64, jobs: &Sender<Job>) {
        if self.looks == 0 {
            self.looks += u32::from(jobs.send(Job::Look).is_ok());
        }
        self.retries.take_later(boot + LOOK_AGAIN);
    }

    /// Whether the registry is away. When its adaptor says that it is back, what failed is tried at once.
    fn look_at_registry(&mut self, boot: u64) -> bool {
        let tally = lock(&self.registry_thread);
        // A call that hangs is told of in time, although nothing else is due.
        let suspect_at = tally.health.suspect_at().filter(|at| *at > boot);
        self.due = self.due.min(suspect_at.unwrap_or(u64::MAX));
        let silent = tally.health.is_silent(boot);
        let disconnected = tally.health.is_disconnected();
        drop(tally);
        if self.standing == Standing::Disconnected && !disconnected {
            self.retries.reset();
        }
        self.standing = match silent {
            _ if disconnected => Standing::Disconnected,
            true => Standing::Silent,
            false => Standing::Answers,
        };
        silent
    }

    /// The clock went back once more while a worker was being taken: a held worker whose ticks begin beyond the clock
    /// is handed back whole, and another worker is taken.
    fn leave_the_future(&mut self, gate: &mut Gate, tick: u64, jobs: &Sender<Job>) {
        let most = tick + self.ticks(self.settings.drift);
        let before = gate.minter.workers.len();
        gate.minter.workers.retain(|held| {
            let near = held.tick() <= most || held.contested;
            if !near {
                let _ = jobs.send(Job::Release { worker: held.worker, from: held.untouched() });
            }
            near
        });
        self.tally.switches.clock += u64::from(gate.minter.workers.len() < before);
    }

    /// Whether a worker may be taken now; if not, when it is looked at again.
    fn may_take(&mut self, boot: u64, away: bool) -> bool {
        let at = self.retries.take_at(away);
        if boot < at {
            self.due = self.due.min(at);
        }
        !self.taking && boot >= at
    }

    /// Whether a window was asked for, of a registry that answered when it was asked last.
    pub(crate) fn is_asking(&self, gate: &Gate) -> bool {
        let renewing = || gate.minter.workers.iter().any(|held| held.renewing);
        self.standing == Standing::Answers && (self.taking || renewing())
    }

    fn take_missing(&mut self, gate: &Gate, tick: u64, jobs: &Sender<Job>) {
        let request = self.request(tick, held(gate));
        self.take(request, Cause::Missing, jobs);
    }

    fn take(&mut self, request: WorkerRequest, cause: Cause, jobs: &Sender<Job>) {
        self.void_take = false;
        self.taking = jobs.send(Job::Take { reach: request.end - request.now, request, cause }).is_ok();
    }

    /// The held workers whose windows may be renewed now because less than half is left, and their turns.
    fn ready(&mut self, gate: &Gate, tick: u64, boot: u64, away: bool) -> Vec<(u64, usize)> {
        let mut ready = Vec::new();
        for (at, held) in gate.minter.workers.iter().enumerate() {
            if held.contested || held.renewing {
                continue;
            }
            let end = held.end().unwrap_or(0);
            let left = end.saturating_sub(tick);
            let wanted = held.reach / 2 + early(held.worker, end, held.reach);
            let not_before = self.retries.renew_at(held.worker, away);
            let waits = self.retries.renewed_until(held.worker, boot, self.span_ns(left));
            if left > wanted {
                self.due = self.due.min(boot + self.span_ns(left - wanted));
            } else if boot < not_before {
                self.due = self.due.min(not_before);
            } else if let Some(until) = waits {
                self.due = self.due.min(until);
            } else {
                ready.push((self.retries.turn(held.worker), at));
            }
        }
        ready
    }

    /// A job was answered: another one may be sent, whatever becomes of the answer.
    pub(crate) fn heard(&mut self, done: &Done, gate: &mut Gate) {
        match done {
            Done::Taken { .. } => self.taking = false,
            Done::Extended { worker, .. } => {
                if let Some(held) = gate.minter.workers.iter_mut().find(|held| held.worker == *worker) {
                    held.renewing = false;
                }
            }
            Done::Looked => self.looks = self.looks.saturating_sub(1),
            Done::Granted { .. } | Done::Released { .. } | Done::IdentityReset => {}
        }
    }

    /// The registry thread met a copy of this process: what is held is void. Before an answer is used.
    pub(crate) fn hear_of_copies(&mut self, gate: &mut Gate) {
        let copies = lock(&self.registry_thread).copies;
        let new = copies - std::mem::replace(&mut self.copies, copies);
        if Guard::CopyVoids.holds() {
            gate.clock.note_copies(new);
        }
    }

    /// Takes in what the registry thread did, after [`heard`](Self::heard). Returns ticks that elapsed before they were
    /// granted (a backfill).
    pub(crate) fn take_in(&mut self, done: Done, gate: &mut Gate, jobs: &Sender<Job>) -> Vec<Extent> {
        self.hear_second_clock(gate);
        let now = gate.clock.now();
        // A copy of this machine may have the same answer: nothing of it is used, and nothing is handed back for it.
        // The next turn drops the rest.
        let leapt = has_leapt(gate);
        match done {
            Done::Taken { result: Ok(window), .. } if self.void_take || leapt => {
                let _ = jobs.send(Job::Forget { worker: window.worker() });
                Vec::new()
            }
            Done::Taken { result: Ok(window), cause: Cause::Behind, .. }
                if !matches!(now.seen.verdict, Verdict::Behind { .. }) =>
            {
                // The clock recovered meanwhile: the workers that are held are good again.
                self.retries.taken(window.worker());
                let (worker, span) = window.into_parts();
                let _ = jobs.send(Job::Release { worker, from: span.start });
                Vec::new()
            }
            Done::Taken { result: Ok(window), reach, cause } => {
                self.retries.taken(window.worker());
                self.taken(window, reach, cause, gate, jobs)
            }
            Done::Taken { result: Err(error), .. } => {
                self.not_taken(&error, gate, &now);
                Vec::new()
            }
            Done::Extended { worker, result: Ok(window), reach } => {
                if matches!(gate.trouble, Some(Trouble::NoWindow { .. })) {
                    gate.trouble = None;
                }
                gate.minter.extend(window, reach);
                // Where the registry's clock is behind, a window gets little at a time, and what is left is little always.
                let held = gate.minter.workers.iter().find(|held| held.worker == worker);
                let end = held.and_then(HeldWorker::end).unwrap_or(0);
                let left = self.span_ns(end.saturating_sub(now.tick.unwrap_or(end)));
                self.retries.renewed(worker, now.reading.boot + left / PART_LEFT);
                Vec::new()
            }
            Done::Extended { worker, result: Err(error), .. } => {
                self.not_extended(worker, &error, gate, now.reading.boot);
                Vec::new()
            }
            Done::Released { worker, problem: Some(problem) } => {
                deferred_log::log(move || {
                    tracing::warn!(worker, problem, "the rest of the window was not handed back");
                });
                Vec::new()
            }
            Done::Released { .. } | Done::Granted { .. } | Done::Looked | Done::IdentityReset => Vec::new(),
        }
    }

    /// Passes a sample of the registry's time on to the supervisor.
    fn hear_second_clock(&mut self, gate: &mut Gate) {
        let Some((time, at)) = lock(&self.registry_thread).time.take() else { return };
        gate.clock.second_clock(time, at);
        let behind = time.saturating_sub(at.wall);
        self.tally.behind_registry_ns = behind;
        self.log_once.behind_registry(behind, nanos(self.settings.max_forward));
    }

    /// A worker was taken, and may be minted on when this returns.
    fn taken(
        &mut self,
        window: Window,
        reach: u64,
        cause: Cause,
        gate: &mut Gate,
        jobs: &Sender<Job>,
    ) -> Vec<Extent> {
        let worker = window.worker();
        let behind_since = gate.clock.course().since;
        if cause == Cause::Behind {
            self.switch(gate, jobs);
        }
        let now = gate.clock.now();
        gate.trouble = None;
        let past = gate.minter.add(&now, window, reach);
        if cause == Cause::Behind {
            let took = Duration::from_nanos(gate.clock.now().reading.boot.saturating_sub(behind_since));
            self.tally.switched.record(took);
            deferred_log::log(move || {
                tracing::info!(
                    worker,
                    ?took,
                    "worker taken, since the clock is behind the ones that were held"
                );
            });
        } else {
            deferred_log::log(move || tracing::info!(worker, "worker taken"));
        }
        past
    }

    /// The clock went back and another worker was taken: E goes to the wall, and the old workers are left.
    fn switch(&mut self, gate: &mut Gate, jobs: &Sender<Job>) {
        self.tally.switches.clock += 1;
        let left = gate.switch();
        // After the reading that the switch made.
        let leapt = has_leapt(gate);
        for (worker, from) in left {
            // The registry thread works in order, so a renewal still under way ends before this, and its window is
            // dropped when it comes back, because the held worker is gone.
            let _ = jobs.send(if leapt { Job::Forget { worker } } else { Job::Release { worker, from } });
        }
    }

    /// Leaves every worker without handing anything back, one that is being taken included: all of them may be in
    /// use in another copy of this machine.
    /// `copied`: for certain.
    pub(super) fn abandon(&mut self, gate: &mut Gate, jobs: &Sender<Job>, copied: bool) {
        self.void_take = self.taking && Guard::LeapDropsClaim.holds();
        let switches = &mut self.tally.switches;
        if copied {
            switches.copied += 1;
            gate.trouble = Some(Trouble::WindowLost);
        } else {
            switches.resumed += u64::from(!gate.minter.workers.is_empty());
        }
        if Guard::LeapResetsIdentity.holds() {
            let _ = jobs.send(Job::ResetIdentity);
        }
        if Guard::LeapDropsWindows.holds() {
            gate.minter.abandon();
        }
    }

    fn not_taken(&mut self, error: &TakeError, gate: &mut Gate, now: &Now) {
        let boot = now.reading.boot;
        match error {
            TakeError::NoneFree { earliest } | TakeError::Ahead { until: earliest, .. } => {
                self.earliest = Some(*earliest);
                let wait = nanos(gate.clock.time_to(*earliest, now)).clamp(RETRY, LOOK_AGAIN);
                self.retries.take_later(boot + wait);
            }
            _ => self.retries.take_failed(boot),
        }
        let why = explain(error, &gate.clock);
        // While it is away it was said once that it is.
        let (answers, reason) = (self.standing == Standing::Answers, why.clone());
        deferred_log::log(move || {
            if answers {
                tracing::warn!(why = reason, "no worker was taken");
            } else {
                tracing::debug!(why = reason, "no worker was taken");
            }
        });
        if gate.minter.workers.is_empty() && !matches!(gate.trouble, Some(Trouble::Behind { .. })) {
            gate.trouble = Some(Trouble::NoWindow { why });
        }
    }

    fn not_extended(&mut self, worker: u32, error: &ExtendError, gate: &mut Gate, boot: u64) {
        let (answers, reason) = (self.standing == Standing::Answers, error.to_string());
        deferred_log::log(move || {
            if answers {
                tracing::warn!(error = %reason, "a window was not renewed");
            } else {
                tracing::debug!(error = %reason, "a window was not renewed");
            }
        });
        self.retries.renewal_failed(worker, boot);
        let Some(held) = gate.minter.workers.iter_mut().find(|held| held.worker == worker) else { return };
        held.renewing = false;
        match error {
            ExtendError::Lost { for_good, .. } => {
                // What it still has is its own; beyond that another worker is taken.
                held.contested = true;
                let switches = &mut self.tally.switches;
                if *for_good {
                    switches.unreadable += 1;
                } else {
                    switches.lost += 1;
                }
                gate.trouble = Some(Trouble::WindowLost);
            }
            // The next turn drops all that is held.
            ExtendError::Copied { .. } => held.contested = true,
            ExtendError::Later { why } => gate.trouble = Some(Trouble::NoWindow { why: why.clone() }),
        }
    }
}

/// Whether a leap was seen that no turn has dealt with.
fn has_leapt(gate: &Gate) -> bool {
    gate.clock.has_leapt() && Guard::LeapBeforeAnswers.holds()
}

/// The workers that are held.
fn held(gate: &Gate) -> Vec<u32> {
    gate.minter.workers.iter().map(|held| held.worker).collect()
}

/// While the clock is behind: a held worker without ids serves no call, and its worker may be the only one whose mark
/// the clock has passed. Beyond the last tick nothing is cut, so there a held worker may end with ticks that are past.
fn leave_spent(gate: &mut Gate, now: &Now, believed: Option<u64>, jobs: &Sender<Job>) {
    gate.minter.workers.retain(|held| {
        let past = |end: u64| now.tick.is_none() && believed.is_some_and(|tick| end <= tick);
        let spent = !held.renewing && held.end().is_none_or(past);
        if spent {
            let _ = jobs.send(Job::Forget { worker: held.worker });
        }
        !spent
    });
}

/// The reason in wall time, since nobody reads ticks.
pub(crate) fn explain(error: &TakeError, clock: &EngineClock) -> String {
    match error {
        TakeError::Held { owner, until, .. } => {
            format!("it is held by {owner}, who reserved it until {}", clock.wall_time(*until))
        }
        TakeError::Ahead { owner, until, .. } => format!(
            "{owner} was the last to hold it and reserved it until {}, which is ahead of the clock; try again then",
            clock.wall_time(*until)
        ),
        TakeError::NoneFree { earliest } => {
            format!("no worker is free before {}", clock.wall_time(*earliest))
        }
        other => other.to_string(),
    }
}
