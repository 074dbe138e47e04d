//! A machine's two clocks, and what scripts do to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::clock::{Clock, Reading};
use crate::sys::atomics::lock;

/// The one true time, in Unix nanoseconds, that everybody lives in and nobody can read.
#[derive(Debug)]
pub(crate) struct Time(AtomicU64);

impl Time {
    pub(crate) fn new(unix_ns: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(unix_ns)))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    /// Goes on to `unix_ns`, if it is not past it.
    pub(crate) fn reach(&self, unix_ns: u64) {
        self.0.fetch_max(unix_ns, Ordering::Relaxed);
    }
}

/// What happens to a clock, or to who reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// The wall steps by so many nanoseconds.
    Step(i64),
    /// The wall is set.
    Set(u64),
    /// The wall runs by so many parts in a million faster.
    Drift(i64),
    /// The wall stands.
    Stand,
    /// The wall goes back and forth: every `period` nanoseconds it is `by` nanoseconds later, or not.
    Swing { by: u64, period: u64 },
    /// The boot clock stands too, as where a machine is stopped and told nothing of it.
    BootStands,
    /// All is right again.
    Right,
    /// The reader is stopped for so long.
    Stop(u64),
}

#[derive(Debug)]
struct Face {
    /// The true time at which `wall` and `boot` were what they are.
    at: u64,
    wall: u64,
    boot: u64,
    drift: i64,
    stands: bool,
    boot_stands: bool,
    swing: Option<(u64, u64)>,
    /// A change that comes in the middle of somebody's work: so many readings from now.
    trap: Option<(u32, Change)>,
    /// How far ahead of the true time it was ever read, in nanoseconds.
    most_ahead: u64,
}

/// The clocks of a machine.
#[derive(Debug)]
pub(crate) struct SimClock {
    time: Arc<Time>,
    face: Mutex<Face>,
}

impl Face {
    fn settle(&mut self, now: u64) {
        let passed = now - self.at;
        if !self.stands {
            let gained = i128::from(passed) * i128::from(self.drift) / 1_000_000;
            self.wall = self.wall.saturating_add(passed).saturating_add_signed(gained as i64);
        }
        if !self.boot_stands {
            self.boot += passed;
        }
        self.at = now;
    }

    fn change(&mut self, change: Change, time: &Time) {
        self.settle(time.now());
        match change {
            Change::Step(by) => self.wall = self.wall.saturating_add_signed(by),
            Change::Set(unix_ns) => self.wall = unix_ns,
            Change::Drift(ppm) => self.drift = ppm,
            Change::Stand => self.stands = true,
            Change::Swing { by, period } => self.swing = Some((by, period)),
            Change::BootStands => self.boot_stands = true,
            Change::Right => {
                (self.drift, self.stands, self.boot_stands, self.swing) = (0, false, false, None);
                self.wall = time.now();
            }
            Change::Stop(ns) => time.pass(ns),
        }
    }
}

impl SimClock {
    pub(crate) fn new(time: Arc<Time>, boot: u64) -> Arc<Self> {
        let at = time.now();
        let face = Face {
            at,
            wall: at,
            boot,
            drift: 0,
            stands: false,
            boot_stands: false,
            swing: None,
            trap: None,
            most_ahead: 0,
        };
        Arc::new(Self { time, face: Mutex::new(face) })
    }

    pub(crate) fn change(&self, change: Change) {
        lock(&self.face).change(change, &self.time);
    }

    /// The change comes when the clocks are read for the `nth` time from now.
    pub(crate) fn set_trap(&self, nth: u32, change: Change) {
        lock(&self.face).trap = Some((nth, change));
    }

    /// No trap is set any more.
    pub(crate) fn disarm(&self) {
        lock(&self.face).trap = None;
    }

    /// How far ahead of the true time anybody ever read it, in nanoseconds.
    pub(crate) fn most_ahead(&self) -> u64 {
        lock(&self.face).most_ahead
    }

    /// The machine restarts: its boot clock begins anew.
    pub(crate) fn reboot(&self) {
        let mut face = lock(&self.face);
        face.settle(self.time.now());
        face.boot = 1_000_000_000;
    }
}

impl Clock for SimClock {
    fn read(&self) -> Reading {
        let mut face = lock(&self.face);
        match &mut face.trap {
            Some((0, change)) => {
                let change = *change;
                face.trap = None;
                face.change(change, &self.time);
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        let now = self.time.now();
        face.settle(now);
        let swung = face.swing.filter(|(_, period)| now / period % 2 == 1).map_or(0, |(by, _)| by);
        let wall = face.wall.saturating_add(swung);
        face.most_ahead = face.most_ahead.max(wall.saturating_sub(now));
        Reading { wall, boot: face.boot }
    }
}
