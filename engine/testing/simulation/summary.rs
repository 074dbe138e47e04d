//! What happened, in figures: a simulation in which nothing goes wrong proves nothing.

use crate::stats::Stats;
use crate::testing::campaigns::Tally;

/// Each of these was met in a few thousand histories, so that the absence of failures means something. The first of
/// them were in a few hundred.
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

/// Takes the figures of a life that is over.
pub(crate) fn take_in(tally: &mut Tally, stats: &Stats, ordered: bool) {
    for (what, times) in [
        ("switches of worker", stats.windows.switches.clock),
        ("workers lost to somebody else", stats.windows.switches.lost),
        ("workers whose record was unreadable", stats.windows.switches.unreadable),
        ("leaps", stats.clock.jumps),
        ("steps back", stats.clock.rollbacks),
        ("unknown outcomes", stats.registry.unknown.total()),
        ("unknown outcomes that were ours", stats.registry.unknown.ours),
        ("conflicts", stats.registry.conflicts),
        ("ids from a spill", stats.replayed),
        ("damaged extents", stats.spill.damaged),
        ("overwritten ids", stats.spill.overwritten),
        ("spills refused or given up", stats.spill.refused + stats.spill.failures),
        ("lives with ordered ids", u64::from(ordered)),
    ] {
        tally.trouble(what, times);
    }
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
        tally.waste(cause, ids);
    }
}

/// `all`: rare ones too.
pub(crate) fn check_that_enough_went_wrong(tally: &Tally, all: bool) {
    for what in &WANTED[..if all { WANTED.len() } else { FREQUENT }] {
        assert!(tally.notes.contains_key(*what), "no history had any {what}");
    }
    for code in &REFUSALS[..if all { REFUSALS.len() } else { REFUSALS.len() - 1 }] {
        assert!(tally.refusals.contains_key(*code), "no call was refused with {code}");
    }
}
