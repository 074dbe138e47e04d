//! The handle that callers hold.

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Level;
use xuid_protocol::{Bulk, Decoded, Order, PING_MAX, Request, Run};

use crate::error::{Breach, ClientError};
use crate::fleet::{Backoff, Fleet, HeldAhead, Retries};
use crate::link::Link;
use crate::link::answer::{Answer, Outcome};
use crate::log::log;
use crate::moment::Moment;
use crate::options::{Options, later};
use crate::process::Own;
use crate::served::Served;

/// How long a link may take to look for a reply whose time is over. It needs a turn of the runtime, which may be late
/// with all of them.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// When they were asked for, and the runs.
pub(crate) type Ahead = Result<(Moment, Vec<Run>), ClientError>;

/// A connection to one of the servers of a cluster. Clones share it; the last one closes it.
///
/// # Fork
/// In a forked child every call answers [`ClientError::Forked`], and what was made for a reply before the fork is the
/// parent's: connect again. That holds as well in a child that has its parent's process id, because it is in a pid
/// namespace of its own, or because the id was used again: each call reads a word on a page that the kernel wipes in a
/// child. Where there is no such page (Linux before 4.14, a sandbox that refuses `MADV_WIPEONFORK`, another system) the
/// process id is all that is compared.
///
/// The runtime is the parent's as well, and Tokio's do not survive a fork: a child must neither go on in it nor drop
/// it. Best fork before the runtime is made, or exec in the child.
///
/// # Runtimes
/// A connection, and the search for one, live in the runtime of the call that began it. Where several runtimes share a client, each
/// is to be driven on: one that stands still half way through a search holds up the calls of the others.
#[derive(Debug, Clone)]
pub struct Client {
    fleet: Arc<Fleet>,
}

impl Client {
    /// Connects to one server, `host:port`.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an option out of range; otherwise why the server could not be reached, or what it
    /// refused. It is tried once.
    pub async fn connect(server: impl Display, options: Options) -> Result<Self, ClientError> {
        Self::connect_any([server], options).await
    }

    /// Connects to one of several servers of one cluster, drawn at random among those that answer, so that the clients of
    /// one list spread over it. The others take its place when it is lost or leaves, or when it refuses with what may take
    /// it long (`NOT_READY`, `WINDOW_LOST`, `SHUTTING_DOWN`, `INTERNAL`, `STORE_AWAY`, `STORE_BEHIND`, a clock far behind):
    /// the next call goes elsewhere, and with [`Options::retry_for`] the same call does, at once. Where the others were
    /// tried within the pause that the refusal asks for (1 s at least, and 10 s at most) the client stays. A client that had
    /// to leave the server that it began at goes back there later ([`Options::return_after`]). All are greeted, and refused
    /// together if their clusters differ; one that does not answer now is checked when it is first used.
    /// [`Order::Ordered`] holds among the ids of one server only.
    ///
    /// # Errors
    /// As [`Client::connect`], if none answers; [`ClientError::ClustersDiffer`].
    pub async fn connect_any(
        servers: impl IntoIterator<Item = impl Display>,
        options: Options,
    ) -> Result<Self, ClientError> {
        let servers = servers.into_iter().map(|server| Arc::from(server.to_string())).collect();
        Ok(Self { fleet: Fleet::connect(servers, options).await? })
    }

    /// [`Client::connect_any`] to the servers that the environment variable `XUID_SERVER` names, with commas between them, or
    /// to 127.0.0.1:7654 where it is not set; with the token of `XUID_TOKEN`, unless the options have one.
    ///
    /// # Errors
    /// As [`Client::connect_any`].
    pub async fn connect_env(options: Options) -> Result<Self, ClientError> {
        let said = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let servers = said("XUID_SERVER").unwrap_or_else(|| "127.0.0.1:7654".to_owned());
        let token = said("XUID_TOKEN").filter(|_| options.token.is_empty());
        let options = if let Some(token) = token { options.token(token) } else { options };
        Self::connect_any(servers.split(',').map(str::trim), options).await
    }

    /// What the server of the last connection said about itself.
    #[must_use]
    pub fn served(&self) -> Arc<Served> {
        self.fleet.served()
    }

