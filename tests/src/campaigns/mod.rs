//! Campaigns: attacks that are repeated many thousand times, in parts that can be stopped, resumed and joined.
//!
//! The binary `campaign` of this crate runs them (`tests/campaign` builds what it needs and starts it).
//!
//! - [`Campaign`]: one kind of attack, and what it needs; [`all`] of them; their sizes stand in [`SIZES`]
//! - [`Tally`]: the figures of a part, summable
//! - [`Progress`]: what a campaign says while a part is under way
//! - [`Record`]: finished parts on disk, which is what makes a campaign resumable
//! - [`Runner`]: runs the parts that are not recorded yet
//! - [`table`]: what the joined parts say
//!
//! # Invariants
//! - C1 Everything random in a trial derives from its number, and what a trial inherits is of its own part: a part is
//!   the same attack on any machine, whatever ran before it.
//! - C2 A part counts when its line is on disk, and not before; one that was cut off is run again from its beginning.
//! - C3 Nothing that went wrong is lost by joining: a failure in any part fails the whole.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;

mod engine;
mod files;
mod kills;
mod limits;
mod mutants;
mod nodes;
mod outages;
mod parts;
mod progress;
mod record;
mod refusals;
mod revision;
mod sizes;
mod soak;
pub mod table;
mod tally;
#[cfg(test)]
mod tests;
mod trials;

pub use engine::EngineCampaign;
pub use files::Files;
pub use kills::Kills;
pub use limits::Limits;
pub use mutants::Mutants;
pub use nodes::Nodes;
pub use outages::Outages;
pub use parts::{Ending, Runner, attempt};
pub use progress::{Progress, grouped};
pub use record::{Line, Machine, Record};
pub use revision::{Revision, root};
pub use sizes::{Plan, SIZES, plan};
pub use soak::Soak;
pub use tally::{Mutant, Tally};

/// How much of a campaign is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Minutes for all campaigns together: after every change.
    Quick,
    /// The whole of it, over hours and several sittings.
    Night,
}

impl Size {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Quick, Self::Night];

    /// As it is written on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Night => "night",
        }
    }

    /// The size of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.name() == name)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What has to be there before a campaign can run; `tests/campaign` sees to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The release build of the engine's test executable, in `XUID_ENGINE_TESTS`.
    EngineTests,
    /// The same as models of the lock-free parts, in `XUID_LOOM_TESTS`.
    LoomTests,
    /// The test executable of the package `xuid-spill`, in `XUID_SPILL_TESTS`.
    SpillTests,
    /// The release build of the server, in `XUID_BIN`.
    Server,
    /// The server with crash points and a log of what it issues, in `XUID_CRASH_POINTS_BIN`.
    CrashPointsServer,
    /// The engine's example `forked`, in `XUID_FORKED`.
    Forked,
    /// A program or library of this name.
    Installed(&'static str),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EngineTests => f.write_str("engine-tests"),
            Self::LoomTests => f.write_str("loom-tests"),
            Self::SpillTests => f.write_str("spill-tests"),
            Self::Server => f.write_str("server"),
            Self::CrashPointsServer => f.write_str("crash-points-server"),
            Self::Forked => f.write_str("forked"),
            Self::Installed(thing) => write!(f, "install:{thing}"),
        }
    }
}

/// What a campaign on the real binary may need.
pub const REAL: &[Need] = &[
    Need::Installed("curl"),
    Need::Installed("java"),
    Need::Installed("setpriv"),
    Need::Installed("zookeeper"),
    Need::Installed("libfaketime"),
    Need::Server,
    Need::CrashPointsServer,
];

/// One kind of attack, repeated.
pub trait Campaign: Sync {
    /// Its name on the command line; one line of [`SIZES`] has it.
    fn name(&self) -> &'static str;

    /// What it does, in one sentence.
    fn what(&self) -> &'static str;

    /// What it needs.
    fn needs(&self) -> &'static [Need] {
        REAL
    }

    /// Trials of the whole campaign: numbers `0..trials`.
    fn trials(&self, size: Size) -> u64 {
        plan(self.name(), size).trials
    }

    /// Trials of one part; the last part may have fewer.
    fn part(&self, size: Size) -> u64 {
        plan(self.name(), size).part
    }

    /// What a part of this size takes, to be judged by before one was measured.
    fn expected(&self, size: Size) -> Duration {
        Duration::from_secs(plan(self.name(), size).seconds)
    }

    /// The 99th percentile of the recoveries may not exceed this, where the campaign promises one.
    fn recovery_bound(&self) -> Option<Duration> {
        None
    }

    /// What all trials of this size together should have met and did not; asked of the sum of a complete campaign.
    fn missed(&self, _: Size, _: &Tally) -> Vec<String> {
        Vec::new()
    }

    /// Runs the trials of these numbers. What goes wrong with the program under test is a failure *in the tally*; an
    /// error is for what keeps the trials from being made at all (no ZooKeeper, no space), and the part is run again.
    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally>;
}

/// Every campaign, in the order in which `all` runs them: the cheapest finders of mistakes first.
pub fn all() -> Vec<Box<dyn Campaign>> {
    vec![
        Box::new(EngineCampaign::new(
            "simulation",
            "histories",
            "whole simulated clusters: clocks, disks, registries and processes that fail at any step",
        )),
        Box::new(EngineCampaign::new(
            "sequences",
            "sequences",
            "named sequences on databases that lose commits: stores, witnesses, files and processes that fail at any step",
        )),
        Box::new(Mutants::default()),
        Box::new(EngineCampaign::new(
            "power",
            "crash_images",
            "power cuts: spills and registries of which any subset of the unsynced writes survived",
        )),
        // On the real binary.
        Box::new(Kills::local()),
        Box::new(Kills::zookeeper()),
        Box::new(Files),
        Box::new(Limits),
        Box::new(Nodes),
        Box::new(Outages),
        Box::new(Soak),
    ]
}
