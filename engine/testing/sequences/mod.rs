//! Named sequences under scripts of misfortune: the real code of two or three nodes, in one thread, in simulated time.
//!
//! The nodes share a database of two hosts, of which one follows the other late, and a registry's records, or each host's folder
//! has records of its own. Requests and answers of both are lost or come late; hosts are away, fail over, are both written to, and are put back to old dumps;
//! processes are stopped, or die, also in the middle of any call of the store or of the records; files of leftovers are put
//! back, and folders copied; clocks leap, as in a copy of a machine that is resumed. In the middle of a call, calls
//! and turns of other nodes go on.
//!
//! # What is checked
//! - no number of a name comes twice, over all nodes and lives, nor one that the node was not granted, that does not fit
//!   the name's settings, or that was held before a leap which the process has seen;
//! - ordered ids ascend at a node in one life, strict ones over all nodes, and a contiguous call gets one run;
//! - what is held keeps to the bound of a crash ([`pace`](crate::sequence));
//! - after a clean stop the books are exact, and as many were issued as callers got;
//! - when all is right again, each node serves each name within a minute.
//!
//! A database that loses commits without a witness, and of which it is said that it does not, is the control: numbers come
//! twice.
//!
//! # How to run
//! `XUID_HISTORIES=10000 cargo test --release -p xuid-engine --lib testing::sequences`; `XUID_SEQUENCES=seed` runs one
//! history alone. It is the same history again, but for where a thread finds the segment of its last ordered id at hand:
//! that depends on generations, of which the process has one counter.

mod node;
mod oracle;
mod script;
mod world;

use std::time::Duration;

use crate::sys::guards::Guard;
use crate::testing::campaigns::Tally;
use crate::testing::simulation::{number, seed};
use crate::testing::support::rng::Rng;

/// Nodes at most.
const NODES: usize = 3;

/// How long what is held of a name shall last.
const HOLD: Duration = Duration::from_mins(1);

/// The most ids that one grant is asked for.
const STEP_MAX: u64 = 400;

/// Things done in a history before all gets right again.
pub(crate) const STEPS: u64 = 400;

/// What the database is, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It loses what it likes, and a witness is asked.
    Witness,
    /// It never goes back, as a registry's records do not.
    Faithful,
    /// It fails over to a host that lost commits, waits for a fence, and there is no witness.
    Identity,
    /// It is put back to what it was, under the same identity; there is one node, in one life, and no witness.
    Alone,
    /// It fails over, or is put back to what it was before each host was granted numbers of each name, and waits for a fence.
    /// Each host has a witness of its own, as by default beside a registry in a folder.
    Hosts,
    /// It loses what it likes, there is no witness, and nobody waits for anything: the control.
    Lossless,
}

impl Mode {
    /// It is put back to what it was, under the same identity, and waits for a fence.
    pub(crate) fn is_put_back(self) -> bool {
        matches!(self, Self::Alone | Self::Hosts)
    }

    /// What was lost is noticed, and closes the names until a fence.
    pub(crate) fn is_closed_by_loss(self) -> bool {
        matches!(self, Self::Identity | Self::Alone | Self::Hosts)
    }
}

/// The mode of a history.
fn mode(seed: u64) -> Mode {
    match Rng::new(!seed).below(12) {
        0..=4 => Mode::Witness,
        5 => Mode::Alone,
        6..=7 => Mode::Faithful,
        8..=9 => Mode::Identity,
        _ => Mode::Hosts,
    }
}

/// Plays the history of a seed.
pub(crate) fn whole(seed: u64) -> (Tally, Result<(), String>) {
    script::play(seed, mode(seed), STEPS)
}

/// The same, for who wants the verdict alone.
pub(crate) fn verdict(seed: u64) -> Result<(), String> {
    whole(seed).1
}

/// Each of these was met in a few hundred histories, so that the absence of failures means something.
pub(crate) const WANTED: [&str; 27] = [
    "lives",
    "kills",
    "kills in a turn",
    "kills in a stop",
    "clean stops",
    "leaps",
    "ids of earlier lives",
    "ids saved",
    "grants that failed",
    "unknown outcomes of grants",
    "grants that were seen before",
    "grants of an unknown witness",
    "grants of a store that went back",
    "grants under a leap",
    "conflicts of records",
    "changes of records that landed late",
    "fail-overs",
    "nodes on another host",
    "dumps restored",
    "fences",
    "files of leftovers put back",
    "folders copied",
    "lives without records",
    "dumps restored alone",
    "dumps restored under hosts",
    "calls of forgotten names",
    "panics of adaptors",
];

#[test]
fn no_history_of_sequences_repeats_a_number() {
    if let Some(seed) = number("XUID_SEQUENCES") {
        let (tally, verdict) = whole(seed);
        println!("{:?}: {tally:#?}", mode(seed));
        return verdict.unwrap_or_else(|why| panic!("history {seed}: {why}"));
    }
    let count = number("XUID_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 2_000 });
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for n in 0..count {
        let (tally, verdict) = whole(seed(n));
        total.add(&tally);
        if let Err(why) = verdict {
            failed.push(format!("XUID_SEQUENCES={} ({:?}): {why}", seed(n), mode(seed(n))));
        }
    }
    println!("{count} histories: {total:#?}");
    failed.iter().take(20).for_each(|why| println!("{why}"));
    assert!(failed.is_empty(), "{} of {count} histories failed", failed.len());
    if count >= 300 {
        for what in WANTED {
            assert!(total.notes.contains_key(what), "no history had any {what}");
        }
    }
}

/// A dump that is put back under hosts that each know of their own grants alone.
#[test]
fn without_what_a_host_knows_of_its_own_grants_numbers_come_twice() {
    let twice = |n| script::play(seed(n), Mode::Hosts, STEPS).1.is_err_and(|why| why.contains("came twice"));
    for guard in [Guard::UnsharedIsWatched, Guard::OwnRecordIsMark, Guard::GrantAboveFloor] {
        let found = Guard::without(&[guard], || (0..2_000).find(|n| twice(*n)));
        println!("without {guard:?}: {found:?}");
        assert!(found.is_some(), "{guard:?}");
    }
}

#[test]
fn a_database_that_loses_commits_without_a_witness_repeats_numbers() {
    let twice =
        |n| script::play(seed(n), Mode::Lossless, STEPS).1.is_err_and(|why| why.contains("came twice"));
    assert!((0..50).any(twice), "the simulation is too mild");
}
