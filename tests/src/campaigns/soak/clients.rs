//! The clients: they ask on through every fault, and everything they get goes into one ledger.
//!
//! Each client has a thread and one server. When its connection ends it connects again, to whatever address that server
//! has by then. What it got is added to the ledger every few thousand runs, so that nothing grows over a part but the
//! ledger's own open ticks: some 350 a second were measured at 12 million ids a second, 600 bytes each, which is 120 MB
//! at the end of ten minutes, and another ledger begins with the next part.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::super::Tally;
use super::super::refusals::code;
use super::cluster::Seat;
use crate::client::{Client, ClientError, Order};
use crate::clock;
use crate::load::{Job, Span, Work, request};
use crate::oracle::{Ledger, Received};

/// A client adds what it received to the ledger when it has as many runs, or after this time.
const RUNS: usize = 4_096;
const BETWEEN: Duration = Duration::from_millis(250);
/// A client that was refused asks again after the time it was told, but not later than this.
const MOST_WAIT: u32 = 20;
/// The burst: so often, and so long, everything is asked for that a server has. What it left in the spill comes back.
const BURST_EVERY: Duration = Duration::from_secs(20);
const BURST: Duration = Duration::from_millis(1_500);

const fn job(work: Work, order: Order, pause_ms: u64) -> Job {
    Job::gently(work, order, Duration::from_millis(pause_ms))
}

/// What each server is asked for. The first three take some 2.4 million ids a second, well below the 4.1 million that
/// a worker mints, so that some land goes to the spill; the others are there for the many small requests of every kind.
const JOBS: [Job; 9] = [
    job(Work::Runs(100_000), Order::Any, 70),
    job(Work::Runs(20_000), Order::Fresh, 30),
    job(Work::Runs(20_000), Order::Ordered, 40),
    job(Work::Array(1_000), Order::Any, 8),
    job(Work::Array(200), Order::Fresh, 8),
    job(Work::Array(100), Order::Ordered, 8),
    job(Work::Next(32), Order::Any, 6),
    job(Work::Next(8), Order::Fresh, 6),
    job(Work::Next(4), Order::Ordered, 6),
];

/// What a client tells while it runs.
#[derive(Debug, Default)]
struct Line {
    /// When the request was asked that was answered last, in milliseconds from the start of all clients.
    asked_ms: AtomicU64,
    /// The longest time from one answer to the next, in milliseconds.
    longest_ms: AtomicU64,
    /// Connections that ended.
    ended: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    begin: Instant,
    stop: AtomicBool,
    ids: AtomicU64,
    ledger: Mutex<Ledger>,
    /// Some id that came.
    witness: AtomicU64,
    refusals: Mutex<BTreeMap<u16, u64>>,
    /// What no client may see.
    breaches: Mutex<Vec<String>>,
}

/// The clients of all servers.
#[derive(Debug)]
pub(super) struct Clients {
    shared: Arc<Shared>,
    lines: Vec<(String, Arc<Line>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// One client for each job and seat.
    pub(super) fn start(seats: &[Arc<Seat>]) -> Self {
        let shared = Arc::new(Shared {
            begin: clock::now(),
            stop: AtomicBool::new(false),
            ids: AtomicU64::new(0),
            ledger: Mutex::default(),
            witness: AtomicU64::new(0),
            refusals: Mutex::default(),
            breaches: Mutex::default(),
        });
        let (mut lines, mut threads) = (Vec::new(), Vec::new());
        for (number, seat) in seats.iter().enumerate() {
            for (index, job) in JOBS.into_iter().enumerate() {
                let line = Arc::new(Line::default());
                let name = format!("server {number}, {:?} {:?}", job.work, job.order);
                lines.push((name.clone(), Arc::clone(&line)));
                let (shared, seat) = (Arc::clone(&shared), Arc::clone(seat));
                let client = Asker { shared, seat, line, job, bursts: index == 0, name };
                threads.push(thread::spawn(move || client.live()));
            }
        }
        Self { shared, lines, threads }
    }

    /// Ids received so far.
    pub(super) fn ids(&self) -> u64 {
        self.shared.ids.load(Ordering::Relaxed)
    }

    /// Waits until every client has an answer to something that it asked after `since`; how long that took.
    pub(super) fn wait_all_answered(&self, since: Instant, limit: Duration) -> Result<Duration> {
        let since_ms = self.shared.ms(since);
        let late = || self.lines.iter().find(|(_, line)| line.asked_ms.load(Ordering::Relaxed) <= since_ms);
        let waited = clock::wait_until("every client has an answer", limit, || Ok(late().is_none()));
        waited.with_context(|| late().map_or_else(String::new, |(name, _)| format!("none has {name}")))?;
        Ok(since.elapsed())
    }

    /// Fails if an id came twice, or a client saw what none may see.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(first) = locked(&self.shared.breaches).first() {
            bail!("{first}");
        }
        locked(&self.shared.ledger).check().map(drop)
    }

    /// Ends all clients and tells what they saw.
    pub(super) fn finish(self, tally: &mut Tally) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                tally.fail("a client panicked, and what it had not handed over is lost");
            }
        }
        for (name, line) in &self.lines {
            let (ms, ended) = (line.longest_ms.load(Ordering::Relaxed), line.ended.load(Ordering::Relaxed));
            tally.unanswered(ms);
            tally.note("connections ended", ended);
            tally.note(&format!("max_ms_without_answer {name}"), ms);
        }
        for (status, count) in &*locked(&self.shared.refusals) {
            tally.refuse(&code(*status), *count);
        }
        for breach in &*locked(&self.shared.breaches) {
            tally.fail(breach.clone());
        }
        let mut ledger = locked(&self.shared.ledger);
        let report = ledger.report();
        tally.note("max_open_ticks", ledger.open_plots() as u64);
        tally.note("max_workers", report.workers.len() as u64);
        (tally.ids, tally.duplicates) = (tally.ids + report.ids, tally.duplicates + report.duplicates);
        if let Err(error) = ledger.check() {
            tally.fail(format!("{error:#}"));
        }
        // The control: were one of all these ids issued once more, it would be seen.
        ledger.add_id(self.shared.witness.load(Ordering::Relaxed));
        if ledger.report().duplicates != report.duplicates + 1 {
            tally.fail("the oracle is blind: a planted duplicate was not seen");
        }
    }
}

