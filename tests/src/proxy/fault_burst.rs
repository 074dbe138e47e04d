//! Many faults, one after the other, at moments when a write is on its way.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Duration;

use super::{Fault, Proxy, Target};
use crate::{Rng, clock};

/// How many faults, where, and how close together. Each proxy has a thread and an equal share.
#[derive(Debug, Clone)]
pub struct FaultBurst {
    /// Faults in all.
    pub faults: u64,
    /// What most of them wait for.
    pub target: Target,
    /// A fault that meets no write within this time becomes a plain cut.
    pub patience: Duration,
    /// Up to this long a proxy is left alone after a fault, so that the client gets somewhere.
    pub calm: Duration,
}

/// What a burst did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toll {
    /// Faults that struck a write, by kind.
    pub struck: BTreeMap<&'static str, u64>,
    /// Cuts for want of a write.
    pub plain: u64,
}

impl Toll {
    /// All faults and plain cuts.
    pub fn total(&self) -> u64 {
        self.plain + self.struck.values().sum::<u64>()
    }
}

impl fmt::Display for Toll {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, count) in &self.struck {
            write!(out, "{fault} {count}, ")?;
        }
        write!(out, "plain cuts {}", self.plain)
    }
}

impl FaultBurst {
    /// Runs to its end; the moments and kinds follow from `rng` and from what the clients send.
    pub fn run(&self, proxies: &[Proxy], rng: &mut Rng) -> Toll {
        let share = self.faults.div_ceil(proxies.len().max(1) as u64);
        let mut left = self.faults;
        let mut toll = Toll::default();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for proxy in proxies {
                let (mine, rng) = (share.min(left), Rng::new(rng.word()));
                left -= mine;
                threads.push(scope.spawn(move || self.batter(proxy, mine, rng)));
            }
            for thread in threads {
                // A panic there is a panic here: its toll is missing, and the test counts.
                let part = thread.join().unwrap_or_default();
                toll.plain += part.plain;
                for (fault, count) in part.struck {
                    *toll.struck.entry(fault).or_default() += count;
                }
            }
        });
        toll
    }

    fn batter(&self, proxy: &Proxy, faults: u64, mut rng: Rng) -> Toll {
        let mut toll = Toll::default();
        for _ in 0..faults {
            clock::idle(rng.millis(0, (self.calm.as_millis() as u64).max(1)));
            let fault = draw(&mut rng);
            // Mostly where an outcome decides who owns land; now and then whatever else is written.
            let target = if rng.below(8) == 0 { Target::Write } else { self.target };
            proxy.arm(fault, target);
            if proxy.wait_struck(self.patience) {
                *toll.struck.entry(fault.name()).or_default() += 1;
            } else {
                proxy.cut();
                toll.plain += 1;
            }
        }
        toll
    }
}

/// Two thirds are replies that are lost: of all faults the one after which a write has landed and nobody knows.
fn draw(rng: &mut Rng) -> Fault {
    match rng.below(12) {
        0..=7 => Fault::LoseReply,
        8 => Fault::LoseRequest,
        9 => Fault::Cut,
        10 => Fault::Reset,
        _ => Fault::Stall(rng.millis(50, 400)),
    }
}
