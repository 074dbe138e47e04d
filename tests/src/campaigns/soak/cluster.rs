//! The cluster of a part: an ensemble, three servers on it, a proxy on each way between them, and one stepped clock.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::super::Tally;
use crate::proxy::{Proxy, Way};
use crate::zookeeper::Ensemble;
use crate::{FakeClock, Serve, Server, Xuid, clock, folder, process};

/// Servers, and nodes of the ensemble.
pub(super) const SERVERS: usize = 3;
const NODES: usize = 3;
const PATH: &str = "/xuid";
/// Windows end within an outage now and then, and are renewed during most faults.
const SETTINGS: [&str; 4] = ["--session", "2s", "--window-max", "10s"];
/// The namespace issued nothing in the hours that the stepped clock goes back to.
const FLOOR: &str = "--floor=-3h";
/// An election and a restart of Java under load.
pub(super) const LED: Duration = Duration::from_secs(30);

/// Where a server is to be found at the moment.
#[derive(Debug, Default)]
struct Place {
    addr: Option<SocketAddr>,
    pid: Option<u32>,
    /// Counts its lives.
    life: u64,
}

/// A server's place, which clients and the watch look at: it is empty while the server is down.
#[derive(Debug, Default)]
pub(super) struct Seat {
    place: Mutex<Place>,
    changed: Condvar,
}

impl Seat {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, server: Option<&Server>) {
        let mut place = self.place();
        place.addr = server.map(|server| server.addr);
        place.pid = server.map(Server::pid);
        place.life += u64::from(server.is_some());
        self.changed.notify_all();
    }

    /// Waits until the server is up, at most `limit`.
    pub(super) fn wait_open(&self, limit: Duration) -> Option<SocketAddr> {
        let closed = |place: &mut Place| place.addr.is_none();
        let waited = self.changed.wait_timeout_while(self.place(), limit, closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.addr
    }

    /// Waits until the server is somewhere else than at `addr`, at most `limit`.
    pub(super) fn wait_news(&self, addr: SocketAddr, limit: Duration) {
        let same = |place: &mut Place| place.addr == Some(addr);
        drop(self.changed.wait_timeout_while(self.place(), limit, same));
    }

    /// Process id and number of the present life.
    pub(super) fn life(&self) -> Option<(u32, u64)> {
        let place = self.place();
        Some((place.pid?, place.life))
    }
}

/// The servers and the ensemble of a part.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Option<Server>>,
    seats: Vec<Arc<Seat>>,
    /// By server, then by node of the ensemble.
    proxies: Vec<Vec<Proxy>>,
    /// A spill of each server as it was when that was down last.
    copies: Vec<Option<PathBuf>>,
    elder: usize,
    wasted: Tally,
    pub(super) clock: FakeClock,
    pub(super) ensemble: Ensemble,
    // Last, so that the processes are gone before their folders are.
    home: TempDir,
}

impl Cluster {
    /// All of it, serving; no fault ends the server `elder`.
    pub(super) fn start(elder: usize) -> Result<Self> {
        let ensemble = Ensemble::start(NODES)?;
        Xuid::new(["registry", "init", &ensemble.url(PATH), FLOOR])?.run()?.ok()?;
        let mut proxies = Vec::new();
        for _ in 0..SERVERS {
            let each = (0..NODES).map(|node| Proxy::start(ensemble.addr(node)));
            proxies.push(each.collect::<Result<Vec<_>>>()?);
        }
        let mut cluster = Self {
            servers: (0..SERVERS).map(|_| None).collect(),
            seats: (0..SERVERS).map(|_| Arc::default()).collect(),
            proxies,
            copies: vec![None; SERVERS],
            elder,
            wasted: Tally::default(),
            clock: FakeClock::new()?,
            ensemble,
            home: TempDir::new()?,
        };
        for number in 0..SERVERS {
            cluster.begin(number)?;
        }
        Ok(cluster)
    }

    pub(super) fn seats(&self) -> &[Arc<Seat>] {
        &self.seats
    }

    /// The server that no fault ends, so that one life is as long as the part.
    pub(super) fn elder(&self) -> usize {
        self.elder
    }

    /// The server that lives under the stepped clock; the elder's clock is the machine's.
    fn stepped(&self) -> usize {
        (self.elder + 1) % SERVERS
    }

    /// Starts a server that is down.
    pub(super) fn begin(&mut self, number: usize) -> Result<()> {
        let addrs: Vec<String> = self.proxies[number].iter().map(|proxy| proxy.addr().to_string()).collect();
        let url = format!("zookeeper://{}{PATH}", addrs.join(","));
        let serve = Serve::new(&self.data(number))?.arg("--registry").arg(url);
        let serve = SETTINGS.into_iter().fold(serve, Serve::arg);
        let serve = if number == self.stepped() { self.clock.over(serve) } else { serve };
        let server = serve.start().with_context(|| format!("starting server {number}"))?;
        self.seats[number].set(Some(&server));
        self.servers[number] = Some(server);
        Ok(())
    }

