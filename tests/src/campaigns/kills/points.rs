//! The named points of the crash-point build: where each can be reached, and after how many passes it may still strike.
//!
//! The names are the binary's own; [`check`] fails when it has others, so that none is forgotten here.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::Tally;
use crate::command::{clean, crash_points_binary};
use crate::{Rng, process};

/// Which registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Local,
    ZooKeeper,
}

/// What a life must do for its point to be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Start on an empty folder.
    Fresh,
    /// Start.
    Start,
    /// Serve under full load.
    Serve,
    /// The same, once the spill has something to give.
    Stock,
    /// Live some seconds with little to do: a window is renewed, ring and queue are turned over.
    Live,
    /// Stop cleanly.
    Stop,
    /// Lose its connection to the ensemble.
    Cut,
}

/// A point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) name: &'static str,
    /// Only one kind of registry has it.
    only: Option<Kind>,
    pub(super) reach: Reach,
    /// The last pass at which it may be armed.
    most: u64,
}

const fn both(name: &'static str, reach: Reach, most: u64) -> Point {
    Point { name, only: None, reach, most }
}

const fn only(kind: Kind, name: &'static str, reach: Reach, most: u64) -> Point {
    Point { name, only: Some(kind), reach, most }
}

/// All of them, in the order of a life.
const POINTS: [Point; 36] = [
    only(Kind::Local, "genesis-allocated", Reach::Fresh, 1),
    only(Kind::Local, "genesis-written", Reach::Fresh, 1),
    only(Kind::Local, "genesis-synced", Reach::Fresh, 1),
    only(Kind::Local, "genesis-named", Reach::Fresh, 1),
    both("seat-taken", Reach::Start, 1),
    // A claim, then a grant or a renewal, then another.
    only(Kind::Local, "copy-one-written", Reach::Live, 3),
    only(Kind::Local, "copy-one-synced", Reach::Live, 3),
    only(Kind::Local, "copy-two-written", Reach::Live, 3),
    only(Kind::Local, "copy-two-synced", Reach::Live, 3),
    only(Kind::ZooKeeper, "session-new", Reach::Start, 1),
    only(Kind::ZooKeeper, "multi-unsent", Reach::Live, 3),
    only(Kind::ZooKeeper, "multi-answered", Reach::Live, 3),
    only(Kind::ZooKeeper, "session-lost", Reach::Cut, 1),
    both("spill-created", Reach::Fresh, 1),
    both("spill-laid-out", Reach::Fresh, 1),
    both("spill-marked", Reach::Fresh, 1),
    both("spill-named", Reach::Fresh, 1),
    both("claimed", Reach::Start, 1),
    both("renewal-unsent", Reach::Live, 1),
    both("renewal-unsettled", Reach::Live, 1),
    both("window-extended", Reach::Live, 1),
    both("turned-over", Reach::Live, 3),
    both("appended", Reach::Live, 2),
    both("mark-moved", Reach::Stock, 1),
    both("extents-read", Reach::Stock, 1),
    both("ticket-answered", Reach::Serve, 100),
    both("reply-logged", Reach::Serve, 1_000),
    both("reply-part-written", Reach::Serve, 1_000),
    both("reply-written", Reach::Serve, 1_000),
    both("stop-refused", Reach::Stop, 1),
    both("stop-sealed", Reach::Stop, 1),
    both("stop-swept", Reach::Stop, 1),
    both("stop-appended", Reach::Stop, 1),
    both("stop-synced", Reach::Stop, 1),
    both("hand-back-unsent", Reach::Stop, 1),
    both("handed-back", Reach::Stop, 1),
];

/// The points that lives on this kind of registry can reach.
pub(super) fn of(kind: Kind) -> Vec<Point> {
    POINTS.into_iter().filter(|point| point.only.is_none_or(|only| only == kind)).collect()
}

impl Point {
    /// A value for the variable that arms it, at any of its passes.
    pub(super) fn arm(&self, rng: &mut Rng) -> String {
        format!("{}:{}", self.name, 1 + rng.below(self.most))
    }
}

/// Whether the binary has just these points.
pub(super) fn check() -> Result<()> {
    let mut command = clean(crash_points_binary()?);
    command.env("XUID_CRASH_POINT", "list");
    let (code, names, said) = process::run(command, Duration::from_secs(10))?;
    ensure!(code == Some(0), "the crash-point build does not list its points: {said}");
    let has: BTreeSet<&str> = names.lines().collect();
    let known: BTreeSet<&str> = POINTS.iter().map(|point| point.name).collect();
    let odd: Vec<&&str> = has.symmetric_difference(&known).collect();
    ensure!(odd.is_empty(), "known to the crash-point build or to the campaign, and not to both: {odd:?}");
    Ok(())
}

/// The points of this kind of registry at which no life of these figures was struck.
pub(super) fn never_struck(kind: Kind, tally: &Tally) -> Vec<&'static str> {
    let strikes = |point: &Point| tally.notes.get(&note(STRUCK, point)).copied().unwrap_or(0);
    of(kind).iter().filter(|point| strikes(point) == 0).map(|point| point.name).collect()
}

/// What a figure's name begins with that counts strikes at a point, and lives that were to be struck and were not.
pub(super) const STRUCK: &str = "point";
pub(super) const UNREACHED: &str = "unreached";

/// A figure's name in a tally.
pub(super) fn note(what: &str, point: &Point) -> String {
    format!("{what} {}", point.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_registry_has_some_thirty_points_of_its_own() {
        let names = |kind| of(kind).iter().map(|point| point.name).collect::<BTreeSet<_>>();
        let (local, ensemble) = (names(Kind::Local), names(Kind::ZooKeeper));
        assert_eq!((local.len(), ensemble.len()), (32, 28));
        assert!(local.contains("genesis-named") && !ensemble.contains("genesis-named"));
        assert!(ensemble.contains("session-lost") && !local.contains("session-lost"));
    }

    /// What a point is armed at.
    fn pass(armed: &str) -> u64 {
        armed.split_once(':').unwrap().1.parse().unwrap()
    }

    #[test]
    fn a_point_is_armed_at_its_passes_and_at_no_other() {
        let point = POINTS.into_iter().find(|point| point.name == "turned-over").unwrap();
        let mut rng = Rng::new(5);
        let passes: BTreeSet<u64> = (0..100).map(|_| pass(&point.arm(&mut rng))).collect();
        assert_eq!(passes, BTreeSet::from([1, 2, 3]));
    }
}
