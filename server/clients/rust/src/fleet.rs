//! The servers that a client may use: one link at a time, dialed on demand.
//!
//! # Invariants
//! - I1 every link is of the cluster of the first one;
//! - I2 one dial at a time, whatever the number of callers; those that waited for it share its outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::link::Link;
use crate::link::dial::{Greeted, dial};
use crate::options::{Options, later};
use crate::process::Process;
use crate::served::Served;

/// How long the other servers may still take to answer when the first connection stands. Who is later is checked when
/// it is first used.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal says
/// to wait, up to the most. Else, where all servers refuse, a caller that asks for what none of them has would take the
/// others along from server to server, with a dial for nearly each call.
const LEAST_STAY: Duration = Duration::from_secs(1);
const MOST_STAY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Fleet {
    servers: Vec<Arc<str>>,
    /// Whose connection it is. Asked for before a lock is taken: in a forked child no thread is left to release it.
    pub(crate) process: Process,
    /// The first server that answered, for those who may take no lock; it made the cluster ours (I1).
    pinned: Arc<Served>,
    pub(crate) options: Options,
    current: Mutex<Current>,
    /// Held while dialing (I2).
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Current {
    link: Arc<Link>,
    /// Index of the server that is dialed next. It moves before each dial, not after it: a caller may give up half way,
    /// and the next one must not begin at the same silent server.
    next: usize,
    /// When each server was dialed last, to take the place of another one.
    dialed: Vec<Option<Instant>>,
    /// Dials that failed, and how the last one did.
    failures: u64,
    last_failure: Option<ClientError>,
    closed: bool,
}

impl Fleet {
    /// Greets all servers, and keeps the first in the list that answers.
    pub(crate) async fn connect(servers: Vec<Arc<str>>, options: Options) -> Result<Self, ClientError> {
        options.check()?;
        if servers.is_empty() {
            return Err(ClientError::Invalid { name: "servers", found: 0, allowed: "one address or more" });
        }
        let (at, greeted) = greet_all(&servers, &options).await?;
        let link = Link::start(greeted, &options);
        let pinned = Arc::clone(&link.served);
        let (next, dialed) = (at + 1, vec![None; servers.len()]);
        let current =
            Mutex::new(Current { link, next, dialed, failures: 0, last_failure: None, closed: false });
        let (process, dialing) = (Process::this(), tokio::sync::Mutex::new(()));
        Ok(Self { servers, process, pinned, options, current, dialing })
    }

    /// What the server of the last link said about itself; in a forked child, of the first one.
    pub(crate) fn served(&self) -> Arc<Served> {
        if self.process.check().is_err() {
            return Arc::clone(&self.pinned);
        }
        Arc::clone(&self.lock().link.served)
    }

    /// A link that takes requests; dials if there is none.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, ClientError> {
        let failures = match self.current()? {
            Ok(link) => return Ok(link),
            Err(failures) => failures,
        };
        let _turn = self.dialing.lock().await;
        match self.current()? {
            Ok(link) => return Ok(link),
            Err(now) if now != failures => {
                if let Some(failure) = self.lock().last_failure.clone() {
                    return Err(failure);
                }
            }
            Err(_) => {}
        }
        match self.redial().await {
            Ok(link) => {
                let mut current = self.lock();
                if current.closed {
                    link.end(&ClientError::Closed);
                    return Err(ClientError::Closed);
                }
                current.link = Arc::clone(&link);
                Ok(link)
            }
            Err(failure) => {
                let mut current = self.lock();
                current.failures += 1;
                current.last_failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// How many servers there are to choose from.
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// A server has refused over this link with what may take it long. Leaves it, if there is another server that was
    /// not dialed of late; what is in flight is still answered.
    pub(crate) fn leave(&self, link: &Link, error: &ClientError) {
        let (server, now) = (&link.served.server, Instant::now());
        let pause = error.retry_after().clamp(LEAST_STAY, MOST_STAY);
        let is_due = |dialed: &Option<Instant>| {
            dialed.is_none_or(|dialed| now.saturating_duration_since(dialed) >= pause)
        };
        let goes = {
            let current = self.lock();
            self.servers.iter().zip(&current.dialed).any(|(other, dialed)| other != server && is_due(dialed))
        };
        if goes {
            tracing::debug!(%error, "leaving for another server");
            link.retire();
        }
    }

    /// Whether the server that this is an error of is still the one in use.
    pub(crate) fn stays_after(&self, error: &ClientError) -> bool {
        let ClientError::Refused { server, .. } = error else { return false };
        matches!(self.current(), Ok(Ok(link)) if link.served.server == *server)
    }

    /// No more links. In a forked child nothing: the connection is the parent's.
    pub(crate) fn close(&self) {
        if self.process.check().is_err() {
            return;
        }
        let mut current = self.lock();
        current.closed = true;
        let link = Arc::clone(&current.link);
        drop(current);
        link.end(&ClientError::Closed);
    }

    /// The link if it serves, else the number of failed dials.
    pub(crate) fn current(&self) -> Result<Result<Arc<Link>, u64>, ClientError> {
        self.process.check()?;
        let current = self.lock();
        if current.closed {
            return Err(ClientError::Closed);
        }
        Ok(if current.link.is_serving() { Ok(Arc::clone(&current.link)) } else { Err(current.failures) })
    }

    /// Tries the servers in turn, from the one after the last tried, for as many rounds as allowed.
    async fn redial(&self) -> Result<Arc<Link>, ClientError> {
        let mut backoff = Backoff::new(self.options.first_pause, self.options.longest_pause);
        let mut round = 1;
        loop {
            let mut worth_waiting = None;
            let mut hopeless = None;
            for _ in 0..self.servers.len() {
                let server = self.next_server();
                match self.dial_pinned(server).await {
                    Ok(greeted) => return Ok(Link::start(greeted, &self.options)),
                    Err(error) => {
                        tracing::warn!(%server, %error, "cannot connect");
                        let kind = if error.is_retryable() { &mut worth_waiting } else { &mut hopeless };
                        *kind = Some(error);
                    }
                }
            }
            match (worth_waiting, hopeless) {
                (Some(_), _) if round < self.options.rounds => {}
                (Some(error), None) | (_, Some(error)) => return Err(error),
                (None, None) => return Err(ClientError::Closed),
            }
            round += 1;
            sleep(backoff.pause()).await;
        }
    }

    /// The server whose turn it is to be dialed.
    fn next_server(&self) -> &Arc<str> {
        let mut current = self.lock();
        let at = current.next % self.servers.len();
        current.next = at + 1;
        current.dialed[at] = Some(Instant::now());
        &self.servers[at]
    }

    async fn dial_pinned(&self, server: &Arc<str>) -> Result<Greeted, ClientError> {
        let greeted = dial(server, &self.options).await?;
        same_cluster(&self.pinned, &greeted.served)?;
        Ok(greeted)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Nothing in the locked sections panics half way.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.close();
    }
}

fn same_cluster(known: &Served, new: &Served) -> Result<(), ClientError> {
    if new.cluster == known.cluster {
        return Ok(());
    }
    Err(ClientError::ClustersDiffer {
        server: Arc::clone(&new.server),
        found: new.cluster,
        other: Arc::clone(&known.server),
        expected: known.cluster,
    })
}

/// Greets every server at once and compares their clusters. Returns the first of the list that answered.
async fn greet_all(servers: &[Arc<str>], options: &Options) -> Result<(usize, Greeted), ClientError> {
    let mut dials = JoinSet::new();
    for (at, server) in servers.iter().cloned().enumerate() {
        let options = options.clone();
        dials.spawn(async move { (at, dial(&server, &options).await) });
    }
    let mut deadline = later(later(Instant::now(), options.connect_timeout), STRAGGLERS);
    let (mut best, mut failure): (Option<(usize, Greeted)>, Option<ClientError>) = (None, None);
    while let Ok(Some(joined)) = timeout_at(deadline, dials.join_next()).await {
        match joined {
            Ok((at, Ok(greeted))) => {
                let Some((first, known)) = best else {
                    deadline = deadline.min(Instant::now() + STRAGGLERS);
                    best = Some((at, greeted));
                    continue;
                };
                same_cluster(&known.served, &greeted.served)?;
                best = Some(if at < first { (at, greeted) } else { (first, known) });
            }
            Ok((_, Err(error))) => {
                tracing::debug!(%error, "a server did not answer");
                // What will not pass by waiting says more than "not reached".
                let keeps = failure.as_ref().is_some_and(|known| !known.is_retryable());
                failure = if keeps { failure } else { Some(error) };
            }
            Err(ended) => {
                if let Ok(panic) = ended.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    best.ok_or_else(|| failure.unwrap_or(ClientError::Closed))
}
