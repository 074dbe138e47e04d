//! One server under a clock that steps, its clients, and what is read of both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use xuid_tests::{FakeClock, Job, Ledger, SchedulerDelay, Serve, Server, Timeline, Told, Xuid, clock, http};

/// The default layout: 22 bits below the time, and its epoch.
const EPOCH_MS: i64 = 1_524_153_600_000;
const BELOW_TIME: u32 = 22;

/// A busy machine, and a first window that has to be taken.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Requests for one id may wait as long as others, since what is measured is how long they do.
const WAIT: &str = "2s";
/// A scrape reads the clock.
const VERDICT_LIMIT: Duration = Duration::from_secs(2);

/// A step of the clock and the time that was lived with it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// How far fresh ids' time is from the true one, once the step is settled.
    pub(super) stamps_ms: i64,
    pub(super) from: Instant,
    pub(super) settled: Instant,
    pub(super) to: Instant,
}

impl Step {
    /// Lived with until now.
    pub(super) fn new(name: &'static str, stamps_ms: i64, from: Instant, settled: Instant) -> Self {
        Self { name, stamps_ms, from, settled, to: clock::now() }
    }
}

/// The server and its clients.
#[derive(Debug)]
pub(super) struct Fixture {
    title: &'static str,
    pub(super) server: Server,
    clock: FakeClock,
    clients: Timeline,
    pub(super) delay: SchedulerDelay,
    /// What tells `xuid workers` where the registry is.
    registry: Vec<String>,
}

impl Fixture {
    /// Starts server and clients; all is as usual when it returns.
    pub(super) fn start(
        title: &'static str,
        serve: Serve,
        registry: Vec<String>,
        jobs: &[Job],
    ) -> Result<Self> {
        let clock = FakeClock::new()?;
        let server = clock.over(serve.arg("--wait").arg(WAIT)).start()?;
        server.wait_ready(READY_LIMIT)?;
        let clients = Timeline::start(server.addr, jobs);
        Ok(Self { title, server, clock, clients, delay: SchedulerDelay::watch(), registry })
    }

    /// Ends clients and server; returns what the clients saw, the log, and how late threads ran meanwhile.
    pub(super) fn finish(self, ledger: &mut Ledger) -> Result<(Told, String, SchedulerDelay)> {
        let told = self.clients.finish(ledger).with_context(|| format!("{}", self.server))?;
        println!(
            "{}: this machine ran a thread that slept {:?} late at worst",
            self.title,
            self.delay.worst()
        );
        Ok((told, self.server.stop()?, self.delay))
    }

    pub(super) fn told(&self, what: &str) {
        println!("{}: {what}", self.title);
    }

    /// The server's wall becomes the true one plus `by_ms`.
    pub(super) fn shift(&self, by_ms: i64) -> Result<Instant> {
        self.clock.shift(by_ms)
    }

    /// The same, and waits until that has made `verdict` be entered once more. Returns when the clock stepped.
    pub(super) fn shift_to(&self, verdict: &str, by_ms: i64) -> Result<Instant> {
        let words = ["xuid_clock_verdicts_total", &format!("\"{verdict}\"")];
        let before = self.server.metrics()?.sum(&words);
        let stepped = self.shift(by_ms)?;
        clock::wait_until(verdict, VERDICT_LIMIT, || Ok(self.server.metrics()?.sum(&words) > before))
            .with_context(|| format!("after a step to {by_ms} ms\n{}", self.server))?;
        Ok(stepped)
    }

    /// Whether that is the present verdict.
    pub(super) fn verdict(&self, verdict: &str) -> Result<bool> {
        Ok(self.server.metrics()?.sum(&["xuid_clock_verdict{", &format!("\"{verdict}\"")]) > 0.0)
    }

    pub(super) fn wait_verdict(&self, verdict: &str, limit: Duration) -> Result<Duration> {
        clock::wait_until(verdict, limit, || self.verdict(verdict))
            .with_context(|| format!("{}", self.server))
    }

    /// Waits until `/readyz` is 200 and says all these words; returns its notes.
    pub(super) fn readiness(&self, words: &[&str]) -> Result<String> {
        let mut said = (0, String::new());
        let waited = clock::wait_until("/readyz", VERDICT_LIMIT, || {
            said = http::get(self.server.admin, "/readyz")?;
            Ok(said.0 == 200 && words.iter().all(|word| said.1.contains(word)))
        });
        waited.with_context(|| format!("/readyz says {said:?}, not {words:?}\n{}", self.server))?;
        Ok(said.1.lines().skip(1).collect::<Vec<_>>().join("; "))
    }

    /// The workers it holds, by the metrics page.
    pub(super) fn held(&self) -> Result<Vec<u64>> {
        let page = self.server.metrics()?.show("xuid_worker_window_left_ms");
        let worker = |line: &str| line.split('"').nth(1)?.parse().ok();
        Ok(page.lines().filter_map(worker).collect())
    }

    /// The rows of `xuid workers --json`: of all workers that were ever used.
    fn rows(&self) -> Result<Vec<Value>> {
        let said = Xuid::new(["workers", "--json"])?;
        let said = self.registry.iter().fold(said, Xuid::arg).run()?;
        said.ok()?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    pub(super) fn row(&self, worker: u64) -> Result<Value> {
        let mut rows = self.rows()?.into_iter();
        rows.find(|row| row["worker"] == worker).with_context(|| format!("no row of worker {worker}"))
    }

    /// How far the furthest end of a record is from the true time, in milliseconds.
    pub(super) fn furthest_record_ms(&self) -> Result<i64> {
        let now = clock::unix_ms().cast_signed();
        let ends = self.rows()?;
        let ends = ends.iter().filter_map(|row| row["reserved_until_ms"].as_i64());
        Ok(ends.max().context("no worker was ever used")? - now)
    }
}

/// The time of an id, in Unix milliseconds.
pub(super) fn stamp_ms(id: u64) -> i64 {
    EPOCH_MS + (id >> BELOW_TIME).cast_signed()
}

/// The true wall time of a moment.
pub(super) fn unix_ms_at(moment: Instant) -> i64 {
    clock::unix_ms().cast_signed() - clock::now().duration_since(moment).as_millis() as i64
}
