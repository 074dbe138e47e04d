//! Threads that take ids as fast as they are asked to, until they are told to stop or the server dies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::client::{Client, ClientError, Order};
use crate::clock;
use crate::oracle::{Ledger, Tape};

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
}

impl Job {
    /// At full speed.
    #[must_use]
    pub fn new(work: Work, order: Order) -> Self {
        Self { work, order, pause: Duration::ZERO }
    }

    /// With a pause between two requests.
    #[must_use]
    pub fn gently(work: Work, order: Order, pause: Duration) -> Self {
        Self { work, order, pause }
    }
}

/// What one connection brought home.
#[derive(Debug, Default)]
pub struct Harvest {
    /// The ids.
    pub tape: Tape,
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
}

/// Running connections.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    ids: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<Harvest>>>,
}

impl Load {
    /// One thread and one connection a job.
    #[must_use]
    pub fn start(addr: SocketAddr, jobs: &[Job]) -> Self {
        let (stop, ids) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let spawn = |job: &Job| {
            let (job, stop, ids) = (*job, Arc::clone(&stop), Arc::clone(&ids));
            thread::spawn(move || take(addr, job, &stop, &ids))
        };
        let threads = jobs.iter().map(spawn).collect();
        Self { stop, ids, threads }
    }

    /// Ids received so far by all connections.
    #[must_use]
    pub fn ids(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    /// Asks the connections to end after the request they wait for.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for all connections to end by themselves (after the server died or [`Self::ask_to_stop`]).
    ///
    /// # Errors
    /// One of them saw a breach of the protocol or a refusal that is not retryable.
    pub fn join(self) -> Result<Vec<Harvest>> {
        let mut harvests = Vec::new();
        for thread in self.threads {
            harvests.push(thread.join().map_err(|_| anyhow!("a load thread panicked"))??);
        }
        Ok(harvests)
    }

    /// Stops and records everything; returns how many ids came.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn finish(self, ledger: &mut Ledger) -> Result<u64> {
        self.ask_to_stop();
        let mut ids = 0;
        for harvest in self.join()? {
            ids += harvest.tape.ids();
            ledger.add_tape(&harvest.tape);
        }
        Ok(ids)
    }
}

/// The loop of one connection. A connection that ends is the normal end of a life, a broken protocol is not.
fn take(addr: SocketAddr, job: Job, stop: &AtomicBool, ids: &AtomicU64) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    let mut client = match Client::connect(addr) {
        Ok(client) => client,
        Err(ClientError::Ended(_)) => {
            harvest.broken = true;
            return Ok(harvest);
        }
        Err(error) => return Err(error.into()),
    };
    let (mut highest, mut asked) = (0, None);
    while !stop.load(Ordering::Relaxed) {
        let mut span = Span { low: u64::MAX, high: 0 };
        let since = *asked.get_or_insert_with(clock::now);
        let (old, answer) = (harvest.tape.ids(), request(&mut client, job, &mut harvest.tape, &mut span));
        ids.fetch_add(harvest.tape.ids() - old, Ordering::Relaxed);
        // Everything asked for after earlier replies had come must lie above all of them.
        if job.order == Order::Ordered && span.low <= highest {
            bail!("ordered id {} came after {highest}", span.low);
        }
        highest = highest.max(span.high);
        match answer {
            Ok(()) => {
                harvest.longest = harvest.longest.max(since.elapsed());
                asked = None;
            }
            Err(ClientError::Ended(_)) => {
                harvest.broken = true;
                break;
            }
            Err(ClientError::Refused(refusal)) if refusal.is_retryable() => {
                harvest.refusals += 1;
                *harvest.refused.entry(refusal.status).or_default() += 1;
                thread::sleep(Duration::from_millis(u64::from(refusal.retry_after_ms).clamp(1, 20)));
                harvest.last_refusal = Some(refusal.to_string());
            }
            Err(error) => return Err(error.into()),
        }
        if !job.pause.is_zero() {
            thread::sleep(job.pause);
        }
    }
    Ok(harvest)
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

/// One request, or one batch of them.
pub(crate) fn request(
    client: &mut Client,
    job: Job,
    tape: &mut Tape,
    span: &mut Span,
) -> Result<(), ClientError> {
    let wait = Duration::from_secs(2);
    match job.work {
        Work::Next(in_flight) => {
            let refusals = client.next_pipelined(in_flight, job.order, |id| {
                span.cover(id, id);
                tape.push(id);
            })?;
            let Some(first) = refusals.into_iter().next() else { return Ok(()) };
            Err(first.into())
        }
        Work::Array(count) => {
            for id in client.array(count, wait, job.order)? {
                span.cover(id, id);
                tape.push(id);
            }
            Ok(())
        }
        Work::Runs(count) => {
            for run in client.runs(count, wait, job.order)? {
                span.cover(run.first, run.first + u64::from(run.count - 1) * u64::from(run.stride));
                tape.push_run(run);
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

    fn harvest(addr: SocketAddr, order: Order) -> Result<Ledger> {
        let mut ledger = Ledger::default();
        for harvest in Load::start(addr, &[Job::new(Work::Next(8), order)]).join()? {
            ledger.add_tape(&harvest.tape);
        }
        Ok(ledger)
    }

    #[test]
    fn a_server_that_repeats_one_id_is_found_out() {
        let honest = harvest(faulty(4_000, |n| n), Order::Any).unwrap();
        assert_eq!((honest.report().ids, honest.report().duplicates), (4_000, 0));
        let repeats = |n| if n == 3_333 { 77 } else { n };
        assert_eq!(harvest(faulty(4_000, repeats), Order::Any).unwrap().report().examples, [77]);
    }

    #[test]
    fn a_server_whose_ordered_ids_go_back_is_found_out() {
        assert!(harvest(faulty(800, |n| n + 1), Order::Ordered).is_ok());
        let goes_back = |n| if n == 404 { 1 } else { n + 1_000 };
        let error = harvest(faulty(800, goes_back), Order::Ordered).unwrap_err();
        assert!(error.to_string().contains("ordered id 1 came after"), "{error}");
    }
}
