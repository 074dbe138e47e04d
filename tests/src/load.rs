//! Threads that take ids as fast as they are asked to, until they are told to stop or the server dies.
//!
//! # Invariants
//! - What a connection received comes home, whatever ended it: a breach of the protocol or of the order, even a panic
//!   of its thread, is told beside the ids ([`LoadResults::breach`]), never instead of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::client::{Client, ClientError, Order, Refusal};
use crate::clock;
use crate::fronts::{Caller, Doors, Form, Front, Wanted};
use crate::oracle::{Ledger, Received};

/// What a connection asks for, again and again.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// This many NEXT requests in flight.
    Next(usize),
    /// ARRAY of this count.
    Array(u32),
    /// RUNS of this count.
    Runs(u32),
}

/// The work of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// What it asks for.
    pub work: Work,
    /// In which order.
    pub order: Order,
    /// The pause between two requests: zero is full speed.
    pub pause: Duration,
    /// Where it asks.
    pub front: Front,
}

impl Job {
    /// At full speed.
    pub const fn new(work: Work, order: Order) -> Self {
        Self::gently(work, order, Duration::ZERO)
    }

    /// With a pause between two requests.
    pub const fn gently(work: Work, order: Order, pause: Duration) -> Self {
        Self { work, order, pause, front: Front::Xuid }
    }

    /// The same at another front.
    #[must_use]
    pub const fn by(self, front: Front) -> Self {
        Self { front, ..self }
    }
}

/// 8 connections as fast as they can: what is asked for in runs exceeds what a worker mints, so the spill is drained.
pub const HEAVY: &[Job] = &[
    Job::new(Work::Next(64), Order::Any),
    Job::new(Work::Next(1), Order::Any),
    Job::new(Work::Next(16), Order::Ordered),
    Job::new(Work::Next(64), Order::Fresh),
    Job::new(Work::Array(1_000), Order::Any),
    Job::new(Work::Array(100), Order::Ordered),
    Job::new(Work::Runs(10_000), Order::Any),
    Job::new(Work::Runs(100_000), Order::Any),
];

/// What one connection brought home.
#[derive(Debug, Default)]
pub struct LoadResults {
    /// The ids.
    pub received: Received,
    /// Retryable refusals met on the way.
    pub refusals: u64,
    /// The same by status code.
    pub refused: BTreeMap<u16, u64>,
    /// The longest that it asked until it got ids, over all refusals in between.
    pub longest: Duration,
    /// The last of their texts.
    pub last_refusal: Option<String>,
    /// Whether the connection was refused, or ended by itself.
    pub broken: bool,
    /// What it saw that no server may do, after which it asked no more.
    pub breach: Option<String>,
}

impl LoadResults {
    /// Fails if it saw what no server may do.
    pub fn check(&self) -> Result<()> {
        self.breach.as_ref().map_or(Ok(()), |breach| Err(anyhow!("{breach}")))
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.refusals += 1;
        *self.refused.entry(refusal.status).or_default() += 1;
        self.last_refusal = Some(refusal.to_string());
    }
}

/// Running connections.
#[derive(Debug)]
#[must_use]
pub struct Load {
    stop: Arc<AtomicBool>,
    /// One a connection: ids received so far.
    ids: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<LoadResults>>,
}

impl Load {
    /// One thread and one connection a job, all of XUID/1.
    pub fn start(addr: SocketAddr, jobs: &[Job]) -> Self {
        Self::start_at(Doors::of_xuid(addr), jobs)
    }

    /// The same, each job at its front.
    pub fn start_at(doors: Doors, jobs: &[Job]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ids: Vec<Arc<AtomicU64>> = jobs.iter().map(|_| Arc::default()).collect();
        let spawn = |(job, ids): (&Job, &Arc<AtomicU64>)| {
            let (job, stop, ids) = (*job, Arc::clone(&stop), Arc::clone(ids));
            thread::spawn(move || run_load(|result| take(doors, job, &stop, &ids, result)))
        };
        let threads = jobs.iter().zip(&ids).map(spawn).collect();
        Self { stop, ids, threads }
    }

    /// Ids received so far by all connections.
    pub fn ids(&self) -> u64 {
        self.ids.iter().map(|ids| ids.load(Ordering::Relaxed)).sum()
    }

