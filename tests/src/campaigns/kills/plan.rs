//! What one life is to be, drawn from its trial's number alone.
//!
//! Two trials of three die at a named point, all of them in turn; the others are killed at a random moment, most of
//! them under load, or stop cleanly. Before and beside that a life may idle, so that land reaches the spill, meet a
//! second process in its folder, and have its way to the registry broken.

use std::time::Duration;

use super::points::{self, Kind, Point, Reach};
use crate::fronts::Front;
use crate::load::{HEAVY, Job, Work};
use crate::{Order, Rng};

/// How a life ends.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// `kill -9`, so long after its exec, served or not.
    Stillborn(Duration),
    /// `kill -9`, so long after its first id.
    Killed(Duration),
    /// SIGTERM, so long after its first id.
    Stopped(Duration),
    /// By itself, at a named point; what the variable says.
    Struck(Point, String),
}

/// What is wrong with the way to the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    /// All connections are cut once, so long after the first id.
    Cut(Duration),
    /// Every frame takes so much longer.
    Delay(Duration),
    /// The reply to the next transaction after the start is lost.
    LostReply,
    /// The reply to the claim is lost.
    LostClaim,
}

impl Trouble {
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Cut(_) => Some("connections cut"),
            Self::Delay(_) => Some("slow ways to the registry"),
            Self::LostReply => Some("replies lost"),
            Self::LostClaim => Some("replies to claims lost"),
        }
    }
}

/// A life.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The debug build that logs; else the release build.
    pub(super) has_crash_points: bool,
    pub(super) end: End,
    pub(super) jobs: &'static [Job],
    /// Another process in the same folder meanwhile.
    pub(super) has_company: bool,
    pub(super) trouble: Trouble,
}

/// The trial's seed.
pub(super) fn seed(kind: Kind, trial: u64) -> u64 {
    let salt = match kind {
        Kind::Local => 0x6b11_0000_0000,
        Kind::ZooKeeper => 0x6b12_0000_0000,
    };
    Rng::new(salt ^ trial).word()
}

impl Plan {
    /// The life of this trial.
    pub(super) fn draw(kind: Kind, trial: u64, rng: &mut Rng) -> Self {
        let mut plan = if trial % 3 == 2 { Self::random(rng) } else { Self::pointed(kind, trial, rng) };
        let is_fresh = plan.point().is_some_and(|point| point.reach == Reach::Fresh);
        plan.has_company = !is_fresh && rng.below(8) == 0;
        if kind == Kind::ZooKeeper && !is_fresh && plan.trouble == Trouble::None {
            plan.trouble = trouble(rng);
        }
        plan
    }

    fn random(rng: &mut Rng) -> Self {
        let (end, jobs) = match rng.below(8) {
            // A start takes some 20 ms: the kill falls into it, or just behind.
            0 | 1 => (End::Stillborn(rng.millis(0, 60)), HEAVY),
            2 | 3 => (End::Stopped(rng.millis(20, 600)), HEAVY),
            4 => (End::Killed(rng.millis(1_200, 2_600)), LIGHT),
            _ => (End::Killed(rng.millis(0, 600)), HEAVY),
        };
        // Only the crash-point build tells the sums of a clean stop; a kill meets the build that is shipped more often.
        let has_crash_points = (rng.below(3) == 0) ^ matches!(end, End::Stopped(_));
        Self { has_crash_points, end, jobs, has_company: false, trouble: Trouble::None }
    }

    fn pointed(kind: Kind, trial: u64, rng: &mut Rng) -> Self {
        let points = points::of(kind);
        // Trials 0, 1, 3, 4, 6, ... are the 0th, 1st, 2nd, 3rd, 4th.
        let point = points[(trial - trial / 3) as usize % points.len()];
        let jobs = match point.reach {
            Reach::Serve | Reach::Stock | Reach::Stop => HEAVY,
            Reach::Fresh | Reach::Start | Reach::Live | Reach::Cut => LIGHT,
        };
        let trouble =
            if point.reach == Reach::Cut { Trouble::Cut(rng.millis(5, 300)) } else { Trouble::None };
        let end = End::Struck(point, point.arm(rng));
        Self { has_crash_points: true, end, jobs, has_company: false, trouble }
    }

