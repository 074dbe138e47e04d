//! From readings of two clocks to engine time.
//!
//! Pure: it reads no clock, waits for nothing and knows no worker. The thread that mints calls it, under one lock,
//! with each [`Reading`] in the order in which they were taken.
//!
//! Three lines run through the readings. The *believed* time is the wall, except while a leap forward is held: then it
//! goes on from where it was by boot time. The *ceiling* is the latest time it can be if the boot clock is right; a
//! wall far above it has leapt. *Engine time* is what ids are stamped with: it follows the believed time forward and
//! lets it catch up after a step back. The lead is engine time minus the believed time, one number, however many steps
//! made it.
//!
//! | lead | verdict | engine time |
//! |---|---|---|
//! | 0 | `Steady` | is the wall |
//! | up to `rollback_wait` | `Stand` | stands |
//! | up to `drift` | `CatchUp` | runs at 9/10 of boot time, until the lead is gone |
//! | more | `Behind` | stands; only [`Supervisor::switched`] takes it back |
//! | up to `drift`, and a leap is held | `Ahead` | follows the believed time, so boot time |
//!
//! # Invariants
//! - S1 engine time goes back only in [`Supervisor::switched`];
//! - S2 between two readings engine time passes neither the wall nor the boot time that went by: it ends at most at the
//!   later of `engine time + elapsed` and the wall;
//! - S3 a wall more than `max_forward` above the ceiling moves neither engine time nor the ceiling until it stood there
//!   for `settle`, or the second clock agrees;
//! - S4 no reading, whatever is in it, panics or overflows;
//! - S5 a wall that goes forward by more than `max_forward` more than boot time, and than the clocks may drift apart,
//!   between two readings is a leap. It does not matter what was believed, held or told by the second clock before.
//!
//! A wall that runs fast in many steps of less than `max_forward` is followed: to tell it from the truth
//! takes a second clock, and what it could burn is bounded by the windows, which end near the registry's time.

use super::{Course, Reading, Verdict};

#[cfg(test)]
mod tests;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// What two readings may differ by without a step: the wall is read somewhere within a bracket of 1 ms of boot time.
const NOISE: u64 = MS;

/// Boot time over this is what wall and boot may drift apart by slewing. Linux slews both clocks alike; elsewhere
/// a wall is slewed by at most 500 ppm of frequency and 500 ppm of `adjtime`, together one part in a thousand.
const SLEW: u64 = 1_000;

/// While it catches up, engine time gives up one part in this many of boot time.
const CATCH_UP: u64 = 10;

/// From where on the supervisor changes its mind; all in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Up to this lead engine time just stands. Too large, and callers wait for it. Defaults to 15 ms.
    pub rollback_wait: u64,
    /// Up to this lead engine time runs slowly instead; a leap second fits. Too small, and leap seconds cost a switch
    /// of worker; too large, and ids look younger than they are for ten times as long. Defaults to 1 s.
    pub drift: u64,
    /// A wall further ahead of boot time than this is not followed. Defaults to 5 s.
    pub max_forward: u64,
    /// A leap forward that stood this long is believed, if there is no second clock. Defaults to 60 s.
    pub settle: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { rollback_wait: 15 * MS, drift: SECOND, max_forward: 5 * SECOND, settle: 60 * SECOND }
    }
}

/// The outcome of one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Engine time, in Unix nanoseconds.
    pub now: u64,
    /// What is thought of the clocks.
    pub verdict: Verdict,
    /// In this very reading the believed time was seen to step back, by more than noise and slewing explain.
    pub rollback: bool,
    /// In this very reading the wall was seen to leap forward, against boot time, by more than `max_forward`. It may be
    /// followed all the same, where engine time was ahead or a second clock agrees: the machine may have been resumed
    /// from a snapshot. A second clock that says the wall is ahead is no such leap: nothing happened to this machine.
    pub jump: bool,
    /// The verdict is of another kind than that of the reading before.
    pub changed: bool,
}