    /// Ends a server, cleanly or by SIGKILL, and keeps a copy of its spill. Clients see it gone at once.
    pub(super) fn end(&mut self, number: usize, cleanly: bool) -> Result<()> {
        let server = self.servers[number].take().context("it is down already")?;
        self.count_waste(&server);
        let log = server.end(cleanly);
        self.seats[number].set(None);
        let log = log.with_context(|| format!("ending server {number}"))?;
        ensure!(!log.contains("panicked"), "server {number} panicked:\n{log}");
        Ok(())
    }

    /// Puts the spill back that was kept of a server that is down, if one was, and keeps the present one.
    pub(super) fn put_spill_back(&mut self, number: usize) -> Result<bool> {
        let spills = folder::spills(&self.data(number))?;
        let Some(spill) = spills.first() else { return Ok(false) };
        let (kept, new) = (self.home.path().join(format!("kept-{number}")), self.home.path().join("new"));
        fs::copy(spill, &new)?;
        let had = self.copies[number].is_some();
        if had {
            folder::overwrite(&kept, spill)?;
        }
        fs::rename(new, &kept)?;
        self.copies[number] = Some(kept);
        Ok(had)
    }

    /// Stops a server where it stands.
    pub(super) fn freeze(&self, number: usize, time: Duration) -> Result<()> {
        let server = self.servers[number].as_ref().context("it is down")?;
        process::freeze(server.child())?;
        clock::idle(time);
        process::thaw(server.child())
    }

    /// What a server's ways to the ensemble do from now on.
    pub(super) fn way(&self, number: usize, way: Way) {
        self.proxies[number].iter().for_each(|proxy| proxy.set(way));
    }

    /// Ends a server's connections to the ensemble.
    pub(super) fn cut(&self, number: usize, reset: bool) {
        for proxy in &self.proxies[number] {
            if reset { proxy.reset() } else { proxy.cut() }
        }
    }

    /// Everything as it was at the beginning. Returns when that was.
    pub(super) fn mend(&mut self) -> Result<Instant> {
        self.clock.shift(0)?;
        for number in 0..SERVERS {
            self.way(number, Way::Pass);
        }
        self.ensemble.start_all()?;
        self.ensemble.wait_serving(LED)?;
        for number in 0..SERVERS {
            if let Some(server) = &mut self.servers[number]
                && server.is_alive()?
            {
                process::thaw(server.child())?;
                continue;
            }
            self.servers[number] = None;
            self.begin(number)?;
        }
        Ok(clock::now())
    }

    /// Fails if a server ended by itself or panicked; one that did is started again.
    pub(super) fn check(&mut self) -> Result<()> {
        for number in 0..SERVERS {
            let Some(server) = &mut self.servers[number] else { continue };
            let alive = server.is_alive()?;
            let said = server.log();
            if !alive {
                // It is dropped after its log was read, or a panic in it would be one of this program.
                self.seats[number].set(None);
                std::mem::forget(self.servers[number].take());
                self.begin(number)?;
            }
            ensure!(
                alive && !said.contains("panicked"),
                "server {number} ended by itself or panicked:\n{said}"
            );
        }
        Ok(())
    }

    /// Clean stops, all figures, and what went wrong with either.
    pub(super) fn finish(mut self, tally: &mut Tally) {
        for number in 0..SERVERS {
            if self.servers[number].is_some()
                && let Err(error) = self.end(number, true)
            {
                tally.fail(format!("at the end: {error:#}"));
            }
        }
        *tally += &self.wasted;
    }

    fn data(&self, number: usize) -> PathBuf {
        self.home.path().join(format!("data-{number}"))
    }

    /// What a life that is about to end has wasted so far; what its end wastes nobody can tell.
    fn count_waste(&mut self, server: &Server) {
        let Ok(page) = server.metrics() else { return };
        for cause in ["thread", "expired", "trimmed", "spill", "grant", "step"] {
            let ids = page.sum(&["xuid_wasted_ids", &format!("\"{cause}\"")]);
            #[expect(clippy::cast_sign_loss, reason = "a counter is a whole number from 0 on")]
            self.wasted.waste(cause, ids as u64);
        }
        for (name, words) in
            [("replayed ids", "xuid_spill_replayed_ids"), ("spilled ids", "xuid_spilled_ids")]
        {
            #[expect(clippy::cast_sign_loss, reason = "a counter is a whole number from 0 on")]
            self.wasted.note(name, page.sum(&[words]) as u64);
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, server) in self.servers.iter().enumerate() {
            match server {
                Some(server) => writeln!(out, "server {number}\n{server}")?,
                None => writeln!(out, "server {number} is down")?,
            }
        }
        Ok(())
    }
}
