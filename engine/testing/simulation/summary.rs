//! What happened, in figures: a simulation in which nothing goes wrong proves nothing.

use std::collections::BTreeMap;

use crate::stats::Stats;
use crate::testing::campaigns::Tally;

/// What happened in one history, or in many.
#[derive(Debug, Default, Clone)]
pub(crate) struct Summary {
    pub(crate) ids: u64,
    /// Ids that came twice.
    pub(crate) duplicates: u64,
    /// Things done: turns, jobs, calls, misfortunes, times that passed.
    pub(crate) steps: u64,
    pub(crate) turns: u64,
    pub(crate) jobs: u64,
    pub(crate) calls: u64,
    pub(crate) lives: u64,
    /// What went wrong, and other things that ought to have happened, by name.
    pub(crate) troubles: BTreeMap<&'static str, u64>,
    /// Ids wasted by all lives, by cause.
    pub(crate) wasted: BTreeMap<&'static str, u64>,
    /// Calls refused, by the name of the status code.
    pub(crate) refusals: BTreeMap<&'static str, u64>,
    /// Nanoseconds from better times on until all nodes served; the longest. None if they need not.
    pub(crate) recovery: Option<u64>,
    /// Of all ids issued, in the order in which they were.
    pub(crate) digest: u64,
    /// Nanoseconds of simulated time.
    pub(crate) simulated: u64,
}

/// Each of these was met in a few thousand histories, so that the absence of failures means something. The first of them
/// were in a few hundred.
pub(crate) const WANTED: [&str; 54] = [
    "switches of worker",
    "leaps",
    "steps back",
    "unknown outcomes",
    "conflicts",
    "ids from a spill",
    "lives with ordered ids",
    "clean stops",
    "crashes",
    "power cuts",
    "kills in a start",
    "kills in a clean stop",
    "kills in a turn",
    "kills in a job",
    "kills in a call",
    "unknown outcomes that were ours",
    "kills at a reading of the clock",
    "kills at an operation of the registry",
    "kills at an operation of the spill's disk",
    "kills at an operation of the registry's disk",
    "pauses in the middle of something",
    "failures of the spill's disk",
    "failures of the registry's disk",
    "torn sectors",
    "torn sectors of a registry",
    "rotten sectors",
    "rotten sectors of a registry",
    "spills shortened",
    "damaged extents",
    "overwritten ids",
    "disks restored from a copy",
    "disks restored from another node's copy",
    "writes that landed late",
    "rivals",
    "sessions that ended",
    "records of workers that were lost",
    "marks that were lost",
    "workers whose record was unreadable",
    "restarts of the registry",
    "local registries",
    "power cuts of a host",
    "registries in memory restored and fenced",
    "local registries restored and fenced",
    "lives through a restore",
    "spills refused or given up",
    "threads",
    "handles made",
    "nodes without a worker",
    "panics of a producer",
    "panics of a registry thread",
    "grants awaited at a stop",
    "grants that a stop gave up",
    "extents left in a spill",
    "claims to be lost",
];

/// So many of [`WANTED`] are frequent.
const FREQUENT: usize = 12;

/// Refusals that have to be met as well. The last one is rare: only the layout that ends in 2035 meets it.
const REFUSALS: [&str; 5] = ["CLOCK_BEHIND", "NOT_READY", "OVERLOADED", "WINDOW_LOST", "EXHAUSTED"];

impl Summary {
    /// Something happened so many times.
    pub(crate) fn trouble(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.troubles.entry(what).or_default() += times;
        }
    }

    pub(crate) fn waste(&mut self, cause: &'static str, ids: u64) {
        if ids > 0 {
            *self.wasted.entry(cause).or_default() += ids;
        }
    }

    pub(crate) fn refuse(&mut self, code: &'static str) {
        *self.refusals.entry(code).or_default() += 1;
    }

    /// Takes the figures of a life that is over.
    pub(crate) fn take_in(&mut self, stats: &Stats, ordered: bool) {
        self.trouble("switches of worker", stats.windows.switches.clock);
        self.trouble("workers lost to somebody else", stats.windows.switches.lost);
        self.trouble("workers whose record was unreadable", stats.windows.switches.unreadable);
        self.trouble("leaps", stats.clock.jumps);
        self.trouble("steps back", stats.clock.rollbacks);
        self.trouble("unknown outcomes", stats.registry.unknown.total());
        self.trouble("unknown outcomes that were ours", stats.registry.unknown.ours);
        self.trouble("conflicts", stats.registry.conflicts);
        self.trouble("ids from a spill", stats.replayed);
        self.trouble("damaged extents", stats.spill.damaged);
        self.trouble("overwritten ids", stats.spill.overwritten);
        self.trouble("spills refused or given up", stats.spill.refused + stats.spill.failures);
        self.trouble("lives with ordered ids", u64::from(ordered));
        let wasted = &stats.wasted;
        for (cause, ids) in [
            ("thread", wasted.thread),
            ("expired", wasted.expired),
            ("trimmed", wasted.trimmed),
            ("spill", wasted.spill),
            ("grant", wasted.grant),
            ("step", wasted.step),
            ("panic", wasted.panic),
        ] {
            self.waste(cause, ids);
        }
    }

    /// `all`: rare ones too.
    pub(crate) fn check_that_enough_went_wrong(&self, all: bool) {
        for what in &WANTED[..if all { WANTED.len() } else { FREQUENT }] {
            assert!(self.troubles.contains_key(what), "no history had any {what}");
        }
        for code in &REFUSALS[..if all { REFUSALS.len() } else { REFUSALS.len() - 1 }] {
            assert!(self.refusals.contains_key(code), "no call was refused with {code}");
        }
    }

    /// As a campaign reports it.
    pub(crate) fn tally(&self) -> Tally {
        let owned = |map: &BTreeMap<&'static str, u64>| {
            map.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
        };
        let recovery = self.recovery.map(|ns| ns.div_ceil(1_000_000));
        let mut tally = Tally {
            ids: self.ids,
            duplicates: self.duplicates,
            wasted: owned(&self.wasted),
            refusals: owned(&self.refusals),
            longest_without_answer_ms: recovery.unwrap_or(0),
            notes: owned(&self.troubles),
            ..Tally::default()
        };
        tally.recovery_ms.extend(recovery.map(|ms| (ms, 1)));
        tally.note("steps", self.steps);
        tally.note("turns", self.turns);
        tally.note("jobs", self.jobs);
        tally.note("calls", self.calls);
        tally.note("lives", self.lives);
        tally.note("simulated_s", self.simulated / 1_000_000_000);
        tally
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.ids += other.ids;
        self.duplicates += other.duplicates;
        self.steps += other.steps;
        self.turns += other.turns;
        self.jobs += other.jobs;
        self.calls += other.calls;
        self.lives += other.lives;
        for (what, times) in &other.troubles {
            self.trouble(what, *times);
        }
        for (cause, ids) in &other.wasted {
            self.waste(cause, *ids);
        }
        for (code, calls) in &other.refusals {
            *self.refusals.entry(code).or_default() += calls;
        }
        self.recovery = self.recovery.max(other.recovery);
        self.simulated += other.simulated;
    }
}
