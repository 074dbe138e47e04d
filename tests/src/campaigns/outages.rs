//! The real binary while its registry or its disk is away: the registry's file locked by a stranger, its ensemble
//! stopped, its disk frozen, full, or read-only.
//!
//! A trial is one of them at one age of the server: a second old, or with windows as long as they get, which they are after
//! half a minute. (A server that is an hour old holds the same windows.) The fault strikes, lasts, and ends, and strikes
//! again for a SIGTERM. In a long part it lasts a minute, under the eyes of a real Prometheus with the project's rules.
//!
//! # Invariants
//! - O1 within [`SOON`] of the fault, and of its end, log, `/readyz` and `/metrics` tell the truth, and while it lasts none
//!   of them tells of another one;
//! - O2 within the drain and a second of SIGTERM every socket is closed, the last line is written, and exit is called;
//! - O3 the alert that is meant for the fault fires, and where nothing is wrong none does;
//! - O4 no id comes twice, over all lives of a folder.

mod scene;
mod stop;
mod truth;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use self::scene::{KINDS, Kind, Scene};
use self::truth::Truth;
use super::trials::{caught, side_by_side};
use super::{Campaign, Need, Progress, Size, Tally, revision};
use crate::{Job, Ledger, Load, Order, Prometheus, SchedulerDelay, Server, Work, clock, not_tried};

/// From the fault to what is told of it, and from its end.
const SOON: Duration = Duration::from_secs(2);
/// How long a fault lasts in a long part, and in a short one.
const OUTAGE: Duration = Duration::from_mins(1);
const SHORT_OUTAGE: Duration = Duration::from_secs(5);
/// Parts of as many trials are long.
const LONG: u64 = 10;
/// Trials wait most of the time.
const LANES: usize = 5;
/// A server of this age is a young one.
const YOUNG: Duration = Duration::from_secs(1);
/// What is left of a window that is as long as windows get, in milliseconds: 60 s at most, and more than the half at which
/// they are renewed.
const FULL_WINDOW_MS: f64 = 45_000.0;
/// 2, 4, 8, 16, 32 and then 60 s, each renewed at its half: the last one after half a minute.
const GROWN: Duration = Duration::from_secs(90);
/// An alert is evaluated once a second; `for` is over by the end of a long outage.
const FIRED: Duration = Duration::from_secs(20);
/// After the end of a fault windows are tried each second.
const SERVED: Duration = Duration::from_secs(5);

/// A little of what memory has, and of what only a window has.
const JOBS: [Job; 2] = [
    Job::gently(Work::Array(10), Order::Any, Duration::from_millis(20)),
    Job::gently(Work::Next(1), Order::Fresh, Duration::from_millis(20)),
];

/// The campaign `outages`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outages;

impl Campaign for Outages {
    fn name(&self) -> &'static str {
        "outages"
    }

    fn what(&self) -> &'static str {
        "registry locked or stopped, disk frozen, full or read-only: told within two seconds, and a stop in time"
    }

    fn needs(&self) -> &'static [Need] {
        &[
            Need::Server,
            Need::Installed("java"),
            Need::Installed("setpriv"),
            Need::Installed("zookeeper"),
            Need::Installed("prometheus"),
        ]
    }

    fn missed(&self, size: Size, tally: &Tally) -> Vec<String> {
        // After a change it is enough to count them.
        if size == Size::Quick {
            return Vec::new();
        }
        let untried = tally.notes.iter().filter(|(name, _)| name.ends_with(NOT_TRIED));
        untried.map(|(name, count)| format!("{name}: {count}")).collect()
    }

    fn run(&self, trials: Range<u64>, progress: &Progress) -> Result<Tally> {
        let is_long = trials.end - trials.start >= LONG;
        let run = |number, tally: &mut Tally| trial(number, is_long, tally);
        Ok(side_by_side("outages", (trials, LANES), progress, |number| number, run))
    }
}

/// How the note ends that counts what this machine does not allow.
const NOT_TRIED: &str = "not tried";

fn trial(number: u64, is_long: bool, tally: &mut Tally) -> Result<()> {
    let kinds = KINDS.len() as u64;
    let (kind, is_grown) = (KINDS[(number % kinds) as usize], number / kinds % 2 == 1);
    let (home, mut ledger) = (TempDir::new()?, Ledger::default());
    let age = if is_grown { "with full windows" } else { "a second old" };
    let name = format!("{} {age}", kind.name());
    // Even a panic leaves the ids that came before it to be compared.
    let played = caught(|| {
        let Some(mut scene) = Scene::new(kind, home.path())? else {
            tally.note(&format!("{} {NOT_TRIED}", kind.name()), 1);
            return Ok(());
        };
        tally.note(&name, 1);
        Act { scene: &mut scene, kind, is_grown, is_long, tally, ledger: &mut ledger }.play()
    });
    let report = ledger.report();
    (tally.ids, tally.duplicates) = (report.ids, report.duplicates);
    ledger.check()?;
    played.context(name)
}

/// One trial.
struct Act<'t> {
    scene: &'t mut Scene,
    kind: Kind,
    is_grown: bool,
    is_long: bool,
    tally: &'t mut Tally,
    ledger: &'t mut Ledger,
}