/// Engine time and what it is made of. Pure: readings go in, verdicts come out.
///
/// The thread that mints calls it, under one lock, with each [`Reading`] in the order in which they were taken.
///
/// ```
/// use xuid_engine::clock::{Reading, Supervisor, Thresholds, Verdict};
/// const MS: u64 = 1_000_000;
/// let wall = 1_793_000_000_000 * MS;
/// let mut supervisor = Supervisor::new(Thresholds::default(), Reading { wall, boot: 0 });
/// let seen = supervisor.observe(Reading { wall: wall - 10 * MS, boot: 0 });
/// assert_eq!((seen.now, seen.verdict), (wall, Verdict::Stand { lead: 10 * MS }));
/// let seen = supervisor.observe(Reading { wall: wall + 2 * MS, boot: 12 * MS });
/// assert_eq!((seen.now, seen.verdict), (wall + 2 * MS, Verdict::Steady));
/// ```
#[derive(Clone, Debug)]
pub struct Supervisor {
    thresholds: Thresholds,
    last: Reading,
    /// Boot time seen to go by since the start; unlike the reading it can only grow.
    ran: u64,
    /// Engine time.
    now: u64,
    believed: u64,
    ceiling: u64,
    leap: Option<Leap>,
    /// Engine time has been running slowly since the last reading.
    catching_up: bool,
    /// There is a second clock; then time alone is no reason to believe a leap.
    seconded: bool,
    course: Course,
}

/// A leap forward that is not believed yet.
#[derive(Clone, Copy, Debug)]
struct Leap {
    /// The wall when it was seen.
    wall: u64,
    /// `Supervisor::ran` then.
    since: u64,
}

impl Supervisor {
    /// A supervisor whose engine time is the wall of its first reading: there is nothing yet to doubt it by.
    #[must_use]
    pub fn new(thresholds: Thresholds, first: Reading) -> Self {
        Self {
            thresholds,
            last: first,
            ran: 0,
            now: first.wall,
            believed: first.wall,
            ceiling: first.wall,
            leap: None,
            catching_up: false,
            seconded: false,
            course: Course { since: first.boot, ..Course::default() },
        }
    }

    /// Engine time as of the last reading, in Unix nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Takes one reading. It must not be older than the one before.
    pub fn observe(&mut self, reading: Reading) -> Observation {
        // A boot clock that stands or goes back says nothing about how long it was: count nothing.
        let elapsed = reading.boot.saturating_sub(self.last.boot);
        let lead = self.now.saturating_sub(self.believed);
        let expected = self.believed.saturating_add(elapsed);
        let steady = self.last.wall.saturating_add(elapsed).saturating_add(elapsed / SLEW);
        let jump = reading.wall > steady.saturating_add(self.thresholds.max_forward);
        self.last = reading;
        self.ran = self.ran.saturating_add(elapsed);
        self.ceiling = self.ceiling.saturating_add(elapsed).saturating_add(elapsed / SLEW);

        self.judge(reading.wall);
        self.believed = if self.leap.is_some() { expected } else { reading.wall };
        let rollback = self.believed < expected.saturating_sub(NOISE + elapsed / SLEW);
        let verdict = self.advance(lead, elapsed);
        debug_assert!(self.now >= self.believed, "S1: engine time is never behind what it follows");
        let changed = self.course.note(verdict, reading.boot);
        Observation { now: self.now, verdict, rollback, jump, changed }
    }

    /// The verdict of the last reading, since when it is, and how often each was entered.
    #[must_use]
    pub fn course(&self) -> Course {
        self.course
    }

