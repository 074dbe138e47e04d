//! The faults of a soak: what one is, how long it stands, and when it is over.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cluster::{Cluster, LED, SERVERS};
use crate::proxy::Way;
use crate::{Rng, clock};

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// SIGKILL, and a start at once or a moment later.
    Kill,
    /// SIGTERM, and a start.
    Stop,
    /// SIGKILL or SIGTERM, the spill of an earlier end put back, and a start.
    OldSpill,
    /// SIGSTOP, and SIGCONT later.
    Freeze,
    /// The ensemble's leader killed and started again.
    Leader,
    /// All nodes killed, and started again later.
    Ensemble,
    /// All connections of one server to the ensemble closed, several times.
    Cut,
    /// The same by resets.
    Reset,
    /// Each frame of one server's is held for a while.
    Delay,
    /// Replies to one server are lost: what it writes lands, and it is not told.
    LoseReplies,
    /// One server sees nobody of the ensemble.
    Apart,
    /// The wall clock of one server is wrong, by milliseconds or by an hour.
    Clock,
}

/// As often as each is listed it is drawn.
const KINDS: [Kind; 14] = [
    Kind::Kill,
    Kind::Kill,
    Kind::Stop,
    Kind::OldSpill,
    Kind::Freeze,
    Kind::Freeze,
    Kind::Leader,
    Kind::Ensemble,
    Kind::Cut,
    Kind::Reset,
    Kind::Delay,
    Kind::LoseReplies,
    Kind::Apart,
    Kind::Clock,
];

/// Steps of a clock in milliseconds: waited for, caught up with, followed, not believed, another worker's.
const STEPS: [i64; 8] = [-10, -400, -30_000, -3_600_000, 800, 4_000, 60_000, 3_600_000];

/// One fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    kind: Kind,
    server: usize,
    /// How long it stands.
    hold: Duration,
    /// What else the kind needs: a delay, a step.
    amount: i64,
}

impl Fault {
    /// One that fits in `period`; a server that it would end is not the elder.
    pub(super) fn draw(rng: &mut Rng, elder: usize, period: Duration) -> Self {
        let kind = KINDS[rng.below(KINDS.len() as u64) as usize];
        let most = (period.as_millis() as u64 / 3).max(1_000);
        let hold = rng.millis(100, most);
        let ends = matches!(kind, Kind::Kill | Kind::Stop | Kind::OldSpill);
        let others = (elder + 1 + rng.below(SERVERS as u64 - 1) as usize) % SERVERS;
        let server = match kind {
            _ if ends => others,
            Kind::Clock => (elder + 1) % SERVERS,
            _ => rng.below(SERVERS as u64) as usize,
        };
        let amount = match kind {
            Kind::Clock => STEPS[rng.below(STEPS.len() as u64) as usize],
            Kind::Delay => rng.millis(5, 300).as_millis() as i64,
            // An even one is a SIGKILL.
            _ => rng.below(2).cast_signed(),
        };
        Self { kind, server, hold, amount }
    }

    /// Its kind, for counting.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Kill => "kill",
            Kind::Stop => "clean stop",
            Kind::OldSpill => "old spill put back",
            Kind::Freeze => "server frozen",
            Kind::Leader => "leader killed",
            Kind::Ensemble => "ensemble down",
            Kind::Cut => "connections cut",
            Kind::Reset => "connections reset",
            Kind::Delay => "ensemble slow",
            Kind::LoseReplies => "replies lost",
            Kind::Apart => "ensemble unreachable",
            Kind::Clock => "clock stepped",
        }
    }

    /// Does it, from its first moment to its last. Returns when it was over: from then on everybody should be served.
    pub(super) fn strike(&self, cluster: &mut Cluster) -> Result<Instant> {
        let server = self.server;
        match self.kind {
            Kind::Kill | Kind::Stop | Kind::OldSpill => {
                cluster.end(
                    server,
                    self.kind == Kind::Stop || (self.kind == Kind::OldSpill && self.amount % 2 == 1),
                )?;
                if self.kind == Kind::OldSpill {
                    cluster.put_spill_back(server)?;
                } else if self.amount % 2 == 1 {
                    clock::idle(self.hold);
                }
                // What a start takes is part of the recovery.
                let lifted = clock::now();
                cluster.begin(server)?;
                return Ok(lifted);
            }
            Kind::Freeze => cluster.freeze(server, self.hold)?,
            Kind::Leader => {
                let leader = cluster.ensemble.leader().context("no leader")?;
                cluster.ensemble.kill(leader)?;
                let lifted = clock::now();
                cluster.ensemble.wait_leader(LED)?;
                cluster.ensemble.restart(leader)?;
                cluster.ensemble.wait_serving(LED)?;
                return Ok(lifted);
            }
            Kind::Ensemble => {
                cluster.ensemble.kill_all()?;
                clock::idle(self.hold);
                cluster.ensemble.start_all()?;
                cluster.ensemble.wait_serving(LED)?;
            }
            Kind::Cut | Kind::Reset => {
                let begin = clock::now();
                while begin.elapsed() < self.hold {
                    cluster.cut(server, self.kind == Kind::Reset);
                    clock::idle(Duration::from_millis(250));
                }
            }
            Kind::Delay | Kind::LoseReplies | Kind::Apart => {
                cluster.way(server, self.way());
                clock::idle(self.hold);
                cluster.way(server, Way::Pass);
            }
            Kind::Clock => {
                cluster.clock.shift(self.amount)?;
                clock::idle(self.hold);
                cluster.clock.shift(0)?;
            }
        }
        Ok(clock::now())
    }

    fn way(&self) -> Way {
        match self.kind {
            Kind::Delay => Way::Delay(Duration::from_millis(self.amount.unsigned_abs())),
            Kind::LoseReplies => Way::LoseReplies,
            _ => Way::BlackHole,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (server {}, {:?}, {})", self.name(), self.server, self.hold, self.amount)
    }
}
