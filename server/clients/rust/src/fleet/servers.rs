//! The servers that a client may use: one link at a time, dialed on demand.
//!
//! # Invariants
//! - I1 every link is of the cluster of the first one;
//! - I2 one dial at a time, whatever the number of callers; those that waited for it share its outcome. It belongs to none of
//!   them: a caller that gives up, or whose future is polled no more, leaves it to the others. Besides it one may try whether
//!   the first choice is there again;
//! - I3 when a server turns out to be of another cluster, what is held of before is void before any caller is told;
//! - I4 a close ends every link that has not ended, also one that was left with calls in flight, the search for another one,
//!   and the pause before a call is repeated. What is held is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, io};

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use super::away::Away;
use super::backoff::{Backoff, random_number, random_share};
use super::greet::{greet_all, is_stranger, same_cluster};
use super::held_ahead::{HeldAhead, Holders};
use crate::error::ClientError;
use crate::link::Link;
use crate::link::dial::{Greeted, dial};
use crate::log::log;
use crate::options::Options;
use crate::process::{Own, Process};
use crate::served::Served;

/// After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal says
/// to wait, up to the most, and that costs no long dial in vain. Else, where all servers refuse, a caller that asks for what none of them has would take the
/// others along from server to server, with a dial for nearly each call.
const LEAST_STAY: Duration = Duration::from_secs(1);
const MOST_STAY: Duration = Duration::from_secs(10);

/// What "never" comes to for a client that had to leave its first choice.
const LONGEST_AWAY: Duration = Duration::from_hours(24 * 365 * 30);

pub(crate) struct Fleet {
    /// In the order of choice: the first is a random one.
    servers: Vec<Arc<str>>,
    /// Whose connection it is. Asked for before a lock is taken: in a forked child no thread is left to release it.
    pub(crate) process: Process,
    /// The first server that answered, for those who may take no lock; it made the cluster ours (I1).
    pinned: Arc<Served>,
    pub(crate) options: Options,
    current: Mutex<Current>,
    /// Held while dialing (I2).
    dialing: tokio::sync::Mutex<()>,
    /// It has no permits, and is closed with the client: to ask for one is to wait for that (I4).
    open: Semaphore,
    /// Sources of prefetched ids (I3, I4).
    holders: Holders,
}

/// By hand: a writer is a stranger's code, and gets nothing under a lock.
impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// How a search for a server ended.
type Found = Result<Arc<Link>, ClientError>;

struct Current {
    link: Arc<Link>,
    /// Those that were left; one that has ended goes by itself (I4).
    left: Vec<Weak<Link>>,
    /// Index of the server that is dialed next. It moves before each dial, not after it: the next one must not begin at the
    /// same silent server.
    next: usize,
    /// When each server was dialed last, to take the place of another one.
    dialed: Vec<Option<Instant>>,
    /// Which were not there when they were dialed last.
    away: Away,
    /// The search that is under way (I2).
    search: Option<watch::Receiver<Option<Found>>>,
    /// The task that tries the first choice again.
    return_trip: Option<AbortHandle>,
    closed: bool,
}

impl Current {
    /// Makes this the link in use; returns the one that it takes the place of, whose calls in flight are still answered.
    fn replace_link(&mut self, link: Arc<Link>) -> Arc<Link> {
        let left = std::mem::replace(&mut self.link, link);
        self.left.retain(|link| link.strong_count() > 0);
        self.left.push(Arc::downgrade(&left));
        left
    }
}

impl Fleet {
    /// Greets all servers, and keeps one of them: of those that answered, the first in an order drawn at random, so that
    /// many clients with one list spread over it.
    pub(crate) async fn connect(
        mut servers: Vec<Arc<str>>,
        options: Options,
    ) -> Result<Arc<Self>, ClientError> {
        options.check()?;
        if servers.is_empty() {
            return Err(ClientError::Invalid { name: "servers", found: 0, allowed: "one address or more" });
        }
        shuffle(&mut servers);
        let mut away = Away::of(servers.len());
        let process = Process::this();
        let (at, greeted) = Own::new(&process, greet_all(&servers, &options, &mut away)).await?;
        let link = Link::start(greeted, &options);
        let pinned = Arc::clone(&link.served);
        let current = Mutex::new(Current {
            link,
            left: Vec::new(),
            next: at + 1,
            dialed: vec![None; servers.len()],
            away,
            search: None,
            return_trip: None,
            closed: false,
        });
        let dialing = tokio::sync::Mutex::new(());
        let fleet = Arc::new(Self {
            servers,
            process,
            pinned,
            options,
            current,
            dialing,
            open: Semaphore::new(0),
            holders: Holders::default(),
        });
        if at != 0 {
            fleet.plan_return(&mut fleet.lock());
        }
        Ok(fleet)
    }

    /// Has these told when a server turns out to be of another cluster (I3), and of the close (I4).
    pub(crate) fn add_holder(&self, holder: Weak<dyn HeldAhead>) {
        self.holders.add(holder);
    }