    /// Takes a sample of another clock: at the boot time of `at` it showed `unix_ns`.
    ///
    /// It shows with the next reading. A held leap that is not more than `max_forward` ahead of the sample is believed,
    /// and nothing else makes a leap believed from now on. A wall further ahead of it counts as a leap. In the first
    /// sample that goes for what was believed from the start, too: engine time is then ahead of the other clock's time,
    /// the verdict `Behind`, and [`switched`](Self::switched) takes engine time to that time. Later samples leave
    /// engine time alone: it goes on by boot time.
    pub fn second_clock(&mut self, unix_ns: u64, at: Reading) {
        let age = self.last.boot.saturating_sub(at.boot);
        let sample = if self.last.boot >= at.boot {
            unix_ns.saturating_add(age)
        } else {
            unix_ns.saturating_sub(at.boot - self.last.boot)
        };
        // How far the clocks may have drifted apart since does not count against the wall.
        let latest = sample.saturating_add(age / SLEW);
        let refuted = self.last.wall > latest.saturating_add(self.thresholds.max_forward);
        if refuted && !self.seconded && sample < self.believed {
            self.believed = sample;
            // The lead is another one now, and engine time has not been wearing it off.
            self.catching_up = false;
        }
        // A wall that is followed and not refuted needs no other ceiling than its own.
        if refuted || self.leap.is_some() {
            self.ceiling = latest;
        }
        self.seconded = true;
    }

    /// A worker whose mark is not ahead of the believed time was taken: engine time goes to that time, which is the
    /// wall, or while a leap is held the time by boot. The one place where engine time goes back. Returns engine time.
    ///
    /// It takes no reading: a step that shows in one must be told by [`observe`](Self::observe).
    pub fn switched(&mut self) -> u64 {
        self.now = self.believed;
        self.ceiling = self.believed;
        self.catching_up = false;
        self.now
    }

    /// Decides whether the wall is followed.
    fn judge(&mut self, wall: u64) {
        let Thresholds { max_forward, settle, .. } = self.thresholds;
        if wall <= self.ceiling.saturating_add(max_forward) {
            self.leap = None;
            return;
        }
        let standing = self.leap.filter(|leap| leap.stands(wall, self.ran, max_forward));
        let leap = *self.leap.insert(standing.unwrap_or(Leap { wall, since: self.ran }));
        if !self.seconded && self.ran - leap.since >= settle {
            self.leap = None;
        }
    }

    /// Moves engine time towards the believed time. `lead` is what engine time was ahead by at the last reading.
    fn advance(&mut self, lead: u64, elapsed: u64) -> Verdict {
        let Thresholds { rollback_wait, drift, .. } = self.thresholds;
        // The lead if engine time stood since the last reading. No caller has seen a later engine time, so a step back
        // that fell into the time between costs no more than this.
        let stood = self.now.saturating_sub(self.believed);
        let catches_up = stood > 0 && stood <= drift && (self.catching_up || stood > rollback_wait);
        let left = if catches_up && self.catching_up {
            // Rounded up, so that ever so frequent readings still wear the lead off.
            let given_up = elapsed.div_ceil(CATCH_UP);
            // Never more than engine time gains at 9/10 of boot time, nor more than a steady wall would have left.
            let ran = stood.saturating_add(elapsed - given_up);
            ran.min(lead.saturating_sub(given_up)).max(stood)
        } else {
            stood
        };
        self.catching_up = catches_up;
        self.now = self.believed.saturating_add(left);
        if left == 0 && self.leap.is_none() {
            self.ceiling = self.believed;
        }
        match left {
            _ if left > drift => Verdict::Behind { lead: left },
            _ if self.leap.is_some() => Verdict::Ahead { by: self.last.wall.saturating_sub(self.ceiling) },
            0 => Verdict::Steady,
            _ if catches_up => Verdict::CatchUp { lead: left },
            _ => Verdict::Stand { lead: left },
        }
    }
}

impl Leap {
    /// Whether `wall` is the same leap, boot time having gone on to `ran`.
    fn stands(&self, wall: u64, ran: u64, max_forward: u64) -> bool {
        let passed = ran - self.since;
        let expected = self.wall.saturating_add(passed);
        wall.abs_diff(expected) <= max_forward.saturating_add(passed / SLEW)
    }
}
