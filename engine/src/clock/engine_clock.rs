//! The engine's clock: what the supervisor makes of the machine's clocks, in ticks of the layout. It stands under the
//! gate's lock, beside the minter, which cuts nothing above it.

use std::sync::Arc;
use std::time::Duration;

use xuid_id::Layout;

use super::{Clock, Course, Observation, Reading, Supervisor, Verdict, utc};
use crate::sys::guards::Guard;

/// The instant of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// The engine clock's tick; `None` before the epoch or past the last tick.
    pub(crate) tick: Option<u64>,
    pub(crate) ns: u64,
    pub(crate) reading: Reading,
    pub(crate) seen: Observation,
}

impl Now {
    /// Whether this very reading saw a step, or made another verdict of many small ones: the producer should look at
    /// it soon.
    pub(crate) fn stepped(&self) -> bool {
        self.seen.jump || self.seen.rollback || self.seen.changed
    }
}

/// Steps of the wall clock that the producer has not dealt with yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Steps {
    pub(crate) jumps: u64,
    /// No step: the registry showed that a copy of this process runs. What is held is as void as after a leap.
    pub(crate) copies: u64,
    pub(crate) rollbacks: u64,
    /// Verdicts of another kind.
    pub(crate) changes: u64,
}

impl Steps {
    /// Whether another copy of this process may hold what is held here.
    pub(crate) fn void(&self) -> bool {
        self.jumps + self.copies > 0
    }
}

/// The engine's clock.
pub(crate) struct EngineClock {
    layout: Layout,
    clock: Arc<dyn Clock>,
    supervisor: Supervisor,
    steps: Steps,
}

impl EngineClock {
    pub(crate) fn new(layout: Layout, clock: Arc<dyn Clock>, supervisor: Supervisor) -> Self {
        Self { layout, clock, supervisor, steps: Steps::default() }
    }

    /// Reads the clocks and moves the engine's time on.
    pub(crate) fn now(&mut self) -> Now {
        let reading = self.clock.read();
        let mut seen = self.supervisor.observe(reading);
        if !Guard::ClockBackAtSwitch.holds() && matches!(seen.verdict, Verdict::Behind { .. }) {
            self.supervisor.switched();
            seen = self.supervisor.observe(reading);
        }
        self.steps.jumps += u64::from(seen.jump);
        self.steps.rollbacks += u64::from(seen.rollback);
        self.steps.changes += u64::from(seen.changed);
        let tick = self.layout.tick_at_ns(seen.now).filter(|tick| *tick <= self.layout.last_tick());
        Now { tick, ns: seen.now, reading, seen }
    }

    /// The engine's time goes back to the wall: windows of other workers were taken.
    pub(crate) fn switch(&mut self) {
        // Noted: a step may show in this very reading.
        self.now();
        self.supervisor.switched();
    }

    /// The engine's time as of the last reading.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn last(&self) -> u64 {
        self.supervisor.now()
    }

    /// The steps seen since the last call, by any thread: a step shows in one reading only.
    pub(crate) fn take_steps(&mut self) -> Steps {
        std::mem::take(&mut self.steps)
    }

    /// Notes copies of this process that were met, as a leap is noted.
    pub(crate) fn note_copies(&mut self, copies: u64) {
        self.steps.copies += copies;
    }

    /// Whether the clock leapt, or a copy was met, and the producer has not dealt with it.
    pub(crate) fn has_leapt(&self) -> bool {
        self.steps.void()
    }

    /// Whether the clocks did something that the producer has not dealt with.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.steps.jumps + self.steps.copies + self.steps.rollbacks + self.steps.changes > 0
    }

    /// How long until the engine's time reaches a tick, if nothing steps.
    pub(crate) fn time_to(&self, tick: u64, now: &Now) -> Duration {
        Duration::from_nanos(self.layout.tick_to_ns(tick).saturating_sub(now.ns))
    }

    /// The beginning of a tick for people.
    pub(crate) fn wall_time(&self, tick: u64) -> String {
        utc(self.layout.tick_to_ms(tick))
    }

    /// The verdict on the clocks, and what came before it.
    pub(crate) fn course(&self) -> Course {
        self.supervisor.course()
    }

    /// A sample of a clock that is not this machine's.
    pub(crate) fn second_clock(&mut self, unix_ns: u64, at: Reading) {
        self.supervisor.second_clock(unix_ns, at);
    }
}
