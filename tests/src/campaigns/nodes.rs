//! Named sequences on real servers, on each kind of store: killed, stopped and started, with databases that die, stand
//! still and go back.
//!
//! A trial is one scene of [`scenes`] on a store of its own. They come in cycles of [`CYCLE`]; the first cycle of a long
//! part plays its scenes in their full size.
//!
//! # Invariants
//! - Those of [`crate::sequences`], and of each scene: the bound of a kill's gap, no gap over a clean restart, no failure
//!   while numbers are held, numbers soon after a fault;
//! - an attack that nothing guards against makes numbers come twice.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;

use super::trials::side_by_side;
use super::{Campaign, Need, Progress, Tally};
use crate::Rng;
use crate::sequences::scenes::{self, Against, Loss, Played};
use crate::sequences::{Kind, Twice};

/// Trials wait most of the time.
const LANES: usize = 3;
/// Each act on each kind of store that it is for.
const CYCLE: u64 = 37;

/// The campaign `nodes`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nodes;

/// What is played.
#[derive(Debug, Clone, Copy)]
enum Act {
    ManyServers,
    Kills,
    Restarts,
    PutBack,
    Deaths,
    Standstill,
    GoesBack(Loss, Against),
    ManyNames,
}

const ACTS: [Act; 15] = [
    Act::ManyServers,
    Act::Kills,
    Act::Restarts,
    Act::PutBack,
    Act::Deaths,
    Act::Standstill,
    Act::GoesBack(Loss::Promotion, Against::Witness),
    Act::GoesBack(Loss::TwoPrimaries, Against::Witness),
    Act::GoesBack(Loss::OldDump, Against::Witness),
    Act::GoesBack(Loss::Promotion, Against::Fence),
    Act::GoesBack(Loss::OldDump, Against::Fence),
    Act::GoesBack(Loss::Promotion, Against::Nothing),
    Act::GoesBack(Loss::TwoPrimaries, Against::Nothing),
    Act::GoesBack(Loss::OldDump, Against::Nothing),
    Act::ManyNames,
];

impl Act {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::ManyServers | Self::Kills | Self::Restarts | Self::PutBack => &Kind::ALL,
            Self::ManyNames => &[Kind::Folder],
            Self::Deaths | Self::Standstill | Self::GoesBack(..) => &[Kind::Postgres, Kind::MariaDb],
        }
    }

    fn play(self, kind: Kind, is_full: bool, seed: u64) -> Result<Played> {
        match self {
            Self::ManyServers => {
                let numbers = if is_full { 2_000_000 } else { 150_000 };
                scenes::many_servers(kind, numbers, seed).map(Played::of)
            }
            Self::Kills => scenes::kills(kind, 25, seed),
            Self::Restarts => scenes::restarts(kind, if is_full { 100 } else { 5 }, seed),
            Self::PutBack => scenes::put_back(kind, seed).map(Played::of),
            Self::Deaths => scenes::database_deaths(kind, 10, seed),
            Self::Standstill => {
                let lasts = Duration::from_secs(if is_full { 60 } else { 5 });
                scenes::database_standstill(kind, lasts, seed)
            }
            Self::ManyNames => {
                scenes::many_names(if is_full { 100_000 } else { 2_000 })?;
                Ok(Played::default())
            }
            Self::GoesBack(loss, against) => scenes::store_goes_back(kind, loss, against, seed),
        }
    }
}

/// The act and the store of a trial: first each act once, then on the next store.
fn scene(number: u64) -> (Act, Kind) {
    let rounds = (0..Kind::ALL.len()).flat_map(|round| ACTS.iter().enumerate().map(move |act| (round, act)));
    let mut scenes = rounds.filter_map(|(round, (at, act))| {
        let kinds = act.kinds();
        (round < kinds.len()).then(|| (*act, kinds[(at + round) % kinds.len()]))
    });
    scenes.nth((number % CYCLE) as usize).unwrap_or((Act::ManyServers, Kind::Folder))
}

impl Campaign for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn what(&self) -> &'static str {
        "named sequences on real servers: kills, restarts, databases that die, stand still and lose commits"
    }

    fn needs(&self) -> &'static [Need] {
        &[
            Need::Server,
            Need::Installed("postgresql"),
            Need::Installed("mariadb"),
            Need::Installed("java"),
            Need::Installed("setpriv"),
            Need::Installed("zookeeper"),
        ]
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        let (first, is_long) = (trials.start, trials.end - trials.start > CYCLE);
        let seed = |number| Rng::new(0x0de5_0000_0000 ^ number).word();
        Ok(side_by_side("nodes", (trials, LANES), progress, seed, |number, tally| {
            let (act, kind) = scene(number);
            let name = format!("{act:?} {kind:?}");
            let played = act.play(kind, is_long && number < first + CYCLE, seed(number));
            let played = played.map_err(|error| {
                tally.duplicates = error.downcast_ref::<Twice>().map_or(0, |twice| twice.count);
                error.context(name.clone())
            })?;
            tally.ids = played.account.total();
            tally.note(&name, 1);
            for recovery in played.recoveries {
                tally.recovered(recovery.as_millis() as u64);
                tally.note(&format!("max_ms {act:?}"), recovery.as_millis() as u64);
            }
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_cycle_plays_every_act_on_every_store_and_begins_with_each_act_once() {
        let all: Vec<String> = (0..CYCLE).map(|number| format!("{:?}", scene(number))).collect();
        let planned: usize = ACTS.iter().map(|act| act.kinds().len()).sum();
        assert_eq!((all.iter().collect::<BTreeSet<_>>().len(), planned), (all.len(), CYCLE as usize));
        let acts: BTreeSet<String> = (0..ACTS.len() as u64).map(|at| format!("{:?}", scene(at).0)).collect();
        assert_eq!(acts.len(), ACTS.len());
        assert_eq!(format!("{:?}", scene(CYCLE + 3)), all[3]);
    }
}
