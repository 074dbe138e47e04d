//! Lives of the real server, with clients at all of its fronts, that end by `kill -9`: at random moments, and at each
//! point that the crash-point build names.
//!
//! A trial is one life. The lives of a part follow each other on one data folder (or one ensemble), which is new at its
//! beginning, so that each inherits what the one before it left: half a genesis, a record written once, a spill whose
//! mark was moved. Points of a first start have folders of their own.
//!
//! # Invariants
//! - K1 no id is logged or received twice over all lives of a part, and every id that a client got is in the log of the
//!   life that it came from, where that life logs (`IssuedVsReceived`);
//! - K2 after a clean stop the sums of a life agree to the id, with each other and with its log;
//! - K3 a life ends as planned, never by itself otherwise, and never with a panic;
//! - K4 the life after a kill has a first id within [`FIRST_ID_LOCAL`] or [`FIRST_ID_ZOOKEEPER`], exec to id, in 99 of
//!   100;
//! - K5 over a whole night a life was struck at every point that its kind of registry has.

#[cfg(test)]
mod control;
mod life;
mod part;
mod place;
mod plan;
mod points;

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;

use self::part::Part;
use self::points::Kind;
use super::{Campaign, Progress, Size, Tally};

const FIRST_ID_LOCAL: Duration = Duration::from_secs(1);
const FIRST_ID_ZOOKEEPER: Duration = Duration::from_secs(3);

/// The campaigns `kills` and `kills-zookeeper`.
#[derive(Debug, Clone, Copy)]
pub struct Kills(Kind);

impl Kills {
    /// On the registry in the data folder.
    pub fn local() -> Self {
        Self(Kind::Local)
    }

    /// On an ensemble.
    pub fn zookeeper() -> Self {
        Self(Kind::ZooKeeper)
    }
}

impl Campaign for Kills {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Local => "kills",
            Kind::ZooKeeper => "kills-zookeeper",
        }
    }

    fn what(&self) -> &'static str {
        match self.0 {
            Kind::Local => "lives of the real server ended by kill -9, at random and at every named point",
            Kind::ZooKeeper => "the same on ZooKeeper, with connections cut, slow and replies lost",
        }
    }

    fn recovery_bound(&self) -> Option<Duration> {
        Some(match self.0 {
            Kind::Local => FIRST_ID_LOCAL,
            Kind::ZooKeeper => FIRST_ID_ZOOKEEPER,
        })
    }

    fn missed(&self, size: Size, tally: &Tally) -> Vec<String> {
        // Quick has too few lives for all of them.
        if size == Size::Quick {
            return Vec::new();
        }
        let tell = |name| format!("no life was struck at the point {name}: the attack on it was not made");
        points::never_struck(self.0, tally).into_iter().map(tell).collect()
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        points::check()?;
        let mut part = Part::new(self.0, Tally::new(self.name()), trials.start)?;
        for trial in trials {
            part.trial(trial)?;
            let ids = part.tally.ids + part.account.balance().issued.ids;
            progress.set(part.tally.trials, ids, part.tally.failures.len() as u64);
        }
        part.retire();
        Ok(part.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_night_in_which_a_point_was_never_struck_is_told_it() {
        for kills in [Kills::local(), Kills::zookeeper()] {
            let mut tally = Tally::new(kills.name());
            let points = points::of(kills.0);
            for point in &points {
                tally.note(&points::note(points::STRUCK, point), 1);
            }
            assert!(kills.missed(Size::Night, &tally).is_empty());
            let gone = points[points.len() / 2];
            tally.notes.remove(&points::note(points::STRUCK, &gone));
            // To have been on the way there is not enough.
            tally.note(&points::note(points::UNREACHED, &gone), 9);
            let missed = kills.missed(Size::Night, &tally);
            assert!(missed.len() == 1 && missed[0].contains(gone.name), "{missed:?}");
            assert!(kills.missed(Size::Quick, &tally).is_empty());
        }
    }
}
