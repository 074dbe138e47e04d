//! An hour, in parts, of three servers on three ZooKeeper nodes under load, and a random fault every 30 seconds.
//!
//! A trial is one fault: a server killed, stopped or frozen, a leader or the whole ensemble gone, the way to the
//! ensemble cut, slowed or one-way, a clock that steps, an old spill put back. The clients never stop; they reconnect,
//! ask again and remember how long they had no answer. A part has an ensemble, servers and a ledger of its own.
//!
//! # Invariants
//! - S1 no id comes twice, over all servers and all their lives;
//! - S2 no request is refused for good, and no server ends by itself or panics;
//! - S3 when a fault is over, every client has an answer within [`RECOVERED`];
//! - S4 memory and descriptors of a life are flat ([`health`](self::health) has the rule);
//! - S5 an hour checks ten billion ids, and every part its share: [`RATE`].

mod clients;
mod cluster;
mod faults;
mod health;

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};

use self::clients::Clients;
use self::cluster::{Cluster, SERVERS};
use self::faults::Fault;
use self::health::Watch;
use super::{Campaign, Need, Progress, Tally};
use crate::{Rng, clock, process};

/// From one fault to the next in a long part, and in a short one.
const PERIOD: Duration = Duration::from_secs(30);
const SHORT_PERIOD: Duration = Duration::from_secs(5);
/// Parts of as many faults are long.
const LONG: u64 = 20;
/// A start of a server while Java elects a leader on the same two cores; a client asks again after 20 ms at most.
const RECOVERED: Duration = Duration::from_secs(20);
/// Ten billion an hour, in ids a second.
const RATE: u64 = 10_000_000_000 / 3_600;
/// After the last fault and before the first: what is flat needs a base and an end.
const CALM: Duration = Duration::from_secs(3);

/// The campaign `soak`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Soak;

impl Campaign for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn what(&self) -> &'static str {
        "three servers on ZooKeeper under load: a fault every 30 s, every id checked, memory and descriptors flat"
    }

    fn needs(&self) -> &'static [Need] {
        &[
            Need::Server,
            Need::Installed("java"),
            Need::Installed("setpriv"),
            Need::Installed("zookeeper"),
            Need::Installed("libfaketime"),
        ]
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        ensure!(!trials.is_empty(), "a part has at least one trial");
        let period = if trials.end - trials.start >= LONG { PERIOD } else { SHORT_PERIOD };
        Part::begin(trials.start)?.run(trials, period, progress)
    }
}

/// The seed of a trial.
fn seed(trial: u64) -> u64 {
    Rng::new(0x50a6_0000_0000 ^ trial).word()
}

/// What a part is made of. The order is that of its end: clients, then the watch, then servers and ensemble.
#[derive(Debug)]
struct Part {
    clients: Clients,
    watch: Watch,
    cluster: Cluster,
    tally: Tally,
}

impl Part {
    fn begin(first: u64) -> Result<Self> {
        // The server that lives all through differs from part to part.
        let cluster = Cluster::start((first / LONG) as usize % SERVERS)?;
        let clients = Clients::start(cluster.seats());
        let watch = Watch::start(cluster.seats());
        let mut tally = Tally::new("soak");
        if let Err(error) = clients.wait_all_answered(clock::now(), RECOVERED) {
            tally.fail(format!("before the first fault: {error:#}\n{cluster}"));
        }
        Ok(Self { clients, watch, cluster, tally })
    }

    fn run(mut self, trials: Range<u64>, period: Duration, progress: &Progress) -> Result<Tally> {
        let begin = clock::now();
        self.watch.calm(true);
        clock::idle(CALM);
        let mut next = clock::now();
        for trial in trials {
            clock::idle(next.saturating_duration_since(clock::now()));
            next += period;
            self.watch.calm(false);
            self.trial(trial, period);
            self.watch.calm(true);
            progress.set(self.tally.trials, self.clients.ids(), self.tally.failures.len() as u64);
        }
        clock::idle(next.min(clock::now() + CALM).saturating_duration_since(clock::now()));
        self.end(begin.elapsed(), period)
    }

    /// One fault, from its first moment until every client has an answer that it asked for after its end.
    fn trial(&mut self, trial: u64, period: Duration) {
        let mut rng = Rng::new(seed(trial));
        let fault = Fault::draw(&mut rng, self.cluster.elder(), period);
        let failed = |why: &anyhow::Error| format!("trial {trial}, seed {}: {fault}: {why:#}", seed(trial));
        self.tally.trials += 1;
        self.tally.note(&format!("fault {}", fault.name()), 1);
        let lifted = match fault.strike(&mut self.cluster) {
            Ok(lifted) => lifted,
            Err(error) => {
                self.tally.fail(failed(&error));
                // Whatever it left behind must not spoil the trials that follow.
                if let Err(error) = self.cluster.mend() {
                    self.tally.fail(failed(&error.context("and nothing mends it")));
                }
                clock::now()
            }
        };
        match self.clients.wait_all_answered(lifted, RECOVERED) {
            Ok(took) => self.tally.recovered(took.as_millis() as u64),
            Err(error) => self.tally.fail(failed(&error.context(format!("{}", self.cluster)))),
        }
        if let Err(error) = self.clients.check().and_then(|()| self.cluster.check()) {
            self.tally.fail(failed(&error));
        }
    }

    fn end(self, took: Duration, period: Duration) -> Result<Tally> {
        let Self { clients, watch, cluster, mut tally } = self;
        // Of this process, while it holds the ledger of the whole part.
        tally.note("max_checker_rss_kib", process::rss_anon(std::process::id())? / 1024);
        clients.finish(&mut tally);
        watch.finish(&mut tally);
        cluster.finish(&mut tally);
        tally.note("seconds", took.as_secs());
        let rate = tally.ids / took.as_secs().max(1);
        tally.note("max_ids_per_second", rate);
        if period == PERIOD && rate < RATE {
            tally.fail(format!("{rate} ids a second were checked: an hour of that is less than ten billion"));
        }
        Ok(tally)
    }
}
