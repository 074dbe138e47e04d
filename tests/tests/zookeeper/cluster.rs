//! Servers of the binary on one registry in ZooKeeper, and their load.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::http::Metrics;
use xuid_tests::{Job, Ledger, Load, LoadResults, SchedulerDelay, Serve, Server, Xuid};

/// A busy machine, and a first window that has to be taken.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// What NEXT waits at the servers of these tests: a machine that is busy elsewhere takes the processor from a server
/// for longer than the 50 ms that are the default, and a test asks what the registry does to a request, not what the
/// machine.
pub(crate) const WAIT: &str = "2s";

/// Nobody who is served all the way asks for longer, and what the machine was late.
const LONGEST: Duration = Duration::from_millis(300);

/// Makes a registry with all defaults.
pub(crate) fn init(url: &str) -> Result<()> {
    let said = Xuid::new(["registry", "init", url])?.run()?;
    println!("registry init: {}", said.ok()?.lines().next().unwrap_or_default());
    Ok(())
}

/// Servers, each on a data folder of its own.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    pub(crate) delay: SchedulerDelay,
    // Last, so that the processes are gone before their folders are.
    _home: TempDir,
}

impl Cluster {
    /// One server for each registry address, with these arguments; all are ready when it returns.
    pub(crate) fn start(urls: &[String], arguments: &[&str]) -> Result<Self> {
        let home = TempDir::new()?;
        let mut servers = Vec::new();
        for (number, url) in urls.iter().enumerate() {
            let serve = Serve::new(&home.path().join(format!("data-{number}")))?.arg("--registry").arg(url);
            let serve = serve.arg("--wait").arg(WAIT);
            servers.push(arguments.iter().fold(serve, Serve::arg).start()?);
        }
        for server in &servers {
            server.wait_ready(READY_LIMIT)?;
        }
        Ok(Self { servers, delay: SchedulerDelay::watch(), _home: home })
    }

    /// The same jobs on every server, a load each.
    pub(crate) fn load(&self, jobs: &[Job]) -> Vec<Load> {
        self.servers.iter().map(|server| Load::start(server.addr, jobs)).collect()
    }

    /// The metrics page of each.
    pub(crate) fn metrics(&self) -> Result<Vec<Metrics>> {
        self.servers.iter().map(Server::metrics).collect()
    }

    /// The sum over all servers of the samples whose names with labels contain each of `words`.
    pub(crate) fn sum(&self, words: &[&str]) -> Result<f64> {
        Ok(self.metrics()?.iter().map(|page| page.sum(words)).sum())
    }

    /// Clean stops, all at once being the worst that a deployment does; logs are checked for panics on the way.
    pub(crate) fn stop(self) -> Result<()> {
        for (number, server) in self.servers.into_iter().enumerate() {
            let log = server.stop().with_context(|| format!("server {number}"))?;
            ensure!(!log.contains("panicked"), "server {number}:\n{log}");
        }
        Ok(())
    }
}

/// Ends loads, records what they brought, and returns it.
pub(crate) fn finish(loads: Vec<Load>, ledger: &mut Ledger) -> Result<Vec<LoadResults>> {
    loads.iter().for_each(Load::ask_to_stop);
    let mut results = Vec::new();
    for load in loads {
        results.extend(load.join()?);
    }
    for result in &results {
        ledger.add_received(&result.received);
    }
    Ok(results)
}

/// Fails if a request was refused or waited, or a connection broke.
pub(crate) fn unharmed(results: &[LoadResults], delay: &SchedulerDelay) -> Result<()> {
    let refusals: u64 = results.iter().map(|result| result.refusals).sum();
    let last = results.iter().find_map(|result| result.last_refusal.as_deref());
    ensure!(refusals == 0, "{refusals} requests were refused, for example: {}", last.unwrap_or_default());
    let broken = results.iter().filter(|result| result.broken).count();
    ensure!(broken == 0, "{broken} connections broke");
    let longest = results.iter().map(|result| result.longest).max().unwrap_or_default();
    println!("    ids came after {longest:?} at most; the machine was {:?} late at worst", delay.worst());
    ensure!(longest < delay.allow(LONGEST), "a request waited {longest:?}");
    Ok(())
}
