//! Lives on one folder: one that may be short of something, and one that has enough.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::Tally;
use super::super::refusals::code;
use crate::{ClientError, Job, Ledger, Load, LoadResults, Order, Rng, Serve, Server, Work, clock};

/// A life with enough of everything has its first id within this, on a busy machine.
const FIRST_ID: Duration = Duration::from_secs(5);

/// Requests of every kind and order.
pub(super) const JOBS: [Job; 5] = [
    Job::gently(Work::Runs(50_000), Order::Any, Duration::from_millis(2)),
    Job::gently(Work::Array(300), Order::Any, Duration::from_millis(1)),
    Job::gently(Work::Next(32), Order::Fresh, Duration::from_millis(1)),
    Job::gently(Work::Array(100), Order::Ordered, Duration::from_millis(1)),
    Job::gently(Work::Next(16), Order::Any, Duration::from_millis(1)),
];

/// Starts a server under limits. `None`: it refused to start as it should, with 1 and one of these words (any, if there
/// is none).
pub(super) fn start_short(serve: Serve, words: &[&str]) -> Result<Option<Server>> {
    let said = match serve.start_or_refuse()? {
        Ok(server) => return Ok(Some(server)),
        Err(said) => said,
    };
    let named = words.is_empty() || words.iter().any(|word| said.contains(word));
    ensure!(named, "its refusal names none of {words:?}: {said}");
    Ok(None)
}

/// Loads a server for `time`. Connections that end are no failure: it may be killed meanwhile.
pub(super) fn load(server: &Server, time: Duration, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let load = Load::start(server.addr, &JOBS);
    clock::idle(time);
    load.ask_to_stop();
    for result in load.enter(ledger)? {
        refused(&result, tally);
    }
    Ok(())
}

/// Counts what a connection was refused.
pub(super) fn refused(result: &LoadResults, tally: &mut Tally) {
    for (status, count) in &result.refused {
        tally.refuse(&code(*status), *count);
    }
    tally.unanswered(result.longest.as_millis() as u64);
}

/// A life with enough of everything: it serves all orders soon, takes in what was left, and ends one way or the other.
pub(super) fn enough(data: &Path, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Result<()> {
    let begin = clock::now();
    let server = Server::start(data).context("with enough of everything")?;
    let mut client = server.client()?;
    for order in Order::ALL {
        loop {
            match client.next(order) {
                Ok(id) => break ledger.add_id(id),
                Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                    tally.refuse(&code(refusal.status), 1);
                    ensure!(begin.elapsed() < FIRST_ID, "with enough of everything: {refusal}\n{server}");
                    clock::idle(Duration::from_millis(refusal.retry_after_ms.clamp(1, 20).into()));
                }
                Err(error) => bail!("with enough of everything: {error}\n{server}"),
            }
        }
    }
    tally.recovered(begin.elapsed().as_millis() as u64);
    server.drain(3_000_000 + rng.below(5_000_000), ledger)?;
    end(server, rng)
}

/// Kills a server or stops it.
pub(super) fn end(server: Server, rng: &mut Rng) -> Result<()> {
    let log = server.end(rng.below(2) != 0)?;
    ensure!(!log.contains("panicked"), "a panic:\n{log}");
    Ok(())
}

/// `prlimit --WHAT=AMOUNT`, around a server on this folder.
pub(super) fn limited(data: &Path, what: &str, amount: u64) -> Result<Serve> {
    Ok(Serve::new(data)?.under("prlimit", &[format!("--{what}={amount}"), "--".to_owned()]))
}
