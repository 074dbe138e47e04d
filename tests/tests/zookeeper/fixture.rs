//! A registry in one ZooKeeper server, a hand in its tree, and servers of the binary on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use xuid_tests::zookeeper::{Ensemble, Sasl, Tamper};
use xuid_tests::{
    ClientError, Job, Load, LoadResults, Order, SchedulerDelay, Serve, Server, Work, Xuid, clock, http,
};

use crate::cluster::WAIT;

/// For everything that a server notices at its next need of the registry, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Windows of a server of a [`Fixture`]: what is left of them after damage ends within this.
pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(6);
/// A fence, and a registry made where one was, begin 125 s after the command; less what a test takes until it looks.
pub(crate) const OUT_OF_REACH: Duration = Duration::from_secs(110);

pub(crate) const PATH: &str = "/xuid";

/// Whether two minutes more are there to be waited, until a fenced registry serves again.
pub(crate) fn is_long() -> bool {
    std::env::var_os("XUID_LONG").is_some_and(|value| value == "1")
}

/// A worker as `xuid workers` tells it.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    /// Milliseconds of Unix time; 0 if the record is unusable.
    pub(crate) reserved_until_ms: u64,
    /// Why it is unusable.
    pub(crate) error: Option<String>,
}

/// What a test finds set up.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) ensemble: Ensemble,
    pub(crate) tamper: Tamper,
    pub(crate) url: String,
    pub(crate) home: TempDir,
    pub(crate) delay: SchedulerDelay,
}

impl Fixture {
    /// One ZooKeeper server with a registry of eight workers.
    pub(crate) fn start() -> Result<Self> {
        let fixture = Self::without_registry()?;
        fixture.init(&[])?;
        Ok(fixture)
    }

    /// One ZooKeeper server.
    pub(crate) fn without_registry() -> Result<Self> {
        Self::with_logins(None)
    }

    /// One ZooKeeper server, with logins by SASL; the hand in its tree is logged in.
    pub(crate) fn with_logins(sasl: Option<Sasl>) -> Result<Self> {
        let ensemble = Ensemble::start_with(1, sasl)?;
        let tamper = Tamper::connect_as(sasl.map(|sasl| sasl.user), &ensemble.connect_string())?;
        let url = ensemble.url(PATH);
        Ok(Self { ensemble, tamper, url, home: TempDir::new()?, delay: SchedulerDelay::watch() })
    }

    /// The path of a node of the registry: `w/3`.
    pub(crate) fn node(path: &str) -> String {
        format!("{PATH}/{path}")
    }

    /// `xuid registry ACTION URL`.
    pub(crate) fn registry(&self, action: &str) -> Result<Xuid> {
        Xuid::new(["registry", action, &self.url])
    }

    /// Makes a registry of eight workers; what was said.
    pub(crate) fn init(&self, arguments: &[&str]) -> Result<String> {
        let command = self.registry("init")?.arg("--workers").arg("8");
        Ok(arguments.iter().fold(command, Xuid::arg).run()?.ok()?.to_owned())
    }

    /// Fences it; what was said.
    pub(crate) fn fence(&self) -> Result<String> {
        let said = self.registry("fence")?.arg("--yes").run()?.ok()?.to_owned();
        println!("fence: {}", said.trim());
        Ok(said)
    }

    /// What `xuid registry show` says.
    pub(crate) fn show(&self) -> Result<String> {
        Ok(self.registry("show")?.run()?.ok()?.to_owned())
    }