    /// The point it is to die at.
    pub(super) fn point(&self) -> Option<&Point> {
        match &self.end {
            End::Struck(point, _) => Some(point),
            _ => None,
        }
    }

    /// In a few words, for a failure.
    pub(super) fn tell(&self) -> String {
        let build = if self.has_crash_points { "crash points" } else { "release" };
        let end = match &self.end {
            End::Stillborn(after) => format!("killed {after:?} after exec"),
            End::Killed(after) => format!("killed {after:?} after its first id"),
            End::Stopped(after) => format!("stopped {after:?} after its first id"),
            End::Struck(_, armed) => format!("struck at {armed}"),
        };
        let company = if self.has_company { ", in company" } else { "" };
        let trouble = self.trouble.name().map_or(String::new(), |name| format!(", {name}"));
        format!("{build} build, {end}{company}{trouble}")
    }
}

/// Half of the lives have none.
fn trouble(rng: &mut Rng) -> Trouble {
    match rng.below(8) {
        0 => Trouble::Cut(rng.millis(0, 400)),
        1 => Trouble::Delay(rng.millis(5, 60)),
        2 => Trouble::LostReply,
        3 => Trouble::LostClaim,
        _ => Trouble::None,
    }
}

/// 5 connections that leave most of the land to the spill.
pub(super) const LIGHT: &[Job] = &[
    light(Work::Next(8), Order::Any),
    light(Work::Next(1), Order::Fresh),
    light(Work::Next(4), Order::Ordered),
    light(Work::Array(50), Order::Fresh),
    light(Work::Runs(100), Order::Any),
];

/// Clients of the other fronts, beside those of any life: as hard as these, and as gently as those of [`LIGHT`].
pub(super) const HARD_FRONTS: &[Job] = &[
    Job::new(Work::Next(32), Order::Any).by(Front::Resp),
    Job::new(Work::Runs(1_000), Order::Any).by(Front::Resp),
    Job::new(Work::Next(8), Order::Ordered).by(Front::Http),
    Job::new(Work::Array(100), Order::Any).by(Front::Http),
];
pub(super) const LIGHT_FRONTS: &[Job] =
    &[light(Work::Next(4), Order::Fresh).by(Front::Resp), light(Work::Runs(20), Order::Any).by(Front::Http)];

const fn light(work: Work, order: Order) -> Job {
    Job::gently(work, order, Duration::from_millis(5))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sixty_lives_pass_every_point() {
        for kind in [Kind::Local, Kind::ZooKeeper] {
            for first in [0, 1, 1_000] {
                let draw = |trial| Plan::draw(kind, trial, &mut Rng::new(seed(kind, trial)));
                let plans: Vec<Plan> = (first..first + 60).map(draw).collect();
                let names: BTreeSet<&str> =
                    plans.iter().filter_map(Plan::point).map(|point| point.name).collect();
                assert_eq!(names.len(), points::of(kind).len(), "{kind:?} from {first}");
                assert!(plans.iter().any(|plan| matches!(plan.end, End::Stopped(_))));
                assert!(plans.iter().any(|plan| plan.has_company));
            }
        }
    }

    #[test]
    fn a_night_kills_a_thousand_times() {
        for (kind, name) in [(Kind::Local, "kills"), (Kind::ZooKeeper, "kills-zookeeper")] {
            let trials = 0..crate::campaigns::plan(name, crate::campaigns::Size::Night).trials;
            let draw = |trial| Plan::draw(kind, trial, &mut Rng::new(seed(kind, trial)));
            let kills = trials.map(draw).filter(|plan| !matches!(plan.end, End::Stopped(_))).count();
            assert!(kills >= 1_000, "{name}: {kills}");
        }
    }

    #[test]
    fn a_trial_is_the_same_life_each_time() {
        for trial in 0..50 {
            let tell = || {
                let plan = Plan::draw(Kind::ZooKeeper, trial, &mut Rng::new(seed(Kind::ZooKeeper, trial)));
                format!("{plan:?}")
            };
            assert_eq!(tell(), tell());
        }
    }
}
