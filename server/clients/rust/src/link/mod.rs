//! One connection: many callers append requests, one task writes and reads.
//!
//! # Invariants
//! - I1 whoever is in `pending` is told an outcome: by a reply, or by the end of the link;
//! - I2 permits left + requests of callers in flight = the bound of requests in flight, until the link ends;
//! - I3 after the end, or after GOAWAY, no request is taken; after GOAWAY those in flight are still answered;
//! - I4 a caller that gives up leaves its request in flight, with the room that it takes: the reply, or the end of the
//!   link, gives both back. No caller's patience ends the link; a silence does, when it has lasted [`Options::timeout`]
//!   beyond the time at which a reply was due, and a PING of the link's own was not answered in the second half of
//!   that.

pub(crate) mod answer;
pub(crate) mod dial;
mod look_up;
mod pending;
mod stream;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::consume_budget;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Level;
use xuid_protocol::{
    Header, ParsedReply, REPLY_ROOM, Reply, Request, WAIT_CAP, parse_reply, reply_max, request_array,
    request_bye, request_decode, request_info, request_next, request_ping, request_provenance, request_runs,
    request_seq_alter, request_seq_array, request_seq_create, request_seq_info, request_seq_list,
    request_seq_next, request_seq_runs, request_stats,
};

use crate::error::{Breach, ClientError};
use crate::link::answer::{Expected, Outcome};
use crate::link::dial::Greeted;
use crate::link::pending::{Pending, Waiter};
#[cfg(feature = "tls")]
use crate::link::stream::TlsRead;
use crate::link::stream::{Reading, Stream};
use crate::log::log;
use crate::options::{Options, later};
use crate::served::Served;

/// Room made for each read: a few hundred replies to NEXT, and few reads for a large ARRAY.
const READ_ROOM: usize = 64 * 1_024;

/// What is kept of that behind larger replies.
const INBOX_KEPT: usize = 4 << 20;

/// How long the read side may go on when writing failed: the server may have said why before it closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a link may live after GOAWAY, besides the timeout of its calls: the longest wait of a request, and some.
const LEAVING_MAX: Duration = WAIT_CAP.saturating_add(Duration::from_secs(5));

/// A greeted connection.
pub(crate) struct Link {
    pub(crate) served: Arc<Served>,
    inner: Mutex<Inner>,
    /// One permit a request in flight (I2); closed when no more are taken.
    permits: Semaphore,
    /// There is something in the outbox, or the link is over.
    wake: Notify,
    /// GOAWAY came.
    leave: Notify,
    /// A request is in flight where there was none, or one that is due sooner than all others.
    busy: Notify,
    /// Somebody wants to know that everything was read.
    look: Notify,
    /// The server said GOAWAY. Relaxed: read by those who were told of the end, which comes after.
    sent_away: AtomicBool,
    /// The silence that ends it ([`Options::timeout`]).
    timeout: Duration,
}

/// By hand: a writer is a stranger's code, and gets nothing under a lock.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("served", &self.served).finish_non_exhaustive()
    }
}

struct Inner {
    state: State,
    outbox: Vec<u8>,
    pending: Pending,
    /// When something was received last, and when something besides the reply to a PING of the link's own was.
    heard: Instant,
    answered: Instant,
    /// When the PING in flight was sent that asks whether anybody is there.
    asked: Option<Instant>,
    /// Until when the silence is not looked after.
    watched: Option<Instant>,
    /// Dropped when the socket was found empty after they came.
    looks: Vec<oneshot::Sender<()>>,
}

impl Inner {
    /// Puts a request into the outbox; whether that was empty.
    fn append(
        &mut self,
        request: &Request<'_>,
        due: Instant,
        reply: Option<oneshot::Sender<Outcome>>,
    ) -> bool {
        let request_id = self.pending.insert(Waiter { expected: Expected::of(request), due, reply });
        let was_empty = self.outbox.is_empty();
        encode(&mut self.outbox, request_id, request);
        was_empty
    }

    /// What was received last was more than the reply to a PING of the link's own.
    fn was_answered(&mut self) {
        self.answered = self.heard;
    }
}

#[derive(Debug)]
enum State {
    Serving,
    Leaving,
    Ended,
}

/// The link takes no more requests: get another one.
#[derive(Debug)]
pub(crate) struct NotServing;

