//! What log, `/readyz` and `/metrics` tell of the registry, and when.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{Server, clock, http};

/// What is to be told of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    /// A part of the reason, which the note in `/readyz` has as soon as it is there, and the log as well.
    pub(super) why: &'static str,
}

/// What is told at one moment.
#[derive(Debug)]
struct Told {
    /// What the log says since then.
    log: String,
    ready: (u16, String),
    is_connected: bool,
    away_s: f64,
}

impl Told {
    fn now(server: &Server, seen: usize) -> Result<Self> {
        let metrics = server.metrics()?;
        let connected = metrics.sum(&["xuid_registry_state", "\"connected\""]);
        Ok(Self {
            log: server.log().get(seen..).unwrap_or_default().to_owned(),
            ready: http::get(server.admin, "/readyz")?,
            is_connected: connected > 0.5,
            away_s: metrics.value("xuid_registry_away_seconds").context("no xuid_registry_away_seconds")?,
        })
    }

    /// Whether `/readyz` has a note of a registry that is away.
    fn has_note(&self) -> bool {
        ["the registry has not answered", "the session with the registry ended"]
            .iter()
            .any(|note| self.ready.1.contains(note))
    }

    fn is_away(&self) -> bool {
        self.log.contains("the registry is away")
            && self.has_note()
            && !self.is_connected
            && self.away_s > 0.0
    }

    fn is_well(&self) -> bool {
        !self.has_note() && self.is_connected && self.away_s == 0.0
    }
}

impl Truth {
    /// Waits until all three tell that the registry is away; how long that took.
    pub(super) fn wait_told(server: &Server, seen: usize, limit: Duration) -> Result<Duration> {
        wait("the registry is away", server, seen, limit, Told::is_away)
    }

    /// Waits until all three tell that it is back.
    pub(super) fn wait_back(server: &Server, seen: usize, limit: Duration) -> Result<Duration> {
        let is_back = |told: &Told| told.log.contains("the registry is back") && told.is_well();
        wait("the registry is back", server, seen, limit, is_back)
    }

    /// After so long a fault: it is told since its begin, once in the log, with its reason, and ids of any age are served.
    pub(super) fn check_lasting(self, server: &Server, lasted: Duration, soon: Duration) -> Result<()> {
        let told = Told::now(server, 0)?;
        ensure!(told.has_note() && !told.is_connected, "it is told no more: {told:?}");
        ensure!(told.ready.1.contains(self.why), "the reason is not told: {told:?}");
        ensure!(told.ready.0 == 200, "ids of any age are in memory: {told:?}");
        let least = lasted.saturating_sub(soon).as_secs_f64();
        ensure!(told.away_s >= least, "away for {} s of {lasted:?}", told.away_s);
        ensure!(told.away_s <= (lasted + soon).as_secs_f64(), "away for {} s of {lasted:?}", told.away_s);
        let lines = told.log.matches("the registry is away").count();
        ensure!(lines == 1, "the log tells of it {lines} times");
        Ok(())
    }

    /// Where nothing is wrong, nothing else is told.
    pub(super) fn check_well(server: &Server, seen: usize) -> Result<()> {
        let told = Told::now(server, seen)?;
        ensure!(told.is_well() && !told.log.contains("the registry is"), "a false alarm: {told:?}");
        ensure!(told.ready.0 == 200 && !told.ready.1.contains("not served"), "{told:?}");
        Ok(())
    }
}

fn wait(
    what: &str,
    server: &Server,
    seen: usize,
    limit: Duration,
    is_told: impl Fn(&Told) -> bool,
) -> Result<Duration> {
    let mut last = None;
    let waited = clock::wait_until(what, limit, || {
        let told = Told::now(server, seen)?;
        let is_told = is_told(&told);
        last = Some(told);
        Ok(is_told)
    });
    waited.with_context(|| format!("what is told instead: {last:?}"))
}