    /// What `xuid workers` says.
    pub(crate) fn workers(&self) -> Result<BTreeMap<u32, Listed>> {
        let said = Xuid::new(["workers", "--registry", &self.url, "--all", "--json"])?.run()?;
        let mut listed = BTreeMap::new();
        for line in said.ok()?.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let worker = entry["worker"].as_u64().context("no worker")?;
            let error = entry["error"].as_str().map(str::to_owned);
            let reserved_until_ms = entry["reserved_until_ms"].as_u64().unwrap_or(0);
            listed.insert(u32::try_from(worker)?, Listed { reserved_until_ms, error });
        }
        Ok(listed)
    }

    /// A data folder of the test.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A server with short windows and sessions on that folder.
    pub(crate) fn serve(&self, folder: &str) -> Result<Serve> {
        self.serve_at(&self.url, folder)
    }

    /// The same, by another address of the registry.
    pub(crate) fn serve_at(&self, url: &str, folder: &str) -> Result<Serve> {
        let window_max = format!("{}s", WINDOW_MAX.as_secs());
        let serve = Serve::new(&self.folder(folder))?.arg("--registry").arg(url);
        Ok(serve.arg("--wait").arg(WAIT).arg("--session").arg("1s").arg("--window-max").arg(window_max))
    }

    /// A server that is ready.
    pub(crate) fn server(&self, folder: &str) -> Result<Server> {
        let server = self.serve(folder)?.start()?;
        server.wait_ready(SOON)?;
        Ok(server)
    }

    /// What a server says that must refuse to start, with exit code 1.
    pub(crate) fn refused(serve: Serve) -> Result<String> {
        let said = serve.run_to_exit()?.refused(1)?;
        let last = said.lines().last().unwrap_or_default().to_owned();
        println!("refused: {last}");
        ensure!(last.starts_with("xuid: "), "the last line does not say why:\n{said}");
        Ok(last)
    }

    /// Whether exactly one era is there, so that the registry may be used.
    pub(crate) fn is_open(&self) -> Result<bool> {
        Ok(self.tamper.children(&Self::node("era"))?.len() == 1)
    }
}

/// Ids that every connection of a load has got.
pub(crate) const LOADED: u64 = 1_000;

/// All orders, gently: requests are answered while others measure. Each order was served when it returns.
pub(crate) fn load(server: &Server) -> Result<Load> {
    const PAUSE: Duration = Duration::from_millis(3);
    let jobs = [
        Job::gently(Work::Array(400), Order::Any, PAUSE),
        Job::gently(Work::Next(16), Order::Fresh, PAUSE),
        Job::gently(Work::Runs(2_000), Order::Ordered, PAUSE),
    ];
    let load = Load::start(server.addr, &jobs);
    clock::wait_until("every order is served", SOON, || Ok(load.fewest() > LOADED))?;
    Ok(load)
}

/// Fails if a connection of such a load got hardly anything, or broke.
pub(crate) fn check_load(results: &[LoadResults]) -> Result<()> {
    let fewest = results.iter().map(|result| result.received.ids()).min();
    ensure!(fewest > Some(LOADED), "a connection got {fewest:?} ids");
    ensure!(!results.iter().any(|result| result.broken), "a connection broke");
    Ok(())
}

/// The one worker that a server holds.
pub(crate) fn worker(server: &Server) -> Result<u32> {
    let id = server.client()?.next(Order::Fresh).with_context(|| format!("{server}"))?;
    Ok((id >> 12 & 0x3ff) as u32)
}

/// Waits until a fresh id comes from another worker than `left`; the worker.
pub(crate) fn wait_other_worker(server: &Server, left: u32) -> Result<u32> {
    let mut client = server.client()?;
    let waited = clock::wait_for("another worker", SOON, || {
        let found = client.try_next(Order::Fresh)?.map(|id| (id >> 12 & 0x3ff) as u32);
        Ok(found.filter(|found| *found != left))
    });
    let (found, waited) = waited.with_context(|| format!("{server}"))?;
    println!("worker {left} was left for {found} after {waited:?}");
    Ok(found)
}

/// Waits until fresh ids are refused and `/readyz?order=fresh` gives each of `words` as the reason; returns its text.
pub(crate) fn wait_refusing(server: &Server, words: &[&str]) -> Result<String> {
    let mut client = server.client()?;
    let mut said = String::new();
    let waited = clock::wait_until("it refuses and says why", SOON, || {
        let refused = match client.next(Order::Fresh) {
            Ok(_) => false,
            Err(ClientError::Refused(refusal)) => {
                ensure!(refusal.is_retryable(), "{refusal}");
                true
            }
            Err(error) => return Err(error.into()),
        };
        let (status, text) = http::get(server.admin, "/readyz?order=fresh")?;
        said = format!("{status} {}", text.trim().replace('\n', " | "));
        Ok(refused && status == 503 && words.iter().all(|word| text.contains(word)))
    });
    let waited = waited.with_context(|| format!("wanted {words:?}, /readyz says {said}\n{server}"))?;
    println!("refuses after {waited:?}: {said}");
    Ok(said)
}

/// The same of each of them.
pub(crate) fn wait_all_refusing(servers: &[&Server], words: &[&str]) -> Result<()> {
    servers.iter().try_for_each(|server| wait_refusing(server, words).map(drop))
}

/// The sum of a server's samples whose names contain all of `words`.
pub(crate) fn sum(server: &Server, words: &[&str]) -> Result<f64> {
    Ok(server.metrics()?.sum(words))
}
