//! What an engine has done since it was built, counted in ids.
//!
//! An id comes once, `minted` or `replayed`, and goes once, `issued`, `spilled` or `wasted`; in between it is `held`.
//! Each of these is counted for itself where it happens, and none is made of the others: `minted + replayed == issued +
//! spilled + wasted.total() + held.total()` is a check of all of them. It holds to the id while nothing moves, so after
//! a clean shutdown too. While ids move the figures are read one by one, from `issued` up to `minted`, and what moved
//! meanwhile is seen twice or not at all: [`Stats::moving`] is that difference. `minted + replayed` is never less than
//! `issued + spilled + wasted`.
//!
//! **What lags.** What a thread was given out of the run in its hand (by `next_id`, `try_next_id` and `fill`) is
//! counted when the run is used up, at the thread's first call after a second, when it ends, when it calls
//! [`Engine::publish`](crate::Engine::publish), and when it stops the engine; until then it counts as held by a thread.
//! A [`Handle`](crate::Handle) is the same, and is dropped instead of ending. So `issued` is exact once each thread
//! that called has done one of these. All else is counted before the call returns. What the producer does is told at
//! the end of each of its turns.

pub(crate) mod counters;
mod latency;
pub(crate) mod published;

use std::time::Duration;

use xuid_id::Order;

pub use crate::clock::{Verdict, Verdicts};
pub use latency::{Latency, whole_ms};

/// Counters and gauges of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Ids cut out of granted windows.
    pub minted: u64,
    /// Ids taken back out of the spill after their extents were granted, with those whose records cannot be read any
    /// more.
    pub replayed: u64,
    /// Ids returned to callers: the sum of `served`.
    pub issued: u64,
    /// Ids put into the spill, those among them that were overwritten there since.
    pub spilled: u64,
    /// Ids that nobody will ever get, by cause.
    pub wasted: Wasted,
    /// Ids that are on their way.
    pub held: Held,
    /// Ids issued, by the tier that had them.
    pub served: Served,
    /// Calls that may wait and got none. A call that only tries is not counted: it comes back.
    pub refused: Refused,
    /// Windows and workers.
    pub windows: Windows,
    /// The registry.
    pub registry: RegistryStats,
    /// The spill file.
    pub spill: SpillStats,
    /// The clock.
    pub clock: ClockStats,
    /// Partitions of the ring refilled.
    pub refills: u64,
    /// Callers that are waiting for ids now.
    pub waiting: u64,
    /// How old the oldest id of the reserve is, in memory or in the spill, as of the last second; zero without one.
    pub oldest: Duration,
    /// Panics of the engine's own threads, which went on: each is a bug, of the engine or of a registry's adaptor.
    pub panics: u64,
}

impl Stats {
    /// How far the figures were apart when they were read: ids that came and were found in no place, or, if negative,
    /// in two. 0 while nothing moves.
    #[must_use]
    pub fn moving(&self) -> i64 {
        let came = self.minted + self.replayed;
        let found = self.issued + self.spilled + self.wasted.total() + self.held.total();
        came.wrapping_sub(found).cast_signed()
    }
}

/// Ids wasted, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wasted {
    /// The rest of a thread's run, voided after a second so that ids stay young, or left at its end.
    pub thread: u64,
    /// Older than `max_age` when it was to be used.
    pub expired: u64,
    /// Scraps too small to be worth a record in the spill.
    pub trimmed: u64,
    /// The spill could not take them: disk full, or failed.
    pub spill: u64,
    /// In records of a grant that could be read when they were written or found, and not any more.
    pub grant: u64,
    /// Dropped because the clock stepped as it does when a machine is resumed from a snapshot.
    pub step: u64,
    /// In the hands of the producer when it panicked.
    pub panic: u64,
}

impl Wasted {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.thread + self.expired + self.trimmed + self.spill + self.grant + self.step + self.panic
    }
}

/// Ids minted or replayed and not yet issued, each place counted for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// In the ring's slots.
    pub ring: u64,
    /// In the queue.
    pub queue: u64,
    /// With the producer, as of its last turn: extents of grants, backfilled ticks, what waits to be spilled. And on
    /// its way there: what calls for fresh ids set aside, what failed calls give back.
    pub reserve: u64,
    /// In threads' runs, those included that were hit and are not counted yet, and gathered for waiting callers.
    pub threads: u64,
}

impl Held {
    /// All places together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ring + self.queue + self.reserve + self.threads
    }
}

/// Ids issued, by the tier that had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Out of the ring.
    pub ring: u64,
    /// Out of the queue, or on their way there when a caller waited for them.
    pub queue: u64,
    /// Straight from the minter, `fresh` and `ordered` among them.
    pub minter: u64,
    /// Straight from the reserve, by a caller that waited.
    pub reserve: u64,
    /// Of `minter`: to calls for [`Order::Fresh`].
    pub fresh: u64,
    /// Of `minter`: to calls for [`Order::Ordered`].
    pub ordered: u64,
}

impl Served {
    /// All tiers together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ring + self.queue + self.minter + self.reserve
    }
}