    /// Ids received so far by the connection that has the fewest.
    pub fn fewest(&self) -> u64 {
        self.ids.iter().map(|ids| ids.load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    /// Asks the connections to end after the request they wait for.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for all connections to end by themselves (after the server died or [`Self::ask_to_stop`]): what each
    /// received, with what it saw that no server may do.
    pub fn collect(self) -> Vec<LoadResults> {
        let lost =
            || LoadResults { breach: Some("a load thread is lost".to_owned()), ..LoadResults::default() };
        self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    }

    /// As [`Self::collect`], where a breach leaves nothing to do with what came.
    pub fn join(self) -> Result<Vec<LoadResults>> {
        let results = self.collect();
        results.iter().try_for_each(LoadResults::check)?;
        Ok(results)
    }

    /// As [`Self::join`], and every id is in the ledger before a breach is told: it may be one that came twice.
    pub fn enter(self, ledger: &mut Ledger) -> Result<Vec<LoadResults>> {
        let results = self.collect();
        for result in &results {
            ledger.add_received(&result.received);
        }
        results.iter().try_for_each(LoadResults::check)?;
        Ok(results)
    }

    /// Stops and records everything; returns how many ids came.
    pub fn finish(self, ledger: &mut Ledger) -> Result<u64> {
        self.ask_to_stop();
        Ok(self.enter(ledger)?.iter().map(|result| result.received.ids()).sum())
    }
}

/// What a connection brings home, however it ends.
fn run_load(take: impl FnOnce(&mut LoadResults) -> Result<()>) -> LoadResults {
    let mut result = LoadResults::default();
    let taken = catch_unwind(AssertUnwindSafe(|| take(&mut result)));
    result.breach = match taken {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some("a load thread panicked: standard error has why".to_owned()),
    };
    result
}

/// The loop of one connection. A connection that ends is the normal end of a life, a broken protocol is not.
fn take(doors: Doors, job: Job, stop: &AtomicBool, ids: &AtomicU64, result: &mut LoadResults) -> Result<()> {
    let mut client = match Caller::connect(doors, job.front, CONNECT) {
        Ok(client) => client,
        Err(ClientError::Ended(_)) => {
            result.broken = true;
            return Ok(());
        }
        Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
            result.broken = true;
            result.refuse(&refusal);
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let (mut highest, mut asked) = (0, None);
    while !stop.load(Ordering::Relaxed) {
        let mut span = Span { low: u64::MAX, high: 0 };
        let since = *asked.get_or_insert_with(clock::now);
        let (old, answer) =
            (result.received.ids(), request_by(&mut client, job, &mut result.received, &mut span));
        ids.fetch_add(result.received.ids() - old, Ordering::Relaxed);
        // Everything asked for after earlier replies had come must lie above all of them.
        if job.order == Order::Ordered && span.low <= highest {
            bail!("ordered id {} came after {highest}", span.low);
        }
        highest = highest.max(span.high);
        match answer {
            Ok(()) => {
                result.longest = result.longest.max(since.elapsed());
                asked = None;
            }
            Err(ClientError::Ended(_)) => {
                result.broken = true;
                break;
            }
            Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                result.refuse(&refusal);
                thread::sleep(Duration::from_millis(u64::from(refusal.retry_after_ms).clamp(1, 20)));
            }
            Err(error) => return Err(error.into()),
        }
        if !job.pause.is_zero() {
            thread::sleep(job.pause);
        }
    }
    Ok(())
}

/// The lowest and the highest id of a request.
pub(crate) struct Span {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Span {
    fn cover(&mut self, low: u64, high: u64) {
        self.low = self.low.min(low);
        self.high = self.high.max(high);
    }
}

/// How long a greeting may take.
const CONNECT: Duration = Duration::from_mins(1);

/// How long a request may wait.
const WAIT: Duration = Duration::from_secs(2);

/// One request, or one batch of them, at any front.
fn request_by(
    caller: &mut Caller,
    job: Job,
    received: &mut Received,
    span: &mut Span,
) -> Result<(), ClientError> {
    if let Caller::Xuid(client) = caller {
        return request(client, job, received, span);
    }
    let (requests, count, form) = match job.work {
        Work::Next(in_flight) => (in_flight, 1, Form::One),
        Work::Array(count) => (1, count, Form::List),
        Work::Runs(count) => (1, count, Form::Runs),
    };
    let wanted = Wanted { sequence: None, count, order: job.order, wait: WAIT, form };
    caller.take_many(requests, &wanted, |ids| {
        for id in ids {
            span.cover(id, id);
            received.push(id);
        }
    })
}

/// One request, or one batch of them.
pub(crate) fn request(
    client: &mut Client,
    job: Job,
    received: &mut Received,
    span: &mut Span,
) -> Result<(), ClientError> {
    match job.work {
        Work::Next(in_flight) => {
            let refusals = client.next_pipelined(in_flight, job.order, |id| {
                span.cover(id, id);
                received.push(id);
            })?;
            let Some(first) = refusals.into_iter().next() else { return Ok(()) };
            Err(first.into())
        }
        Work::Array(count) => {
            for id in client.array(count, WAIT, job.order)? {
                span.cover(id, id);
                received.push(id);
            }
            Ok(())
        }
        Work::Runs(count) => {
            for run in client.runs(count, WAIT, job.order)? {
                span.cover(run.first, run.first + u64::from(run.count - 1) * u64::from(run.stride));
                received.push_run(run);
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::frame::{HEADER_LEN, PREFACE, encode, op};

    /// A server of one connection that answers NEXT with `id(n)` for the n-th request, and ends after `last`.
    fn faulty(last: u64, id: impl Fn(u64) -> u64 + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
            let mut served = 0;
            let mut header = [0; HEADER_LEN];
            while served < last && stream.read_exact(&mut header).is_ok() {
                let mut body = vec![0; u32::from_le_bytes(header[..4].try_into().unwrap()) as usize];
                stream.read_exact(&mut body).unwrap();
                let answer =
                    if header[4] == op::HELLO { vec![0; 57] } else { id(served).to_le_bytes().to_vec() };
                served += u64::from(header[4] == op::NEXT);
                let mut out = Vec::new();
                let request_id = u64::from_le_bytes(header[8..].try_into().unwrap());
                encode(&mut out, header[4] | 0x80, 0, request_id, &answer);
                stream.write_all(&out).unwrap();
            }
        });
        addr
    }

    fn received(addr: SocketAddr, order: Order) -> Result<Ledger> {
        let mut ledger = Ledger::default();
        Load::start(addr, &[Job::new(Work::Next(8), order)]).enter(&mut ledger)?;
        Ok(ledger)
    }

    #[test]
    fn a_server_that_repeats_one_id_is_found_out() {
        let honest = received(faulty(4_000, |n| n), Order::Any).unwrap();
        assert_eq!((honest.report().ids, honest.report().duplicates), (4_000, 0));
        let repeats = |n| if n == 3_333 { 77 } else { n };
        assert_eq!(received(faulty(4_000, repeats), Order::Any).unwrap().report().examples, [77]);
    }

    #[test]
    fn a_server_whose_ordered_ids_go_back_is_found_out() {
        assert!(received(faulty(800, |n| n + 1), Order::Ordered).is_ok());
        let goes_back = |n| if n == 404 { 1 } else { n + 1_000 };
        let error = received(faulty(800, goes_back), Order::Ordered).unwrap_err();
        assert!(error.to_string().contains("ordered id 1 came after"), "{error}");
    }

    #[test]
    fn an_ordered_id_that_came_twice_is_a_duplicate_in_the_ledger_and_not_only_a_breach() {
        // The first of a batch of 8 is the last of the batch before.
        let repeats = |n| if n == 400 { 399 } else { n } + 1_000;
        let jobs = [Job::new(Work::Next(8), Order::Ordered)];
        let mut ledger = Ledger::default();
        let breach = Load::start(faulty(800, repeats), &jobs).enter(&mut ledger).unwrap_err();
        assert!(breach.to_string().contains("ordered id 1399 came after 1399"), "{breach}");
        let report = ledger.report();
        assert_eq!((report.ids, report.duplicates, report.examples), (408, 1, vec![1_399]));
    }

    #[test]
    fn a_breach_of_one_connection_and_a_panic_of_another_cost_no_id() {
        let broken = run_load(|result| {
            result.received.push(7);
            bail!("no such frame");
        });
        let panicked = run_load(|result| {
            result.received.push(8);
            panic!("on purpose");
        });
        let whole = run_load(|_| Ok(()));
        assert_eq!((broken.received.ids(), panicked.received.ids()), (1, 1));
        assert!(broken.check().unwrap_err().to_string().contains("no such frame"));
        assert!(panicked.check().unwrap_err().to_string().contains("panicked"));
        assert!(whole.check().is_ok());
    }
}