impl Shared {
    fn ms(&self, moment: Instant) -> u64 {
        moment.saturating_duration_since(self.begin).as_millis() as u64
    }
}

/// One client.
#[derive(Debug)]
struct Asker {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    line: Arc<Line>,
    job: Job,
    bursts: bool,
    name: String,
}

impl Asker {
    /// Connects, again and again, until it is told to stop.
    fn live(self) {
        let mut received = Received::default();
        let mut answered = clock::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let Some(addr) = self.seat.wait_open(BETWEEN) else { continue };
            // Whatever ends it, what it received is handed over.
            let asked = catch_unwind(AssertUnwindSafe(|| self.ask_on(addr, &mut received, &mut answered)));
            let outcome = asked.unwrap_or(Err(ClientError::Broken("its client panicked over it")));
            self.hand_over(&mut received);
            match outcome {
                Ok(()) => {}
                Err(ClientError::Ended(_)) => {
                    self.line.ended.fetch_add(1, Ordering::Relaxed);
                    // The port may be another process's by now, or nobody's until the server is back.
                    self.seat.wait_news(addr, Duration::from_millis(20));
                }
                Err(error) => {
                    locked(&self.shared.breaches).push(format!("{}: {error}", self.name));
                    return;
                }
            }
        }
        // Until the end counts too.
        self.answered(&mut answered, clock::now());
    }

    /// One connection, as long as it lasts.
    fn ask_on(
        &self,
        addr: SocketAddr,
        received: &mut Received,
        answered: &mut Instant,
    ) -> Result<(), ClientError> {
        let mut client = Client::connect(addr)?;
        let (mut handed, mut highest) = (clock::now(), 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut span = Span { low: u64::MAX, high: 0 };
            let (asked, before) = (clock::now(), received.ids());
            let answer = request(&mut client, self.job, received, &mut span);
            let came = clock::now();
            self.shared.ids.fetch_add(received.ids() - before, Ordering::Relaxed);
            if self.job.order == Order::Ordered && span.low <= highest {
                return Err(ClientError::Broken("an ordered id came after a higher one"));
            }
            highest = highest.max(span.high);
            let pause = match answer {
                Ok(()) => {
                    self.answered(answered, came);
                    self.line.asked_ms.store(self.shared.ms(asked), Ordering::Relaxed);
                    if self.is_bursting(came) { Duration::ZERO } else { self.job.pause }
                }
                Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                    *locked(&self.shared.refusals).entry(refusal.status).or_default() += 1;
                    Duration::from_millis(refusal.retry_after_ms.clamp(1, MOST_WAIT).into())
                }
                Err(error) => return Err(error),
            };
            if received.runs().len() >= RUNS || handed.elapsed() >= BETWEEN {
                self.hand_over(received);
                handed = clock::now();
            }
            thread::sleep(pause);
        }
        Ok(())
    }

    fn is_bursting(&self, now: Instant) -> bool {
        let within = self.shared.ms(now) % BURST_EVERY.as_millis() as u64;
        self.bursts && within < BURST.as_millis() as u64
    }

    fn answered(&self, last: &mut Instant, came: Instant) {
        let gap = came.saturating_duration_since(*last).as_millis() as u64;
        self.line.longest_ms.fetch_max(gap, Ordering::Relaxed);
        *last = came;
    }

    fn hand_over(&self, received: &mut Received) {
        let received = std::mem::take(received);
        if let Some(run) = received.runs().first() {
            self.shared.witness.store(run.first, Ordering::Relaxed);
        }
        locked(&self.shared.ledger).add_received(&received);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
