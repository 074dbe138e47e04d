//! One process, from its exec to its death, with its clients, and what both sides say afterwards.
//!
//! # Invariants
//! - Whatever goes wrong with a life, what its clients received and what it logged are entered into the account before
//!   that is told: it may be an id that came twice.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use rustix::process::Signal;

use super::super::Tally;
use super::super::refusals::code;
use super::super::trials::caught;
use super::plan::{HARD_FRONTS, LIGHT_FRONTS};
use crate::client::{Client, ClientError};
use crate::fronts::Doors;
use crate::load::{Job, Load, LoadResults};
use crate::oracle::{IssuedVsReceived, Received, Run, read_issued};
use crate::{Order, Serve, Server, clock};

/// No first id may take longer: the slowest start is one that finds the registry away.
const FIRST_ID: Duration = Duration::from_secs(20);
/// Between two looks at a process that is about to die.
const LOOK: Duration = Duration::from_micros(500);

/// A process that runs.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) server: Server,
    /// Where it logs what it issues, if it does.
    log: Option<PathBuf>,
    load: Option<Load>,
    received: Received,
}

/// What a process left.
#[derive(Debug)]
pub(super) struct Legacy {
    /// How it ended; none if we killed it.
    pub(super) status: Option<ExitStatus>,
    log: Option<PathBuf>,
    results: Vec<LoadResults>,
    received: Received,
    /// What was wrong with its end, and what its clients saw that no server may do.
    wrong: Vec<Error>,
}

impl Life {
    /// Executes it.
    pub(super) fn begin(serve: Serve, log: Option<PathBuf>) -> Result<Self> {
        Ok(Self { server: serve.spawn()?, log, load: None, received: Received::default() })
    }