    /// Whether a connection stands now. The next call makes one if not.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.fleet.current(), Ok(Some(_)))
    }

    /// One id. The server decides how long it waits for one.
    pub async fn next(&self, order: Order) -> Result<u64, ClientError> {
        match self.call(&Request::Next { order }).await? {
            Answer::Id(id) => Ok(id),
            other => Err(self.mismatch(&other)),
        }
    }

    /// Exactly `count` ids, or an error after `wait`.
    pub async fn array(&self, count: u32, order: Order, wait: Duration) -> Result<Vec<u64>, ClientError> {
        match self.call(&Request::Array(Bulk::new(count, order, wait))).await? {
            Answer::Ids(ids) => Ok(ids),
            other => Err(self.mismatch(&other)),
        }
    }

    /// Exactly `count` ids as runs, or an error after `wait`. The fastest for many ids: a run of thousands is 16 bytes.
    pub async fn runs(&self, count: u32, order: Order, wait: Duration) -> Result<Vec<Run>, ClientError> {
        match self.call(&Request::Runs(Bulk::new(count, order, wait))).await? {
            Answer::Runs(runs) => Ok(runs),
            other => Err(self.mismatch(&other)),
        }
    }

    /// The fields of an id, by the server's layout.
    pub async fn decode(&self, id: u64) -> Result<Decoded, ClientError> {
        match self.call(&Request::Decode { id }).await? {
            Answer::Decoded(decoded) => Ok(decoded),
            other => Err(self.mismatch(&other)),
        }
    }

    /// What the server is: a JSON object.
    pub async fn info(&self) -> Result<String, ClientError> {
        self.json(&Request::Info).await
    }

    /// What the server counted: a JSON object.
    pub async fn stats(&self) -> Result<String, ClientError> {
        self.json(&Request::Stats).await
    }

    /// What the server knows of where an id came from, and whether it may have been issued: a JSON object. A server of before
    /// this op refuses it with `UNKNOWN_OP`.
    pub async fn provenance(&self, id: u64) -> Result<String, ClientError> {
        self.json(&Request::Provenance { id }).await
    }

    pub(crate) async fn json(&self, request: &Request<'_>) -> Result<String, ClientError> {
        match self.call(request).await? {
            Answer::Json(json) => Ok(json),
            other => Err(self.mismatch(&other)),
        }
    }

    /// Sends `bytes`, at most 1,024, there and back.
    pub async fn ping(&self, bytes: &[u8]) -> Result<(), ClientError> {
        if bytes.len() > PING_MAX {
            let found = bytes.len() as u64;
            return Err(ClientError::Invalid {
                name: "ping",
                found,
                allowed: "a length of at most 1,024 bytes",
            });
        }
        match self.call(&Request::Ping(bytes)).await? {
            Answer::Echo(echo) if echo == bytes => Ok(()),
            _ => Err(ClientError::protocol(&self.served().server, Breach::Echo)),
        }
    }

    /// Closes, for all clones: says BYE and waits for the answer, which comes behind those of all requests in flight, for up to
    /// [`Options::timeout`](crate::Options::timeout). Whoever asks for something new, waits for a connection or for the next
    /// attempt gets [`ClientError::Closed`] at once, and so do those that ask a [`Prefetch`](crate::Prefetch): what it holds
    /// is dropped. Whoever still waits for a reply behind BYE gets it then. In a forked child it does nothing: the connection
    /// is the parent's.
    pub async fn close(&self) {
        let closing = async {
            if let Some(link) = self.fleet.begin_close() {
                let bye = async {
                    if let Ok(reply) = link.submit(&Request::Bye, Instant::now()).await {
                        // The answer changes nothing: closed it is in any case.
                        let _ = reply.await;
                    }
                };
                let _ = timeout(self.fleet.options.timeout, bye).await;
            }
            self.fleet.end_links();
            Ok(())
        };
        // An error: nothing is done in a forked child.
        let _ = Own::new(&self.fleet.process, closing).await;
    }

    /// Runs of [`Order::Any`] for a prefetching source, tried once, and the time they were asked for. Waiting for a
    /// connection comes before that.
    pub(crate) async fn ahead(&self, count: u32, wait: Duration, patience: Duration) -> Ahead {
        let ahead = async {
            self.fleet.link().await?;
            let asked = Moment::now();
            let patience = patience.min(self.fleet.options.timeout);
            match self.attempt(&Request::Runs(Bulk::new(count, Order::Any, wait)), patience).await? {
                Answer::Runs(runs) => Ok((asked, runs)),
                other => Err(self.mismatch(&other)),
            }
        };
        Own::new(&self.fleet.process, ahead).await
    }

    /// Has these told when a server turns out to be of another cluster, and of the close.
    pub(crate) fn add_holder(&self, holder: Weak<dyn HeldAhead>) {
        self.fleet.add_holder(holder);
    }

    /// Refuses in a forked child.
    pub(crate) fn check_process(&self) -> Result<(), ClientError> {
        self.fleet.process.check()
    }

    /// The pauses between attempts, by this client's options.
    pub(crate) fn retries(&self) -> Retries {
        Retries::new(&self.fleet.options, self.fleet.servers())
    }

    /// How long the caller of these retries waits after a failure.
    pub(crate) fn pause(&self, retries: &mut Retries, error: &ClientError) -> Duration {
        retries.pause(error, error.leads_elsewhere() && !self.fleet.stays_after(error))
    }

    /// One call, in the process that began it.
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<Answer, ClientError> {
        Own::new(&self.fleet.process, self.attempts(request)).await
    }

    /// Attempts until one succeeds, fails for good, or the time for retries is over.
    async fn attempts(&self, request: &Request<'_>) -> Result<Answer, ClientError> {
        let options = &self.fleet.options;
        if options.retry_for.is_zero() {
            return self.attempt(request, options.timeout).await;
        }
        let begin = Instant::now();
        let mut retries = self.retries();
        loop {
            let error = match self.attempt(request, options.timeout).await {
                Err(error) if error.is_retryable() => error,
                outcome => return outcome,
            };
            let pause = self.pause(&mut retries, &error);
            if begin.elapsed().saturating_add(pause) > options.retry_for {
                return Err(error);
            }
            log(Level::DEBUG, move || tracing::debug!(%error, ?pause, "trying again"));
            self.fleet.pause(pause).await?;
        }
    }

    /// One request, answered within `patience` beyond the wait that it asks for itself. It is repeated on another link,
    /// at once, if it could not be sent, or if the server said GOAWAY and closed without an answer.
    async fn attempt(&self, request: &Request<'_>, patience: Duration) -> Result<Answer, ClientError> {
        let options = &self.fleet.options;
        let mut backoff = Backoff::new(options.first_pause, options.longest_pause);
        // A link can end between getting it and using it, but a server that always does so is as good as lost.
        for round in 0..=options.rounds {
            if round > 1 {
                self.fleet.pause(backoff.pause()).await?;
            }
            let link = self.fleet.link().await?;
            match self.exchange(&link, request, patience).await {
                None => {}
                Some(Err(ClientError::Lost { .. })) if link.was_sent_away() => {
                    let server = Arc::clone(&link.served.server);
                    log(Level::DEBUG, move || {
                        tracing::debug!(%server, "left without an answer: asking elsewhere");
                    });
                }
                Some(outcome) => return outcome,
            }
        }
        Err(ClientError::lost(&self.served().server, None))
    }

    /// One request on one link; `None`: the link does not serve, and nothing was sent.
    async fn exchange(
        &self,
        link: &Link,
        request: &Request<'_>,
        patience: Duration,
    ) -> Option<Result<Answer, ClientError>> {
        let server = &link.served.server;
        let wait = asked_wait(request);
        let (begin, limit) = (Instant::now(), patience.saturating_add(wait));
        let end = later(begin, limit);
        let late = || Some(Err(ClientError::Timeout { server: Arc::clone(server), limit }));
        // The time spent waiting for room counts. It is no reason to think ill of the link.
        let submitting = link.submit(request, later(begin, wait));
        let Ok(submitted) = timeout_at(end, submitting).await else {
            return late();
        };
        let mut reply = submitted.ok()?;
        let mut outcome = timeout_at(end, &mut reply).await.ok();
        if outcome.is_none() {
            outcome = lying_there(link, &mut reply).await.map(Ok);
        }
        let Some(outcome) = outcome else {
            self.give_up(link, begin);
            return late();
        };
        let outcome = outcome.unwrap_or_else(|_| Err(ClientError::lost(server, None)));
        if let Err(error) = &outcome
            && error.leads_elsewhere()
        {
            self.fleet.leave(link, error);
        }
        Some(outcome)
    }

    /// After a request that was not answered in time: its caller ends alone. Whether the link was silent for too long
    /// the link judges for itself. If it was silent since the request, and there are other servers, they are asked from
    /// now on, and what is in flight here is still answered. Not where none of them was there a moment ago: all calls would
    /// wait for that.
    fn give_up(&self, link: &Link, begin: Instant) {
        if link.is_silent_since(begin) && self.fleet.is_other_there(link) {
            let server = Arc::clone(&link.served.server);
            log(Level::DEBUG, move || tracing::debug!(%server, "silent: leaving for another server"));
            link.retire();
        }
    }

    /// Replies are checked when they are read, so this is not reached.
    pub(crate) fn mismatch(&self, answer: &Answer) -> ClientError {
        let shown = format!("{answer:?}");
        log(Level::ERROR, move || tracing::error!(answer = shown, "an answer that was not asked for"));
        ClientError::lost(&self.served().server, None)
    }
}

/// A reply that came with its end: a process that was stopped wakes with both, and the reply counts.
async fn lying_there(link: &Link, reply: &mut oneshot::Receiver<Outcome>) -> Option<Outcome> {
    let _ = timeout(LAST_LOOK, link.read_up()).await;
    reply.try_recv().ok()
}

/// How long the server may take because the request says so.
fn asked_wait(request: &Request<'_>) -> Duration {
    match request {
        Request::Array(bulk) | Request::Runs(bulk) => bulk.wait(),
        Request::SeqArray(asked) | Request::SeqRuns(asked) => asked.bulk.wait(),
        _ => Duration::ZERO,
    }
}