impl Link {
    /// Starts the task of a greeted connection.
    pub(crate) fn start(greeted: Greeted, options: &Options) -> Arc<Self> {
        let Greeted { stream, served, inbox } = greeted;
        let now = Instant::now();
        let in_flight = served.limits.max_in_flight.clamp(1, options.max_in_flight);
        let link = Arc::new(Self {
            served: Arc::new(served),
            inner: Mutex::new(Inner {
                state: State::Serving,
                outbox: Vec::new(),
                pending: Pending::default(),
                heard: now,
                answered: now,
                asked: None,
                watched: None,
                looks: Vec::new(),
            }),
            permits: Semaphore::new(in_flight as usize),
            wake: Notify::new(),
            leave: Notify::new(),
            busy: Notify::new(),
            look: Notify::new(),
            sent_away: AtomicBool::new(false),
            timeout: options.timeout,
        });
        let ending = Ending(Arc::clone(&link));
        match stream {
            Stream::Plain(stream) => {
                let (read, write) = stream.into_split();
                tokio::spawn(drive(ending, read, write, inbox));
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let (read, write) = TlsRead::split(*stream);
                tokio::spawn(drive(ending, read, write, inbox));
            }
        }
        link
    }

    /// Whether requests are taken.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.lock().state, State::Serving)
    }

    /// Appends a request when there is room for one more in flight. The server may wait with the reply until `due`.
    pub(crate) async fn submit(
        &self,
        request: &Request<'_>,
        due: Instant,
    ) -> Result<oneshot::Receiver<Outcome>, NotServing> {
        let permit = self.permits.acquire().await.map_err(|_| NotServing)?;
        let (reply, receiver) = oneshot::channel();
        let mut inner = self.lock();
        if !matches!(inner.state, State::Serving) {
            return Err(NotServing);
        }
        let is_sooner = inner.watched.is_none_or(|end| later(due, self.timeout / 2) < end);
        let was_empty = inner.append(request, due, Some(reply));
        drop(inner);
        // The reply gives it back, whether or not its caller still waits.
        permit.forget();
        if was_empty {
            self.wake.notify_one();
        }
        if is_sooner {
            self.busy.notify_one();
        }
        Ok(receiver)
    }

    /// Takes no more requests, as after GOAWAY; those in flight are still answered.
    pub(crate) fn retire(&self) {
        let mut inner = self.lock();
        if !matches!(inner.state, State::Serving) {
            return;
        }
        inner.state = State::Leaving;
        let idle = inner.pending.is_empty();
        drop(inner);
        // Those who wait for room look for another link now.
        self.permits.close();
        self.leave.notify_one();
        if idle {
            // No reply will come that could show the read loop that it was the last one.
            self.end(&ClientError::lost(&self.served.server, None));
        }
    }

    /// Whether the server said GOAWAY.
    pub(crate) fn was_sent_away(&self) -> bool {
        self.sent_away.load(Ordering::Relaxed)
    }

    /// Whether no request was answered after that time: a server that is there, and answers nothing else, is silent as
    /// well.
    pub(crate) fn is_silent_since(&self, time: Instant) -> bool {
        self.lock().answered <= time
    }

    /// When the silence has lasted so long that something is to be done, if it goes on: a PING to be sent, or an end to
    /// be made. `None`: nothing is in flight.
    fn end_of_silence(&self) -> Option<Instant> {
        let mut inner = self.lock();
        let half = self.timeout / 2;
        inner.watched = inner.pending.first_due().map(|due| {
            let since = due.max(inner.heard);
            // A process that was stopped finds its whole timeout over, and nothing asked.
            inner.asked.map_or(later(since, half), |asked| later(since, self.timeout).max(later(asked, half)))
        });
        inner.watched
    }

    /// Asks whether anybody is there, if that is not asked already. The reply to a PING waits behind no ids, and this
    /// one takes no permit: where the server reads no more requests it is not answered, as if nobody were there.
    fn ask(&self) -> bool {
        let mut inner = self.lock();
        if inner.asked.is_some() {
            return false;
        }
        let now = Instant::now();
        inner.asked = Some(now);
        // After GOAWAY nothing more is sent, and the silence is judged alone.
        let was_empty = !self.was_sent_away() && inner.append(&Request::Ping(&[]), now, None);
        drop(inner);
        if was_empty {
            self.wake.notify_one();
        }
        true
    }

    /// What the silence means. What a server leaves unanswered behind GOAWAY is repeated elsewhere.
    fn silence(&self) -> ClientError {
        if self.was_sent_away() {
            return ClientError::lost(&self.served.server, None);
        }
        ClientError::Timeout { server: Arc::clone(&self.served.server), limit: self.timeout }
    }

    /// Ends when the silence has lasted too long: requests whose callers gave up, or are gone, count as well.
    async fn silent(&self) -> ClientError {
        let mut has_read = false;
        loop {
            match self.end_of_silence() {
                None => self.busy.notified().await,
                Some(end) if Instant::now() < end => _ = timeout_at(end, self.busy.notified()).await,
                Some(_) if self.ask() => {}
                Some(_) if has_read => return self.silence(),
                Some(_) => {
                    // A process that was stopped wakes with replies in its socket. They come before the verdict.
                    has_read = true;
                    self.read_up().await;
                    continue;
                }
            }
            has_read = false;
        }
    }

    /// Ends when everything is delivered that lay in the socket at the call, or the link is over.
    pub(crate) async fn read_up(&self) {
        let (look, looked) = oneshot::channel();
        {
            let mut inner = self.lock();
            if matches!(inner.state, State::Ended) {
                return;
            }
            inner.looks.push(look);
        }
        self.look.notify_one();
        // It is dropped without a word.
        let _ = looked.await;
    }

    /// Ends the link: whoever waits is told `error`. The first end counts.
    pub(crate) fn end(&self, error: &ClientError) {
        let mut inner = self.lock();
        inner.state = State::Ended;
        let waiters = inner.pending.drain();
        let looks = std::mem::take(&mut inner.looks);
        drop(inner);
        // Each wakes who waits for it, which is a stranger's code: not under the lock.
        drop(looks);
        self.permits.close();
        self.wake.notify_one();
        for reply in waiters.into_iter().filter_map(|waiter| waiter.reply) {
            // A caller that no longer waits needs no error.
            let _ = reply.send(Err(error.clone()));
        }
    }

    /// Ends when GOAWAY came and the time after it is over.
    async fn leaving(&self) {
        self.leave.notified().await;
        tokio::time::sleep(LEAVING_MAX.saturating_add(self.timeout)).await;
    }

    /// Writes the outbox whenever there is something in it; `Ok` when the link was ended.
    async fn write_loop(&self, mut write: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut batch = Vec::new();
        loop {
            self.wake.notified().await;
            // One read wakes many callers. Those that are about to ask again do it now, and share the write.
            tokio::task::yield_now().await;
            loop {
                {
                    let mut inner = self.lock();
                    if matches!(inner.state, State::Ended) {
                        return Ok(());
                    }
                    std::mem::swap(&mut batch, &mut inner.outbox);
                }
                if batch.is_empty() {
                    break;
                }
                write.write_all(&batch).await?;
                // Of TCP it is nothing; TLS may hold something back.
                write.flush().await?;
                batch.clear();
            }
        }
    }

    /// Reads and delivers until the connection ends, or nothing is left to wait for after GOAWAY.
    async fn read_loop(&self, mut read: impl Reading, mut inbox: Vec<u8>) -> ClientError {
        let server = &self.served.server;
        let mut looks = Vec::new();
        loop {
            match self.deliver(&inbox) {
                Ok((consumed, answered)) => {
                    inbox.drain(..consumed);
                    if inbox.len() < INBOX_KEPT {
                        inbox.shrink_to(INBOX_KEPT);
                    }
                    if answered > 0 || !inbox.is_empty() {
                        self.lock().was_answered();
                    }
                }
                Err(error) => return error,
            }
            if self.has_left() {
                return ClientError::lost(server, None);
            }
            inbox.reserve(READ_ROOM);
            let read = if looks.is_empty() {
                tokio::select! {
                    biased;
                    read = read.read_buf(&mut inbox) => read,
                    () = self.look.notified() => {
                        looks = std::mem::take(&mut self.lock().looks);
                        continue;
                    }
                }
            } else {
                consume_budget().await;
                let Some(read) = read.read_now(&mut inbox).await else {
                    looks.clear();
                    continue;
                };
                read
            };
            match read {
                Ok(0) => return ClientError::lost(server, None),
                Ok(_) => self.lock().heard = Instant::now(),
                Err(error) => return ClientError::lost(server, Some(error)),
            }
        }
    }

    /// How long the frame at the front may be: as long as what its request asked for.
    fn longest(&self, front: &[u8]) -> u32 {
        let Some(header) = front.first_chunk().map(|head| Header::decode(*head)) else { return REPLY_ROOM };
        // Most are short, and cost no look at what they answer.
        if header.body_len <= REPLY_ROOM || header.status != 0 {
            return REPLY_ROOM;
        }
        let expected = self.lock().pending.expected(header.request_id);
        expected.map_or(REPLY_ROOM, |expected| reply_max(expected.op, expected.count))
    }

    /// Hands out every whole reply; returns their length, and how many of them were to callers. An error ends the link.
    fn deliver(&self, inbox: &[u8]) -> Result<(usize, usize), ClientError> {
        let (mut at, mut answered) = (0, 0);
        let outcome = loop {
            match parse_reply(&inbox[at..], self.longest(&inbox[at..])) {
                Err(bad) => break Err(self.breach(bad)),
                Ok(ParsedReply::Incomplete { .. }) => break Ok(at),
                Ok(ParsedReply::Frame { consumed, request_id, op, reply }) => {
                    at += consumed;
                    match self.hand_out(request_id, op, &reply) {
                        Ok(permits) => answered += permits,
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        self.permits.add_permits(answered);
        Ok((outcome?, answered))
    }

    /// One frame; how many requests of callers it answers.
    fn hand_out(&self, request_id: u64, op: u8, reply: &Reply<'_>) -> Result<usize, ClientError> {
        if let Reply::GoAway = reply {
            let server = Arc::clone(&self.served.server);
            log(Level::DEBUG, move || tracing::debug!(%server, "told to go away"));
            self.sent_away.store(true, Ordering::Relaxed);
            self.retire();
            return Ok(0);
        }
        // Bound to a name, so that the lock is not held while a large reply is copied.
        let waiter = self.lock().pending.take(request_id);
        let Some(waiter) = waiter else {
            return Err(match reply {
                // About the connection as a whole.
                Reply::Error(error) => ClientError::refused(&self.served.server, error),
                _ => self.breach(Breach::UnknownRequest(request_id)),
            });
        };
        match answer::check(&self.served.server, waiter.expected, op, reply) {
            Ok(outcome) => {
                let Some(reply) = waiter.reply else {
                    self.lock().asked = None;
                    return Ok(0);
                };
                // A caller that no longer waits wastes its ids.
                let _ = reply.send(outcome);
                Ok(1)
            }
            Err(breach) => {
                let error = self.breach(breach);
                if let Some(reply) = waiter.reply {
                    let _ = reply.send(Err(error.clone()));
                }
                Err(error)
            }
        }
    }

    fn breach(&self, breach: impl Into<Breach>) -> ClientError {
        ClientError::protocol(&self.served.server, breach)
    }

    /// After GOAWAY, and nothing in flight.
    fn has_left(&self) -> bool {
        let inner = self.lock();
        matches!(inner.state, State::Leaving) && inner.pending.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in the locked sections panics half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of a connection: reads and writes until either ends.
async fn drive(ending: Ending, read: impl Reading, write: impl AsyncWrite + Unpin, inbox: Vec<u8>) {
    let link = &*ending.0;
    let server = &link.served.server;
    let mut reading = pin!(link.read_loop(read, inbox));
    let error = tokio::select! {
        // Reading first: what has arrived is heard before the silence is judged.
        biased;
        end = &mut reading => end,
        end = link.write_loop(write) => match end {
            Ok(()) => ClientError::Closed,
            Err(error) => match timeout(LAST_WORDS, reading).await {
                Ok(end) => end,
                Err(_) => ClientError::lost(server, Some(error)),
            },
        },
        () = link.leaving() => ClientError::lost(server, None),
        error = link.silent() => error,
    };
    link.end(&error);
    let server = Arc::clone(server);
    log(Level::DEBUG, move || tracing::debug!(%server, %error, "the connection is over"));
}

/// Tells the waiters even when the task is dropped, as by the end of its runtime, and be it before its first turn (I1).
struct Ending(Arc<Link>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(&ClientError::lost(&self.0.served.server, None));
    }
}

fn encode(out: &mut Vec<u8>, request_id: u64, request: &Request<'_>) {
    match *request {
        Request::Next { order } => request_next(out, request_id, order),
        Request::Array(bulk) => request_array(out, request_id, bulk),
        Request::Runs(bulk) => request_runs(out, request_id, bulk),
        Request::Decode { id } => request_decode(out, request_id, id),
        Request::Info => request_info(out, request_id),
        Request::Stats => request_stats(out, request_id),
        Request::Provenance { id } => request_provenance(out, request_id, id),
        Request::SeqNext { name } => request_seq_next(out, request_id, name),
        Request::SeqArray(asked) => request_seq_array(out, request_id, asked),
        Request::SeqRuns(asked) => request_seq_runs(out, request_id, asked),
        Request::SeqInfo { name } => request_seq_info(out, request_id, name),
        Request::SeqList(list) => request_seq_list(out, request_id, list),
        Request::SeqCreate { name, settings } => request_seq_create(out, request_id, name, settings),
        Request::SeqAlter { name, changes } => request_seq_alter(out, request_id, name, changes),
        Request::Ping(bytes) => request_ping(out, request_id, bytes),
        Request::Bye => request_bye(out, request_id),
        Request::Hello(_) => debug_assert!(false, "HELLO is said before a link is started"),
    }
}
