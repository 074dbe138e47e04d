//! Too little memory, as address space (`RLIMIT_AS`): from far too little to start with, to just enough to serve.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::super::Tally;
use super::life;
use crate::{Job, Ledger, Load, Order, Rng, Work, clock, process};

/// Where a start fails today is between 16 and 60 MB.
const LEAST: u64 = 12_000_000;
const MORE: u64 = 80_000_000;

/// What asks for memory: large answers, on many connections.
const HUNGRY: Job = Job::gently(Work::Array(100_000), Order::Any, Duration::ZERO);

/// A life that may be too poor to start or to go on, then one with enough.
pub(super) fn trial(home: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let data = home.join("data");
    if rng.below(2) == 0 {
        life::enough(&data, rng, ledger, tally)?;
    }
    let limit = LEAST + rng.below(MORE);
    let mut server = life::limited(&data, "as", limit)?.spawn()?;
    let waited = clock::wait_until("it serves or ends", Duration::from_secs(20), || {
        Ok(server.is_announced().is_err() || server.addr.port() != 0)
    });
    waited?;
    if server.is_alive()? {
        let mut jobs = life::JOBS.to_vec();
        jobs.extend((0..rng.below(12)).map(|_| HUNGRY));
        let load = Load::start(server.addr, &jobs);
        clock::idle(rng.millis(50, 800));
        load.ask_to_stop();
        for result in load.enter(ledger)? {
            life::refused(&result, tally);
        }
    }
    let alive = server.is_alive()?;
    let log = server.log();
    ensure!(!log.contains("panicked"), "limit {limit}: a panic:\n{log}");
    if alive {
        tally.note("memory enough", 1);
        // A stop needs memory too; what it can't have then ends it like a kill.
        process::terminate(server.child())?;
        clock::wait_until("it stops", Duration::from_secs(20), || Ok(!server.is_alive()?))?;
    } else {
        tally.note("ended for want of memory", 1);
        // The last one is the dynamic loader's, which ran out of it before the program began.
        let named = ["memory", "thread", "os error 12", "os error 11", "runtime", "failed to map segment"];
        ensure!(named.iter().any(|word| log.contains(word)), "limit {limit}: it does not say why:\n{log}");
    }
    let log = server.log();
    ensure!(!log.contains("panicked"), "limit {limit}: a panic at the stop:\n{log}");
    drop(server);
    life::enough(&data, rng, ledger, tally)
}