    /// What the server of the last link said about itself; in a forked child, of the first one.
    pub(crate) fn served(&self) -> Arc<Served> {
        if self.process.check().is_err() {
            return Arc::clone(&self.pinned);
        }
        Arc::clone(&self.lock().link.served)
    }

    /// A link that takes requests; dials if there is none.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Arc<Link>, ClientError> {
        if let Some(link) = self.current()? {
            return Ok(link);
        }
        let mut search = self.search();
        let outcome = async { search.wait_for(Option::is_some).await.ok().and_then(|found| found.clone()) };
        let found = tokio::select! {
            biased;
            () = self.closing() => return Err(ClientError::Closed),
            found = outcome => found,
        };
        found.unwrap_or_else(|| {
            let why = "the search for a server panicked, or its runtime ended";
            Err(ClientError::lost(&self.served().server, Some(io::Error::other(why))))
        })
    }

    /// The search that is under way, or a new one.
    fn search(self: &Arc<Self>) -> watch::Receiver<Option<Found>> {
        let mut current = self.lock();
        // Of one that went without a word the sender is gone.
        if let Some(search) = current.search.as_ref().filter(|search| search.has_changed().is_ok()) {
            return search.clone();
        }
        let (tell, search) = watch::channel(None);
        current.search = Some(search.clone());
        drop(current);
        let fleet = Arc::clone(self);
        tokio::spawn(async move {
            let found = fleet.find().await;
            fleet.lock().search = None;
            tell.send_replace(Some(found));
        });
        search
    }

    /// Dials until a server answers, and makes that the one in use.
    async fn find(self: &Arc<Self>) -> Found {
        let _turn = self.dialing.lock().await;
        // The first choice may have come back meanwhile.
        if let Some(link) = self.current()? {
            return Ok(link);
        }
        let (at, greeted) = tokio::select! {
            biased;
            () = self.closing() => return Err(ClientError::Closed),
            dialed = self.redial() => dialed?,
        };
        let mut current = self.lock();
        if current.closed {
            return Err(ClientError::Closed);
        }
        let link = Link::start(greeted, &self.options);
        current.replace_link(Arc::clone(&link));
        if at != 0 {
            self.plan_return(&mut current);
        }
        Ok(link)
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
        let goes = {
            let current = self.lock();
            let is_due = |at: usize| {
                current.dialed[at].is_none_or(|dialed| now.saturating_duration_since(dialed) >= pause)
                    && !current.away.costs(at, now)
            };
            self.servers.iter().enumerate().any(|(at, other)| other != server && is_due(at))
        };
        if goes {
            let error = error.clone();
            log(Level::DEBUG, move || tracing::debug!(%error, "leaving for another server"));
            link.retire();
        }
    }

    /// Whether there is another server than that of this link, and one that was not away a moment ago.
    pub(crate) fn is_other_there(&self, link: &Link) -> bool {
        let (server, now, current) = (&link.served.server, Instant::now(), self.lock());
        self.servers.iter().enumerate().any(|(at, other)| other != server && !current.away.is_away(at, now))
    }

    /// Whether the server that this is an error of is still the one in use.
    pub(crate) fn stays_after(&self, error: &ClientError) -> bool {
        let ClientError::Refused { server, .. } = error else { return false };
        matches!(self.current(), Ok(Some(link)) if link.served.server == *server)
    }

    /// No more links: ends all but what is in flight. The link to say BYE on, if it serves. In a forked child nothing: the
    /// connection is the parent's.
    pub(crate) fn begin_close(&self) -> Option<Arc<Link>> {
        self.process.check().ok()?;
        let mut current = self.lock();
        current.closed = true;
        if let Some(trip) = current.return_trip.take() {
            trip.abort();
        }
        let link = Arc::clone(&current.link);
        drop(current);
        self.open.close();
        // Before its refills fail: those that ask for an id are told of the close.
        self.holders.end();
        link.is_serving().then_some(link)
    }

    /// Ends the links, behind [`begin_close`](Self::begin_close), and with them what is in flight (I4).
    pub(crate) fn end_links(&self) {
        if self.process.check().is_err() {
            return;
        }
        let current = self.lock();
        let left: Vec<_> = current.left.iter().filter_map(Weak::upgrade).collect();
        let link = Arc::clone(&current.link);
        drop(current);
        for link in left.iter().chain([&link]) {
            link.end(&ClientError::Closed);
        }
    }

    /// Ends with the close, at once if that has been.
    async fn closing(&self) {
        // There are none: it ends with an error.
        let _ = self.open.acquire().await;
    }

    /// The pause before an attempt is repeated; an error at a close (I4).
    pub(crate) async fn pause(&self, span: Duration) -> Result<(), ClientError> {
        timeout(span, self.closing()).await.map_or(Ok(()), |()| Err(ClientError::Closed))
    }

    /// The link, if it serves.
    pub(crate) fn current(&self) -> Result<Option<Arc<Link>>, ClientError> {
        self.process.check()?;
        let current = self.lock();
        if current.closed {
            return Err(ClientError::Closed);
        }
        Ok(current.link.is_serving().then(|| Arc::clone(&current.link)))
    }

    /// Tries the servers, each once a round, for as many rounds as allowed.
    async fn redial(self: &Arc<Self>) -> Result<(usize, Greeted), ClientError> {
        let mut backoff = Backoff::new(self.options.first_pause, self.options.longest_pause);
        let mut round = 1;
        loop {
            let mut worth_waiting = None;
            let mut hopeless = None;
            for at in self.turn() {
                if Arc::strong_count(self) == 1 {
                    // Every client was dropped, and what looks for a server is all that is left.
                    return Err(ClientError::Closed);
                }
                let (begin, server) = (self.begin_dial(at), &self.servers[at]);
                match self.same_as_pinned(at, begin, dial(server, &self.options).await) {
                    Ok(greeted) => return Ok((at, greeted)),
                    Err(error) => {
                        let (server, shown) = (Arc::clone(server), error.clone());
                        log(Level::WARN, move || tracing::warn!(%server, error = %shown, "cannot connect"));
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

    /// Indices of the servers, from the one after the last tried; those that cost a long dial in vain come last.
    fn turn(&self) -> Vec<usize> {
        let (current, now) = (self.lock(), Instant::now());
        let all = (0..self.servers.len()).map(|at| (current.next + at) % self.servers.len());
        let (last, mut turn): (Vec<_>, Vec<_>) = all.partition(|at| current.away.costs(*at, now));
        turn.extend(last);
        turn
    }

    /// Notes that this one is dialed.
    fn begin_dial(&self, at: usize) -> Instant {
        let (mut current, now) = (self.lock(), Instant::now());
        current.next = at + 1;
        current.dialed[at] = Some(now);
        now
    }

    /// Refuses a server of another cluster (I1), and voids what is held (I3): nothing tells which of the two clusters is
    /// the one that ids are meant to be of. Notes whether the server of that index was there, which was dialed then.
    fn same_as_pinned(
        &self,
        at: usize,
        begin: Instant,
        dialed: Result<Greeted, ClientError>,
    ) -> Result<Greeted, ClientError> {
        let checked =
            dialed.and_then(|greeted| same_cluster(&self.pinned, &greeted.served).map(|()| greeted));
        if let Err(error) = &checked
            && is_stranger(error)
        {
            self.holders.void();
        }
        self.lock().away.note(at, begin, checked.is_ok());
        checked
    }

    /// Has the first choice tried again after some time, at random, so that the clients of a server that was away do not
    /// all come back at once.
    fn plan_return(self: &Arc<Self>, current: &mut Current) {
        let (fleet, home) = (Arc::downgrade(self), Arc::clone(&self.servers[0]));
        let options = self.options.clone();
        let trip = tokio::spawn(async move {
            loop {
                let span = options.return_after.min(LONGEST_AWAY);
                sleep(span / 2 + span.mul_f64(random_share())).await;
                // The fleet is not held meanwhile: it ends with its last client.
                let begin = Instant::now();
                let dialed = dial(&home, &options).await;
                let Some(fleet) = fleet.upgrade() else { return };
                match fleet.same_as_pinned(0, begin, dialed) {
                    Ok(greeted) => return fleet.come_back(greeted).await,
                    Err(error) => log(Level::DEBUG, move || {
                        tracing::debug!(%error, "the first choice is not there yet");
                    }),
                }
            }
        });
        if let Some(before) = current.return_trip.replace(trip.abort_handle()) {
            before.abort();
        }
    }

    /// Moves new requests to the first choice; those in flight are finished where they are.
    async fn come_back(&self, greeted: Greeted) {
        // After a search that is under way: it may bring a link to the first choice by itself.
        let _turn = self.dialing.lock().await;
        let mut current = self.lock();
        if current.closed || (current.link.is_serving() && current.link.served.server == self.servers[0]) {
            return;
        }
        let home = Link::start(greeted, &self.options);
        (current.next, current.dialed[0]) = (1, Some(Instant::now()));
        let left = current.replace_link(home);
        drop(current);
        left.retire();
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Nothing in the locked sections panics half way.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.begin_close();
        self.end_links();
    }
}

/// Into an order drawn at random.
fn shuffle(servers: &mut [Arc<str>]) {
    for end in (1..servers.len()).rev() {
        servers.swap(end, (random_number() % (end as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_server_comes_first_about_as_often_as_any_other() {
        let mut begun = BTreeMap::<Arc<str>, u32>::new();
        for _ in 0..3_000 {
            let mut servers = ["a", "b", "c"].map(Arc::from);
            shuffle(&mut servers);
            *begun.entry(Arc::clone(&servers[0])).or_default() += 1;
            servers.sort();
            assert_eq!(servers, ["a", "b", "c"].map(Arc::from));
        }
        // 1,000 each, give or take 26: twelve times that by chance is never.
        assert!(begun.len() == 3 && begun.values().all(|count| (700..1_300).contains(count)), "{begun:?}");
    }
}