impl Act<'_> {
    fn play(mut self) -> Result<()> {
        let delay = SchedulerDelay::watch();
        let mut server = self.scene.serve()?.arg("--drain").arg("1s").start()?;
        let watcher = self.watcher(&server)?;
        self.grow(&server)?;
        let load = Load::start(server.addr, &JOBS);
        let outage = self.outage(&server, watcher.as_ref(), &delay).with_context(|| format!("{server}"));
        load.ask_to_stop();
        let any = load.enter(self.ledger)?.swap_remove(0);
        self.tally.unanswered(any.longest.as_millis() as u64);
        outage?;
        self.stop(&mut server, &delay).with_context(|| format!("{server}"))?;
        drop(server);
        let next = self.scene.serve()?.start().context("the next life")?;
        next.drain(1_000_000, self.ledger)?;
        next.stop()?;
        if self.kind == Kind::Full && self.is_long {
            self.begin_on_a_full_disk()?;
        }
        Ok(())
    }

    /// A Prometheus with the project's rules, in a long part.
    fn watcher(&mut self, server: &Server) -> Result<Option<Prometheus>> {
        if !self.is_long {
            return Ok(None);
        }
        if !Prometheus::is_installed() {
            self.tally.note(&format!("alerts {NOT_TRIED}"), 1);
            not_tried("alerts of outages by a real Prometheus", "no prometheus here")?;
            return Ok(None);
        }
        Prometheus::start(&[server], &rules()).map(Some)
    }

    fn grow(&self, server: &Server) -> Result<()> {
        if !self.is_grown {
            clock::idle(YOUNG.saturating_sub(server.born().elapsed()));
            return Ok(());
        }
        let is_full =
            || Ok(server.metrics()?.value("xuid_window_left_ms").is_some_and(|left| left > FULL_WINDOW_MS));
        clock::wait_until("its windows are as long as they get", GROWN, is_full).map(drop)
    }

    /// A fault, what is told of it and of its end, and who is alarmed.
    fn outage(
        &mut self,
        server: &Server,
        watcher: Option<&Prometheus>,
        delay: &SchedulerDelay,
    ) -> Result<()> {
        let (seen, lasts) = (server.log().len(), if self.is_long { OUTAGE } else { SHORT_OUTAGE });
        self.scene.strike()?;
        let begin = clock::now();
        if self.kind.truth().is_some() {
            let told = Truth::wait_told(server, seen, delay.allow(SOON))?;
            self.tally.note(&format!("max_told_ms {}", self.kind.name()), told.as_millis() as u64);
        }
        clock::idle(lasts.saturating_sub(begin.elapsed()));
        match self.kind.truth() {
            Some(truth) => truth.check_lasting(server, begin.elapsed(), delay.allow(SOON))?,
            None => Truth::check_well(server, seen)?,
        }
        if let Some(prometheus) = watcher {
            self.alarmed(prometheus, server)?;
        }
        if self.kind == Kind::ReadOnly {
            // The kernel makes it writable again only when nothing of it is open.
            return Ok(());
        }
        let seen = server.log().len();
        self.scene.lift()?;
        let begin = clock::now();
        if self.kind.truth().is_some() {
            let told = Truth::wait_back(server, seen, delay.allow(SOON))?;
            self.tally.note(&format!("max_back_told_ms {}", self.kind.name()), told.as_millis() as u64);
        }
        let mut client = server.client()?;
        clock::wait_until("fresh ids are served again", delay.allow(SERVED), || {
            Ok(client.next(Order::Fresh).map(|id| self.ledger.add_id(id)).is_ok())
        })?;
        self.tally.recovered(begin.elapsed().as_millis() as u64);
        Ok(())
    }

    fn alarmed(&mut self, prometheus: &Prometheus, server: &Server) -> Result<()> {
        for alert in self.kind.alerts() {
            clock::wait_until(alert, FIRED, || prometheus.fires(alert, server.admin))
                .with_context(|| format!("Prometheus logged:\n{}", prometheus.log()))?;
            self.tally.note(&format!("fired {alert}"), 1);
        }
        if self.kind.alerts().is_empty() {
            let firing = prometheus.firing(server.admin)?;
            ensure!(firing.is_empty(), "nothing is wrong, and these fire: {firing:?}");
        }
        Ok(())
    }

    /// SIGTERM while the fault lasts, and the place as it was again.
    fn stop(&mut self, server: &mut Server, delay: &SchedulerDelay) -> Result<()> {
        if self.kind != Kind::ReadOnly {
            let seen = server.log().len();
            self.scene.strike()?;
            if self.kind.truth().is_some() {
                Truth::wait_told(server, seen, delay.allow(SOON))?;
            }
        }
        let took = stop::stop(server, self.kind, delay)?;
        self.tally.note(&format!("max_exit_ms {}", self.kind.name()), took.as_millis() as u64);
        if self.kind != Kind::ReadOnly {
            self.scene.lift()?;
        }
        stop::wait_gone(server)?;
        self.scene.mend()
    }

    /// What was laid out when there was room needs none. A server that is the second one of the folder needs a spill, and
    /// has to do without.
    fn begin_on_a_full_disk(&mut self) -> Result<()> {
        let first = self.scene.serve()?.start()?;
        self.scene.nearly_fill()?;
        let second = self.scene.serve()?.start()?;
        let (log, ready) = (second.log(), second.wait_ready(SERVED)?);
        ensure!(log.contains("spill") && ready.contains("running without a spill"), "{ready}\n{second}");
        if let Some(prometheus) = self.watcher(&second)? {
            clock::wait_until("XuidSpillOff", FIRED, || prometheus.fires("XuidSpillOff", second.admin))?;
            self.tally.note("fired XuidSpillOff", 1);
        }
        second.drain(1_000_000, self.ledger)?;
        second.stop()?;
        first.stop()?;
        self.scene.lift()
    }
}

/// The alert rules that are shipped.
fn rules() -> PathBuf {
    revision::root().join("server/packaging/alerts.yml")
}