    /// Waits for a first id; from exec to there, or none if it was struck before. An end of any other kind is an error.
    pub(super) fn first_id(&mut self, tally: &mut Tally) -> Result<Option<Duration>> {
        let mut client = None;
        while self.server.born().elapsed() < FIRST_ID {
            if self.is_struck()? {
                return Ok(None);
            }
            let asked = match &mut client {
                None => {
                    client = self.knock()?;
                    continue;
                }
                Some(client) => client.next(Order::Any),
            };
            match asked {
                Ok(id) => {
                    self.received.push(id);
                    return Ok(Some(self.server.born().elapsed()));
                }
                Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                    tally.refuse(&code(refusal.status), 1);
                    thread::sleep(Duration::from_millis(u64::from(refusal.retry_after_ms).clamp(1, 20)));
                }
                // It died, or closed the connection, which the next look tells.
                Err(ClientError::Ended(_)) => client = None,
                Err(error) => return Err(error).with_context(|| format!("{}", self.server)),
            }
        }
        bail!("no first id within {FIRST_ID:?}\n{}", self.server)
    }

    /// A connection, if it has told its address and accepts one.
    fn knock(&mut self) -> Result<Option<Client>> {
        // An error here says that it ended, and how is looked at by whoever asks again.
        if !self.server.is_announced().unwrap_or(false) {
            thread::sleep(LOOK);
            return Ok(None);
        }
        match Client::connect(self.server.addr) {
            Ok(client) => Ok(Some(client)),
            Err(ClientError::Ended(_)) => {
                thread::sleep(LOOK);
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("{}", self.server)),
        }
    }

    /// Whether it ended by SIGKILL, without our doing.
    pub(super) fn is_struck(&mut self) -> Result<bool> {
        match self.server.ended()? {
            None => Ok(false),
            Some(status) if is_kill(status) => Ok(true),
            Some(status) => bail!("it ended by itself: {status}\n{}", self.server),
        }
    }

    /// Lets its clients begin.
    pub(super) fn load(&mut self, jobs: &[Job]) -> Result<()> {
        let at_fronts = if jobs.iter().all(|job| job.pause.is_zero()) { HARD_FRONTS } else { LIGHT_FRONTS };
        self.load = Some(Load::start_at(Doors::of(&self.server)?, &[jobs, at_fronts].concat()));
        Ok(())
    }

    /// Lets it live so long; true if it was struck before that was over.
    pub(super) fn live(&mut self, time: Duration) -> Result<bool> {
        let begin = clock::now();
        while begin.elapsed() < time {
            if self.is_struck()? {
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
        Ok(false)
    }

    /// SIGTERM, and its end: exit code 0, or SIGKILL by its own hand.
    pub(super) fn stop(mut self) -> Legacy {
        match self.server.wind_down() {
            Ok(status) if status.code() == Some(0) || is_kill(status) => self.end(Some(status), None),
            Ok(status) => {
                let why = anyhow!("a clean stop ended with {status}\n{}", self.server);
                self.end(Some(status), Some(why))
            }
            Err(why) => self.end(None, Some(why)),
        }
    }

    /// SIGKILL, if it runs still.
    pub(super) fn kill(self) -> Legacy {
        self.end(None, None)
    }

    fn end(self, status: Option<ExitStatus>, why: Option<Error>) -> Legacy {
        let Self { server, log, load, received } = self;
        let mut wrong = Vec::from_iter(why);
        // A handle on a server that panicked panics itself, with what the server said.
        if let Err(error) = caught(|| server.kill()) {
            wrong.push(error);
        }
        let results = load.map(Load::collect).unwrap_or_default();
        wrong.extend(results.iter().filter_map(|result| result.check().err()));
        Legacy { status, log, results, received, wrong }
    }
}

fn is_kill(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

impl Legacy {
    /// Enters what both sides say into the account, and only then tells what was wrong; checks the sums of a clean
    /// stop. `last` becomes the last id that came, if one did.
    pub(super) fn enter(
        self,
        account: &mut IssuedVsReceived,
        tally: &mut Tally,
        last: &mut Option<u64>,
    ) -> Result<()> {
        let wrong = self.wrong.into_iter().reduce(|first, next| first.context(format!("{next:#}")));
        let wrong = wrong.map_or(Ok(()), Err);
        let mut of_each = vec![self.received];
        for result in self.results {
            for (status, count) in result.refused {
                tally.refuse(&code(status), count);
            }
            tally.unanswered(result.longest.as_millis() as u64);
            of_each.push(result.received);
        }
        let came = of_each.iter().rev().find_map(|received| received.runs().last()).map(|run| run.first);
        *last = came.or(*last);
        tally.note("ids received", of_each.iter().map(Received::ids).sum());
        let Some(log) = self.log else {
            account.unlogged(&of_each);
            return wrong;
        };
        let runs = match read_issued(&log) {
            Ok(runs) => runs,
            Err(error) => {
                account.unlogged(&of_each);
                return wrong.and(Err(error));
            }
        };
        let logged = runs.iter().map(|run: &Run| u64::from(run.count)).sum();
        tally.note("ids logged", logged);
        account.logged(&runs, &of_each);
        wrong?;
        if self.status.is_some_and(|status| status.code() == Some(0)) {
            balance(&log, logged, tally)?;
        }
        // None, if it died before it opened it.
        let _ = std::fs::remove_file(&log);
        Ok(())
    }
}

/// What a life of the crash-point build counted, written beside its log after a clean stop.
#[derive(Debug, serde::Deserialize)]
struct Sums {
    minted: u64,
    replayed: u64,
    issued: u64,
    spilled: u64,
    wasted: std::collections::BTreeMap<String, u64>,
    held: u64,
}

/// To the id: what came in went out, and what went out is in the log.
fn balance(log: &Path, logged: u64, tally: &mut Tally) -> Result<()> {
    let path = log.with_extension("stats");
    let text = std::fs::read_to_string(&path).with_context(|| format!("the sums, {}", path.display()))?;
    let sums: Sums = serde_json::from_str(&text)?;
    let _ = std::fs::remove_file(&path);
    let wasted: u64 = sums.wasted.values().sum();
    let (came, went) = (sums.minted + sums.replayed, sums.issued + sums.spilled + wasted + sums.held);
    ensure!(came == went, "minted and replayed {came}, issued, spilled, wasted and held {went}: {text}");
    ensure!(sums.issued == logged, "issued {} and logged {logged}: {text}", sums.issued);
    for (cause, ids) in sums.wasted {
        tally.waste(&cause, ids);
    }
    tally.note("sums checked", 1);
    tally.note("ids replayed in clean lives", sums.replayed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Whether these sums and so many logged ids are believed.
    fn is_balanced(issued: u64, spilled: u64, thread: u64, logged: u64) -> bool {
        let home = TempDir::new().unwrap();
        let log = home.path().join("issued-1");
        let sums = serde_json::json!({
            "minted": 90, "replayed": 10, "issued": issued, "spilled": spilled,
            "wasted": { "thread": thread, "trimmed": 5 }, "held": 3,
        });
        std::fs::write(log.with_extension("stats"), sums.to_string()).unwrap();
        balance(&log, logged, &mut Tally::new("kills")).is_ok()
    }

    #[test]
    fn sums_that_are_one_id_off_are_found() {
        assert!(is_balanced(60, 30, 2, 60));
        assert!(!is_balanced(60, 30, 3, 60), "an id is in two places");
        assert!(!is_balanced(60, 29, 2, 60), "an id is in none");
        assert!(!is_balanced(60, 30, 2, 59), "an id was issued and not logged");
        assert!(!is_balanced(60, 30, 2, 61), "an id was logged and not counted");
    }

    /// A life that two clients took ids from, and in which something went wrong.
    fn spoilt(log: Option<PathBuf>, wrong: Error) -> Legacy {
        let result = |ids: &[u64]| {
            let mut result = LoadResults::default();
            for id in ids {
                result.received.push(*id);
            }
            result
        };
        let results = vec![result(&[7, 9]), result(&[20, 9])];
        Legacy { status: None, log, results, received: Received::default(), wrong: vec![wrong] }
    }

    #[test]
    fn an_id_that_came_twice_in_a_life_that_went_wrong_is_a_duplicate_all_the_same() {
        let (mut account, mut tally, mut last) = (IssuedVsReceived::default(), Tally::new("kills"), None);
        let told = spoilt(None, anyhow!("it panicked")).enter(&mut account, &mut tally, &mut last);
        assert!(told.unwrap_err().to_string().contains("panicked"));
        assert_eq!(
            (account.balance().duplicates(), account.balance().issued.duplicates, last),
            (2, 1, Some(9))
        );
    }

    #[test]
    fn a_log_that_is_none_costs_no_id_that_clients_received() {
        let home = TempDir::new().unwrap();
        let log = home.path().join("issued-1");
        std::fs::write(&log, [1; 32]).unwrap();
        let (mut account, mut tally, mut last) = (IssuedVsReceived::default(), Tally::new("kills"), None);
        let told =
            spoilt(Some(log), anyhow!("it ended by itself")).enter(&mut account, &mut tally, &mut last);
        assert!(told.unwrap_err().to_string().contains("ended by itself"));
        assert_eq!(account.balance().issued.duplicates, 1);
    }

    #[test]
    fn a_clean_stop_that_left_no_sums_is_found() {
        let home = TempDir::new().unwrap();
        assert!(balance(&home.path().join("issued-1"), 0, &mut Tally::new("kills")).is_err());
    }
}