/// Calls refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// [`NotReady`](crate::IdErrorKind::NotReady).
    pub not_ready: u64,
    /// [`Overloaded`](crate::IdErrorKind::Overloaded).
    pub overloaded: u64,
    /// [`ClockBehind`](crate::IdErrorKind::ClockBehind).
    pub clock_behind: u64,
    /// [`WindowLost`](crate::IdErrorKind::WindowLost).
    pub window_lost: u64,
    /// [`Exhausted`](crate::IdErrorKind::Exhausted).
    pub exhausted: u64,
    /// [`ShuttingDown`](crate::IdErrorKind::ShuttingDown).
    pub shutting_down: u64,
}

/// Windows and workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Windows {
    /// Workers held now, and milliseconds from now to the end of what is reserved of each.
    pub held: Vec<(u32, u64)>,
    /// Windows reserved, renewals included.
    pub reserved: u64,
    /// Milliseconds from now to the end of the window that ends first; 0 if none is held.
    pub left_ms: u64,
    /// Times a worker was left for another.
    pub switches: Switches,
    /// How long callers had no worker to mint on where the clock went back: from the reading that showed it to the
    /// moment the next worker could be minted on.
    pub switched: Latency,
}

/// Times a worker was left for another, by cause. A clock or a resumed machine lets all workers go at once, which
/// counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switches {
    /// The clock went back by more than the drift that is caught up with.
    pub clock: u64,
    /// Somebody else took it.
    pub lost: u64,
    /// Its record is damaged, absent, or went back.
    pub unreadable: u64,
    /// The clock leapt as it does when a machine is resumed from a snapshot: another copy may hold it, too.
    pub resumed: u64,
    /// The registry showed that a copy of this machine runs: another process wrote with this one's token. Until then both
    /// may have issued the same ids.
    pub copied: u64,
}

impl Switches {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.clock + self.lost + self.unreadable + self.resumed + self.copied
    }
}

/// How it stands with the connection to a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Requests are answered.
    #[default]
    Connected,
    /// The connection is lost; the session may go on.
    Away,
    /// The session ended; another one is being made.
    Expired,
    /// It answers, and may not be used: restored and not fenced, fenced just now, another cluster, no rights.
    Refused,
}

/// The registry, as this engine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// How it stands.
    pub state: ConnectionState,
    /// How long it has not answered, as its adaptor or the last jobs say; zero while it answers.
    pub away: Duration,
    /// Why, while it is away.
    pub problem: Option<String>,
    /// Sessions made, where it has any.
    pub sessions: u64,
    /// Sessions that ended against our will.
    pub expirations: u64,
    /// Times the connection was lost.
    pub disconnects: u64,
    /// Compare-and-sets lost to somebody else.
    pub conflicts: u64,
    /// Writes whose outcome was unknown at first.
    pub unknown: Unknown,
    /// How long it took to take a worker.
    pub claims: Latency,
    /// How long it took to renew a window.
    pub renewals: Latency,
    /// How long it took to move a spill's mark.
    pub marks: Latency,
}

/// Writes whose outcome was unknown at first, by what came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unknown {
    /// A re-read showed that they had been stored.
    pub ours: u64,
    /// A re-read showed that they had not.
    pub not_ours: u64,
    /// Nobody could look yet, or will: nothing was granted by them. What came out later is counted above instead.
    pub doubt: u64,
}

impl Unknown {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ours + self.not_ours + self.doubt
    }
}

/// The spill file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpillStats {
    /// Whether there is one in use.
    pub active: bool,
    /// If not, why.
    pub why_not: Option<String>,
    /// Extents that may still be granted.
    pub extents: u64,
    /// Ids in them.
    pub ids: u64,
    /// Ids found at the start that an earlier life had left.
    pub inherited: u64,
    /// Extents granted since the start.
    pub granted: u64,
    /// Records found damaged and skipped.
    pub damaged: u64,
    /// Ids overwritten unused because the file was full.
    pub overwritten: u64,
    /// Spill files set aside as refused since the start.
    pub refused: u64,
    /// Appends or syncs that failed.
    pub failures: u64,
}

/// The clock as the supervisor sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStats {
    /// What it thinks of the clocks now.
    pub verdict: Verdict,
    /// How often each verdict was entered.
    pub entered: Verdicts,
    /// How far the engine's clock is ahead of the time it follows, in microseconds.
    pub lead_us: u64,
    /// Steps back of the wall clock that were seen.
    pub rollbacks: u64,
    /// Leaps of the wall clock forward, by more than `max_forward` against the boot clock: what was in memory was dropped.
    pub jumps: u64,
    /// How far the wall clock was behind the registry's own when that was last seen, in milliseconds; 0 if it was not.
    pub behind_registry_ms: u64,
    /// Days until the layout's time bits run out.
    pub days_left: u64,
}

/// What the engine serves now, and if it does not serve everything, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Calls of order [`Any`](crate::Order::Any) get ids: a window is held, or ids are in memory.
    pub ready: bool,
    /// Calls of order [`Fresh`](crate::Order::Fresh) get ids: a window is held, and the clock is in it.
    pub fresh: bool,
    /// Calls of order [`Ordered`](crate::Order::Ordered) get ids: as fresh ones, and engine time has passed the last
    /// ordered id.
    pub ordered: bool,
    /// What is wrong, each a sentence; also of things that do not keep anything from being served.
    pub notes: Vec<String>,
}

impl Status {
    /// Whether calls of this order get ids.
    #[must_use]
    pub fn serves(&self, order: Order) -> bool {
        match order {
            Order::Any => self.ready,
            Order::Fresh => self.fresh,
            Order::Ordered => self.ordered,
        }
    }
}
